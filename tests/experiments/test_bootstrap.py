from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from proxmatch.experiments.bootstrap import Resampling, interval


def test_with_one_set_the_interval_is_the_normal_one_of_a_mean() -> None:
    values = np.random.default_rng(0).normal(1.0, 2.0, size=(1, 100))
    resampled = Resampling.draw(1, 100, 5000, "a").means(values)
    found = interval(values.mean(), resampled)
    half = 1.959964 * values.std() / np.sqrt(100)
    assert found.effect == pytest.approx(values.mean())
    assert found.low == pytest.approx(values.mean() - half, abs=0.06 * half)
    assert found.high == pytest.approx(values.mean() + half, abs=0.06 * half)


def test_sets_and_images_each_contribute_their_share_of_the_variance() -> None:
    generator = np.random.default_rng(1)
    a, b = generator.normal(size=6), 3 * generator.normal(size=50)
    resampled = Resampling.draw(6, 50, 40_000, "b").means(a[:, None] + b[None])
    assert resampled.var() == pytest.approx(a.var() / 6 + b.var() / 50, rel=0.03)
    # As if all 300 values were independent it would be far smaller.
    assert resampled.var() > 3 * (a[:, None] + b[None]).var() / 300


@given(st.integers(1, 4), st.integers(1, 5), st.floats(-50, 50))
def test_a_constant_has_no_spread(sets: int, images: int, value: float) -> None:
    resampled = Resampling.draw(sets, images, 50, "c").means(np.full((sets, images), value))
    assert np.allclose(resampled, value)


def test_curves_are_resampled_as_wholes() -> None:
    values = np.random.default_rng(2).normal(size=(3, 7, 4))
    resampling = Resampling.draw(3, 7, 30, "d")
    whole = resampling.means(values)
    assert whole.shape == (30, 4)
    for k in range(4):
        assert np.allclose(whole[:, k], resampling.means(values[:, :, k]))


def test_resamples_are_those_of_the_name() -> None:
    one, two, three = (Resampling.draw(3, 5, 9, name).images for name in ("x", "x", "y"))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, three)
