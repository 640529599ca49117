"""Choosing a strength: against trying them all by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import deepinv as dinv
import pytest
import torch
from torch import Tensor, nn

from proxmatch.baselines import Wiener
from proxmatch.data import embedded
from proxmatch.denoisers import GradientStep, GradientStepConfig, jacobian_spectrum, load, save
from proxmatch.errors import InputError, LevelWarning, SuspiciousWarning, UnknownLipschitzError
from proxmatch.metrics import psnr
from proxmatch.pnp import pnp_pgd
from proxmatch.problems import Problem, denoising, gaussian_deblurring, super_resolution
from proxmatch.theory import certify
from proxmatch.transforms import (
    Relaxed,
    choose_strength,
    choose_strength_from_measurements,
    strength,
    tune,
)
from proxmatch.transforms.strength import GRID, MARGIN, PATIENCE, Trial, halved


class Shrinking(nn.Module):
    """N(x) = -x: g = 2 |x|^2, so that L = 4 everywhere, and D = -3 Id."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(-torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x


def test_a_gradient_step_of_one_level_stays_a_proximal_map() -> None:
    """Of a black image, t = 1/4 would be best: D = 0. Only t L <= 0.8, that is t <= 0.2, is."""
    own = GradientStep.of(Shrinking(), channels=1)
    black = torch.zeros(2, 1, 8, 8)
    problem = denoising(8, noise=0.1, channels=1, iterations=4)
    found = choose_strength(own, black, problem, strengths=(0.25,))
    assert found.lipschitz == pytest.approx(4, rel=1e-4)
    assert found.margin == pytest.approx(MARGIN, rel=1e-4)
    assert found.denoiser.convexity() == pytest.approx(1 - MARGIN, rel=1e-4)
    free = choose_strength(own, black, problem, strengths=(0.25,), proximal=False)
    assert (free.chosen.strength, free.lipschitz) == (0.25, pytest.approx(4, rel=1e-4))
    certificate = certify({"it": own}, problem.measure(black), problem, reference=found.denoiser)
    assert certificate.runs["it"].share == 1
    both = {"it": own, "itself": own}
    unknown = certify(both, problem.measure(black), problem, reference=own)
    assert repr(unknown).startswith("Certificate(denoising: no inequality applies: L of this")
    assert repr(unknown).count("applies") == 1


@pytest.fixture
def images() -> Tensor:
    return embedded("photographs", 32).adaptation[3:9]


def too_strong(images: Tensor) -> Wiener:
    """A filter for far more noise than there is, so that the best t is inside the grid."""
    return Wiener.fit(images, 0.3)


def test_the_choice_is_that_of_trying_all_by_hand(images: Tensor) -> None:
    problem, model = gaussian_deblurring(32).plain(), too_strong(images)
    grid = (1.0, 0.5, 0.2, 0.05, 0.02)
    found = choose_strength(model, images, problem, strengths=grid)
    y = problem.measure(images)
    by_hand = []
    for t in grid:
        x = problem.initial(y)
        for _ in range(problem.iterations):
            z = x - problem.eta * problem.gradient(x, y)
            x = t * model(z).detach() + (1 - t) * z
        by_hand.append(float(psnr(x, images).mean()))
    best = max(range(len(grid)), key=by_hand.__getitem__)
    assert 0 < best < len(grid) - 1  # otherwise the test shows nothing
    assert found.chosen.strength == found.denoiser.t == grid[best]
    tried = [trial.psnr for trial in found.table]
    assert tried == pytest.approx(by_hand[: len(tried)], abs=1e-3)
    run = pnp_pgd(found.denoiser, y, problem, truth=images)
    assert run.psnr is not None
    assert found.chosen.psnr == pytest.approx(float(run.psnr[:, -1].mean()), abs=1e-4)
    assert found.chosen.best == pytest.approx(float(run.psnr.mean(0).max()), abs=1e-4)
    assert found.chosen.iteration == int(run.psnr.mean(0).argmax())


def test_problems_of_one_name_all_count(images: Tensor) -> None:
    problems = [gaussian_deblurring(32), gaussian_deblurring(32, noise=0.1), super_resolution(32)]

    def once(problem: Problem | list[Problem]) -> Trial:
        return tune(lambda t: Relaxed(too_strong(images), t), (0.5,), images, problem).chosen

    alone = [once(p).psnr for p in problems]
    chosen = once(problems)
    assert list(chosen.by_problem) == ["deblurring", "deblurring 2", "super-resolution"]
    assert list(chosen.by_problem.values()) == pytest.approx(alone, abs=1e-4)
    assert chosen.psnr == pytest.approx(sum(alone) / 3, abs=1e-4)


