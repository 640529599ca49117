"""
The ten-minute start
====================

From a blurred picture to an adapted denoiser, with something to look at after every step. Download
it as a notebook at the bottom of this page.
"""

# %%
# Four pictures, blurred and noisy.

import proxmatch as pm

x = pm.embedded("photographs").test[[2, 8, 13, 30]]
problem = pm.gaussian_deblurring(64)
y = problem.measure(x)

# %%
# They are reconstructed with a denoiser trained on photographs. ``plot`` shows one of them, with a
# detail; ``plot_curves`` shows what was recorded along the iterations.

right = pm.load("lpn-photographs")
result = pm.pnp_pgd(right, y, problem, truth=x)
print(result)
result.plot(1, measured=y, truth=x)
result.plot_curves()

# %%
# The same with a denoiser that never saw a photograph. ``diagnose`` says whether it suits them.

wrong = pm.load("lpn-histology")
lost = pm.pnp_pgd(wrong, y, problem, truth=x)
print(lost)
few = pm.few_shot(pm.embedded("photographs"), 2, set_seed=0)
diagnosis = pm.diagnose(wrong, few.images, problem)
print(diagnosis.advice())
diagnosis.plot()

# %%
# The denoiser is briefly trained on two other photographs, by proximal matching. Without
# ``method``, ``adapt`` tries more and takes some minutes. The strength of the denoiser is chosen on
# the same photographs.

adapted = pm.adapt(wrong, few, problem, method="pm", steps=30)
print(adapted.evidence)
tuned = pm.choose_strength(adapted.denoiser, few.images, problem)
print(tuned.table)
tuned.plot()

# %%
# The result on the four pictures, which had no part in the adaptation.

found = pm.pnp_pgd(tuned.denoiser, y, problem, truth=x)
print(found)
found.plot(1, measured=y, truth=x)
