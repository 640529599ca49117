"""Two image domains that need no download: the pictures inside scikit-image's wheel.

Each picture is halved with an area filter and cut into a grid of square crops that do not overlap.
The left half of every grid is for adaptation, the right half for testing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import skimage.data
import torch
from torch import Tensor

from proxmatch.errors import InputError

#: Sides of the smallest and the largest crops.
SMALLEST, LARGEST = 8, 64

DomainName = Literal["histology", "photographs"]
PICTURES: dict[str, tuple[str, ...]] = {
    "histology": ("immunohistochemistry",),
    "photographs": ("astronaut", "chelsea", "coffee", "rocket", "stereo_motorcycle"),
}


@dataclass(frozen=True)
class EmbeddedDomain:
    """Crops of the pictures of one domain, in [0, 1].

    Attributes:
        name: of the domain.
        adaptation: ``(N, 3, size, size)``, picture after picture.
        test: the same, from regions that share no pixel with those of ``adaptation``.
        fingerprint: hash of all pixels.
    """

    name: str
    adaptation: Tensor
    test: Tensor
    fingerprint: str


def embedded(name: DomainName, size: int = 64) -> EmbeddedDomain:
    """Crops of scikit-image's own pictures.

    Args:
        name: ``histology`` (one immunohistochemistry slide) or ``photographs`` (five).
        size: side of a crop, at most 64.

    Example:
        >>> photographs = embedded("photographs", size=32)
        >>> photographs.test.shape[1:]
        torch.Size([3, 32, 32])
    """
    if name not in get_args(DomainName):
        raise InputError(f"no embedded domain {name!r}; there are {', '.join(PICTURES)}")
    if not SMALLEST <= size <= LARGEST:
        raise InputError(f"embedded crops are {SMALLEST} to {LARGEST} pixels wide, not {size}")
    left: list[Tensor] = []
    right: list[Tensor] = []
    digest = hashlib.sha256()
    for picture in PICTURES[name]:
        pixels = embedded_picture(picture)
        digest.update(pixels.numpy().tobytes())
        grid = pixels.unfold(1, size, size).unfold(2, size, size)  # (3, rows, cols, size, size)
        grid = grid.permute(1, 2, 0, 3, 4)
        middle = grid.shape[1] // 2
        left.append(grid[:, :middle].flatten(0, 1))
        right.append(grid[:, middle:].flatten(0, 1))
    return EmbeddedDomain(
        name, torch.cat(left).contiguous(), torch.cat(right).contiguous(), digest.hexdigest()[:16]
    )


def embedded_picture(name: str, reduce: int = 2) -> Tensor:
    """A picture of ``skimage.data`` made smaller by averaging, ``(3, H, W)`` in [0, 1]."""
    loaded: Any = getattr(skimage.data, name)()
    array = np.asarray(loaded[0] if isinstance(loaded, tuple) else loaded)
    pixels = torch.from_numpy(array.copy()).permute(2, 0, 1).float() / 255
    return torch.nn.functional.avg_pool2d(pixels[None], reduce)[0]
