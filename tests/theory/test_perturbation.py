"""Mismatch of known size: summable squares vanish, a constant leaves a floor as d^2."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from proxmatch.theory import ExactDenoiser, Perturbed, power_law
from proxmatch.theory.known import Huber, Mixture, Prior
from proxmatch.theory.perturbation import stationarity_under
from tests.theory.test_trajectory import measured, problem

TARGET = ExactDenoiser(Huber(0.3, 0.4), 0.2)


def test_errors_have_the_length_they_are_told() -> None:
    deployed = Perturbed(TARGET, power_law(0.5, 1.5))
    z = torch.rand(3, 1, 4, 4, dtype=torch.float64)
    for k in (1, 2, 3):
        length = (deployed(z) - TARGET(z)).flatten(1).norm(dim=1)
        assert torch.allclose(length, torch.tensor(0.5 * k**-0.75).double())


def test_summable_mismatch_vanishes_and_constant_mismatch_does_not() -> None:
    p = problem(4)
    y = measured(p, 2)
    square = stationarity_under(power_law(0.5, 1.5), TARGET, y, p, iterations=300).square()
    constant = stationarity_under(lambda k: 0.5, TARGET, y, p, iterations=300).square()
    first, last = slice(0, 10), slice(-30, None)
    assert float(square[:, last].mean()) < 5e-3 * float(square[:, first].mean())
    assert float(constant[:, last].mean()) > 0.2 * float(constant[:, first].mean())
    # Theorem 3.1: the sum converges, so the running average goes to zero at least as 1 / t
    total = square.cumsum(1)
    assert float(total[:, -1].max() / total[:, 149].max()) < 1.05


@pytest.mark.parametrize("prior", [Huber(0.3, 0.4), Mixture(((0.2,), (0.8,)), 0.3)], ids=repr)
def test_floor_is_proportional_to_the_squared_mismatch(prior: Prior) -> None:
    """Exactly so for a parabola; here the curvature of R* varies with the size of the error."""
    p, sizes, target = problem(4), (0.01, 0.03, 0.1, 0.3), ExactDenoiser(prior, 0.2)
    y = measured(p, 1)
    runs = [stationarity_under(power_law(d, 0), target, y, p, iterations=60) for d in sizes]
    floors = [float(run[:, 30:].square().mean()) for run in runs]  # over the second half
    slope = np.polyfit(np.log([d**2 for d in sizes]), np.log(floors), 1)[0]
    assert slope == pytest.approx(1, abs=0.1)
