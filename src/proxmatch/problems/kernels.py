"""Image sizes and Gaussian kernels, checked; shared by the problems of the paper."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral

import torch
from deepinv.physics import GaussianNoise, NoiseModel, ZeroNoise
from deepinv.physics.functional import gaussian_blur
from torch import Tensor

from proxmatch.errors import InputError


def image_size(size: int | tuple[int, int], channels: int) -> tuple[int, int, int]:
    """(C, H, W) from a side length or (H, W)."""
    sides = tuple(size) if isinstance(size, Iterable) else (size, size)
    counts: tuple[object, ...] = (channels, *sides)  # NumPy's integers count as well
    if len(sides) != 2 or not all(isinstance(n, Integral) and int(n) > 0 for n in counts):
        raise InputError(
            f"size must be a positive integer or a pair (H, W) of them, and channels at least 1; "
            f"got size={size}, channels={channels}"
        )
    return int(channels), int(sides[0]), int(sides[1])


def check_dtype(dtype: torch.dtype) -> None:
    """Refuse precisions that neither the operators nor the denoisers have."""
    if dtype not in (torch.float32, torch.float64):
        raise InputError(f"problems are float32 or float64, not {dtype}")


def gaussian_kernel(taps: int, sigma: float, img_size: tuple[int, int, int]) -> Tensor:
    """Normalised 1-D Gaussian in float64, ``(taps,)``; the 2-D kernel is its outer square.

    Raises:
        InputError: an even or nonpositive number of taps (no centre pixel), a nonpositive sigma,
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


def gaussian_noise(sigma: float, device: torch.device, dtype: torch.dtype) -> NoiseModel:
    """White Gaussian noise, or none for ``sigma`` = 0."""
    if not sigma >= 0:
        raise InputError(f"noise must be nonnegative, got {sigma}")
    if sigma == 0:
        return ZeroNoise()
    return GaussianNoise(torch.tensor(sigma, device=device, dtype=dtype))
