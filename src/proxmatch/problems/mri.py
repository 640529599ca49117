"""Accelerated magnetic resonance imaging with one coil."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import torch
from deepinv.physics import MRI
from deepinv.physics.generator import RandomMaskGenerator
from torch import Tensor

from proxmatch.errors import InputError
from proxmatch.problems.from_pictures import mask_picture
from proxmatch.problems.image_sizes import ImageSize
from proxmatch.problems.registration import Design, Noise, Seed, gaussian_noise, register

#: Options of all MRI problems.
Acceleration = Annotated[int, "one in this many columns of k-space is measured"]
Center = Annotated[
    float, "share of the columns, around the zero frequency, that is always measured"
]
Mask = Annotated[
    Tensor | str | Path | None,
    "which frequencies are measured, in place of the three above: a tensor (H, W), or a picture "
    "that is bright there, with the zero frequency in the middle",
    mask_picture,
]


@register("mri", "accelerated MRI with one coil", channels=2, pictures=False)
def mri(
    img_size: ImageSize,
    *,
    acceleration: Acceleration = 4,
    center: Center = 0.08,
    seed: Seed = 0,
    mask: Mask = None,
    noise: Noise = 0.0,
) -> Design:
    """Complex images of which some frequencies are measured; L_f = 1, x_0 = A^T y (zero-filled).

    Images have two channels, the real and the imaginary part. The measurements are the orthonormal
    Fourier transform, with the zero frequency in the middle, in two channels too, and zero where
    nothing was measured.

    Example:
        >>> problem = mri(16)
        >>> problem.img_size  # real and imaginary part
        (2, 16, 16)
    """
    chosen = sampling(img_size, acceleration, center, seed, mask)
    return Design(partial(_build, chosen), gaussian_noise(noise))


def sampling(
    img_size: ImageSize,
    acceleration: int,
    center: float,
    seed: int,
    mask: Tensor | str | Path | None = None,
) -> Tensor:
    """Which frequencies are measured, ``(H, W)``: random columns (deepinv's generator), or a mask.

    Raises:
        InputError: nothing would be measured, or a mask of another size.
    """
    _, height, width = img_size
    if mask is None:
        most = width // max(acceleration, 1)
        if acceleration < 1 or most < 1 or not 0 <= center <= 1:
            raise InputError(
                f"acceleration={acceleration}, center={center} is not possible: at least one of "
                f"{width} columns is measured, and center is a share of them"
            )
        if int(center * width) > most:
            raise InputError(
                f"center={center} alone is more than one of {acceleration} columns; take a smaller "
                "center or acceleration"
            )
        draw = RandomMaskGenerator(
            (height, width), acceleration, center, rng=torch.Generator().manual_seed(seed)
        )
        mask = draw.step()["mask"][0, 0]
    given = mask if isinstance(mask, Tensor) else mask_picture(mask)
    chosen = given.detach().cpu() != 0
    if chosen.shape != (height, width) or not bool(chosen.any()):
        raise InputError(
            f"the mask must be {height} x {width} and measure something, it is "
            f"{' x '.join(map(str, chosen.shape))} with {int(chosen.sum())} frequencies"
        )
    return chosen


def _build(mask: Tensor, device: torch.device, dtype: torch.dtype) -> MRI:
    return MRI(mask=mask.to(device, dtype), device=device)
