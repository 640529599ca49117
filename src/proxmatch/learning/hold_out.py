"""What is held out from an adaptation, to measure whether it helped.

Of three images or more, the last third is held out, ten images at most. Of one or two images, the
right quarter of each is. A large image is then trained on to the left of it; in one that is no
larger than a window, the quarter is replaced by the mirror image of what is beside it. Either way
no held-out pixel has any influence on a denoiser. They only decide which of several is returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from proxmatch.errors import InputError
from proxmatch.metrics import psnr

#: Windows that are measured on, at most, and images that are held out, at most.
CROPS, MOST = 8, 10


@dataclass(frozen=True)
class HoldOut:
    """A split of a few images."""

    training: list[Tensor]  # images to train on, (C, H, W) each
    crops: Tensor  # to measure on, (B, C, size, size)
    first: tuple[int, ...]  # the first held-out column of each, B numbers
    owners: tuple[int, ...]  # which image each of them was cut from, B numbers
    whole: bool  # whether whole images were held out, so that these are new to the denoiser

    def quality(self, found: Tensor) -> Tensor:
        """PSNR of reconstructions of the crops where they were held out, ``(B,)`` in dB."""
        return psnr_from(found, self.crops.to(found), self.first)


def psnr_from(found: Tensor, images: Tensor, first: Sequence[int]) -> Tensor:
    """PSNR over the columns from ``first`` on, of each of B images, ``(B,)`` in dB."""
    pieces = zip(found, images, first, strict=True)
    return torch.cat([psnr(f[None, ..., c:], x[None, ..., c:]) for f, x, c in pieces])


def hold_out(images: Sequence[Tensor], size: int) -> HoldOut:
    """Split images ``(C, H, W)`` each, for windows of a side."""
    whole = len(images) >= 3
    if whole:
        kept = min(MOST, max(1, round(len(images) / 3)))
        training, held = list(images[:-kept]), list(images[-kept:])
        columns = [image.shape[2] for image in held]
    else:
        held = list(images)
        columns = [_quarter(image.shape[2], size) for image in held]
        training = [
            _without(image, width, size) for image, width in zip(held, columns, strict=True)
        ]
    places = [
        (image[:, top : top + size, left : left + size], max(0, edge - left), owner)
        for owner, (image, width) in enumerate(zip(held, columns, strict=True))
        for edge in (image.shape[2] - width,)
        for left in range(image.shape[2] - size, max(-1, edge - size), -size)
        for top in range(0, image.shape[1] - size + 1, size)
    ]
    crops, first, owners = zip(*_spread(places), strict=True)
    return HoldOut(training, torch.stack(crops), first, owners, whole)


Place = tuple[Tensor, int, int]


def _spread(places: Sequence[Place]) -> list[Place]:
    """At most ``CROPS`` windows, or one per image if there are more, evenly spread."""
    owners = {owner for _, _, owner in places}
    each = max(1, CROPS // len(owners))
    found = []
    for owner in sorted(owners):
        own = [place for place in places if place[2] == owner]
        found += own[:: -(-len(own) // each)]
    return found


def _quarter(width: int, size: int) -> int:
    """How many columns of an image are held out: a whole window if that leaves enough."""
    held = max(width // 4, size if width >= 3 * size else 0)
    if not held:
        raise InputError(f"an image of {width} columns is too small to hold out a part of it")
    return held


def _without(image: Tensor, held: int, size: int) -> Tensor:
    """The image without its last columns, mirrored where a window would not fit otherwise."""
    rest = image[..., : image.shape[2] - held]
    missing = size - rest.shape[2]
    if missing <= 0:
        return rest
    if missing >= rest.shape[2]:
        raise InputError(f"an image of {image.shape[2]} columns is too small to hold out {held}")
    return torch.cat([rest, rest[..., -missing - 1 : -1].flip(-1)], -1)
