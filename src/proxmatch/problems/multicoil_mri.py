"""Accelerated magnetic resonance imaging with several coils."""

from __future__ import annotations

import math
from functools import partial
from typing import Annotated

import torch
from deepinv.physics import MultiCoilMRI
from torch import Tensor

from proxmatch.errors import InputError
from proxmatch.problems.image_sizes import ImageSize
from proxmatch.problems.mri import Acceleration, Center, Mask, sampling
from proxmatch.problems.registration import Design, Noise, Seed, gaussian_noise, register

RADIUS = 1.5  # of the circle of coils; that of the circle inside the image is 1


@register("multicoil-mri", "accelerated MRI with several coils", channels=2, pictures=False)
def multicoil_mri(
    img_size: ImageSize,
    *,
    coils: Annotated[int, "number of simulated coils around the image"] = 8,
    acceleration: Acceleration = 4,
    center: Center = 0.08,
    seed: Seed = 0,
    mask: Mask = None,
    noise: Noise = 0.0,
) -> Design:
    """Complex images seen by several coils, of which some frequencies are measured; L_f <= 1.

    Coil n measures M F (s_n x): the image weighted by its sensitivity s_n (:func:`birdcage`), then
    as in :func:`~proxmatch.problems.mri.mri`. Images have two channels, the real and the imaginary
    part; measurements are ``(B, 2, coils, H, W)``. x_0 = A^T y, the zero-filled coil images
    combined by their sensitivities.

    A^T A = sum_n s_n^* F^* M F s_n, and |s_1|^2 + ... + |s_N|^2 = 1 in every pixel, so L_f <= 1.

    Example:
        >>> problem = multicoil_mri(16)
        >>> problem.img_size
        (2, 16, 16)
    """
    if coils < 1:
        raise InputError(f"there is at least one coil, got {coils}")
    chosen = sampling(img_size, acceleration, center, seed, mask)
    maps = birdcage(coils, img_size[1:])
    return Design(partial(_build, chosen, maps), gaussian_noise(noise))


def birdcage(coils: int, size: tuple[int, int]) -> Tensor:
    """Sensitivities of coils on a circle around the image, ``(coils, H, W)`` in complex128.

    Each falls as the inverse of the distance and turns its phase around the coil; their squares sum
    to one in every pixel. They are those of ``sigpy.mri.birdcage_maps``.
    """
    height, width = size
    rows = (torch.arange(height, dtype=torch.float64) - height / 2) / (height / 2)
    cols = (torch.arange(width, dtype=torch.float64) - width / 2) / (width / 2)
    angles = 2 * math.pi * torch.arange(coils, dtype=torch.float64) / coils
    across = cols[None, None, :] - RADIUS * angles.cos()[:, None, None]
    down = rows[None, :, None] - RADIUS * angles.sin()[:, None, None]
    phase = torch.atan2(across, -down) - angles[:, None, None]
    maps = torch.polar(1 / torch.hypot(across, down), phase)
    weight: Tensor = maps.abs().square().sum(0).sqrt()
    return maps / weight


def _build(mask: Tensor, maps: Tensor, device: torch.device, dtype: torch.dtype) -> MultiCoilMRI:
    kind = torch.complex128 if dtype == torch.float64 else torch.complex64
    return MultiCoilMRI(mask=mask.to(device, dtype), coil_maps=maps.to(device, kind), device=device)