def test_the_record_holds_what_was_tried(images: Tensor) -> None:
    model = too_strong(images)
    found = choose_strength(
        model, images, gaussian_deblurring(32), strengths=(0.3, 0.1), iterations=3
    )
    record = json.loads(json.dumps(found.denoiser.record))
    assert record["problem"] == "deblurring"
    assert record["images"] == 6
    assert record["strength"] == found.denoiser.t
    assert [trial["strength"] for trial in record["trials"]] == [1.0, 0.3, 0.1]
    assert isinstance(found.denoiser, Relaxed)
    assert found.denoiser.inner is model
    assert model.record == {}


def test_the_search_ends_after_the_peak(images: Tensor) -> None:
    """D(z) = s z leaves s x_0 after one step of zero data: best at s = 1."""
    physics = dinv.physics.Denoising(dinv.physics.ZeroNoise())
    problem = Problem.from_physics(physics, (3, 32, 32), iterations=1)
    made = []

    def make(strength: float):  # type: ignore[no-untyped-def]
        made.append(strength)
        return lambda z, _: strength * z

    strengths = (0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0)
    found = tune(make, strengths, images, problem)
    assert found.chosen.strength == 1.0
    assert made == list(strengths[: 3 + PATIENCE])
    assert [trial.strength for trial in found.table] == made
    with pytest.raises(InputError, match="no strength"):
        tune(make, (), images, problem)


def test_a_strength_that_diverges_loses_quietly(images: Tensor) -> None:
    found = tune(lambda s: lambda z, _: s * z, (50.0, 0.99), images, gaussian_deblurring(32))
    assert found.chosen.strength == 0.99
    assert found.table[0].psnr < 10


def expansive() -> GradientStep:
    """A gradient-step denoiser of all levels, with L above one: no proximal map as it is."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = GradientStep(GradientStepConfig.scaled(widths=(6, 8), levels=(0.003, 0.25)))
        x, level = torch.rand(2, 3, 16, 16), torch.full((2,), 0.05)
        with torch.no_grad():
            for p in model.parameters():
                p.normal_(0, 0.15)
            found = jacobian_spectrum(model, x, level, iterations=60).constant.max()
            for p in model.network.tail.parameters():
                p.mul_((2 / found).sqrt())
    return model


def test_comparisons_in_bfloat16_leave_the_denoiser_alone(
    images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same strength is chosen, by figures that are nearly the same, of the same denoiser."""
    problem, model = gaussian_deblurring(16, iterations=6), expansive()
    found = []
    for fast in (False, True):
        monkeypatch.setattr(strength, "bfloat16_is_fast", lambda device, fast=fast: fast)
        found.append(choose_strength(model, images[:2, :, :16, :16], problem))
    exact, quick = found
    assert (exact.denoiser.t, exact.denoiser.level) == (quick.denoiser.t, quick.denoiser.level)
    assert quick.chosen.psnr != exact.chosen.psnr  # it was another precision
    assert quick.chosen.psnr == pytest.approx(exact.chosen.psnr, abs=0.02)
    assert quick.denoiser.inner is model
    assert not model.mixed


