"""Gaussian deblurring with circular borders."""

from __future__ import annotations

import torch

from proxmatch.problems.image_sizes import ImageSize
from proxmatch.problems.kernels import KernelSigma, KernelSize, blur, gaussian_kernel
from proxmatch.problems.registration import Design, Noise, gaussian_noise, register


@register("deblurring", "a Gaussian blur")
def gaussian_deblurring(
    img_size: ImageSize,
    *,
    kernel_size: KernelSize = 5,
    kernel_sigma: KernelSigma = 1.0,
    noise: Noise = 0.02,
) -> Design:
    """Images blurred by a Gaussian, channel by channel, and noise added; L_f = 1, x_0 = A^T y.

    The defaults are those of the paper.

    Example:
        >>> problem = gaussian_deblurring(16, noise=0.0)
        >>> x = torch.full((1, 3, 16, 16), 0.5)
        >>> torch.allclose(problem.measure(x), x)  # a blur keeps what is constant
        True
    """
    kernel = gaussian_kernel(kernel_size, kernel_sigma, img_size)
    return Design(blur(torch.outer(kernel, kernel), img_size), gaussian_noise(noise), eta=0.95)
