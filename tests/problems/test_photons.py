"""The likelihood of counted photons, its constant by brute force, and the noise."""

from __future__ import annotations

import pytest
import torch
from deepinv.physics import Denoising
from scipy.stats import poisson

from proxmatch.errors import InputError
from proxmatch.pnp import pnp_pgd
from proxmatch.problems import (
    PhotonFidelity,
    PhotonNoise,
    Problem,
    poisson_deblurring,
    poisson_denoising,
)

GAIN, BACKGROUND = 0.05, 0.2
FIDELITY = PhotonFidelity(GAIN, BACKGROUND)
U = torch.linspace(-3, 3, 6001, dtype=torch.float64)  # predictions, negative ones too
Y = torch.cat([torch.linspace(0, 3, 61), torch.tensor([BACKGROUND, 30.0])]).double()


def value(u: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """d(u, y) of single numbers."""
    return FIDELITY.d.fn(u[:, None], y[:, None])


def slope(u: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = FIDELITY.d.grad(u, y)
    return out


def test_it_is_minus_the_log_likelihood() -> None:
    """Up to a constant of y, where the prediction is at least half of the count."""
    counts = torch.arange(0.0, 41.0).double()
    for u in (0.0, 0.3, 0.9):
        mean = (u + BACKGROUND) / GAIN
        likely = -torch.from_numpy(poisson(mean).logpmf(counts.numpy()))
        best = -torch.from_numpy(poisson(counts.numpy()).logpmf(counts.numpy()))
        best[0] = 0.0  # no photon from no light
        found = value(torch.full_like(counts, u), GAIN * counts)
        exact = counts <= 2 * mean
        torch.testing.assert_close(found[exact], (likely - best)[exact], rtol=0, atol=1e-10)
        assert bool((found[~exact] < (likely - best)[~exact]).all())  # d''' < 0


def test_its_curvature_bounds_the_second_derivative_and_is_reached() -> None:
    """Brute force over predictions and counts: differences of the gradient, and its convexity."""
    quotients = []
    for y in Y:
        g = slope(U, y.expand_as(U))
        quotients.append(g.diff() / U.diff())
        assert bool((g.diff() >= -1e-12).all())
    found = torch.stack(quotients)
    assert float(found.max()) <= FIDELITY.curvature * (1 + 1e-9)
    assert float(found.max()) == pytest.approx(FIDELITY.curvature, rel=1e-6)
    far = [(slope(u, y) - slope(v, y)).abs() / (u - v).abs() for y in Y for u, v in [(U[0], U[-1])]]
    assert float(max(far)) <= FIDELITY.curvature


def test_the_gradient_is_that_of_the_value_and_continuous() -> None:
    for y in Y:
        u = U.clone().requires_grad_()
        (expected,) = torch.autograd.grad(value(u, y.expand_as(u)).sum(), u)
        torch.testing.assert_close(slope(U, y.expand_as(U)), expected, rtol=0, atol=1e-9)


def test_the_second_derivative_is_continuous() -> None:
    """Also where the likelihood ends and its Taylor polynomial begins."""
    for y in Y:
        joint = float(y.clamp_min(BACKGROUND) / 2 - BACKGROUND)
        at = torch.tensor([joint - 1e-5, joint + 1e-5], dtype=torch.float64)
        second = (slope(at + 1e-6, y) - slope(at - 1e-6, y)) / 2e-6
        assert float(second.diff().abs()) < 1e-3 * FIDELITY.curvature


def test_images_of_a_batch_do_not_mix() -> None:
    problem = poisson_deblurring(8, channels=1, dtype=torch.float64)
    x = torch.rand(3, 1, 8, 8, dtype=torch.float64)
    y = problem.measure(x)
    together = problem.fidelity(x, y)
    alone = torch.cat([problem.fidelity(x[i : i + 1], y[i : i + 1]) for i in range(3)])
    torch.testing.assert_close(together, alone)


def test_the_gradient_of_a_problem_is_lipschitz_with_its_constant() -> None:
    problem = poisson_deblurring(8, channels=1, dtype=torch.float64, background=0.05)
    g = torch.Generator().manual_seed(0)
    y = problem.measure(torch.rand(1, 1, 8, 8, generator=g, dtype=torch.float64))
    worst = 0.0
    for _ in range(200):
        a = torch.rand(1, 1, 8, 8, generator=g, dtype=torch.float64) - 0.3
        b = a + 10 ** (-3 * torch.rand(1, generator=g).item()) * torch.randn(
            a.shape, generator=g, dtype=torch.float64
        )
        change = (problem.gradient(a, y) - problem.gradient(b, y)).norm() / (a - b).norm()
        worst = max(worst, float(change))
    assert worst <= problem.gradient_bound.value
    # The constant is reached at y = b, u <= -b / 2, along a flat image.
    dark = torch.full_like(y, 0.05)
    a, b = torch.full_like(y, -0.03), torch.full_like(y, -0.04)
    change = (problem.gradient(a, dark) - problem.gradient(b, dark)).norm() / (a - b).norm()
    assert float(change) == pytest.approx(problem.gradient_bound.value, rel=1e-6)


def test_pnp_pgd_descends_to_the_minimum_of_the_likelihood_and_a_prior() -> None:
    """With D = prox of R = s/2 |x - m|^2, F = eta f + R falls, and in the end grad F = 0."""
    problem = poisson_deblurring(8, channels=1, dtype=torch.float64)
    g = torch.Generator().manual_seed(0)
    y = problem.measure(torch.rand(1, 1, 8, 8, generator=g, dtype=torch.float64))
    s, m = 0.02, 0.4
    run = pnp_pgd(
        lambda z, _: (z + s * m) / (1 + s), y, problem, iterations=800, warm=0, record=("iterates",)
    )
    assert run.iterates is not None
    x = run.iterates[0]
    prior = s / 2 * (x - m).square().sum((1, 2, 3))
    total = problem.eta * problem.fidelity(x, y.expand_as(x)) + prior
    assert bool((total.diff() <= 1e-12).all())
    stationary = problem.eta * problem.gradient(x[-1:], y) + s * (x[-1:] - m)
    assert float(stationary.abs().max()) < 1e-6
    assert float((x[-1] - x[0]).norm()) > 0.1  # it went somewhere


def test_measurements_are_counts_of_photons() -> None:
    problem = poisson_denoising(128, channels=1, peak=20.0, background=0.25)
    y = problem.measure(torch.full((1, 1, 128, 128), 0.5))
    counts = 20 * y
    torch.testing.assert_close(counts, counts.round(), rtol=0, atol=1e-4)
    assert float(counts.mean()) == pytest.approx(20 * 0.75, rel=0.01)
    assert float(counts.var()) == pytest.approx(20 * 0.75, rel=0.05)
    torch.testing.assert_close(problem.initial(y), y - 0.25)
    again = problem.to(torch.float64).measure(torch.full((1, 1, 128, 128), 0.5).double())
    assert float((again.float() - y).abs().max()) < 1e-5
    assert not torch.equal(problem.measure(torch.full((1, 1, 128, 128), 0.5), seed=1), y)


def test_darkness_below_the_background_counts_as_none() -> None:
    assert bool((PhotonNoise(0.1, 0.2)(torch.full((1, 1, 4, 4), -1.0)) == 0).all())


def test_negative_counts_are_refused() -> None:
    problem = poisson_denoising(8, channels=1)
    with pytest.raises(InputError, match="counts of photons are not negative"):
        problem.initial(torch.full((1, 1, 8, 8), -0.1))


@pytest.mark.parametrize(("gain", "background"), [(0.0, 0.1), (0.1, 0.0), (-1.0, 0.1)])
def test_what_has_no_constant_is_refused(gain: float, background: float) -> None:
    with pytest.raises(InputError, match="positive"):
        PhotonFidelity(gain, background)


def test_read_noise_is_added_and_matched_in_mean_and_variance() -> None:
    """y + s^2 / g has the variance g times the mean that the likelihood takes it to have."""
    peak, b, s = 20.0, 0.1, 0.15
    problem = poisson_denoising(256, channels=1, peak=peak, background=b, read_noise=s)
    y = problem.measure(torch.full((1, 1, 256, 256), 0.4))
    assert float(y.mean()) == pytest.approx(0.4 + b, rel=0.01)
    assert float(y.var()) == pytest.approx((0.4 + b) / peak + s**2, rel=0.02)
    fidelity = problem.data_fidelity
    plain = PhotonFidelity(1 / peak, b + s**2 * peak)
    assert fidelity.curvature == pytest.approx(plain.curvature)
    assert problem.gradient_bound.value == pytest.approx(4 / (b / peak + s**2))
    counts = y.double() + s**2 * peak
    assert float(counts.var()) == pytest.approx(float(counts.mean()) / peak, rel=0.02)
    u = torch.rand(1, 1, 256, 256).double() - 0.2
    torch.testing.assert_close(fidelity.d.grad(u, y.double()), plain.d.grad(u, counts.clamp_min(0)))
    torch.testing.assert_close(problem.initial(y), y - b)
    assert float(y.min()) < 0  # and nothing is refused


def test_read_noise_alone_makes_the_likelihood_smooth() -> None:
    problem = poisson_denoising(8, channels=1, peak=50.0, background=0.0, read_noise=0.1)
    assert problem.gradient_bound.value == pytest.approx(4 / 0.01)
    with pytest.raises(InputError, match="background or read noise"):
        poisson_denoising(8, background=0.0)
    with pytest.raises(InputError, match="negative"):
        poisson_denoising(8, read_noise=-0.1)


def test_any_physics_can_have_it() -> None:
    physics = Denoising(noise_model=PhotonNoise(GAIN, BACKGROUND))
    problem = Problem.from_physics(physics, (1, 8, 8), data_fidelity=FIDELITY)
    assert problem.gradient_bound.value == pytest.approx(4 / (GAIN * BACKGROUND))
    assert problem.eta * problem.gradient_bound.value == pytest.approx(0.95)
