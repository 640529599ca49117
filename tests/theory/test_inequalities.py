"""Every inequality holds where it must, and the checker can fail."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from proxmatch.denoisers import GradientStep, GradientStepConfig
from proxmatch.errors import DivergenceWarning, StepSizeWarning
from proxmatch.problems import Problem, gaussian_deblurring
from proxmatch.theory import Constants, ExactDenoiser, Perturbed, Row, Verdict, check, trace
from proxmatch.theory.known import Gaussian, Huber, Laplace, Mixture
from proxmatch.theory.trajectory import Trajectory
from tests.theory.test_trajectory import Partial, measured, problem

PRIORS = {
    "gaussian": (Gaussian(0.3, 0.5), 0.2),
    "huber": (Huber(0.1, 0.05), 0.1),
    "mixture": (Mixture(((0.2,), (0.8,)), 0.3), 0.2),
    "plane": (Mixture(((0.2, 0.2), (0.8, 0.3), (0.5, 0.9)), 0.3), 0.2),
}
STEPS = 6


def reference(name: str) -> ExactDenoiser:
    prior, sigma = PRIORS[name]
    return ExactDenoiser(prior, sigma, 2)


def walk(
    name: str, sizes: list[float], seed: int = 0, eta: float = 0.95, **options: object
) -> Trajectory:
    """A run whose k-th mismatch is the k-th size."""
    p = gaussian_deblurring(5, channels=2, kernel_size=3, eta=eta, dtype=torch.float64)
    y = p.measure(torch.rand(2, 2, 5, 5, generator=torch.Generator().manual_seed(seed)).double())
    target = reference(name)
    deployed = Perturbed(target, lambda k: sizes[k - 1], seed) if any(sizes) else target
    return trace(deployed, y, p, reference=target, iterations=len(sizes), **options)  # type: ignore[arg-type]


def by_name(rows: tuple[Row, ...]) -> dict[str, Row]:
    return {row.name: row for row in rows}


@pytest.mark.parametrize("name", sorted(PRIORS))
@settings(max_examples=12)
@given(
    sizes=st.lists(st.floats(1e-3, 3.0), min_size=STEPS, max_size=STEPS),
    seed=st.integers(0, 1000),
    eta=st.floats(0.05, 0.98),
)
def test_every_row_holds_for_perturbed_denoisers(
    name: str, sizes: list[float], seed: int, eta: float
) -> None:
    path = walk(name, sizes, seed, eta)
    rows = check(path, infimum=path.objective.min(1).values)
    for row in rows:
        assert row.verdict is not Verdict.FAILS, row.name
        assert math.isnan(row.worst) or row.worst >= -1e-9, row.name
        # and not because the tolerance is generous
        size = torch.maximum(row.lhs.abs(), row.rhs.abs())[row.applies]
        assert bool((row.tolerance[row.applies] <= 1e-6 * size + 1e-12).all()), row.name
    applied = [row for row in rows if row.verdict is Verdict.HOLDS]
    assert len(applied) == len(rows) - 3  # no local constants were asked for, and it is no match


@pytest.mark.parametrize("name", sorted(PRIORS))
def test_every_row_holds_for_matched_denoisers(name: str) -> None:
    path = walk(name, [0.0] * 12, local=(1, 4))
    rows = check(path, infimum=path.objective.min(1).values)
    assert [row.verdict for row in rows] == [Verdict.HOLDS] * len(rows)
    assert all(row.worst >= -1e-9 for row in rows)


@pytest.mark.parametrize("name", sorted(PRIORS))
def test_local_constants_are_at_most_the_global_and_hold(name: str) -> None:
    path = walk(name, [0.5] * 3, local=(1, 2, 3))
    for local in (path.local_image, path.local_query):
        assert bool((local <= path.smoothness * (1 + 1e-9)).all())
    rows = by_name(check(path))
    for row in ("mismatch bounds eps, local L_H", "gradient-suboptimality, local L_H"):
        assert rows[row].verdict is Verdict.HOLDS
        assert rows[row].basis == "estimated"
        assert rows[row].tightness >= rows[row.removesuffix(", local L_H")].tightness - 1e-9


def test_an_infinite_local_constant_says_nothing() -> None:
    """Where J_D* is not positive on the segment the bound would be infinite, and hold."""
    path = walk("gaussian", [0.5] * 3, local=(1, 2, 3))
    endless = torch.full_like(path.local_image, math.inf)
    rows = by_name(check(replace(path, local_image=endless, local_query=endless)))
    for row in ("mismatch bounds eps, local L_H", "gradient-suboptimality, local L_H"):
        assert rows[row].verdict is Verdict.NOT_APPLICABLE
        assert any("not positive on the segment" in reason for reason in rows[row].reasons)


def test_quadratic_bounds_are_equalities_and_half_the_smoothness_fails() -> None:
    """H_k is a parabola: eps = L_H / 2 d^2 and |grad H|^2 = 2 L_H eps exactly."""
    path = walk("gaussian", [0.3] * STEPS)
    rows = by_name(check(path))
    half = replace(Constants.paper(path), smoothness=path.smoothness / 2)
    wrong = by_name(check(path, half))
    for row in ("mismatch bounds eps", "gradient-suboptimality", "residual bound"):
        assert rows[row].tightness == pytest.approx(1, abs=1e-9)
        assert wrong[row].verdict is Verdict.FAILS
        assert wrong[row].share == 0
        assert wrong[row].worst == pytest.approx(-0.5, abs=1e-9)


@pytest.mark.parametrize("name", sorted(PRIORS))
@settings(max_examples=6)
@given(size=st.floats(0, 2), seed=st.integers(0, 1000), eta=st.floats(0.05, 0.99))
def test_sixteen_can_be_four(name: str, size: float, seed: int, eta: float) -> None:
    """The theorem's 16 is not sharp: 4 is proved (see the module), so it can never be seen to fail.

    Even 4 without the denominator 1 - eta L_f is proved for least squares, and 2 without mismatch.
    """
    path = walk(name, [size] * STEPS, seed, eta)
    four = by_name(check(path, Constants.paper(path, 4.0)))
    assert four["stationarity, F*(x_t)"].verdict is Verdict.HOLDS
    assert four["stationarity, sharp constants"].verdict is Verdict.HOLDS
    if size == 0:
        two = by_name(check(path, replace(Constants.sharp(path), decrease=2.0)))
        assert two["matched stationarity"].verdict is Verdict.HOLDS


def test_too_small_a_factor_fails() -> None:
    """Matched, one mode: the ratio of both sides tends to (1 - eta L_f)^2 for a weak prior."""
    p = gaussian_deblurring(4, channels=1, kernel_size=1, eta=0.05, dtype=torch.float64)
    target = ExactDenoiser(Gaussian(3.0), 0.1, 1)
    path = trace(
        target, p.measure(torch.rand(1, 1, 4, 4).double()), p, reference=target, iterations=3
    )
    rows = by_name(check(path, Constants.paper(path, 0.5)))
    assert rows["stationarity, F*(x_t)"].verdict is Verdict.FAILS
    assert rows["matched stationarity"].verdict is Verdict.FAILS
    small = by_name(check(path, sharp=replace(Constants.sharp(path), decrease=0.5)))
    assert small["stationarity, sharp constants"].verdict is Verdict.FAILS


def test_each_other_constant_matters() -> None:
    path = walk("gaussian", [0.3] * STEPS)
    descent = replace(Constants.paper(path), descent=50.0)
    assert by_name(check(path, descent))["descent"].verdict is Verdict.FAILS
    rising = path.objective + 10.0 * torch.arange(STEPS + 1)
    assert by_name(check(replace(path, objective=rising)))["descent"].verdict is Verdict.FAILS
    nudged = by_name(check(replace(path, identity=path.identity + 1e-6)))
    assert nudged["residual identity, to rounding"].verdict is Verdict.FAILS
    negative = by_name(check(replace(path, error=-path.error)))
    assert negative["D* minimizes H_k"].verdict is Verdict.FAILS


def test_theorem_with_the_true_infimum() -> None:
    """Gaussian prior: F* is a parabola whose minimum solves a linear system."""
    p, target = problem(4), ExactDenoiser(Gaussian(0.3, 0.5), 0.2)
    y = measured(p, 1)
    x = torch.zeros(1, 1, 4, 4, dtype=torch.float64)

    def gradient(x: Tensor) -> Tensor:
        return p.eta * p.gradient(x, y) + (0.2 / 0.3) ** 2 * (x - 0.5)

    matrix = torch.stack(
        [(gradient(e.view_as(x)) - gradient(x)).flatten() for e in torch.eye(16).double()], 1
    )
    best = torch.linalg.solve(matrix, -gradient(x).flatten()).view_as(x)
    start = p.initial(y)

    def objective(x: Tensor) -> Tensor:
        return p.eta * p.fidelity(x, y) + (0.2 / 0.3) ** 2 / 2 * (x - 0.5).square().sum()

    path = trace(Perturbed(target, lambda k: 0.1), y, p, reference=target, iterations=30)
    infimum = objective(best) - objective(start)
    assert float(infimum) <= float(path.objective.min())
    rows = by_name(check(path, infimum=infimum))
    telescoped, lowest = rows["stationarity, F*(x_t)"], rows["stationarity, F_inf"]
    assert lowest.verdict is Verdict.HOLDS
    assert bool((lowest.slack >= telescoped.slack - 1e-12).all())  # the weaker statement


def test_what_does_not_apply_says_why() -> None:
    p = problem()
    kink = ExactDenoiser(Laplace(0.1), 0.1)
    rows = check(trace(kink, measured(p, 1), p, reference=kink, iterations=2))
    assert {row.verdict for row in rows} == {Verdict.NOT_APPLICABLE}
    assert all("kink" in why for row in rows for why in row.reasons)

    loose = GradientStep(GradientStepConfig(channels=1, widths=(3, 4))).double()
    loose.lipschitz = 1.5
    rows = check(trace(loose, measured(p, 1), p, reference=loose, iterations=2))
    assert {row.verdict for row in rows} == {Verdict.NOT_APPLICABLE}
    assert all("L = 1.500 >= 1" in why for row in rows for why in row.reasons)

    target = ExactDenoiser(*PRIORS["mixture"])
    with pytest.warns(DivergenceWarning):
        path = trace(lambda z, _: 30 * z, measured(p, 1), p, reference=target, iterations=5)
    assert "the image diverged before" in by_name(check(path))["mismatch bounds eps"].reasons


@pytest.mark.parametrize("first", [0.2, 0.8])
def test_iterates_outside_the_image_spoil_what_needs_them(first: float) -> None:
    p, target = problem(), Partial(*PRIORS["mixture"])
    outputs = iter((0.3, 0.7, 0.2))
    path = trace(
        lambda z, _: torch.full_like(z, next(outputs)),
        p.measure(torch.full((1, 1, 6, 6), first, dtype=torch.float64)),
        p,
        reference=target,
        iterations=3,
    )
    rows = by_name(check(path))
    assert rows["mismatch bounds eps"].applies.tolist() == [[True, False, True]]
    theorem = rows["stationarity, F*(x_t)"]
    assert theorem.applies.tolist() == [[first < 0.5, False, False]]
    (why,) = theorem.reasons
    assert why.startswith("x_k, or an earlier iterate" if first < 0.5 else "x_0 is not")


def test_large_steps_leave_the_lemmas_and_not_the_theorem() -> None:
    with pytest.warns(StepSizeWarning):
        p = gaussian_deblurring(
            6, channels=1, kernel_size=3, eta=1.2, dtype=torch.float64, allow_large_step=True
        )
    target = ExactDenoiser(*PRIORS["mixture"])
    with pytest.warns(StepSizeWarning):
        path = trace(target, _measured(p), p, reference=target, iterations=4)
    rows = by_name(check(path))
    assert rows["descent"].verdict is Verdict.HOLDS
    theorem = rows["stationarity, F*(x_t)"]
    assert theorem.verdict is Verdict.NOT_APPLICABLE
    assert "is not below 1" in next(iter(theorem.reasons))


def _measured(p: Problem) -> Tensor:
    return p.measure(torch.rand(1, *p.img_size, dtype=torch.float64))


def test_summary_is_plain() -> None:
    import json

    rows = check(walk("gaussian", [0.3] * 2))
    text = json.dumps([row.summary() for row in rows], allow_nan=False)
    assert "Lemma 3.1" in text


def test_the_sides_of_the_inequalities_are_those_of_the_paper() -> None:
    path = walk("gaussian", [0.3, 0.1, 0.2, 0.4], eta=0.6)
    smooth, step = path.smoothness, path.step_size
    c0 = 16 / (1 - step)
    c1 = (c0 + 4 * smooth) * smooth / 2
    rows, t = by_name(check(path)), torch.arange(1, 5)
    mean = (path.stationarity[:, 1:] ** 2).cumsum(1) / t
    squares = (path.mismatch**2).cumsum(1) / t
    fall = path.objective[:, :1] - path.objective[:, 1:]
    for name, zero, one in (
        ("stationarity, F*(x_t)", c0, c1),
        ("stationarity, sharp constants", 4, (4 + 4 * smooth) * smooth / 2),
    ):
        assert torch.allclose(rows[name].lhs, mean)
        assert torch.allclose(rows[name].rhs, zero * fall / t + one * squares)
    rise = path.objective[:, 1:] - path.objective[:, :-1]
    assert torch.allclose(rows["descent"].lhs, rise + (1 - step) / 2 * path.step**2)
    assert torch.allclose(rows["descent"].rhs, path.error)
