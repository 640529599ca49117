from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import proxmatch as pm
from proxmatch.data.any_form import image_batch, image_list
from proxmatch.errors import DataError, InputError

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8)
TENSOR = torch.from_numpy(PIXELS).permute(2, 0, 1) / 255


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    Image.fromarray(PIXELS).save(tmp_path / "a.png")
    return tmp_path / "a.png"


def test_every_form_is_the_same_image(picture: Path) -> None:
    forms = [
        picture,
        str(picture),
        picture.parent,
        PIXELS,
        PIXELS.astype(np.float64) / 255,
        PIXELS[None],
        np.asarray(TENSOR),
        Image.fromarray(PIXELS),
        TENSOR,
        TENSOR[None],
        (TENSOR * 255).round().to(torch.uint8),
        [picture],
    ]
    for form in forms:
        [found] = image_list(form)
        torch.testing.assert_close(found, TENSOR, atol=1e-6, rtol=0)
        assert found.dtype == torch.float32


def test_grey_and_deep_arrays() -> None:
    deep = np.full((4, 6), 65535, np.uint16)
    assert torch.equal(image_list(deep)[0], torch.ones(1, 4, 6))
    assert torch.equal(image_list(deep, 3)[0], torch.ones(3, 4, 6))
    assert image_list(PIXELS, 1)[0].shape == (1, 6, 8)


def test_several_and_batches(picture: Path) -> None:
    assert image_batch([picture, PIXELS, TENSOR]).shape == (3, 3, 6, 8)
    assert image_batch(TENSOR, like=torch.zeros(1, dtype=torch.float64)).dtype == torch.float64
    with pytest.raises(InputError, match="one size"):
        image_batch([TENSOR, TENSOR[..., :4]])


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        3,
        None,
        np.zeros((5, 6, 7)),
        np.zeros((4, 4), np.int64),
        torch.zeros(4, 4, dtype=torch.int32),
        np.zeros(3),
        torch.zeros(1, 1, 1, 1, 1),
    ],
)
def test_what_is_no_image_is_refused(wrong: object) -> None:
    with pytest.raises(InputError):
        image_list(wrong)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(DataError, match=r"nothing\.png"):
        image_list("nothing.png")


@pytest.mark.parametrize("name", ["a.png", "a.tif"])
@pytest.mark.parametrize("channels", [1, 3])
def test_what_is_saved_is_read(tmp_path: Path, name: str, channels: int) -> None:
    image = TENSOR[:channels]
    pm.save_image(image, tmp_path / name, bits=16)
    torch.testing.assert_close(pm.read_image(tmp_path / name), image, atol=1e-5, rtol=0)
    pm.save_image(image.numpy() if channels == 1 else PIXELS, str(tmp_path / name))
    torch.testing.assert_close(pm.read_image(str(tmp_path / name)), image, atol=1e-6, rtol=0)
    assert pm.read_image(tmp_path / name, channels=1).shape == (1, 6, 8)


def test_what_cannot_be_saved_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="png or tif"):
        pm.save_image(TENSOR, tmp_path / "a.jpg")
    with pytest.raises(InputError, match="one image"):
        pm.save_image(TENSOR[None].expand(2, -1, -1, -1), tmp_path / "a.png")
    assert not list(tmp_path.iterdir())
