from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from PIL import Image

from proxmatch.data import ImageDomain, embedded, few_shot
from proxmatch.errors import InputError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("few")
    for k in range(30):
        pixels = np.random.default_rng(k).integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(root / f"{k}.png")
    return root


@given(st.integers(1, 30), st.integers(1, 30), st.integers(-3, 2**70))
def test_sets_are_nested_in_order(folder: Path, n: int, m: int, seed: int) -> None:
    domain = ImageDomain(folder, 8, crop="center")
    small, large = (few_shot(domain, k, seed) for k in sorted((n, m)))
    k = len(small.indices)
    assert k == len(set(small.names)) == min(n, m)
    assert large.indices[:k] == small.indices
    assert large.names[:k] == small.names
    assert torch.equal(large.images[:k], small.images)
    assert torch.equal(small.images, domain.tensor(small.indices))
    assert small.names == tuple(domain.name(index) for index in small.indices)


def test_the_sets_are_the_same_everywhere(folder: Path) -> None:
    """By sha256sum: a change here changes what every few-shot figure was measured on."""
    domain = ImageDomain(folder, 8, crop="center")
    assert few_shot(domain, 5, 0).names == ("15.png", "6.png", "29.png", "2.png", "1.png")
    assert few_shot(embedded("photographs"), 5, 0).indices == (1, 8, 20, 25, 26)


def test_seeds_give_different_sets_and_every_image_its_chance(folder: Path) -> None:
    domain = ImageDomain(folder, 8)
    sets = {few_shot(domain, 5, seed).indices for seed in range(100)}
    assert len(sets) == 100
    first = [few_shot(domain, 1, seed).indices[0] for seed in range(300)]
    assert set(first) == set(range(30))


def test_embedded_domains_give_their_adaptation_crops() -> None:
    domain = embedded("histology")
    some = few_shot(domain, 3, 1)
    assert torch.equal(some.images, domain.adaptation[list(some.indices)])
    assert some.names == tuple(f"histology@{index}" for index in some.indices)


@pytest.mark.parametrize("n", [0, -1, 31])
def test_more_than_there_are_is_refused(folder: Path, n: int) -> None:
    with pytest.raises(InputError, match=f"has 30 images to adapt to, {n} were asked for"):
        few_shot(ImageDomain(folder, 8), n, 0)
