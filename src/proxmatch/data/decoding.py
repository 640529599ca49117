"""One image file as an array of pixels, by rules that do not depend on its format.

- PNG, JPEG, TIFF, BMP and WebP are recognized by content, not by name; no other decoder runs.
- 8 and 16 bits per channel are kept as they are; fewer bits are widened to 8. 32-bit and
  floating-point pixels are refused: nothing says which value is white.
- The picture is turned upright by its EXIF (or TIFF) orientation.
- Transparency is composited on white. Palettes and CMYK become RGB. Color profiles are ignored.
- Of several frames or pages, the first is taken.
- A header that announces more than ``MAX_PIXELS`` is refused before anything is decoded.
"""

from __future__ import annotations

import hashlib
import io
import os
import struct
import warnings
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import tifffile
import torch
from PIL import Image, UnidentifiedImageError

from proxmatch.errors import DataError

#: Endings of the files that are taken for pictures, in lower or upper case.
SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".webp")

#: Largest picture that is decoded: 300 MB of 8-bit colors.
MAX_PIXELS = 100_000_000

#: ``(H, W)`` gray or ``(H, W, 3)`` colors, uint8 or uint16.
Pixels = npt.NDArray[np.unsignedinteger[Any]]

_FORMATS = ("PNG", "JPEG", "TIFF", "BMP", "WEBP")
_DEFLATE = (8, 32946)  # compressions of TIFF
_PIECE = 1 << 20  # bytes that are inflated at a time
_ORIENTATION, _BITS, _PHOTOMETRIC, _SAMPLES = 274, 258, 262, 277  # TIFF tags; EXIF shares the first


def load(path: Path, most: int = MAX_PIXELS) -> tuple[Pixels, str]:
    """The pixels of a file, and the SHA-256 of its bytes.

    Raises:
        DataError: with the reason, and without the path, if the file is not a complete picture.
    """
    try:
        if not path.is_file():
            raise DataError("no such file, or not a regular one")
        with path.open("rb") as file:
            before = os.fstat(file.fileno())
            pixels = _decoded(file, most)
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            after = os.fstat(file.fileno())
            if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
                raise DataError("changed while it was read: wait until it is written")
            return pixels, digest
    except OSError as error:  # its text would name the path
        raise DataError(f"cannot be opened: {error.strerror}") from None


def decode(content: bytes, most: int = MAX_PIXELS) -> tuple[Pixels, str]:
    """The same for the bytes of a file."""
    return _decoded(io.BytesIO(content), most), hashlib.sha256(content).hexdigest()


