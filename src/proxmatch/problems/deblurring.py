"""Gaussian deblurring with circular borders."""

from __future__ import annotations

from functools import partial

import torch
from deepinv.physics import BlurFFT
from torch import Tensor

from proxmatch.problems.kernels import check_dtype, gaussian_kernel, gaussian_noise, image_size
from proxmatch.problems.norms import squared_norm
from proxmatch.problems.problem import Problem, adjoint


def gaussian_deblurring(
    size: int | tuple[int, int],
    *,
    channels: int = 3,
    noise: float = 0.02,
    kernel_size: int = 5,
    kernel_sigma: float = 1.0,
    eta: float = 0.95,
    iterations: int = 40,
    allow_large_step: bool = False,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Problem:
    """Images blurred by a Gaussian, channel by channel, and noise added; L_f = 1, x_0 = A^T y.

    The defaults are those of the paper. The blur is deepinv's ``BlurFFT``: its A^T A is one pair of
    transforms, faster than direct convolution, and it knows its singular values.

    Args:
        size: side length of the images, or (H, W).
        channels: number of channels.
        noise: standard deviation of the noise; 0 for none.
        kernel_size: side length of the kernel, odd, at most that of the images.
        kernel_sigma: standard deviation of the kernel in pixels.
        eta: step size.
        iterations: number of PnP steps.
        allow_large_step: accept eta L_f >= 1, with a warning.
        device: where to put the operator.
        dtype: its precision.

    Raises:
        InputError: a size, kernel or noise that makes no sense.
        StepSizeError: eta L_f >= 1.

    Example:
        >>> problem = gaussian_deblurring(16, noise=0.0)
        >>> x = torch.full((1, 3, 16, 16), 0.5)
        >>> torch.allclose(problem.measure(x), x)  # a blur keeps what is constant
        True
    """
    img_size = image_size(size, channels)
    check_dtype(dtype)
    kernel = gaussian_kernel(kernel_size, kernel_sigma, img_size)
    build = partial(_build, kernel, img_size, noise)
    device = torch.device(device)
    physics = build(device, dtype)
    return Problem(
        name="deblurring",
        physics=physics,
        img_size=img_size,
        eta=eta,
        iterations=iterations,
        lipschitz=squared_norm(physics, img_size),
        initialisation=adjoint,
        device=device,
        dtype=dtype,
        build=build,
        allow_large_step=allow_large_step,
    )


def _build(
    kernel: Tensor,
    img_size: tuple[int, int, int],
    noise: float,
    device: torch.device,
    dtype: torch.dtype,
) -> BlurFFT:
    return BlurFFT(
        img_size=img_size,
        filter=torch.outer(kernel, kernel)[None, None].to(device, dtype),
        noise_model=gaussian_noise(noise, device, dtype),
        device=device,
    )