def test_two_numbers_are_chosen_together_under_a_bound(
    images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strength, "bfloat16_is_fast", lambda device: False)
    problem, model = gaussian_deblurring(16, iterations=6), expansive()
    small = images[:2, :, :16, :16]
    found = choose_strength(model, small, problem)
    t, s = found.denoiser.t, found.denoiser.level
    assert (found.chosen.strength, found.chosen.sigma) == (t, s)
    y = problem.measure(small)

    def score(t: float, s: float) -> float:
        x = problem.initial(y)
        for _ in range(6):
            z = x - problem.eta * problem.gradient(x, y)
            x = (z + t * (model(z, s) - z)).detach()
        return float(psnr(x, small).mean())

    for trial in found.table:
        assert trial.psnr == pytest.approx(score(trial.strength, trial.sigma or 0), abs=1e-3)
    place = GRID.index(s)  # no neighboring level is better at this t
    for other in GRID[max(0, place - 1) : place + 2]:
        assert score(t, other) <= found.chosen.psnr + 1e-3
    run = pnp_pgd(found.denoiser, y, problem, record=("iterates",))
    assert run.queries is not None
    for z in run.queries[:, [0, 2, 5]].flatten(0, 1):  # dense: the whole Hessian of g
        _, product = model.linearize(z[None], s)
        eye = torch.eye(z.numel()).view(-1, *z.shape)
        jacobian = torch.stack([product(v[None])[0].flatten() for v in eye])
        constant = float((1 - torch.linalg.eigvalsh((jacobian + jacobian.T) / 2)).abs().max())
        assert t * constant < 1
        assert found.lipschitz is not None
        assert constant < 1.05 * found.lipschitz
    assert found.margin == pytest.approx(t * (found.lipschitz or 0))
    assert found.denoiser.smoothness == pytest.approx(1 / (1 - (found.margin or 0)))
    free = choose_strength(model, small, problem, proximal=False)
    assert free.chosen.psnr >= found.chosen.psnr - 0.05
    assert {trial.strength for trial in free.table} <= {2.0**-k for k in range(5)}


@pytest.mark.parametrize(
    ("measured", "t"), [([50.0, 0.5, 0.5], 1.0), ([50.0, 0.5, 40.0], MARGIN / 50)]
)
def test_a_first_look_along_a_bad_run_does_not_bind(
    images: Tensor, monkeypatch: pytest.MonkeyPatch, measured: list[float], t: float
) -> None:
    """L is 50 along the first run and 0.5 along the chosen one: t is raised, if it stays so."""
    looks = iter(measured)
    monkeypatch.setattr(
        "proxmatch.transforms.strength._Simulation.along_runs", lambda *_, **__: next(looks)
    )
    model, problem = expansive(), gaussian_deblurring(16, iterations=2)
    monkeypatch.setattr("proxmatch.transforms.strength.HALVINGS", 0)
    monkeypatch.setattr("proxmatch.transforms.strength.ROUNDS", 2)
    found = choose_strength(model, images[:1, :, :16, :16], problem)
    assert found.chosen.strength in (pytest.approx(t), pytest.approx(MARGIN / 50))
    if t == 1.0:
        assert max(trial.strength for trial in found.table) == pytest.approx(1.0)
        assert found.chosen.psnr == max(trial.psnr for trial in found.table)
    else:
        assert (found.chosen.strength, found.lipschitz) == (pytest.approx(t), 0.5)


