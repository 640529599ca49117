from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from hypothesis import given, strategies as st
from PIL import Image
from torchvision.io import ImageReadMode, decode_png

from proxmatch.data import encode_image, image_files, read_file, read_files
from proxmatch.data.domain import LUMA
from proxmatch.data.images import Bits, Format
from proxmatch.errors import DataError, InputError, SkippedFilesWarning


@pytest.mark.parametrize("format", ["png", "tif"])
@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("channels", [1, 3])
@given(seed=st.integers(0, 99), height=st.integers(1, 9), width=st.integers(1, 9))
def test_what_is_written_is_read(
    tmp_path: Path, format: Format, bits: Bits, channels: int, seed: int, height: int, width: int
) -> None:
    white = 2**bits - 1
    levels = np.random.default_rng(seed).integers(0, white + 1, (channels, height, width))
    image = torch.from_numpy(levels / white).float()
    path = tmp_path / f"a.{format}"
    path.write_bytes(encode_image(image, format, bits))
    found = read_file(path, channels)
    assert found.bits == bits
    assert torch.equal((found.pixels * white).round().long(), torch.from_numpy(levels))


@pytest.mark.parametrize("bits", [8, 16])
def test_others_read_our_files(tmp_path: Path, bits: Bits) -> None:
    levels = torch.randint(0, 2**bits, (3, 5, 7))
    image = levels / (2**bits - 1)
    png = torch.frombuffer(bytearray(encode_image(image, "png", bits)), dtype=torch.uint8)
    assert torch.equal(decode_png(png, ImageReadMode.UNCHANGED).long(), levels)
    (tmp_path / "a.tif").write_bytes(encode_image(image, "tif", bits))
    read = tifffile.imread(tmp_path / "a.tif")
    assert np.array_equal(read, levels.permute(1, 2, 0).numpy())
    with Image.open(tmp_path / "a.tif" if bits == 8 else _file(tmp_path, png)) as picture:
        assert picture.size == (7, 5)


def _file(folder: Path, png: torch.Tensor) -> Path:
    (folder / "b.png").write_bytes(png.numpy().tobytes())
    return folder / "b.png"


def test_values_outside_the_range_are_clipped_and_rounded() -> None:
    image = torch.tensor([[[-1.0, 2.0, 0.499 / 255, 0.501 / 255]]])
    png = torch.frombuffer(bytearray(encode_image(image)), dtype=torch.uint8)
    assert decode_png(png).flatten().tolist() == [0, 255, 0, 1]


def test_gray_and_colors(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 6, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    gray = read_file(tmp_path / "a.png", 1).pixels
    expected = torch.einsum("c,hwc->hw", LUMA, torch.from_numpy(pixels).float() / 255)
    torch.testing.assert_close(gray, expected[None])
    Image.fromarray(pixels[..., 0]).save(tmp_path / "b.png")
    colors = read_file(tmp_path / "b.png", 3).pixels
    assert colors.shape == (3, 4, 6)
    assert torch.equal(colors[0], colors[2])


def test_a_damaged_file_among_many_is_named_and_left_out(tmp_path: Path) -> None:
    for i in (1, 2, 10):
        Image.new("L", (8, 8), i).save(tmp_path / f"a{i}.png")
    (tmp_path / "a3.png").write_bytes((tmp_path / "a1.png").read_bytes()[:40])
    with pytest.warns(SkippedFilesWarning, match="a3.png"):
        found = read_files(image_files([tmp_path]), 1)
    assert [file.path.name for file in found] == ["a1.png", "a2.png", "a10.png"]
    with pytest.raises(DataError, match=r"a3.png: (damaged|no picture)"):
        read_files([tmp_path / "a3.png"])


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file or folder"):
        image_files([tmp_path / "nowhere"])
    with pytest.raises(DataError, match="no image"):
        image_files([tmp_path])
    with pytest.raises(InputError, match="1 or 3"):
        encode_image(torch.rand(2, 4, 4))
    with pytest.raises(InputError, match="8 or 16"):
        encode_image(torch.rand(3, 4, 4), bits=12)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="1 or 3"):
        read_file(tmp_path, 2)
