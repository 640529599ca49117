"""
Inside deepinv's PGD and HQS
============================

An adapted denoiser is a deepinv denoiser. It goes wherever any other goes: into ``PnP`` priors,
and with them into deepinv's optimizers. deepinv's PGD gives the same result as
:func:`proxmatch.pnp_pgd`, which adds curves, the mismatch and a stop for images that diverge. To
use HQS instead, change the name.
"""

# %%
# A histology denoiser, aligned to one photograph.

import deepinv as dinv
import matplotlib.pyplot as plt
import torch

import proxmatch as pm
from proxmatch.metrics import psnr

domain = pm.embedded("photographs")
x = domain.test[[2, 8, 13, 30]]
problem = pm.gaussian_deblurring(64)
y = problem.measure(x, seed=0)

denoiser = pm.align(pm.load("lpn-histology"), pm.few_shot(domain, 1, set_seed=0).images)

# %%
# deepinv's PGD and HQS with it, on the physics of the problem.

common = {
    "data_fidelity": dinv.optim.L2(),
    "prior": dinv.optim.PnP(denoiser),
    "max_iter": problem.iterations,
    "sigma_denoiser": denoiser.sigma,
    "early_stop": False,
}
pgd = dinv.optim.PGD(stepsize=problem.eta, **common)
hqs = dinv.optim.HQS(stepsize=problem.eta, **common)

start = problem.initial(y)
with torch.no_grad():
    by_pgd = pgd(y, problem.physics, init=start)
    by_hqs = hqs(y, problem.physics, init=start)
ours = pm.pnp_pgd(denoiser, y, problem, truth=x, warm=0)  # plain steps, as deepinv's

difference = float((by_pgd - ours.images).abs().max())
print(f"largest difference to deepinv's PGD: {difference:.1e}")
assert difference < 1e-5

# %%
# Both reconstructions, beside that of the denoiser without alignment.

source = pm.pnp_pgd(pm.load("lpn-histology"), y, problem, truth=x)
shown = {
    "not aligned, PGD": source.images,
    "aligned, PGD": by_pgd,
    "aligned, HQS": by_hqs,
    "truth": x,
}
figure, axes = plt.subplots(1, 4, figsize=(8, 2.5), layout="constrained")
for axis, (title, images) in zip(axes, shown.items(), strict=True):
    quality = psnr(images, x).mean()
    axis.imshow(images[1].clamp(0, 1).permute(1, 2, 0).numpy())
    axis.set_title(title if images is x else f"{title}\n{quality:.1f} dB")
    axis.set_axis_off()
plt.show()
