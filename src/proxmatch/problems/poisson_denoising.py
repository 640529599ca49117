"""Denoising of pictures taken with few photons."""

from __future__ import annotations

from proxmatch.problems.denoising import identity
from proxmatch.problems.image_sizes import ImageSize
from proxmatch.problems.photons import Background, Peak, ReadNoise, photons, without_background
from proxmatch.problems.registration import Design, register


@register("poisson-denoising", "few photons")
def poisson_denoising(
    img_size: ImageSize,
    *,
    peak: Peak = 50.0,
    background: Background = 0.1,
    read_noise: ReadNoise = 0.0,
) -> Design:
    """Images measured by counting photons; L_f = 4 peak / background, x_0 = y - background.

    With read noise s, L_f = 4 / (background / peak + s^2): Poisson-Gaussian noise.

    The data term is the Poisson likelihood (:mod:`proxmatch.problems.photons`). Measurements are
    scaled to the brightness of the images, and include the background.

    Example:
        >>> problem = poisson_denoising(16)
        >>> problem.name
        'poisson-denoising'
    """
    noise, fidelity = photons(peak, background, read_noise)
    return Design(identity, noise, without_background, data_fidelity=fidelity)
