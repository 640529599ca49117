"""Deblurring of pictures taken with few photons."""

from __future__ import annotations

import torch

from proxmatch.problems.image_sizes import ImageSize
from proxmatch.problems.kernels import KernelSigma, KernelSize, blur, gaussian_kernel
from proxmatch.problems.photons import Background, Peak, ReadNoise, photons, without_background
from proxmatch.problems.registration import Design, register


@register("poisson-deblurring", "a Gaussian blur and few photons")
def poisson_deblurring(
    img_size: ImageSize,
    *,
    kernel_size: KernelSize = 5,
    kernel_sigma: KernelSigma = 1.0,
    peak: Peak = 50.0,
    background: Background = 0.1,
    read_noise: ReadNoise = 0.0,
) -> Design:
    """Images blurred by a Gaussian and measured by counting photons; L_f = 4 peak / background.

    The data term is the Poisson likelihood (:mod:`proxmatch.problems.photons`). Measurements are
    scaled to the brightness of the images, and include the background. x_0 = A^T (y - background).

    Example:
        >>> problem = poisson_deblurring(16)
        >>> problem.name
        'poisson-deblurring'
    """
    kernel = gaussian_kernel(kernel_size, kernel_sigma, img_size)
    noise, fidelity = photons(peak, background, read_noise)
    operator = blur(torch.outer(kernel, kernel), img_size)
    return Design(operator, noise, without_background, data_fidelity=fidelity)
