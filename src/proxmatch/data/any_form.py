"""Images in any common form: tensors, arrays, Pillow images, files, folders.

- A **tensor** is ``(H, W)``, ``(C, H, W)`` or ``(N, C, H, W)``.
- An **array** of NumPy, or an image of Pillow, is ``(H, W)``, ``(H, W, C)`` or ``(N, H, W, C)``, as
  scikit-image and Pillow make them. If the last axis cannot be channels and the first can, it is
  read like a tensor.
- A **path** is a picture, or a folder of them.
- A **sequence** holds any of these.

Floating-point values are in [0, 1] and stay as they are; whole numbers of 8 and 16 bits are divided
by 255 and 65535.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from proxmatch._internal.files import write_together
from proxmatch.data.domain import LUMA
from proxmatch.data.images import Bits, Format, encode_image, image_files, read_files
from proxmatch.errors import InputError

#: What whole numbers are divided by.
WHITE = {torch.uint8: 255.0, torch.uint16: 65535.0}
CHANNELS = (1, 2, 3)
#: Images are in [0, 1]. Beyond this they are in other units: 0 to 255, or 0 to 65535.
BRIGHTEST = 10.0


def read_image(path: str | PathLike[str], channels: int | None = None) -> Tensor:
    """A picture as a tensor, ``(C, H, W)``, float32 in [0, 1].

    Args:
        path: PNG, JPEG, TIFF, BMP or WebP, of 8 or 16 bits.
        channels: 1 or 3: gray is repeated, colors are weighted; as in the file unless given.

    Raises:
        DataError: it is not a complete picture.

    Example:
        >>> _ = save_image(torch.zeros(3, 4, 6), "colors.tif")
        >>> read_image("colors.tif", channels=1).shape
        torch.Size([1, 4, 6])
    """
    [file] = read_files([Path(path)], channels)
    return file.pixels


def save_image(image: Any, path: str | PathLike[str], *, bits: Bits = 8) -> Path:
    """Write an image as PNG or TIFF; values outside [0, 1] are clipped.

    Args:
        image: one image, in any form of :mod:`proxmatch.data.any_form`.
        path: ends in ``.png``, ``.tif`` or ``.tiff``; an existing file is replaced.
        bits: per channel: 8 or 16.

    Raises:
        InputError: it is not a single image, or the path has another ending.

    Example:
        >>> save_image(torch.rand(1, 4, 6), "gray.png", bits=16).name
        'gray.png'
        >>> read_image("gray.png").shape
        torch.Size([1, 4, 6])
    """
    path = Path(path)
    kind = {".png": "png", ".tif": "tif", ".tiff": "tif"}.get(path.suffix.lower())
    if kind is None:
        raise InputError(f"images are saved as png or tif, not {path.suffix or path.name!r}")
    found = image_list(image)
    if len(found) != 1:
        raise InputError(f"{path.name}: one image is saved in a file, got {len(found)}")
    write_together(path.parent, {path.name: encode_image(found[0], cast("Format", kind), bits)})
    return path


def image_list(images: Any, channels: int | None = None) -> list[Tensor]:
    """Images of any sizes, ``(C, H, W)`` each, floating point.

    Args:
        images: see the module docstring.
        channels: convert pictures and arrays to this many: gray is repeated for three, colors are
            weighted for one. Tensors keep the channels they have.

    Raises:
        InputError: something is not an image, or there are none.

    Example:
        >>> [tuple(image.shape) for image in image_list(np.zeros((4, 6, 3), np.uint8))]
        [(3, 4, 6)]
    """
    found = list(_images(images, channels))
    if not found:
        raise InputError("there are no images; give at least one")
    return found


def image_batch(images: Any, channels: int | None = None, like: Tensor | None = None) -> Tensor:
    """Images of one size as a batch, ``(N, C, H, W)``.

    Args:
        images: see the module docstring.
        channels: as in :func:`image_list`.
        like: a tensor whose device and precision the batch gets; unchanged unless given.

    Raises:
        InputError: something is not an image, or the sizes differ.

    Example:
        >>> image_batch([torch.zeros(3, 4, 6), np.zeros((4, 6, 3), np.uint8)]).shape
        torch.Size([2, 3, 4, 6])
    """
    if isinstance(images, Tensor) and images.ndim == 4 and images.is_floating_point():
        batch = images
    else:
        found = image_list(images, channels)
        sizes = sorted({tuple(image.shape) for image in found})
        if len(sizes) > 1:
            raise InputError(
                f"the images must have one size, there are {sizes[0]} and {sizes[1]}; crop them"
            )
        batch = torch.stack(found)
    return batch if like is None else batch.to(like)


def check_brightness(images: Tensor) -> None:
    """Refuse images that are not in the range [0, 1] that all denoisers expect.

    Raises:
        InputError: they are in other units.
    """
    peak = float(images.abs().max()) if images.numel() else 0.0
    if peak > BRIGHTEST:
        raise InputError(
            f"the images go up to {peak:.4g}, but white is 1; divide 8-bit images by 255, 16-bit "
            "ones by 65535, and any other by what is white"
        )


def _images(given: Any, channels: int | None) -> Iterable[Tensor]:
    if isinstance(given, Tensor):
        yield from _split(_scaled(given))
    elif isinstance(given, str | PathLike):
        for file in read_files(image_files([Path(given)]), channels):
            yield file.pixels
    elif isinstance(given, np.ndarray) or hasattr(given, "__array_interface__"):
        for image in _split(_scaled(_channels_first(np.asarray(given)))):
            yield converted(image, channels)
    elif isinstance(given, Iterable):
        for one in given:
            yield from _images(one, channels)
    else:
        raise InputError(
            f"images are tensors, arrays, files or folders, or a list of them; got "
            f"{type(given).__name__}"
        )


def converted(image: Tensor, channels: int | None) -> Tensor:
    """An image ``(C, H, W)`` with that many channels: gray is repeated, colors are weighted.

    Raises:
        InputError: there is no rule for these numbers of channels.
    """
    if channels is None or len(image) == channels:
        return image
    if len(image) == 3 and channels == 1:
        gray: Tensor = torch.tensordot(LUMA.to(image), image, 1)[None]
        return gray
    if len(image) == 1:
        return image.expand(channels, -1, -1).contiguous()
    raise InputError(f"an image of {len(image)} channels is given where {channels} are needed")


def check_real(images: Tensor) -> None:
    """Refuse complex numbers.

    Raises:
        InputError: saying how they are given instead.
    """
    if images.is_complex():
        raise InputError(
            "complex images are given as two channels, the real and the imaginary part: "
            "torch.view_as_real(x).movedim(-1, 1) for x of shape (B, H, W)"
        )


def _scaled(pixels: Tensor) -> Tensor:
    """Floating point in [0, 1]."""
    check_real(pixels)
    if pixels.is_floating_point():
        return pixels
    if pixels.dtype not in WHITE:
        raise InputError(
            f"images are floating point in [0, 1], or whole numbers of 8 or 16 bits, not "
            f"{pixels.dtype}; divide them by what is white"
        )
    return pixels.float() / WHITE[pixels.dtype]


def _split(pixels: Tensor) -> Sequence[Tensor]:
    if pixels.ndim == 2:
        return [pixels[None]]
    if pixels.ndim == 3:
        return [pixels]
    if pixels.ndim == 4:
        return list(pixels)
    raise InputError(
        f"images have the shape (H, W), (C, H, W) or (N, C, H, W), not {tuple(pixels.shape)}"
    )


def _channels_first(array: np.ndarray[Any, Any]) -> Tensor:
    if array.dtype.kind == "c":
        check_real(torch.from_numpy(array))
    if array.dtype.kind not in "fu" or array.dtype == np.float16:
        raise InputError(
            f"an array of {array.dtype} is not an image; give float32, uint8 or uint16"
        )
    pixels = torch.from_numpy(np.array(array))  # a copy: some are not writable
    last = pixels.ndim > 2 and pixels.shape[-1] in CHANNELS
    if last and pixels.ndim in (3, 4):
        pixels = pixels.movedim(-1, -3)
    elif pixels.ndim == 3 and pixels.shape[0] not in CHANNELS:
        raise InputError(
            f"an array of shape {array.shape} is not an image (H, W) or (H, W, C) with C = 1, 2 or "
            "3; a stack of gray images is (N, H, W, 1)"
        )
    return pixels.float() if pixels.dtype == torch.float64 else pixels
