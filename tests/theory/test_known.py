"""Closed forms against quadrature and brute-force optimization by scipy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from scipy import integrate, optimize, stats
from torch import Tensor

from proxmatch.errors import InputError
from proxmatch.theory.known import Density, Gaussian, Huber, Laplace, Mixture, Prior

Array = Any
SCALAR: dict[str, Density] = {
    "gaussian": Gaussian(0.8, 0.3),
    "laplace": Laplace(0.7),
    "mixture": Mixture(((-1.0,), (0.5,), (1.2,)), 0.6, (1.0, 2.0, 0.5)),
}
PLANE = Mixture(((-1.0, 0.2), (0.6, 0.5), (0.3, -0.9)), 0.7, (1.0, 0.5, 2.0))
scalar = pytest.mark.parametrize("name", sorted(SCALAR))
observed = st.floats(-3, 3)


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


#: The same densities by scipy.
PARTS = [(w, stats.norm(m, 0.6)) for w, m in ((1, -1.0), (2, 0.5), (0.5, 1.2))]
DENSITY: dict[str, Callable[[Array], Array]] = {
    "gaussian": stats.norm(0.3, 0.8).pdf,
    "laplace": stats.laplace(0, 0.7).pdf,
    "mixture": lambda x: sum(w / 3.5 * part.pdf(x) for w, part in PARTS),
}
GRID = np.linspace(-9, 9, 1801)  # with a node where the Laplace density has its kink


def posterior(name: str, y: float, sigma: float, x: Array) -> Array:
    return DENSITY[name](x) * np.exp(-((x - y) ** 2) / (2 * sigma**2))


def smoothed(name: str, y: float, sigma: float, gamma: float, z: float) -> float:
    kernel = np.exp(-((z - GRID) ** 2) / (2 * gamma**2))
    return float(integrate.simpson(posterior(name, y, sigma, GRID) * kernel, x=GRID))


def argmax(f: Callable[[Any], Any]) -> float:
    """Of a function of one number: the best of a grid, refined."""
    grid = np.linspace(-3, 3, 121)
    best = grid[int(np.argmax([f(v) for v in grid]))]
    found = optimize.minimize_scalar(
        lambda v: -np.log(f(v)),
        bounds=(best - 0.05, best + 0.05),
        method="bounded",
        options={"xatol": 1e-11},
    )
    return float(found.x)


@scalar
def test_energy_is_minus_the_logarithm_of_the_density(name: str) -> None:
    x = np.linspace(-3, 3, 50)
    energy = SCALAR[name].energy(torch.from_numpy(x)[:, None])
    assert np.allclose(np.exp(-energy.numpy()), DENSITY[name](x), rtol=1e-12)


@scalar
@given(y=observed, sigma=st.floats(0.2, 1.5))
def test_posterior_mean_is_that_of_quadrature(name: str, y: float, sigma: float) -> None:
    weight = posterior(name, y, sigma, GRID)
    expected = integrate.simpson(weight * GRID, x=GRID) / integrate.simpson(weight, x=GRID)
    assert float(SCALAR[name].mean(column(y), sigma)) == pytest.approx(expected, abs=1e-7)


@scalar
@pytest.mark.parametrize("sigma", [0.3, 0.8])
def test_mode_is_the_best_of_a_brute_force_search(name: str, sigma: float) -> None:
    for y in np.linspace(-2.5, 2.5, 9).tolist():
        expected = argmax(lambda x, y=y: posterior(name, y, sigma, x))  # type: ignore[misc]
        assert float(SCALAR[name].mode(column(y), sigma)) == pytest.approx(expected, abs=1e-6)


@scalar
@pytest.mark.parametrize("gamma", [0.2, 0.9])
def test_smoothed_mode_is_the_best_of_a_search_over_quadratures(name: str, gamma: float) -> None:
    for y in (-1.7, 0.25, 1.1):
        expected = argmax(lambda z, y=y: smoothed(name, y, 0.6, gamma, z))  # type: ignore[misc]
        found = float(SCALAR[name].smoothed_mode(column(y), 0.6, gamma))
        assert found == pytest.approx(expected, abs=1e-6)


@scalar
def test_smoothed_mode_goes_from_the_mode_to_the_mean(name: str) -> None:
    prior, y = SCALAR[name], column(-2.0, -0.4, 0.0, 0.7, 1.9)
    assert torch.allclose(prior.smoothed_mode(y, 0.5, 1e-5), prior.mode(y, 0.5), atol=1e-4)
    assert torch.allclose(prior.smoothed_mode(y, 0.5, 1e3), prior.mean(y, 0.5), atol=1e-4)


def test_plane_mixture_against_a_fine_grid() -> None:
    """The trapezoidal rule is exact to rounding on smooth densities that decay."""
    sigma, gamma = 0.6, 0.3
    axis = torch.linspace(-6, 6, 241, dtype=torch.float64)
    x = torch.cartesian_prod(axis, axis)
    y = torch.tensor([[0.3, -0.2], [-0.8, 0.9], [1.5, 0.4]], dtype=torch.float64)
    weight = torch.exp(-PLANE.energy(x) - (x - y[:, None]).square().sum(2) / (2 * sigma**2))
    mean = (weight[..., None] * x).sum(1) / weight.sum(1, keepdim=True)
    assert torch.allclose(PLANE.mean(y, sigma), mean, atol=1e-10)
    for g, found in ((0.0, PLANE.mode(y, sigma)), (gamma, PLANE.smoothed_mode(y, sigma, gamma))):
        for i in range(len(y)):

            def height(z: np.ndarray, i: int = i, g: float = g) -> float:
                point = torch.as_tensor(z, dtype=torch.float64)
                if g == 0:
                    distance = float((point - y[i]).square().sum())
                    return float(PLANE.energy(point[None])) + distance / (2 * sigma**2)
                near = torch.exp(-(x - point).square().sum(1) / (2 * g**2))
                return -math.log(float((weight[i] * near).sum()))

            best = min(
                (optimize.minimize(height, start, tol=1e-12) for start in PLANE.means),
                key=lambda result: float(result.fun),
            )
            assert np.allclose(found[i].numpy(), best.x, atol=1e-5)


@pytest.mark.parametrize("prior", [*SCALAR.values(), PLANE, Huber(0.5, 0.3)], ids=repr)
def test_slope_and_curvature_are_the_derivatives_of_the_energy(prior: Prior) -> None:
    x = (torch.rand(7, prior.dimension, dtype=torch.float64) * 4 - 2).requires_grad_()
    (slope,) = torch.autograd.grad(prior.energy(x).sum(), x)
    assert torch.allclose(prior.slope(x), slope, atol=1e-12)
    x = x.detach()
    for i in range(prior.dimension):
        shift = torch.zeros_like(x)
        shift[:, i] = 1e-6
        change = (prior.slope(x + shift) - prior.slope(x - shift)) / 2e-6
        assert torch.allclose(prior.curvature(x)[:, i], change, atol=1e-6)
    values = torch.linalg.eigvalsh(prior.curvature(x))
    low, high = prior.curvature_range
    assert low - 1e-12 <= float(values.min()) <= float(values.max()) <= high + 1e-12


@pytest.mark.parametrize("prior", [*SCALAR.values(), PLANE], ids=repr)
def test_samples_have_the_moments_of_the_density(prior: Density) -> None:
    """With much noise and y = 0 the posterior is the prior, up to 1 / sigma^2."""
    x = prior.sample(200_000, torch.Generator().manual_seed(0)).double()
    mean = prior.mean(torch.zeros(1, prior.dimension, dtype=torch.float64), 1e4)
    assert torch.allclose(x.mean(0), mean[0], atol=0.01)
    # E[slope(x) x^T] = Id for any density that decays
    identity = prior.slope(x).T @ x / len(x)
    assert torch.allclose(identity, torch.eye(prior.dimension).double(), atol=0.02)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(InputError, match="sharp tip"):
        Laplace(1.0, 0.1)
    with pytest.raises(InputError, match="one dimension"):
        Mixture(((0.0,), (1.0, 2.0)))
    with pytest.raises(InputError, match="positive weights"):
        Mixture(((0.0,), (1.0,)), 1.0, (1.0, -1.0))