def _decoded(file: BinaryIO, most: int) -> Pixels:
    head = file.read(25)
    if not head:
        raise DataError("empty file")
    file.seek(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a picture is whole or refused: nothing in between
            with Image.open(file, formats=_FORMATS) as image:
                return _pixels(image, head, file, most)
    except DataError:
        raise
    except UnidentifiedImageError:
        raise DataError("no picture of a known kind (PNG, JPEG, TIFF, BMP, WebP)") from None
    except Image.DecompressionBombError:
        raise DataError(f"too many pixels: {_limit(most)}") from None
    except Exception as error:  # decoders raise almost anything at damaged data
        raise DataError(f"damaged or truncated ({type(error).__name__})") from error


def _pixels(image: Any, head: bytes, file: BinaryIO, most: int) -> Pixels:
    if image.width * image.height > most:
        raise DataError(f"{image.width} x {image.height} pixels: {_limit(most)}")
    bits = _bits(image, head)
    if image.mode in ("I", "F") or bits not in (1, 2, 4, 8, 16):
        raise DataError("only 8 and 16 unsigned bits a channel have a known white: convert it")
    if bits == 16 and not image.mode.startswith("I;16"):
        orientation = image.getexif().get(_ORIENTATION, 1)
        return _upright(_on_white(_deep_colors(image, file)), orientation)
    image.load()  # turns a TIFF upright, and clears its orientation
    orientation = image.getexif().get(_ORIENTATION, 1)
    if bits == 16:
        return _upright(_deep_gray(image), orientation)
    if image.has_transparency_data:
        image = image.convert("RGBA")
    elif image.mode != "L":
        image = image.convert("L" if image.mode == "1" else "RGB")
    return _upright(_on_white(np.asarray(image)), orientation)


def _limit(most: int) -> str:
    return f"cut it into pictures of at most {most // 10**6} million"


def _bits(image: Any, head: bytes) -> int:
    """Bits per channel of the file, which Pillow's mode does not always tell."""
    if image.format == "PNG":
        return head[24]  # the IHDR chunk is always the first
    if image.format == "TIFF":
        return int(np.max(image.tag_v2.get(_BITS, 1)))
    return 8


def _deep_gray(image: Any) -> Pixels:
    if "transparency" in image.info:
        raise DataError("16 bits and a transparent color: convert it")
    gray = np.asarray(image).astype(np.uint16)
    white_is_zero = image.format == "TIFF" and image.tag_v2.get(_PHOTOMETRIC) == 0
    return 65535 - gray if white_is_zero else gray


def _deep_colors(image: Any, file: BinaryIO) -> Pixels:
    """16-bit colors, which Pillow would cut to 8: ``(H, W, channels)``."""
    file.seek(0)
    if image.format == "PNG" and "transparency" not in image.info:
        from torchvision.io import ImageReadMode, decode_png  # rarely needed, slow to import

        content = bytearray(file.read())
        channels = len(image.getbands())
        _check_deflated(_png_data(content), 2 * image.height * (image.width * channels + 1) + 7)
        data = torch.frombuffer(content, dtype=torch.uint8)
        decoded: Pixels = decode_png(data, mode=ImageReadMode.UNCHANGED).permute(1, 2, 0).numpy()
        return decoded
    if image.format == "TIFF" and image.mode == "RGB" and image.tag_v2.get(_SAMPLES) == 3:
        try:
            page = tifffile.TiffFile(file).pages.first
            if page.size != 3 * image.width * image.height:
                raise DataError("damaged: its header contradicts itself")
            if page.compression in _DEFLATE:
                for place, number in zip(page.dataoffsets, page.databytecounts, strict=True):
                    file.seek(place)
                    _check_deflated([file.read(number)], page.nbytes)
            elif page.compression != 1:
                raise DataError("16-bit colors, compressed, but not by deflate: convert it")
            pixels = np.asarray(page.asarray())
        except (KeyError, ValueError) as error:
            if "imagecodecs" not in str(error):
                raise
            raise DataError("16-bit colors, compressed in a rare way: convert it") from None
        return np.moveaxis(pixels, 0, -1) if page.axes == "SYX" else pixels
    raise DataError("16-bit colors with transparency or of another color space: convert it")


def _png_data(content: bytes | bytearray) -> Iterator[bytes]:
    """The compressed pixels of a PNG file, chunk by chunk."""
    place = 8
    while place + 8 <= len(content):
        size, kind = struct.unpack_from(">I4s", content, place)
        if kind == b"IDAT":
            yield bytes(content[place + 8 : place + 8 + size])
        place += 12 + size


def _check_deflated(parts: Iterable[bytes], most: int) -> None:
    """Raise DataError if parts of a stream inflate to more than ``most`` bytes.

    Decoders of 16-bit colors would inflate all of it: a thousand times the size of the file.
    """
    stream = zlib.decompressobj()
    for part in parts:
        while part:
            most -= len(stream.decompress(part, _PIECE))
            part = stream.unconsumed_tail
            if most < 0:
                raise DataError("damaged: it holds more than its header says")


def _on_white(pixels: Pixels) -> Pixels:
    """Without the last of 2 or 4 channels, the opacity; ``(H, W)`` and ``(H, W, 3)`` have none."""
    if pixels.ndim == 2 or pixels.shape[2] == 3:
        return pixels
    white = np.iinfo(pixels.dtype).max
    colors, opacity = pixels[..., :-1].astype(np.float64), pixels[..., -1:] / white
    blended = np.rint(white - opacity * (white - colors)).astype(pixels.dtype)
    return blended[..., 0] if blended.shape[2] == 1 else blended


def _upright(pixels: Pixels, orientation: int) -> Pixels:
    """Undoes an EXIF orientation, 1 to 8; any other value means nothing."""
    if orientation in (5, 6, 7, 8):
        pixels = pixels.swapaxes(0, 1)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return np.ascontiguousarray(pixels)
