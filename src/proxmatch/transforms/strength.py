r"""The strength of a prior, chosen by simulating the problem on images at hand.

A denoiser that is good at one noise level is too strong, or too weak, for a given problem. Its
strength is two numbers: the noise level s, if it takes one, and how far t to go toward its output,
D = Id - t (Id - D_s). With D_s = Id - grad g_s this is a proximal map wherever t L(s) < 1, L(s) the
largest eigenvalue of the Hessian of g_s. So for a denoiser whose L is not below one by
construction, t is bounded by 1 / L, with L measured where the run goes, and s is chosen under that
bound: about twice the level at half the t is the same strength.

**The rule**, the same for every row of a comparison: measure the images, reconstruct them with one
strength after the other, and keep the one with the highest mean PSNR. A family with one number (the
t of an unconditional denoiser, the sigma of a Wiener filter, the weight of total variation) is
searched along its grid (:func:`tune`). A family with two numbers is searched along s, from level to
level, as long as the PSNR rises: first at the largest t allowed, then at half of it and so on
(:func:`choose_strength`).

Without any images, they are made from measurements: these are reconstructed at a medium strength
and **halved** in size. Images look alike at all scales, and averaging 2 x 2 pixels removes most of
what a reconstruction lacks or adds at the finest one, so that these are nearly clean images of half
the size; mirrored at their edges they fill the frame again. Then the problem is simulated on them.
If they were not halved, they would favor the strength that made them.
"""

from __future__ import annotations

import logging
import math
import time
import warnings
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from proxmatch._internal.hardware import bfloat16_is_fast
from proxmatch.denoisers.base import ProximalDenoiser
from proxmatch.denoisers.levels import told_once
from proxmatch.denoisers.plain import AnyDenoiser
from proxmatch.denoisers.spectrum import jacobian_spectrum
from proxmatch.errors import InputError, LevelWarning, SuspiciousWarning
from proxmatch.metrics import psnr
from proxmatch.plots.shown import ShownTuned
from proxmatch.plots.text_tables import Rows
from proxmatch.pnp import Denoise, pnp_pgd
from proxmatch.problems import Problem, by_name
from proxmatch.transforms.fitting import fitted, fitting
from proxmatch.transforms.relaxed import Relaxed

#: How many strengths in a row may be worse than the best one before the rest is left out.
PATIENCE = 2
#: Values of t: about even steps in log t, from the denoiser as it is to nearly none.
STRENGTHS = (1.0, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02)
#: Noise levels: even steps in log s.
LEVELS = tuple(0.003 * 1.5**k for k in range(11))
#: The same with three more below. Images far smoother than those of the training want a weaker
#: prior than at its lowest level; the search goes there where PSNR rises toward it.
GRID = (*(0.003 / 1.5**k for k in (3, 2, 1)), *LEVELS)
#: How far below the lowest level of its training a denoiser may be used.
BELOW = 3.4
#: How often t is halved at the most, and how often L is measured again.
HALVINGS, ROUNDS = 4, 3
#: Below this t there is almost no prior left.
WEAKEST = 0.02
#: Where the search for a level begins.
BEGIN = 5
#: The t L that is aimed for, and the largest that is accepted. Both leave room, because L is
#: measured at a few points of a few runs: along those of twenty other faces it was up to 8 %
#: larger, and with 0.95 one eigenvalue of J_D in five was negative there (``results/priors``).
MARGIN, ACCEPTED = 0.8, 0.9
#: By what factor the allowed t must grow, once L is known along the chosen run, to try again: the
#: run along which L was first measured may have been a bad one, with a far larger L.
RAISE = 1.5
#: The strength at which measurements are reconstructed before one is chosen: t, or s.
MIDDLING, MIDDLING_LEVEL = 0.1, 0.03
#: Points of a run, images and Lanczos iterations that are used to measure L along it.
POINTS, SOME, ITERATIONS = 4, 2, 12
#: L is measured at several points in one batch, of at most this many pixels: faster where images
#: are small.
PIXELS = 4 * 64**2

log = logging.getLogger(__name__)

