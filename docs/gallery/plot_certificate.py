"""
A certificate
=============

The theory says how much a mismatched denoiser can spoil a reconstruction. ``certify`` runs one in
float64, measures everything the theory is about, and checks every inequality at every step.
"""

# %%
# The denoiser that is right for these images serves as the target. It is certified beside one that
# was trained on histology and aligned to a single photograph: one run without mismatch, one with.

import io

import matplotlib.pyplot as plt
from rich.console import Console

import proxmatch as pm
from proxmatch.theory import draw

domain = pm.embedded("photographs")
x = domain.test[8:9]
problem = pm.gaussian_deblurring(64)
y = problem.measure(x, seed=0)

reference = pm.load("lpn-photographs")
aligned = pm.align(pm.load("lpn-histology"), pm.few_shot(domain, 1, set_seed=0).images)
denoisers = {"matched": reference, "aligned": aligned}
certificate = pm.certify(denoisers, y, problem, reference=reference, iterations=8, local=())

# %%
# One line per inequality: the share of cases in which it holds, the worst relative slack, and the
# median of left / right side, which is 1 for an equality. Rows that do not apply say why.

console = Console(file=io.StringIO(), width=130)
console.print(certificate.table())
print(console.file.getvalue())

# %%
# The bound of Theorem 3.1 is the top of the colored areas. The mismatch floor is the part that no
# number of iterations removes: it is absent where the denoiser is matched.

picture = io.BytesIO()
draw(certificate).savefig(picture, format="png", dpi=120, bbox_inches="tight")
picture.seek(0)
figure, axis = plt.subplots(figsize=(8, 4), layout="constrained")
axis.imshow(plt.imread(picture))
axis.set_axis_off()
plt.show()
