"""Inpainting of one missing square."""

from __future__ import annotations

from typing import Annotated

import torch

from proxmatch.errors import InputError
from proxmatch.problems.image_sizes import ImageSize
from proxmatch.problems.inpainting import masked
from proxmatch.problems.registration import Design, Noise, register


@register("box-inpainting", "a missing square")
def box_inpainting(
    img_size: ImageSize,
    *,
    side: Annotated[
        int | None, "side of the square in pixels; a quarter of the shorter side unless given"
    ] = None,
    row: Annotated[int | None, "first row of the square; in the middle unless given"] = None,
    column: Annotated[int | None, "first column of the square; in the middle unless given"] = None,
    noise: Noise = 0.0,
) -> Design:
    """Images with a hole; L_f = 1, x_0 by :func:`~proxmatch.problems.inpainting.filled`.

    Measurements are images too, zero in the hole.

    Example:
        >>> problem = box_inpainting(16)
        >>> y = problem.measure(torch.ones(1, 3, 16, 16))
        >>> bool((y == 0).any())
        True
    """
    _, height, width = img_size
    side = max(1, min(height, width) // 4) if side is None else side
    row = (height - side) // 2 if row is None else row
    column = (width - side) // 2 if column is None else column
    inside = 0 <= row <= height - side and 0 <= column <= width - side
    if side < 1 or not inside:
        raise InputError(
            f"a square of {side} pixels at row {row}, column {column} is not inside images of "
            f"{height} x {width}"
        )
    mask = torch.ones(1, height, width)
    mask[:, row : row + side, column : column + side] = 0
    return masked(mask, img_size, noise)