D = TypeVar("D", bound=Denoise)
Quality = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Trial:
    """How one strength did on the simulated measurements.

    Attributes:
        strength: what was tried: t, the sigma of a filter, the weight of total variation or of the
            filter in a blend.
        psnr: of the last iterate, mean over images and problems, in dB. An image that diverged
            counts as it was left.
        best: the highest mean PSNR of any iterate, in dB; mean over the problems.
        iteration: number of the best iterate, for the first problem: where to stop.
        seconds: how long it took.
        by_problem: the PSNR of the last iterate of each problem, by name.
        sigma: the noise level passed to the denoiser, if it takes one.
    """

    strength: float
    psnr: float
    best: float
    iteration: int
    seconds: float
    by_problem: dict[str, float]
    sigma: float | None = None

    def cells(self) -> dict[str, str]:
        """A line of a table."""
        level = {} if self.sigma is None else {"level": f"{self.sigma:.3g}"}
        psnr = {"PSNR, dB": f"{self.psnr:.2f}", "seconds": f"{self.seconds:.1f}"}
        return {**level, "strength": f"{self.strength:.3g}", **psnr}


@dataclass(frozen=True, repr=False)
class Tuned(ShownTuned, Generic[D]):
    """A denoiser at the strength that did best, and what was tried.

    Attributes:
        denoiser: the winner.
        chosen: how it did.
        table: all trials, in the order they were made.
        lipschitz: L of Id - D_s along the chosen run, if it was measured: the largest over the
            points that were looked at.
    """

    denoiser: D
    chosen: Trial
    table: tuple[Trial, ...]
    lipschitz: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "table", Rows(self.table))  # prints as a table

    @property
    def margin(self) -> float | None:
        """The product t L: below 1, the denoiser is a proximal map where the run was looked at."""
        return None if self.lipschitz is None else self.chosen.strength * self.lipschitz

    def to_json(self) -> dict[str, Any]:
        """The strength and the table, for a record."""
        return {
            "strength": self.chosen.strength,
            "sigma": self.chosen.sigma,
            "lipschitz": self.lipschitz,
            "margin": self.margin,
            "trials": [asdict(t) for t in self.table],
        }


@torch.no_grad()
def tune(
    make: Callable[[float], D],
    strengths: Sequence[float],
    images: Tensor,
    problem: Problem | Sequence[Problem],
    *,
    quality: Quality | None = None,
    iterations: int | None = None,
    stop: Callable[[], bool] = lambda: False,
    seed: int = 0,
) -> Tuned[D]:
    """Try strengths in turn, and keep the one whose last iterates have the highest mean PSNR.

    PSNR rises and then falls along a sequence from strong to weak (or weak to strong): once
    :data:`PATIENCE` strengths in a row were below the best, the rest is not tried.

    Args:
        make: a denoiser of a given strength.
        strengths: what to try, in order of size.
        images: of the problem's size, ``(N, C, H, W)``; all are reconstructed together.
        problem: what to reconstruct from; several share one strength.
        quality: of reconstructions, ``(N,)`` in dB; their PSNR unless given.
        iterations: PnP steps, if not those of the problem.
        stop: called before each strength but the first; nothing more is tried once it is true.
        seed: of the noise in the simulated measurements.

    Example:
        >>> from proxmatch.problems import denoising
        >>> flat = torch.full((1, 1, 8, 8), 0.5)
        >>> pull = lambda t: lambda z, sigma: z + t * (0.5 - z)
        >>> tune(pull, (1.0, 0.1), flat, denoising(8, channels=1, iterations=2)).chosen.strength
        1.0
    """
    if not strengths:
        raise InputError("there is no strength to choose from; give at least one")
    made = _in_turn(make, strengths, _Simulation(images, problem, quality, iterations, seed), stop)
    chosen, denoiser = max(made, key=lambda pair: pair[0].psnr)
    return Tuned(denoiser, chosen, tuple(trial for trial, _ in made))


