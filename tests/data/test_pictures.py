from __future__ import annotations

import hashlib
import os
import struct
import tracemalloc
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tifffile
from PIL import Image, ImageOps

from proxmatch.data import decoding
from proxmatch.errors import DataError

Array = npt.NDArray[Any]


def noise(*shape: int, dtype: Any = np.uint8) -> Array:
    return np.random.default_rng(0).integers(0, np.iinfo(dtype).max + 1, shape, dtype=dtype)


def png(pixels: Array | None, bits: int, color: int, size: tuple[int, int] | None = None) -> bytes:
    """A PNG by the letter of its specification: Pillow writes no 16-bit colors."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    height, width = size if pixels is None else pixels.shape[:2]  # type: ignore[misc]
    rows = (
        [] if pixels is None else [b"\0" + row.astype(f">u{bits // 8}").tobytes() for row in pixels]
    )
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(b"".join(rows)))
        + chunk(b"IEND", b"")
    )


def read(path: Path) -> Array:
    return decoding.load(path)[0]


@pytest.mark.parametrize("shape", [(20, 30), (20, 30, 3)], ids=["gray", "colors"])
@pytest.mark.parametrize("suffix", ["png", "tif", "tiff", "bmp", "webp"])
def test_lossless_8_bit(tmp_path: Path, suffix: str, shape: tuple[int, ...]) -> None:
    pixels = noise(*shape)
    Image.fromarray(pixels).save(tmp_path / f"a.{suffix}", lossless=True)
    found = read(tmp_path / f"a.{suffix}")
    assert found.dtype == np.uint8
    assert np.array_equal(found if found.ndim == len(shape) else found[..., 0], pixels)


def test_jpeg(tmp_path: Path) -> None:
    ramp = np.linspace(0, 255, 64).astype(np.uint8)
    pixels = np.stack(np.broadcast_arrays(ramp[:, None], ramp[None], np.uint8(90)), -1)
    Image.fromarray(pixels).save(tmp_path / "a.jpg", quality=98, subsampling=0)
    assert np.abs(read(tmp_path / "a.jpg") - pixels.astype(float)).max() <= 6
    Image.fromarray(pixels).convert("CMYK").save(tmp_path / "b.jpg", quality=98)
    assert np.abs(read(tmp_path / "b.jpg") - pixels.astype(float)).mean() <= 6


@pytest.mark.parametrize("order", ["<", ">"])
def test_16_bit_gray(tmp_path: Path, order: Any) -> None:
    pixels = noise(20, 30, dtype=np.uint16)
    tifffile.imwrite(tmp_path / "a.tif", pixels, byteorder=order)
    tifffile.imwrite(tmp_path / "b.tif", pixels, byteorder=order, compression="zlib")
    tifffile.imwrite(tmp_path / "c.tif", 65535 - pixels, photometric="miniswhite")
    (tmp_path / "d.png").write_bytes(png(pixels, 16, 0))
    for name in ("a.tif", "b.tif", "c.tif", "d.png"):
        found = read(tmp_path / name)
        assert found.dtype == np.uint16
        assert np.array_equal(found, pixels), name


def test_16_bit_colors(tmp_path: Path) -> None:
    pixels = noise(20, 30, 3, dtype=np.uint16)
    tifffile.imwrite(tmp_path / "a.tif", pixels, photometric="rgb")
    tifffile.imwrite(tmp_path / "b.tif", pixels, photometric="rgb", compression="zlib")
    planes = np.moveaxis(pixels, -1, 0)
    tifffile.imwrite(tmp_path / "c.tif", planes, photometric="rgb", planarconfig="separate")
    (tmp_path / "e.png").write_bytes(png(pixels, 16, 2))
    for name in ("a.tif", "b.tif", "c.tif", "e.png"):
        found = read(tmp_path / name)
        assert found.dtype == np.uint16
        assert np.array_equal(found, pixels), name


@pytest.mark.parametrize("shape", [(20, 30), (20, 30, 3)], ids=["gray", "colors"])
def test_orientation_of_16_bits(tmp_path: Path, shape: tuple[int, ...]) -> None:
    pixels = noise(*shape, dtype=np.uint16)
    tifffile.imwrite(tmp_path / "a.tif", pixels, extratags=[(274, "H", 1, 6)])
    assert np.array_equal(read(tmp_path / "a.tif"), np.rot90(pixels, -1))


@pytest.mark.parametrize(("bits", "dtype"), [(8, np.uint8), (16, np.uint16)])
@pytest.mark.parametrize(("channels", "color"), [(2, 4), (4, 6)], ids=["gray", "colors"])
def test_transparency_is_composited_on_white(
    tmp_path: Path, bits: int, dtype: Any, channels: int, color: int
) -> None:
    pixels = noise(20, 30, channels, dtype=dtype)
    (tmp_path / "a.png").write_bytes(png(pixels, bits, color))
    found = read(tmp_path / "a.png") / np.iinfo(dtype).max
    values, opacity = np.split(pixels / np.iinfo(dtype).max, [channels - 1], axis=2)
    expected = opacity * values + (1 - opacity)
    found = found.reshape(20, 30, -1)[..., : channels - 1]  # Pillow has no 8-bit gray with alpha
    assert np.abs(found - expected).max() <= 0.51 / np.iinfo(dtype).max


def test_palette_with_and_without_a_transparent_color(tmp_path: Path) -> None:
    colors = noise(4, 3)
    which = noise(20, 30) % 4
    image = Image.fromarray(which, mode="P")
    image.putpalette(colors.tobytes())
    image.save(tmp_path / "a.png")
    image.save(tmp_path / "b.png", transparency=2)
    image.save(tmp_path / "c.bmp")
    assert np.array_equal(read(tmp_path / "a.png"), colors[which])
    assert np.array_equal(read(tmp_path / "c.bmp"), colors[which])
    colors[2] = 255
    assert np.array_equal(read(tmp_path / "b.png"), colors[which])


def test_black_and_white(tmp_path: Path) -> None:
    pixels = noise(20, 30) > 127
    for name in ("a.png", "a.tif"):
        Image.fromarray(pixels).save(tmp_path / name)
        assert np.array_equal(read(tmp_path / name), pixels * np.uint8(255))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["png", "webp", "tif", "jpg"])
def test_orientation(tmp_path: Path, suffix: str, orientation: int) -> None:
    pixels = noise(4, 6).repeat(8, 0).repeat(8, 1)  # flat blocks, which JPEG keeps
    image = Image.fromarray(np.stack([pixels] * 3, -1))
    exif = Image.Exif()
    exif[274] = orientation
    path = tmp_path / f"a.{suffix}"
    image.save(path, exif=exif, lossless=True, quality=100)
    turned = image.copy()
    turned.getexif()[274] = orientation
    expected = np.asarray(ImageOps.exif_transpose(turned)).astype(float)
    assert np.abs(read(path) - expected).max() <= (4 if suffix == "jpg" else 0)


def test_first_page_and_content_before_name(tmp_path: Path) -> None:
    pixels = noise(2, 20, 30)
    tifffile.imwrite(tmp_path / "a.tif", pixels, photometric="minisblack")
    assert np.array_equal(read(tmp_path / "a.tif"), pixels[0])
    Image.fromarray(pixels[1]).save(tmp_path / "b.jpg", format="png")
    assert np.array_equal(read(tmp_path / "b.jpg"), pixels[1])


def test_digest_is_that_of_the_file(tmp_path: Path) -> None:
    Image.fromarray(noise(9, 9)).save(tmp_path / "a.png")
    expected = hashlib.sha256((tmp_path / "a.png").read_bytes()).hexdigest()
    assert decoding.load(tmp_path / "a.png")[1] == expected


@pytest.mark.parametrize("suffix", ["png", "jpg", "tif", "bmp", "webp"])
@pytest.mark.parametrize("part", [0.3, 0.6, 0.9])
def test_truncated(tmp_path: Path, suffix: str, part: float) -> None:
    path = tmp_path / f"a.{suffix}"
    Image.fromarray(noise(60, 60, 3)).save(path)
    path.write_bytes(path.read_bytes()[: int(part * path.stat().st_size)])
    with pytest.raises(DataError, match=r"damaged or truncated|no picture"):
        read(path)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty file"),
        (b"these are not pixels", "no picture of a known kind"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "no picture of a known kind"),
        (png(None, 8, 2, (10_001, 10_000)), "10000 x 10001 pixels: cut it .* 100 million"),
        (png(None, 8, 2, (50_000, 50_000)), "too many pixels: cut it"),
        (png(noise(9, 9, 3), 8, 2).replace(b"IDATx", b"IDATy"), "damaged or truncated"),
    ],
)
def test_what_is_no_picture_is_refused(tmp_path: Path, data: bytes, reason: str) -> None:
    (tmp_path / "a.png").write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # none leaks, Pillow's own about bombs included
        with pytest.raises(DataError, match=reason) as caught:
            read(tmp_path / "a.png")
    assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int16, np.uint32])
def test_pixels_without_a_known_white_are_refused(tmp_path: Path, dtype: Any) -> None:
    tifffile.imwrite(tmp_path / "a.tif", np.ones((9, 9), dtype))
    with pytest.raises(DataError, match="8 and 16 unsigned bits"):
        read(tmp_path / "a.tif")


def test_16_bit_transparent_tiff_is_refused(tmp_path: Path) -> None:
    pixels = noise(9, 9, 4, dtype=np.uint16)
    tifffile.imwrite(tmp_path / "a.tif", pixels, photometric="rgb", extrasamples=["unassalpha"])
    with pytest.raises(DataError, match="16-bit colors with transparency"):
        read(tmp_path / "a.tif")


def test_links_are_followed_to_regular_files_only(tmp_path: Path) -> None:
    Image.fromarray(noise(9, 9)).save(tmp_path / "a.png")
    (tmp_path / "link.png").symlink_to("a.png")
    assert np.array_equal(read(tmp_path / "link.png"), noise(9, 9))
    (tmp_path / "broken.png").symlink_to("nowhere.png")
    os.mkfifo(tmp_path / "pipe.png")
    for name in ("broken.png", "pipe.png"):
        with pytest.raises(DataError, match="not a regular one"):
            read(tmp_path / name)


def bomb(kind: str) -> bytes:
    """A picture of 8 x 8 in 16-bit colors whose data goes on for 64 MB."""
    endless = zlib.compress(bytes(1 << 26))
    if kind == "png":
        parts = (
            (b"IHDR", struct.pack(">IIBBBBB", 8, 8, 16, 2, 0, 0, 0)),
            (b"IDAT", endless),
            (b"IEND", b""),
        )
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
            for name, data in parts
        )
    data, compression = (endless, 8) if kind == "deflate" else (b"\x81\0" * (1 << 19), 32773)
    tags = {
        256: 8,
        257: 8,
        258: 0,
        259: compression,
        262: 2,
        273: 0,
        277: 3,
        278: 8,
        279: len(data),
    }
    begin = 8 + 2 + 12 * len(tags) + 4
    tags |= {258: begin, 273: begin + 6}
    entries = b"".join(
        struct.pack("<HHII", tag, 3 if tag == 258 else 4, 3 if tag == 258 else 1, value)
        for tag, value in tags.items()
    )
    head = b"II*\0" + struct.pack("<IH", 8, len(tags))
    return head + entries + bytes(4) + struct.pack("<HHH", 16, 16, 16) + data


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("png", "more than its header"), ("deflate", "more than its header"), ("packbits", "deflate")],
)
def test_data_without_end_is_not_inflated(tmp_path: Path, kind: str, reason: str) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(bomb(kind))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=reason):
            decoding.load(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()
