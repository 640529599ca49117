"""
What MSE and proximal matching converge to
==========================================

Trained on unlimited data, a denoiser learns what its loss asks for (Proposition 4.1). The squared
error asks for the posterior mean. Proximal matching asks for the mode of the posterior smoothed
with a Gaussian of width gamma, which goes to the MAP map, the proximal map of
-sigma^2 log p, as gamma goes to zero.
"""

# %%
# For a Laplace prior all of these are known: the MAP map is soft thresholding. A small learned
# proximal network is trained on fresh draws, first by the squared error, then by proximal matching.

import io

import matplotlib.pyplot as plt

from proxmatch.theory.known import Laplace
from proxmatch.theory.population import draw, study

found = study(Laplace(1.0), sigma=1.0, gammas=(0.5, 0.25), steps=150)
for run in found.trained:
    name = "MSE" if run.gamma is None else f"PM, gamma {run.gamma:g}"
    print(f"{name:15} to the mean {run.to_mean:.3f}   to the MAP map {run.to_mode:.3f}")

# %%
# The denoisers, their distances to both targets, and the regularizer each has learned.

picture = io.BytesIO()
draw(found).savefig(picture, format="png", dpi=120)
picture.seek(0)
figure, axis = plt.subplots(figsize=(10, 3), layout="constrained")
axis.imshow(plt.imread(picture))
axis.set_axis_off()
plt.show()
