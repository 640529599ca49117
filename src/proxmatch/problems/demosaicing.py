"""Demosaicing: a camera with a color filter measures one color in each pixel."""

from __future__ import annotations

from typing import Annotated

import torch

from proxmatch.errors import InputError
from proxmatch.problems.image_sizes import ImageSize
from proxmatch.problems.inpainting import masked
from proxmatch.problems.registration import Design, Noise, register


@register("demosaicing", "one color in each pixel, by a Bayer filter", channels=3)
def demosaicing(
    img_size: ImageSize,
    *,
    pattern: Annotated[
        str, "colors of the upper left four pixels, row by row: rggb, bggr, grbg or gbrg"
    ] = "rggb",
    noise: Noise = 0.0,
) -> Design:
    """Color images of which each pixel is measured in one channel; L_f = 1.

    Measurements are color images, zero in the channels that were not measured. The raw mosaic of a
    camera, copied to all three channels, will do as well: only what was measured counts. x_0 is the
    bilinear interpolation, :func:`~proxmatch.problems.inpainting.filled`.

    Example:
        >>> problem = demosaicing(8)
        >>> problem.img_size
        (3, 8, 8)
    """
    colors = pattern.lower()
    if colors not in ("rggb", "bggr", "grbg", "gbrg"):
        raise InputError(f"no pattern {pattern!r}; there are rggb, bggr, grbg and gbrg")
    if min(img_size[1:]) < 2:
        raise InputError(f"a mosaic needs images of 2 x 2 pixels or more, got {img_size[1:]}")
    mask = torch.zeros(img_size)
    for number, color in enumerate(colors):
        mask["rgb".index(color), number // 2 :: 2, number % 2 :: 2] = 1
    return masked(mask, img_size, noise)