def test_t_is_bounded_by_the_last_l_that_was_found(
    images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weaker the denoiser, the larger L: no run confirms the t that was allowed."""
    looks = iter([2.0, 4.0, 8.0, 16.0, 32.0])
    monkeypatch.setattr(
        "proxmatch.transforms.strength._Simulation.along_runs", lambda *_, **__: next(looks)
    )
    model, problem = expansive(), gaussian_deblurring(16, iterations=2)
    found = choose_strength(model, images[:1, :, :16, :16], problem)
    assert found.margin is not None
    assert found.margin <= MARGIN
    assert found.denoiser.convexity() >= 1 - MARGIN - 1e-6


class Exploding(nn.Module):
    """N_s(x) = 3000 (1 + s) x: no run has a second step."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(3000.0))

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        return self.factor * (1 + sigma.view(-1, 1, 1, 1)) * x


@pytest.mark.parametrize("proximal", [True, False])
def test_where_every_run_diverges_l_is_not_known(proximal: bool) -> None:
    own = GradientStep.of(Exploding(), channels=1, told="vector")
    problem = denoising(8, channels=1, iterations=4)
    found = choose_strength(own, torch.rand(1, 1, 8, 8), problem, proximal=proximal)
    assert (found.lipschitz, found.margin, found.denoiser.lipschitz) == (None, None, None)
    assert found.chosen.psnr == max(trial.psnr for trial in found.table)


@pytest.mark.parametrize("constants", [(math.nan, 2.0), (2.0, math.nan)])
def test_a_run_that_diverges_says_nothing_about_l_along_the_others(
    images: Tensor, monkeypatch: pytest.MonkeyPatch, constants: tuple[float, float]
) -> None:
    looks = iter(constants)
    monkeypatch.setattr(strength, "along_run", lambda *_: next(looks))
    problems = [gaussian_deblurring(16, iterations=2), denoising(16, iterations=2)]
    score = strength._Simulation(images[:1, :, :16, :16], problems, None, None, 0)
    assert score.along_runs(expansive(), Relaxed(expansive(), 0.1, 0.05)) == 2.0


def test_a_denoiser_that_changes_nothing_needs_no_bound(
    images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L = 0 allows any t."""
    monkeypatch.setattr(strength._Simulation, "along_runs", lambda *_, **__: 0.0)
    problem = gaussian_deblurring(16, iterations=2)
    found = choose_strength(expansive(), images[:1, :, :16, :16], problem)
    assert found.lipschitz == 0
    assert max(trial.strength for trial in found.table) == 1


def test_out_of_time_l_is_not_measured_along_the_run_that_is_chosen(
    images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []

    def along_runs(*_: object, **__: object) -> float:
        looks.append(2.0)
        return 2.0

    monkeypatch.setattr("proxmatch.transforms.strength._Simulation.along_runs", along_runs)
    small, problem = images[:1, :, :16, :16], gaussian_deblurring(16, iterations=2)
    found = choose_strength(expansive(), small, problem, stop=lambda: True)
    assert len(looks) == 1  # without it there is no bound at all
    assert found.margin == pytest.approx(MARGIN)


def test_a_stronger_one_has_a_higher_level_within_the_trained_range() -> None:
    model = load("gs-faces")
    assert model.levels == (0.003, 0.25)
    strong = Relaxed(model, 0.4, 0.02).stronger(4)
    assert isinstance(strong, Relaxed)
    assert (strong.inner, strong.t, strong.level) == (model, 0.4, pytest.approx(0.08))
    assert Relaxed(model, 0.4, 0.1).stronger(4).sigma == 0.25
    plain = Relaxed(model, 0.4)
    assert plain.stronger(4) is plain


def test_a_level_that_is_set_is_not_chosen_again(images: Tensor) -> None:
    """It cannot be told another one, so that no other one is reported."""
    model, small = Relaxed(expansive(), 0.4, 0.02), images[:1, :, :16, :16]
    problem = gaussian_deblurring(16, iterations=2)
    assert not model.conditional
    found = choose_strength(model, small, problem, strengths=(0.5,))
    assert {trial.sigma for trial in found.table} == {None}
    assert found.denoiser.sigma == 0.02
    with pytest.raises(InputError, match="no noise levels"):
        pnp_pgd(model, problem.measure(small), problem, sigma=0.1)
    with pytest.raises(InputError, match="no noise levels"):
        Relaxed(model, 0.5, 0.1)


def test_l_is_that_of_the_level_where_it_was_measured() -> None:
    model = Relaxed(expansive(), 0.4, 0.02, 1.9)
    assert model.convexity() == pytest.approx(1 - 0.4 * 1.9)
    model.sigma = 0.05
    with pytest.raises(UnknownLipschitzError):
        model.convexity()


def test_a_denoiser_of_many_levels_keeps_its_strength_in_a_file(tmp_path: Path) -> None:
    model = Relaxed(expansive(), 0.4, 0.02, 1.9)
    save(model, tmp_path)
    again = load(tmp_path)
    x = torch.rand(1, 3, 16, 16)
    assert torch.equal(again(x), model(x))
    assert torch.equal(again(x, 0.2), model(x))  # its level is its own
    assert again.smoothness == pytest.approx(1 / (1 - 0.4 * 1.9))
    assert again.sigma == 0.02


def test_wrong_levels_are_named(images: Tensor) -> None:
    with pytest.raises(InputError, match="has no noise levels"):
        Relaxed(too_strong(images), 0.5, 0.1)
    model = expansive()
    for wrong in (0.0, -0.1, float("nan"), float("inf")):
        with pytest.raises(InputError, match="positive number"):
            Relaxed(model, 0.5, wrong)
        with pytest.raises(InputError, match="positive number"):
            model(images, wrong)
    with pytest.raises(InputError, match="3 noise levels for 6 images"):
        model(images, torch.tensor([0.1, 0.2, 0.1]))
    with pytest.warns(LevelWarning, match=r"0\.5 is outside \[0\.003, 0\.25\]"):
        model(images, 0.5)


def test_a_level_that_is_asked_for_is_checked(images: Tensor) -> None:
    problem = gaussian_deblurring(32, iterations=2)
    with pytest.raises(InputError, match="has no noise levels"):
        choose_strength(too_strong(images), images, problem, level=0.1)
    for wrong in (0.0, -0.1, float("nan"), [0.1, 0.2], "0.1", True):
        with pytest.raises(InputError, match="positive number"):
            choose_strength(expansive(), images, problem, level=wrong)  # type: ignore[arg-type]


def test_a_level_outside_the_trained_range_is_warned_of_once(images: Tensor) -> None:
    problem, model = gaussian_deblurring(32, iterations=3), expansive()
    message = r"0\.9 is outside \[0\.003, 0\.25\]"
    y = problem.measure(images)
    for run in (
        lambda: choose_strength(model, images, problem, level=0.9),
        lambda: pnp_pgd(model, y, problem, sigma=0.9),
        lambda: pnp_pgd(model, y, problem, sigma=[0.9] * len(y)),
    ):
        with pytest.warns(LevelWarning, match=message) as told:
            run()
        assert [w.category for w in told].count(LevelWarning) == 1


class Pulling(nn.Module):
    """N_s with g_s(x) = s sum_i sqrt(c_i^2 + s^2), c = x - 1/2: D_s moves a pixel by about s."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        distance = ((x - 0.5).square() + sigma**2).sqrt()
        return x - self.factor * (2 * sigma * distance).sqrt()


def test_a_choice_says_if_it_is_worse_than_the_start(images: Tensor) -> None:
    """Where every prior harms, the weakest is best: at a level below those of the training."""
    problem = denoising(16, noise=1e-4, iterations=2)
    model = GradientStep.of(Pulling(), levels=(0.003, 0.25), lipschitz=1.0)
    with pytest.warns(SuspiciousWarning, match="at no strength .* better than its start") as told:
        found = choose_strength(model, images[:1, :, :16, :16], problem, measured=False)
    assert [w.category for w in told] == [SuspiciousWarning]
    assert found.chosen.sigma == GRID[0]
    assert GRID[0] < 0.003
    with pytest.warns(LevelWarning, match=r"outside \[0\.003, 0\.25\]"):
        found.denoiser(images)


@pytest.mark.parametrize("kind", ["deblurring", "super-resolution"])
def test_measurements_are_enough_to_choose(kind: str, images: Tensor) -> None:
    """Within 0.2 dB, on the true images, of the best t there is."""
    if kind == "deblurring":
        problem = gaussian_deblurring(32)
    else:
        problem = super_resolution(32, noise=0.02, kernel_size=15)
    model = too_strong(images)
    y = problem.measure(images)
    blind = choose_strength_from_measurements(model, y, problem)
    table = {trial.strength: trial.psnr for trial in choose_strength(model, images, problem).table}
    run = pnp_pgd(blind.denoiser, y, problem)
    assert float(psnr(run.images, images).mean()) > max(table.values()) - 0.2
    assert table[1.0] < max(table.values()) - 0.4  # otherwise any choice would do
    assert blind.denoiser.record["measurements"] == 6


@pytest.mark.parametrize(("height", "width"), [(8, 6), (7, 9), (2, 3)])
def test_halved_images_are_mirrored_means(height: int, width: int) -> None:
    x = torch.rand(2, 3, height, width)
    out = halved(x)
    assert out.shape == x.shape
    h, w = height // 2, width // 2
    blocks = x[..., : 2 * h, : 2 * w].reshape(2, 3, h, 2, w, 2).mean((3, 5))
    assert torch.allclose(out[..., :h, :w], blocks, atol=1e-6)
    assert torch.equal(out[..., h : 2 * h, :w], out[..., :h, :w].flip(-2))
    assert torch.equal(out[..., :h, w : 2 * w], out[..., :h, :w].flip(-1))


def test_the_seed_and_the_quality_of_a_choice_are_used(images: Tensor) -> None:
    filtered, p = too_strong(images), gaussian_deblurring(32, iterations=3)

    def trials(seed: int) -> list[float]:
        return [trial.psnr for trial in choose_strength(filtered, images, p, seed=seed).table]

    assert trials(1) == trials(1) != trials(0)
    best = choose_strength(filtered, images, p)
    with pytest.warns(SuspiciousWarning, match="better than its start"):  # the start is worst
        worst = choose_strength(filtered, images, p, quality=lambda x: -psnr(x, images))
    assert worst.chosen.strength != best.chosen.strength