@torch.no_grad()
@told_once()
def choose_strength(
    denoiser: AnyDenoiser,
    images: Any,
    problem: Problem | Sequence[Problem],
    *,
    proximal: bool = True,
    measured: bool = True,
    level: float | None = None,
    strengths: Sequence[float] = STRENGTHS,
    quality: Quality | None = None,
    iterations: int | None = None,
    stop: Callable[[], bool] = lambda: False,
    seed: int = 0,
) -> Tuned[Relaxed]:
    """Choose the strength (s, t) of a denoiser for a problem, by simulating it on given images.

    Args:
        denoiser: D, which is held and not changed; of any kind
            (:func:`proxmatch.denoisers.as_denoiser`). Without a potential, t L is not known.
        images: of the domain and of the problem's size, ``(N, C, H, W)`` or in any form of
            :mod:`proxmatch.data.any_form`; one will do.
        problem: what to reconstruct from; several share one strength.
        proximal: keep t L(s) < 1 for a denoiser whose L is not below one by construction; without
            it the best strength is chosen, and L is only measured.
        measured: measure L along the chosen run, and lower t until t L < 0.9 there. Without it, L
            is that of the denoiser's card: quicker, but only a first guess.
        level: the noise level s, of a denoiser that takes one: t alone is then chosen.
        strengths: values of t for a denoiser of one level; t = 1 is always tried, so that the
            winner is never worse than D itself on the given images where D is a proximal map.
        quality: of reconstructions, ``(N,)`` in dB; their PSNR unless given.
        iterations: PnP steps, if not those of the problem.
        stop: called before each strength but the first, and before each measurement of L that can
            be done without; nothing more is tried once it is true.
        seed: of the simulated noise.

    Returns:
        The denoiser at that strength, with the scores of all that were tried, also in its record.

    Warns:
        SuspiciousWarning: none is better than the start of the iteration, on these images.

    Example:
        >>> from proxmatch.baselines import Wiener
        >>> from proxmatch.problems import denoising
        >>> images = torch.linspace(0, 1, 16).expand(1, 1, 16, 16)
        >>> problem = denoising(16, channels=1, iterations=2)
        >>> found = choose_strength(Wiener.fit(images, 0.1), images, problem, strengths=(0.1,))
        >>> sorted(trial.strength for trial in found.table)
        [0.1, 1.0]
    """
    denoiser, images = fitted(denoiser, images)
    if level is not None:  # refused before the work where it is not one
        level = Relaxed(denoiser, 1.0, level).level
    score = _Simulation(images, problem, quality, iterations, seed)
    if denoiser.conditional:
        with warnings.catch_warnings():
            if level is None:  # how good it is there, the search finds out
                warnings.simplefilter("ignore", LevelWarning)
            found = _two_numbers(denoiser, score, proximal, measured, level, stop)
    else:
        falling = sorted({1.0, *strengths}, reverse=True)
        found = _one_number(denoiser, score, proximal, measured, falling, stop)
    names = ", ".join(found.chosen.by_problem)
    log.info("%s on %s: %r", type(denoiser.core).__name__, names, found)
    if found.chosen.psnr < score.start:
        warnings.warn(
            f"{names}: at no strength is a reconstruction of these images better than its start, "
            f"{score.start:.2f} dB; the best has {found.chosen.psnr:.2f} dB",
            SuspiciousWarning,
            stacklevel=4,
        )
    found.denoiser.record = {"problem": names, "images": len(images), **found.to_json()}
    return found


