"""What is measured along a run, against the definitions where R* is known."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from proxmatch.denoisers import LPN, GradientStep, GradientStepConfig, Inverse, LPNConfig
from proxmatch.errors import DivergenceWarning, InputError
from proxmatch.pnp import Status, pnp_pgd
from proxmatch.problems import Problem, gaussian_deblurring
from proxmatch.theory import ExactDenoiser, Perturbed, certify, measure, power_law, trace
from proxmatch.theory.known import Huber, Mixture
from proxmatch.theory.trajectory import Trajectory, local_smoothness

PRIOR = Mixture(((0.2,), (0.8,)), 0.3)


def problem(size: int = 6, channels: int = 1) -> Problem:
    return gaussian_deblurring(size, channels=channels, kernel_size=3, dtype=torch.float64)


def measured(problem: Problem, count: int = 2) -> Tensor:
    return problem.measure(torch.rand(count, *problem.img_size, dtype=torch.float64))


def test_everything_agrees_with_its_definition() -> None:
    p, reference = problem(), ExactDenoiser(PRIOR, 0.2)
    y = measured(p)
    path = trace(Perturbed(reference, power_law(0.4, 0.3)), y, p, reference=reference, iterations=5)
    run = pnp_pgd(
        Perturbed(reference, power_law(0.4, 0.3)), y, p, record=["iterates"], iterations=5
    )
    assert run.iterates is not None
    assert run.queries is not None

    def regularizer(u: Tensor) -> Tensor:
        return 0.2**2 * PRIOR.energy(u.reshape(-1, 1)).view(len(u), -1).sum(1)

    def objective(u: Tensor) -> Tensor:
        return p.eta * p.fidelity(u, y) + regularizer(u)

    start = objective(run.iterates[:, 0])
    for k in range(6):
        x = run.iterates[:, k].clone().requires_grad_()
        value = objective(x)
        (gradient,) = torch.autograd.grad(value.sum(), x)
        size = gradient.flatten(1).norm(dim=1)
        assert torch.allclose(path.stationarity[:, k], size, rtol=1e-9)
        assert torch.allclose(path.objective[:, k], (value - start).detach(), atol=1e-11)
        if k == 0:
            continue
        x, z = x.detach(), run.queries[:, k - 1]
        best = reference(z)
        both = [(u - z).square().flatten(1).sum(1) / 2 + regularizer(u) for u in (x, best)]
        assert torch.allclose(path.error[:, k - 1], both[0] - both[1], atol=1e-11)
        assert torch.allclose(path.mismatch[:, k - 1], torch.tensor(0.4 * k**-0.15).double())
        step = (x - run.iterates[:, k - 1]).flatten(1).norm(dim=1)
        assert torch.allclose(path.step[:, k - 1], step)
        slope = 0.2**2 * PRIOR.slope(x.reshape(-1, 1)).view_as(x) + x - z
        assert torch.allclose(path.residual[:, k - 1], slope.flatten(1).norm(dim=1), rtol=1e-9)
    assert float(path.identity.max()) <= 1e-13
    assert path.smoothness == pytest.approx(1 + 0.2**2 / 0.3**2)


def small_lpn() -> LPN:
    torch.manual_seed(1)
    model = LPN(LPNConfig(channels=1, size=8, hidden=6, features=5, strides=(2,))).double()
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.05 * torch.randn_like(weight)
    return model


def test_numerical_errors_stay_within_their_bounds() -> None:
    """A sloppy inverse against a sharp one, on a network without closed forms."""
    p, reference = problem(8), small_lpn()
    y = measured(p)

    def run(tolerance: float) -> Trajectory:
        deployed = Perturbed(reference, power_law(0.3, 0.2))
        return trace(deployed, y, p, reference=reference, iterations=4, tolerance=tolerance)

    sloppy, sharp = run(1e-3), run(1e-12)
    for value, bound in (
        ("error", "error_bound"),
        ("stationarity", "gradient_bound"),
        ("residual", "gradient_bound"),
    ):
        a, b, most = getattr(sloppy, value), getattr(sharp, value), getattr(sloppy, bound)
        most = most[:, -a.shape[1] :]
        assert bool(((a - b).abs() <= most).all()), value
        assert float((a - b).abs().max()) > 1e-9  # there was an error to bound
    both = (sloppy.objective - sharp.objective).abs()
    bound = sloppy.objective_bound
    assert bool((both <= bound + bound[:, :1]).all())


def test_float32_models_are_measured_in_float64_and_left_alone() -> None:
    reference = small_lpn().float()
    p = problem(8).to(torch.float32)
    y = p.measure(torch.rand(1, 1, 8, 8))
    path = trace(reference, y, p, reference=reference, iterations=2)
    assert path.stationarity.dtype == torch.float64
    assert float(path.mismatch.max()) <= 1e-13
    assert next(reference.parameters()).dtype == torch.float32


class Partial(ExactDenoiser):
    """Claims that images brighter than 0.5 are outside its image."""

    def inverse(self, u: Tensor, sigma: object = None, **options: Any) -> Inverse:
        found = super().inverse(u, **options)
        return replace(found, converged=u.flatten(1).mean(1) <= 0.5)


def test_what_is_not_inverted_is_nan() -> None:
    p, reference = problem(), Partial(PRIOR, 0.2)
    outputs = iter((0.3, 0.7, 0.2))
    path = trace(
        lambda z, _: torch.full_like(z, next(outputs)),
        p.measure(torch.full((1, 1, 6, 6), 0.2, dtype=torch.float64)),
        p,
        reference=reference,
        iterations=3,
    )
    assert path.inverted.tolist() == [[True, True, False, True]]
    for curve in (path.stationarity, path.objective):
        assert curve.isnan().tolist() == [[False, False, True, False]]
    assert path.error.isnan().tolist() == [[False, True, False]]
    assert bool(path.mismatch.isfinite().all())


def test_a_reference_that_is_no_proximal_map_says_so() -> None:
    reference = GradientStep(GradientStepConfig(channels=1, widths=(3, 4))).double()
    reference.lipschitz = 1.5
    p = problem(8)
    path = trace(reference, measured(p, 1), p, reference=reference, iterations=1)
    assert math.isnan(path.smoothness)
    assert "L = 1.500 >= 1" in path.why
    assert not path.proved


def test_iterates_after_divergence_are_not_measured() -> None:
    p, reference = problem(), ExactDenoiser(PRIOR, 0.2)
    with pytest.warns(DivergenceWarning):
        path = trace(lambda z, _: 30 * z, measured(p, 1), p, reference=reference, iterations=5)
    assert path.status == (Status.DIVERGED,)
    known = int(path.inverted.sum())
    assert 1 <= known <= 3
    assert bool(path.stationarity[:, known:].isnan().all())
    assert bool(path.stationarity[:, :known].isfinite().all())


def test_local_smoothness_is_the_largest_inverse_eigenvalue_on_the_segment() -> None:
    """Huber: 1 + sigma^2 / (scale width) inside the tip, 1 outside, all by closed forms."""
    reference = ExactDenoiser(Huber(0.1, 0.05), 0.1)
    z, w = (torch.full((1, 1, 2, 2), v, dtype=torch.float64) for v in (0.4, 0.8))
    outside = local_smoothness(reference, (reference(z), reference(w)), (z, w))
    assert outside == pytest.approx((1.0, 1.0))
    across = local_smoothness(reference, (reference(-z), reference(w)), (-z, w), inside=3)
    assert across == pytest.approx((3.0, 3.0))


def test_measurements_of_a_single_image_need_no_batch() -> None:
    exact, p = ExactDenoiser(PRIOR, 0.1), problem()
    y = measured(p, 1)
    found = [trace(exact, m, p, reference=exact, iterations=2) for m in (y, y[0], y.numpy())]
    assert all(torch.equal(path.stationarity, found[0].stationarity) for path in found)


def test_a_warm_start_must_leave_steps_to_measure() -> None:
    exact, p = ExactDenoiser(PRIOR, 0.1), problem()
    y = measured(p)
    assert trace(exact, y, p, reference=exact, iterations=3, warm=2).step.shape == (2, 1)
    with pytest.raises(InputError, match="3 of 3 steps leaves none"):
        certify({"it": exact}, y, p, reference=exact, iterations=3, warm=3)


def test_iterates_must_fit() -> None:
    p, reference = problem(), ExactDenoiser(PRIOR, 0.2)
    x = torch.rand(1, 3, 1, 6, 6, dtype=torch.float64)
    with pytest.raises(InputError, match="x_0"):
        measure(x, x, measured(p, 1), p, reference=reference)
