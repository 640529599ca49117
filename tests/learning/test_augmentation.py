from __future__ import annotations

import math

import pytest
import skimage.data
import skimage.filters
import skimage.transform
import torch
from hypothesis import given, strategies as st

from proxmatch.learning import Augmentation, augment
from proxmatch.learning.augmentation import _moved

NONE = Augmentation(
    share=1,
    rotation=0,
    zoom=(1, 1),
    shift=0,
    contrast=(1, 1),
    brightness=0,
    colors=0,
    gamma=0,
    blending=0,
)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def smooth() -> torch.Tensor:
    """A photograph without its finest detail, on which interpolations agree."""
    image = skimage.filters.gaussian(
        skimage.data.astronaut()[:64, 200:264] / 255, 2, channel_axis=2
    )
    return torch.from_numpy(image).permute(2, 0, 1)[None]


def test_without_changes_an_image_is_itself_or_its_mirror_image() -> None:
    images = torch.rand(16, 3, 8, 6, generator=generator())
    out = augment(images, NONE, generator(1))
    same = [torch.allclose(a, b, atol=1e-5) for a, b in zip(out, images, strict=True)]
    mirrored = [torch.allclose(a, b.flip(-1), atol=1e-5) for a, b in zip(out, images, strict=True)]
    assert all(s != m for s, m in zip(same, mirrored, strict=True))
    assert any(same)
    assert any(mirrored)


def test_rotation_and_zoom_against_scikit_image(smooth: torch.Tensor) -> None:
    def number(value: float) -> torch.Tensor:
        return torch.full((1, 1), value, dtype=torch.float64)

    picture = smooth[0].permute(1, 2, 0).numpy()
    turned = _moved(smooth, number(1), number(0.3), number(1), torch.zeros(1, 2))
    expected = skimage.transform.rotate(picture, math.degrees(0.3), order=3, mode="reflect")
    middle = slice(16, 48)
    error = (turned[0].permute(1, 2, 0).numpy() - expected)[middle, middle]
    assert abs(error).max() < 5e-3
    halved = _moved(smooth, number(1), number(0), number(2), torch.zeros(1, 2))
    larger = skimage.transform.rescale(picture, 2, order=3, mode="reflect", channel_axis=2)
    error = (halved[0].permute(1, 2, 0).numpy() - larger[32:96, 32:96])[middle, middle]
    assert abs(error).max() < 5e-3


def test_colors_in_closed_form() -> None:
    images = 0.4 + 0.2 * torch.rand(4, 3, 8, 8, generator=generator())
    settings = NONE.model_copy(update={"contrast": (0.5, 0.5)})
    out = augment(images, settings, generator(2))
    mean = images.mean((2, 3), keepdim=True)
    torch.testing.assert_close(out.std((2, 3)), images.std((2, 3)) / 2, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(out.mean((2, 3), keepdim=True), mean, rtol=1e-4, atol=1e-5)
    brighter = augment(images, NONE.model_copy(update={"brightness": 0.2}), generator(3))
    offset = (brighter.mean((2, 3)) - mean[:, :, 0, 0]).std(1)
    assert float(offset.max()) < 1e-5  # the same in every channel
    power = augment(images, NONE.model_copy(update={"gamma": 0.5}), generator(4))
    exponent = power.flatten(1).sort(1).values.log() / images.flatten(1).sort(1).values.log()
    assert float(exponent.std(1).max()) < 1e-3  # one exponent for an image
    assert float(exponent.mean(1).std()) > 0.05


def test_blending_mixes_neighbors() -> None:
    images = torch.zeros(2, 1, 4, 4)
    images[1] = 1
    out = augment(images, NONE.model_copy(update={"blending": 0.4}), generator())
    assert 0 < float(out[0].mean()) < 0.4
    assert 0.6 < float(out[1].mean()) < 1


@given(seed=st.integers(0, 2**31), share=st.floats(0, 1))
def test_it_is_pure_and_stays_in_range(seed: int, share: float) -> None:
    images = torch.rand(3, 3, 8, 8, generator=generator(seed))
    before = images.clone()
    settings = Augmentation(share=share, blending=0.5)
    out = augment(images, settings, generator(seed))
    assert torch.equal(images, before)
    assert torch.equal(out, augment(images, settings, generator(seed)))
    assert float(out.min()) >= 0
    assert float(out.max()) <= 1
    untouched = augment(images, settings.model_copy(update={"share": 0.0}), generator(seed))
    assert torch.equal(untouched, images)


def test_images_may_be_on_any_device() -> None:
    images = torch.rand(2, 3, 8, 8, device="meta")
    assert augment(images, Augmentation(), generator()).device == images.device