def choose_strength_from_measurements(
    denoiser: AnyDenoiser,
    measurements: Any,
    problem: Problem,
    *,
    proximal: bool = True,
    measured: bool = True,
    strengths: Sequence[float] = STRENGTHS,
    iterations: int | None = None,
    seed: int = 0,
) -> Tuned[Relaxed]:
    """Choose the strength for a problem from measurements alone; see the module docstring.

    The scores are PSNR on halved reconstructions, which says which strength is best, not how good
    it is. Of the criteria tried on photographs and validation faces with LPNs of one level (three
    to five problems, 4 to 20 images) this one lost least against the best t: at most 0.6 dB,
    mostly below 0.1. The discrepancy principle lost up to 5.7 dB and does not apply without noise;
    the same method without halving lost up to 4.0 dB; SURE and R2R lost 0.6 dB in deblurring, where
    halving lost nothing.

    Args:
        denoiser: D, which is held and not changed.
        measurements: ``(N, ...)``, N >= 1, or pictures
            (:meth:`~proxmatch.problems.Problem.measurements`).
        problem: what they were measured by.
        proximal: as in :func:`choose_strength`.
        measured: as there.
        strengths: values of t, for a denoiser of one level.
        iterations: PnP steps, if not those of the problem.
        seed: of the simulated noise.

    Example:
        >>> from proxmatch.baselines import Wiener
        >>> from proxmatch.problems import denoising
        >>> flat = torch.full((1, 1, 16, 16), 0.5)
        >>> problem = denoising(16, channels=1, iterations=2)
        >>> denoiser, y = Wiener.fit(flat, 0.1), problem.measure(flat)
        >>> found = choose_strength_from_measurements(denoiser, y, problem, strengths=(0.1,))
        >>> found.denoiser.record["measurements"]
        1
    """
    denoiser = fitting(denoiser, problem.img_size[0])
    measurements = problem.measurements(measurements)
    found = choose_strength(
        denoiser,
        stand_ins(denoiser, measurements, problem, iterations=iterations),
        problem,
        proximal=proximal,
        measured=measured,
        strengths=strengths,
        iterations=iterations,
        seed=seed,
    )
    del found.denoiser.record["images"]
    found.denoiser.record["measurements"] = len(measurements)
    return found


def stand_ins(
    denoiser: ProximalDenoiser,
    measurements: Tensor,
    problem: Problem,
    *,
    iterations: int | None = None,
) -> Tensor:
    """Nearly clean images from measurements alone: halved reconstructions at a medium strength.

    Args:
        denoiser: D.
        measurements: ``(N, ...)``.
        problem: what they were measured by.
        iterations: PnP steps, if not those of the problem.

    Returns:
        Images of the problem's size, ``(N, C, H, W)``, in [0, 1].

    Example:
        >>> from proxmatch.denoisers import LPN, LPNConfig
        >>> from proxmatch.problems import denoising
        >>> denoiser = LPN(LPNConfig(channels=1, size=8, hidden=4, features=3, strides=(2,)))
        >>> problem = denoising(8, channels=1, iterations=2)
        >>> stand_ins(denoiser, problem.measure(torch.rand(1, 1, 8, 8)), problem).shape
        torch.Size([1, 1, 8, 8])
    """
    strength = (0.5, MIDDLING_LEVEL) if denoiser.conditional else (MIDDLING, None)
    middling = Relaxed(denoiser, *strength)
    run = pnp_pgd(
        middling, measurements, problem, record=(), iterations=iterations, on_divergence="ignore"
    )
    return halved(run.images.clamp(0, 1))


