"""
The mismatch along a trajectory
===============================

Photographs are blurred and reconstructed with a denoiser trained on histology. At every step it is
compared with a denoiser trained on photographs: the distance of their outputs is the proximal
mismatch ``d_k``.
"""

# %%
# Four test photographs, the paper's deblurring problem, and two denoisers of the same family.

import matplotlib.pyplot as plt

import proxmatch as pm

x = pm.embedded("photographs").test[[2, 8, 13, 30]]
problem = pm.gaussian_deblurring(64)
y = problem.measure(x, seed=0)

source = pm.load("lpn-histology")
reference = pm.load("lpn-photographs")

wrong = pm.pnp_pgd(source, y, problem, reference=reference, truth=x)
right = pm.pnp_pgd(reference, y, problem, truth=x)

# %%
# The picture is lost in the first steps, where the relative gap ``d_k / |D*(z_k)|`` is largest.
# With the right prior there is no gap.

figure, (left, other) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
left.plot(right.psnr.mean(0), label="trained on photographs")
left.plot(wrong.psnr.mean(0), label="trained on histology")
left.set(xlabel="iteration k", ylabel="PSNR in dB", title="reconstruction")
left.legend()
other.plot(range(1, 41), 100 * wrong.gap.T, color="C1", alpha=0.5)
other.set(xlabel="iteration k", ylabel="gap in %", title="mismatch, four images")

# %%
# What that looks like.

titles = ("measured", "histology prior", "photographs prior", "truth")
columns = (y, wrong.images, right.images, x)
figure, axes = plt.subplots(2, 4, figsize=(8, 4.2), layout="constrained")
for column, title, images in zip(axes.T, titles, columns, strict=True):
    for axis, image in zip(column, images[1:3], strict=True):
        axis.imshow(image.clamp(0, 1).permute(1, 2, 0).numpy())
        axis.set_axis_off()
    column[0].set_title(title)
plt.show()
