"""Images in memory as a domain to train on."""

from __future__ import annotations

from os import PathLike
from typing import Any

import torch
from torch import Tensor

from proxmatch._internal.randomness import fingerprint
from proxmatch.data.any_form import check_brightness, image_list
from proxmatch.data.domain import ImageDomain
from proxmatch.errors import InputError


class HeldImages:
    """Images of any sizes, from which square crops are drawn.

    Args:
        images: in any form of :mod:`proxmatch.data.any_form`.
        size: side of a crop, in pixels.
        channels: of the crops.

    Attributes:
        fingerprint: number of images, and hash of their pixels.

    Raises:
        InputError: an image is too small, has other channels, or its white is not 1.

    Example:
        >>> held = HeldImages(torch.rand(2, 3, 12, 10), 8, 3)
        >>> held.sample(5, torch.Generator()).shape
        torch.Size([5, 3, 8, 8])
    """

    def __init__(self, images: Any, size: int, channels: int) -> None:
        self.size, self.channels = size, channels
        self._images = [image.float().cpu() for image in image_list(images, channels)]
        for number, image in enumerate(self._images):
            if len(image) != channels or min(image.shape[1:]) < size:
                raise InputError(
                    f"image {number} is {tuple(image.shape)}; training needs {channels} channel(s) "
                    f"and at least {size} x {size} pixels"
                )
            check_brightness(image)
        self.fingerprint = fingerprint(self._images)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Crops, ``(count, channels, size, size)``, as :meth:`ImageDomain.sample` draws them."""
        draws = torch.rand(count, 4, generator=generator, dtype=torch.float64)
        crops = []
        for which, down, right, mirror in draws.tolist():
            image = self._images[int(which * len(self._images))]
            top, left = (
                int(draw * (n - self.size + 1))
                for draw, n in zip((down, right), image.shape[1:], strict=True)
            )
            cut = image[:, top : top + self.size, left : left + self.size]
            crops.append(cut.flip(-1) if mirror < 0.5 else cut)
        return torch.stack(crops)

    def describe(self) -> dict[str, Any]:
        """What a record needs, ready for JSON."""
        return {
            "pictures": len(self._images),
            "fingerprint": self.fingerprint,
            "size": self.size,
            "channels": self.channels,
        }


def open_images(images: Any, size: int, channels: int) -> ImageDomain | HeldImages:
    """A domain to train on: one that is open already, a folder, or images in any form.

    Args:
        images: see above.
        size: side of the crops.
        channels: of the images.

    Example:
        >>> import torch
        >>> open_images([torch.rand(3, 20, 30), torch.rand(3, 16, 16)], 16, 3).channels
        3
    """
    if isinstance(images, ImageDomain | HeldImages):
        return images
    if isinstance(images, str | PathLike):
        return ImageDomain(images, size, channels=channels)
    return HeldImages(images, size, channels)
