from __future__ import annotations

import pytest
import torch
from hypothesis import given, strategies as st

from proxmatch.errors import InputError
from proxmatch.learning.hold_out import CROPS, hold_out


def labeled(number: int, height: int, width: int) -> list[torch.Tensor]:
    """Images in which every pixel has a value of its own."""
    count = number * height * width
    return list(torch.arange(float(count)).view(number, 1, height, width))


@given(st.integers(1, 12), st.integers(8, 40), st.integers(8, 40))
def test_no_pixel_is_both_trained_on_and_measured_on(number: int, height: int, width: int) -> None:
    split = hold_out(labeled(number, height, width), 8)
    trained = {value for image in split.training for value in image.flatten().tolist()}
    pieces = [crop[..., first:] for crop, first in zip(split.crops, split.first, strict=True)]
    measured = {value for piece in pieces for value in piece.flatten().tolist()}
    assert trained
    assert measured
    assert not trained & measured
    assert all(min(image.shape[1:]) >= 8 for image in split.training)
    assert split.crops.shape[1:] == (1, 8, 8)
    assert len(split.crops) <= max(CROPS, len(set(split.owners)))
    assert len(split.owners) == len(split.crops)


def test_an_image_without_a_quarter_is_refused() -> None:
    with pytest.raises(InputError, match="3 columns is too small"):
        hold_out(labeled(1, 3, 3), 3)


@pytest.mark.parametrize(("number", "held"), [(3, 1), (4, 1), (5, 2), (9, 3), (50, 10)])
def test_a_third_of_many_images_is_held_out_whole(number: int, held: int) -> None:
    images = labeled(number, 8, 8)
    split = hold_out(images, 8)
    assert len(split.training) == number - held
    assert torch.equal(split.crops, torch.stack(images[-held:]))
    assert set(split.first) == {0}
    assert split.whole
    assert split.owners == tuple(range(held))


def test_the_right_quarter_of_one_small_image_is_mirrored_away() -> None:
    [image] = labeled(1, 8, 8)
    split = hold_out([image], 8)
    assert torch.equal(split.training[0][..., :6], image[..., :6])
    assert torch.equal(split.training[0][..., 6:], image[..., [4, 3]])
    assert torch.equal(split.crops[0], image)
    assert split.first == (6,)


def test_a_large_image_gives_whole_windows() -> None:
    split = hold_out(labeled(1, 16, 32), 8)
    assert split.training[0].shape == (1, 16, 24)
    assert split.first == (0, 0)


def test_the_order_of_sizes_does_not_matter() -> None:
    small, large = torch.zeros(1, 8, 8), torch.ones(1, 24, 40)
    split = hold_out([small, large], 8)
    assert [tuple(image.shape) for image in split.training] == [(1, 8, 8), (1, 24, 30)]


def test_an_image_that_is_too_narrow_is_refused() -> None:
    with pytest.raises(InputError, match="too small"):
        hold_out([torch.zeros(1, 8, 1)], 8)
