"""Against what is known of white Gaussian images: E[x | z] = z / (1 + v) at noise of variance v."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from proxmatch.diagnosis.calibration import predictable

VARIANCE = 0.5


@pytest.fixture(scope="module", params=[1, 6])
def pair(request: pytest.FixtureRequest) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    size = (request.param, 3, 96, 96) if request.param == 1 else (request.param, 3, 48, 48)
    x = torch.randn(size, generator=generator)
    return x, x + math.sqrt(VARIANCE) * torch.randn(size, generator=generator)


def test_a_conditional_mean_gives_nothing_away(pair: tuple[Tensor, Tensor]) -> None:
    x, z = pair
    assert predictable(z / (1 + VARIANCE), x) < 0.005


@pytest.mark.parametrize("shift", [0.0, 0.3])
def test_what_a_wrong_strength_or_color_gives_away(
    pair: tuple[Tensor, Tensor], shift: float
) -> None:
    """Of the output z + shift: all but the error v / (1 + v) of the conditional mean."""
    x, z = pair
    known = 1 - VARIANCE / (1 + VARIANCE) / (VARIANCE + shift**2)
    assert predictable(z + shift, x) == pytest.approx(known, abs=0.02)


def test_ends(pair: tuple[Tensor, Tensor]) -> None:
    x, z = pair
    assert predictable(x, x) == 0
    assert math.isnan(predictable(z / 0, x))
