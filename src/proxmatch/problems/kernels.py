"""Blur kernels: a Gaussian, or one that is given."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import torch
from deepinv.physics import BlurFFT
from deepinv.physics.functional import gaussian_blur
from torch import Tensor

from proxmatch.errors import InputError
from proxmatch.problems.image_sizes import ImageSize
from proxmatch.problems.registration import Operator

#: Options of problems with a Gaussian kernel.
KernelSize = Annotated[int, "side length of the kernel in pixels, odd"]
KernelSigma = Annotated[float, "standard deviation of the kernel in pixels"]


def gaussian_kernel(taps: int, sigma: float, img_size: ImageSize) -> Tensor:
    """Normalized 1-D Gaussian in float64, ``(taps,)``; the 2-D kernel is its outer square.

    Raises:
        InputError: an even or nonpositive number of taps (no center pixel), a nonpositive sigma,
            or a kernel wider than the image it is to wrap around.
    """
    if taps < 1 or taps % 2 == 0:
        raise InputError(f"kernel_size must be odd and positive, got {taps}")
    if not sigma > 0:
        raise InputError(f"kernel_sigma must be positive, got {sigma}")
    if taps > min(img_size[-2:]):
        raise InputError(
            f"a kernel of {taps} x {taps} does not fit images of {img_size[-2]} x {img_size[-1]}; "
            f"take images of at least {taps} x {taps} pixels or a smaller kernel_size"
        )
    kernel: Tensor = gaussian_blur(psf_size=(taps,), sigma=float(sigma), dtype=torch.float64)
    return kernel.flatten()


def blur(kernel: Tensor, img_size: ImageSize) -> Operator:
    """Circular convolution of each channel with a kernel ``(h, w)``.

    It is deepinv's ``BlurFFT``: its A^T A is one pair of transforms, faster than direct
    convolution, and it knows its singular values.

    Raises:
        InputError: a kernel that is not one array of finite numbers, or larger than the images.
    """
    kernel = torch.as_tensor(kernel).detach().cpu().double().clone()
    if kernel.ndim != 2 or kernel.numel() == 0 or not bool(kernel.isfinite().all()):
        raise InputError(
            f"a kernel is one array (h, w) of finite numbers, got the shape {tuple(kernel.shape)}"
        )
    if any(k > n for k, n in zip(kernel.shape, img_size[1:], strict=True)):
        raise InputError(
            f"a kernel of {kernel.shape[0]} x {kernel.shape[1]} does not fit images of "
            f"{img_size[1]} x {img_size[2]}; take larger images or a smaller kernel"
        )
    return partial(_build, kernel, img_size)


def _build(
    kernel: Tensor, img_size: ImageSize, device: torch.device, dtype: torch.dtype
) -> BlurFFT:
    physics = BlurFFT(img_size=img_size, filter=kernel[None, None].to(device, dtype), device=device)
    # All channels have one kernel: its transform is held once, not once a channel.
    physics.mask, physics.angle = physics.mask[:, :1].clone(), physics.angle[:, :1].clone()
    return physics