def along_run(denoiser: ProximalDenoiser, queries: Tensor, sigma: float | None = None) -> float:
    """L of Id - D_s at queries ``(B, K, C, H, W)`` of runs: the largest found, a lower bound.

    NaN if none of them is finite.
    """
    steps = queries.shape[1]
    chosen = sorted({round(i * (steps - 1) / (POINTS - 1)) for i in range(POINTS)})
    place = next(denoiser.parameters())
    some = queries[:SOME, chosen].flatten(0, 1).to(place)
    some = some[some.flatten(1).isfinite().all(1)]
    if not len(some):
        return math.nan
    together = max(1, PIXELS // some[0, 0].numel())
    found = [
        jacobian_spectrum(denoiser, z, sigma, iterations=ITERATIONS).constant
        for z in torch.split(some, together)
    ]
    return float(torch.cat(found).max())


class _Simulation:
    """Measurements of the images, and what a denoiser makes of them."""

    def __init__(
        self,
        images: Tensor,
        problem: Problem | Sequence[Problem],
        quality: Quality | None,
        iterations: int | None,
        seed: int,
    ) -> None:
        problems = [problem] if isinstance(problem, Problem) else list(problem)
        if not problems:
            raise InputError("there is no problem to choose a strength for; give at least one")
        self.images, self.iterations = images, iterations
        self.measured = {
            name: (p, p.measure(images, seed=seed)) for name, p in by_name(problems).items()
        }
        self.quality = quality or (lambda found: psnr(found, images))
        starts = [float(self.quality(p.initial(y)).mean()) for p, y in self.measured.values()]
        self.start = sum(starts) / len(starts)

    def __call__(self, denoiser: Denoise, strength: float, sigma: float | None = None) -> Trial:
        """How a denoiser of this strength does."""
        started = time.perf_counter()
        last, curves = {}, []
        for name, (problem, y) in self.measured.items():
            run = pnp_pgd(
                denoiser,
                y,
                problem,
                truth=self.images,
                record=("psnr",),
                iterations=self.iterations,
                on_divergence="ignore",
            )
            last[name] = float(self.quality(run.images).mean())
            curves.append(torch.zeros(1) if run.psnr is None else run.psnr.nan_to_num(0.0).mean(0))
        return Trial(
            strength=float(strength),
            psnr=sum(last.values()) / len(last),
            best=sum(float(curve.max()) for curve in curves) / len(curves),
            iteration=int(curves[0].argmax()),
            seconds=time.perf_counter() - started,
            by_problem=last,
            sigma=sigma,
        )

    def along_runs(
        self, denoiser: ProximalDenoiser, relaxed: Relaxed, images: int = SOME
    ) -> float | None:
        """L of Id - D_s along the runs of ``relaxed``, the same D at some strength.

        None if all of them diverged at once.
        """
        found = []
        for problem, y in self.measured.values():
            run = pnp_pgd(
                relaxed,
                y[:images],
                problem,
                record=("iterates",),
                iterations=self.iterations,
                on_divergence="ignore",
            )
            assert run.queries is not None  # noqa: S101
            found.append(along_run(denoiser, run.queries, relaxed.level))
        return max((constant for constant in found if not math.isnan(constant)), default=None)


def _allowed(constant: float | None) -> float:
    """The largest t that is tried for an L."""
    return min(1.0, MARGIN / constant) if constant else 1.0


def _in_turn(
    make: Callable[[float], D],
    strengths: Sequence[float],
    score: _Simulation,
    stop: Callable[[], bool],
) -> list[tuple[Trial, D]]:
    """Strengths one after the other, until :data:`PATIENCE` in a row were below the best."""
    made: list[tuple[Trial, D]] = []
    for strength in strengths:
        denoiser = make(strength)
        made.append((score(denoiser, strength), denoiser))
        scores = [trial.psnr for trial, _ in made]
        if len(scores) - 1 - scores.index(max(scores)) == PATIENCE or stop():
            break
    return made


def _one_number(
    denoiser: ProximalDenoiser,
    score: _Simulation,
    proximal: bool,
    measured: bool,
    strengths: Sequence[float],
    stop: Callable[[], bool],
) -> Tuned[Relaxed]:
    """Values of t from 1 down; then weaker ones, while t L is too large along the run."""
    made = _in_turn(lambda t: Relaxed(denoiser, t), strengths, score, stop)
    trials = [trial for trial, _ in made]
    best, constant = max(trials, key=lambda trial: trial.psnr), None
    for _ in range(ROUNDS if denoiser.core.penalized and measured else 0):
        if stop():
            break
        constant = score.along_runs(denoiser, Relaxed(denoiser, best.strength))
        if not proximal or constant is None or best.strength * constant < ACCEPTED:
            break
        largest = MARGIN / constant
        trials.append(score(Relaxed(denoiser, largest), largest))
        best = max((t for t in trials if t.strength <= largest), key=lambda trial: trial.psnr)
    return Tuned(Relaxed(denoiser, best.strength, None, constant), best, tuple(trials), constant)


def _two_numbers(
    denoiser: ProximalDenoiser,
    score: _Simulation,
    proximal: bool,
    measured: bool,
    level: float | None,
    stop: Callable[[], bool],
) -> Tuned[Relaxed]:
    """Levels one after the other, at the largest t allowed and its halves, while PSNR rises."""
    low, high = denoiser.levels or (LEVELS[0], LEVELS[-1])
    known = [s for s in LEVELS if low * 0.999 <= s <= high * 1.001] or [low]
    below = [s for s in GRID if low / BELOW <= s < known[0] * 0.999]
    levels = [*below, *known] if level is None else [level]
    bounded = denoiser.core.penalized
    trials: dict[tuple[int, float], Trial] = {}
    near = quick(denoiser)

    def at(place: int, t: float) -> float:
        if (place, t) not in trials:
            level = levels[place]
            trials[place, t] = score(Relaxed(near, t, level), t, level)
        return trials[place, t].psnr

    def climb(place: int, t: float) -> int:
        here = at(place, t)
        for step in (1, -1):
            while 0 <= place + step < len(levels) and not stop():
                there = at(place + step, t)
                if there <= here:
                    break
                place, here = place + step, there
        return place

    place, largest, constant = min(len(below) + BEGIN, len(levels) - 1), 1.0, None
    if bounded and proximal:  # a first guess: from the card, or measured at a medium strength
        middling = Relaxed(denoiser, 0.5, levels[place])
        constant = denoiser.core.lipschitz or score.along_runs(denoiser, middling, images=1)
        largest = _allowed(constant)
    verified: list[tuple[Trial, float]] = []  # with the L of their runs
    for number in range(ROUNDS):  # L is known better after each one
        place, t = climb(place, largest), largest
        best = trials[place, t]
        for _ in range(HALVINGS if number == 0 else 0):
            if stop():
                break
            t = t / 2
            weaker = climb(place, t)
            if trials[weaker, t].psnr <= best.psnr:
                break
            place, best = weaker, trials[weaker, t]
        chosen = Relaxed(denoiser, best.strength, best.sigma)
        if not bounded or (constant is not None and (not measured or stop())):
            break
        constant = score.along_runs(denoiser, chosen)
        if not proximal or constant is None:
            break
        allowed = _allowed(constant)
        if best.strength * constant < ACCEPTED:
            verified.append((best, constant))
            if best.strength < largest or allowed < RAISE * largest:
                break  # a larger t would not be better, or not much larger
        largest = allowed
        if largest < WEAKEST:  # almost no prior is left: no level makes a difference
            at(place, largest)
            best = trials[place, largest]
            break
    else:
        if not verified:  # L grew whenever t was reduced: t is as small as the last run asks for
            at(place, largest)
            best = trials[place, largest]
    if verified:
        best, constant = max(verified, key=lambda pair: pair[0].psnr)
    chosen = Relaxed(denoiser, best.strength, best.sigma, constant)
    return Tuned(chosen, best, tuple(trials.values()), constant)


def quick(denoiser: ProximalDenoiser) -> ProximalDenoiser:
    """D for comparing strengths: in bfloat16 where that is fast, else D itself.

    It takes two thirds of the time. With ``gs-faces`` and ``gs-histology`` on four faces, two
    problems and levels from 0.005 to 0.06, the PSNR differed by at most 0.002 dB. L is measured
    with D.

    Args:
        denoiser: D; its weights are shared.

    Example:
        >>> from proxmatch.denoisers import LPN, LPNConfig
        >>> denoiser = LPN(LPNConfig(channels=1, size=8, hidden=4, features=3, strides=(2,)))
        >>> quick(denoiser) is denoiser  # only gradient-step denoisers have such a form
        True
    """
    place = next(denoiser.parameters(), torch.empty(0)).device
    if not denoiser.core.mixable or not bfloat16_is_fast(place):
        return denoiser
    core = copy(denoiser.core)  # its weights are shared
    core.mixed = True
    return denoiser.with_core(core)


def halved(images: Tensor) -> Tensor:
    """Images of half the size, mirrored at their right and lower edges to the size they had."""
    small = F.avg_pool2d(images, 2)
    rows, cols = (
        _mirror(n, half, images.device)
        for n, half in zip(images.shape[-2:], small.shape[-2:], strict=True)
    )
    return small[..., rows[:, None], cols]


def _mirror(n: int, half: int, device: torch.device) -> Tensor:
    """0, 1, ..., half - 1, half - 1, ..., 1, 0, ... : n indices."""
    place = torch.arange(n, device=device) % (2 * half)
    return torch.minimum(place, 2 * half - 1 - place)
