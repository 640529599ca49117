"""Image files to tensors and back: any picture in, PNG and TIFF of 8 and 16 bits out."""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import tifffile
import torch
from PIL import Image as Pillow
from torch import Tensor

from proxmatch.data import decoding, layouts
from proxmatch.data.decoding import Pixels
from proxmatch.data.domain import LUMA
from proxmatch.errors import DataError, InputError, SkippedFilesWarning

Bits = Literal[8, 16]
Format = Literal["png", "tif"]


@dataclass(frozen=True)
class ImageFile:
    """A picture that was read.

    Attributes:
        path: where from.
        pixels: ``(C, H, W)``, float32 in [0, 1].
        bits: per channel, in the file.
        digest: SHA-256 of the file.
    """

    path: Path
    pixels: Tensor
    bits: Bits
    digest: str


def read_file(
    path: Path, channels: int | None = 3, *, most: int = decoding.MAX_PIXELS
) -> ImageFile:
    """A picture as a tensor; gray is repeated for three channels, colors are weighted for one.

    Args:
        path: of the file.
        channels: of the tensor, 1 or 3; None for those of the file.
        most: how many pixels it may have.

    Raises:
        DataError: it is not a complete picture; see :mod:`proxmatch.data.decoding`.
        InputError: neither one channel nor three.

    Example:
        >>> _ = Path("gray.png").write_bytes(encode_image(torch.ones(1, 4, 6), bits=16))
        >>> image = read_file(Path("gray.png"))
        >>> image.pixels.shape, image.bits
        (torch.Size([3, 4, 6]), 16)
    """
    if channels not in (None, 1, 3):
        raise InputError(f"pictures have 1 or 3 channels, not {channels}")
    return _image_file(path, *decoding.load(path, most), channels)


def decode_image(
    content: bytes, path: Path, channels: int | None = 3, *, most: int = decoding.MAX_PIXELS
) -> ImageFile:
    """A picture from the bytes of its file, as by :func:`read_file`.

    Raises:
        DataError: they are not a complete picture.
    """
    return _image_file(path, *decoding.decode(content, most), channels)


def _image_file(path: Path, found: Pixels, digest: str, channels: int | None) -> ImageFile:
    white = np.iinfo(found.dtype).max
    image = torch.from_numpy(found.astype(np.float32)).div_(float(white))
    image = image[None] if image.ndim == 2 else image.permute(2, 0, 1)
    if len(image) == 3 and channels == 1:
        image = torch.tensordot(LUMA, image, 1)[None]
    pixels = image.expand(channels or len(image), -1, -1).contiguous()
    return ImageFile(path, pixels, 8 if white == 255 else 16, digest)


def read_files(paths: Iterable[Path], channels: int | None = 3) -> list[ImageFile]:
    """Read the files that are complete pictures.

    Raises:
        DataError: none of them is.

    Warns:
        SkippedFilesWarning: naming the others, and why.

    Example:
        >>> _ = Path("a.png").write_bytes(encode_image(torch.rand(3, 4, 6)))
        >>> [image.path.name for image in read_files([Path("a.png")])]
        ['a.png']
    """
    return readable((path.name, partial(read_file, path, channels)) for path in paths)


def readable(files: Iterable[tuple[str, Callable[[], ImageFile]]]) -> list[ImageFile]:
    """As :func:`read_files`, for pictures given as a name and a function that reads them."""
    found, skipped = [], {}
    for name, read in files:
        try:
            found.append(read())
        except DataError as error:
            skipped[name] = str(error)
    if not found:
        name, reason = next(iter(skipped.items()), ("", "there is no file"))
        raise DataError(f"none of the {len(skipped)} file(s) can be used; {name}: {reason}")
    if skipped:
        warnings.warn(SkippedFilesWarning(skipped), stacklevel=2)
    return found


def image_files(places: Iterable[Path]) -> list[Path]:
    """The given files, and the pictures of the given folders in natural order.

    Raises:
        DataError: there is no such file, or a folder holds no picture.

    Example:
        >>> for name in ("b10.png", "b2.png"):
        ...     _ = Path(name).write_bytes(encode_image(torch.rand(1, 4, 6)))
        >>> [file.name for file in image_files([Path()])]
        ['b2.png', 'b10.png']
    """
    files: list[Path] = []
    for place in places:
        if place.is_dir():
            layout = layouts.find(place, None)
            files += [layout.folder / name for name in layout.names]
        elif place.exists():
            files.append(place)
        else:
            raise DataError(f"there is no file or folder {place}")
    return files


def encode_image(image: Tensor, format: Format = "png", bits: Bits = 8) -> bytes:
    """The bytes of an image file; values outside [0, 1] are clipped.

    Args:
        image: ``(C, H, W)``, one channel or three.
        format: ``png`` or ``tif``.
        bits: per channel.

    Example:
        >>> encode_image(torch.rand(3, 4, 6))[1:4]
        b'PNG'
    """
    if image.ndim != 3 or image.shape[0] not in (1, 3):
        raise InputError(f"an image to be saved is (1 or 3, H, W), got {tuple(image.shape)}")
    if format not in get_args(Format) or bits not in get_args(Bits):
        raise InputError(f"images are saved as png or tif of 8 or 16 bits, not {format}, {bits}")
    kind, white = (np.uint8, 255) if bits == 8 else (np.uint16, 65535)
    scaled = image.detach().cpu().clamp(0, 1).mul(white).round_()
    pixels: Pixels = scaled.permute(1, 2, 0).numpy().astype(kind)
    if pixels.shape[2] == 1:
        pixels = pixels[..., 0]
    file = io.BytesIO()
    if format == "tif":
        tifffile.imwrite(file, pixels, photometric="rgb" if pixels.ndim == 3 else "minisblack")
        return file.getvalue()
    if bits == 16 and pixels.ndim == 3:
        return _deep_png(pixels)
    Pillow.fromarray(pixels).save(file, format="png")
    return file.getvalue()


def _deep_png(pixels: Pixels) -> bytes:
    """16-bit colors, ``(H, W, 3)``, written by the PNG specification: Pillow cannot do it."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    height, width = pixels.shape[:2]
    header = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    rows = np.zeros((height, 1 + 6 * width), np.uint8)  # each begins with its filter: none
    rows[:, 1:] = pixels.astype(">u2", order="C").reshape(height, -1).view(np.uint8)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)
