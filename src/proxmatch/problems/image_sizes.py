"""Image sizes and precisions, checked; shared by all problems."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral

import torch

from proxmatch.errors import InputError

#: A side length, or (H, W).
Size = int | tuple[int, int]

#: (C, H, W).
ImageSize = tuple[int, int, int]


def image_size(size: Size, channels: int) -> ImageSize:
    """(C, H, W) from a side length or (H, W)."""
    sides = tuple(size) if isinstance(size, Iterable) else (size, size)
    counts: tuple[object, ...] = (channels, *sides)  # NumPy's integers count as well
    if len(sides) != 2 or not all(map(_positive, counts)):
        raise InputError(
            f"size must be a positive integer or a pair (H, W) of them, and channels at least 1; "
            f"got size={size}, channels={channels}"
        )
    return int(channels), int(sides[0]), int(sides[1])


def check_image_size(img_size: object) -> ImageSize:
    """(C, H, W), or an InputError that says what is wrong with it."""
    sides = tuple(img_size) if isinstance(img_size, Iterable) else (img_size,)
    if len(sides) != 3 or not all(map(_positive, sides)):
        hint = {
            2: f"; for gray images give (1, {', '.join(map(str, sides))})",
            4: "; volumes are not supported, reconstruct them slice by slice",
        }.get(len(sides), "")
        raise InputError(f"img_size must be (channels, height, width), got {img_size}{hint}")
    c, h, w = sides
    return int(c), int(h), int(w)


def check_dtype(dtype: torch.dtype) -> None:
    """Refuse precisions that neither the operators nor the denoisers have."""
    if dtype not in (torch.float32, torch.float64):
        raise InputError(f"problems are float32 or float64, not {dtype}")


def _positive(n: object) -> bool:
    return isinstance(n, Integral) and int(n) > 0
