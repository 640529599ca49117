"""Proposition 4.1 in little: where MSE and proximal matching end up."""

from __future__ import annotations

import io

import pytest

from proxmatch.theory.known import Gaussian, Laplace
from proxmatch.theory.population import draw, study


@pytest.fixture(scope="module", params=["lpn", "gs"])
def found(request: pytest.FixtureRequest) -> object:
    return study(Laplace(1.0), 1.0, family=request.param, gammas=(0.5, 0.25), steps=120)


def test_mse_lands_on_the_mean_and_matching_moves_to_the_mode(found: object) -> None:
    mse, wide, narrow = found.trained  # type: ignore[attr-defined]
    assert mse.to_mean < 0.25 * mse.to_mode
    assert mse.to_mode > 1.3 * wide.to_mode > 1.3 * 1.3 * narrow.to_mode
    assert wide.to_mean < narrow.to_mean
    for run in (wide, narrow):  # it is the smoothed mode that they approach
        assert run.to_target < 0.5 * min(run.to_mean, run.to_mode)


def test_learned_regularizer_approaches_minus_log_p(found: object) -> None:
    mse, _, narrow = found.trained  # type: ignore[attr-defined]
    near = found.grid[:, 0].abs() <= 2  # type: ignore[attr-defined]
    true = found.grid[near].abs().sum(1)  # type: ignore[attr-defined]
    errors = [(run.regularizer[near] - true).abs().mean() for run in (mse, narrow)]
    assert float(errors[1]) < 0.7 * float(errors[0])


def test_figure_can_be_drawn(found: object) -> None:
    file = io.BytesIO()
    draw(found).savefig(file, format="png", dpi=40)  # type: ignore[arg-type]
    assert file.getvalue().startswith(b"\x89PNG")


def test_gaussian_has_one_target_for_both() -> None:
    result = study(Gaussian(1.0), 0.7, gammas=(0.5,), steps=150)
    for run in result.trained:
        assert run.to_mean == pytest.approx(run.to_mode, abs=1e-9)
        assert run.to_mean < 0.06
