from __future__ import annotations

import pytest
import torch
from hypothesis import given, strategies as st
from pydantic import TypeAdapter, ValidationError

from proxmatch.losses import Constant, FromData, GammaSchedule, Geometric, Staged

NONE = torch.zeros(0)


def test_geometric_annealing_halves_at_equal_distances() -> None:
    schedule = Geometric(start=0.4, end=0.1)
    assert [schedule(t, NONE) for t in (0, 0.5, 1)] == pytest.approx([0.4, 0.2, 0.1])


def test_official_stages() -> None:
    schedule = Staged(pretraining=0.5, stages=4, end=0.05)
    values = [schedule(t, NONE) for t in (0.0, 0.49, 0.5, 0.63, 0.76, 0.88, 0.999, 1.0)]
    assert values[:2] == [None, None]
    assert values[2:] == pytest.approx([0.4, 0.2, 0.1, 0.05, 0.05, 0.05])
    assert Staged(pretraining=0, stages=1, end=0.3)(0.0, NONE) == pytest.approx(0.3)


@given(residuals=st.lists(st.floats(1e-3, 10), min_size=1, max_size=9), t=st.floats(0, 1))
def test_gamma_from_the_data_never_saturates_half_of_the_images(
    residuals: list[float], t: float
) -> None:
    residual = torch.tensor(residuals)
    gamma = FromData()(t, residual)
    assert gamma is not None
    weights = torch.exp(-(residual**2) / (2 * gamma**2))
    assert float((weights > 0.3).float().mean()) >= 0.5


def test_constant_and_floor() -> None:
    assert Constant(gamma=0.2)(0.7, NONE) == 0.2
    assert FromData(floor=0.01)(0.5, torch.zeros(3)) == 0.01


def test_settings_name_their_kind_and_refuse_the_rest() -> None:
    adapter: TypeAdapter[object] = TypeAdapter(GammaSchedule)
    assert adapter.validate_python({"kind": "staged", "stages": 2}) == Staged(stages=2)
    for bad in ({"kind": "linear"}, {"kind": "constant", "gamma": 0}, {"kind": "constant", "x": 1}):
        with pytest.raises(ValidationError):
            adapter.validate_python(bad)
