"""Make a denoiser of any kind fit the images at hand, by their number of channels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from proxmatch.data.any_form import converted, image_batch, image_list
from proxmatch.denoisers import ProximalDenoiser, as_denoiser
from proxmatch.errors import InputError
from proxmatch.transforms.lifted import Lifted


def fitting(denoiser: Any, channels: int | None) -> ProximalDenoiser:
    """A denoiser for images of that many channels: itself, or a color denoiser lifted to gray.

    Args:
        denoiser: D, of any kind (:func:`proxmatch.denoisers.as_denoiser`).
        channels: of the images; as the denoiser takes them if None.

    Raises:
        InputError: it is for images of another number of channels.
    """
    known = isinstance(denoiser, ProximalDenoiser)
    found = as_denoiser(denoiser, None if known else channels)
    if channels in (None, found.channels):
        return found
    if channels == 1 and found.channels == 3:
        return Lifted(found)
    raise InputError(
        f"the denoiser is for images of {found.channels} channel(s), these have {channels}; lift "
        f"it with Lifted(denoiser, {channels}), or take one that was made for them"
    )


def fitted_list(denoiser: Any, images: Any) -> tuple[ProximalDenoiser, list[Tensor]]:
    """A denoiser and images that fit each other, ``(C, H, W)`` each.

    Gray pictures among color ones become color ones, and color pictures for a denoiser of gray
    images gray ones; tensors are left as they are.
    """
    given = image_list(images)
    if {len(image) for image in given} == {1, 3}:
        given = [converted(image, 3) for image in given]
    pictures = not isinstance(images, Tensor)
    if pictures and getattr(denoiser, "channels", None) == 1 and len(given[0]) == 3:
        given = [converted(image, 1) for image in given]
    return fitting(denoiser, len(given[0])), given


def fitted(denoiser: Any, images: Any) -> tuple[ProximalDenoiser, Tensor]:
    """The same for images of one size, ``(N, C, H, W)``, where the denoiser is."""
    if isinstance(images, Tensor) and images.ndim == 4:
        return fitting(denoiser, images.shape[1]), image_batch(images)
    found, given = fitted_list(denoiser, images)
    like = next(found.parameters(), torch.zeros(()))
    return found, image_batch(given, like=like)
