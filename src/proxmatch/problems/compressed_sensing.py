"""Compressed sensing by a single-pixel camera: a part of the Walsh-Hadamard coefficients."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import torch
from deepinv.physics import SinglePixelCamera

from proxmatch.errors import InputError
from proxmatch.problems.image_sizes import ImageSize
from proxmatch.problems.registration import Design, Noise, gaussian_noise, register


@register("compressed-sensing", "a single-pixel camera", pictures=False)
def compressed_sensing(
    img_size: ImageSize,
    *,
    share: Annotated[float, "measurements for each pixel, in (0, 1]"] = 0.25,
    noise: Noise = 0.0,
) -> Design:
    """The first coefficients of each channel, along deepinv's zig-zag; L_f = 1, x_0 = A^T y.

    Images are powers of two high and wide. Measurements have the shape of the images, with zeros
    for the coefficients not measured.

    Example:
        >>> problem = compressed_sensing(16, share=0.25)
        >>> y = problem.measure(torch.rand(1, 3, 16, 16))
        >>> int((y[0, 0] != 0).sum())  # of 256 pixels
        64
    """
    if any(n & (n - 1) for n in img_size[1:]):
        raise InputError(
            f"a single-pixel camera shows patterns of 2, 4, 8 ... pixels: images of "
            f"{img_size[1]} x {img_size[2]} must be cut to powers of two"
        )
    if not 0 < share <= 1:
        raise InputError(f"share must be in (0, 1], got {share}")
    number = max(1, round(share * img_size[1] * img_size[2]))
    return Design(partial(_build, number, img_size), gaussian_noise(noise))


def _build(
    number: int, img_size: ImageSize, device: torch.device, dtype: torch.dtype
) -> SinglePixelCamera:
    physics: SinglePixelCamera = SinglePixelCamera(
        number, img_size, fast=True, ordering="zig_zag", device=device, dtype=dtype
    )
    physics.sensor_model = partial(torch.mul, physics.mask)  # no noise on what is not measured
    return physics
