"""The story: damaged pictures, a denoiser of the wrong domain, and what a few crops make of it.

Every row of the comparison is the same solver at a strength that the same rule
(:mod:`proxmatch.transforms.strength`) chose on the same crops. No crop shows any of the pictures
that are reconstructed.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from proxmatch.baselines import TotalVariation, no_denoiser, wiener_filter
from proxmatch.data import encode_image
from proxmatch.demo.cores import side_by_side
from proxmatch.demo.pictures import crops, spread, whole
from proxmatch.demo.setup import REAL, Picture, Setup
from proxmatch.denoisers import ProximalDenoiser, jacobian_spectrum, load
from proxmatch.denoisers.spectrum import Spectrum
from proxmatch.diagnosis import Diagnosis, diagnose
from proxmatch.learning import adapt, gentle_settings
from proxmatch.pnp import PnPResult, Status, pnp_pgd
from proxmatch.problems import Problem, make_problem
from proxmatch.transforms import Relaxed, Tuned, choose_strength
from proxmatch.transforms.strength import Trial

TV = "total variation"
#: The rows of the comparison, in order.
ROWS = {
    "wrong": "wrong: {plan.wrong}",
    "adapted": "the same, adapted",
    "right": "right: {plan.right}",
    "wiener": "Wiener filter",
    "tv": TV,
    "none": "no denoiser",
}
#: What :func:`tell` reports, in this order.
STAGES = (
    "the wrong denoiser: diagnosis, beside the right one",
    "the plain methods, on the crops",
    "adapting it to the crops",
    *(f"whole pictures: {name}" for name in (
        "the wrong denoiser", "the adapted denoiser", "the right denoiser", "Wiener filter", TV,
        "no denoiser",
    )),
    "the certificate",
)  # fmt: skip


@dataclass(frozen=True)
class Scene:
    """A picture, and what is known of it."""

    about: Picture  # which one it is
    truth: Tensor  # (3, H, W)
    measured: Tensor  # the same shape, in [0, 1] up to noise
    problem: Problem  # what it was measured by


@dataclass(frozen=True)
class StoryRow:
    """One method on all pictures."""

    key: str  # wrong, adapted, right, wiener, tv or none
    name: str  # for a table
    strength: str  # as chosen, in words
    images: tuple[Tensor, ...]  # one for each picture, (3, H, W)
    curves: tuple[tuple[float, ...], ...]  # of each, the PSNR of x_0 ... x_K in dB
    diverged: int  # how many did

    @property
    def psnr(self) -> tuple[float, ...]:
        """PSNR of each picture, in dB."""
        return tuple(curve[-1] for curve in self.curves)

    @property
    def mean(self) -> float:
        """Mean PSNR over the pictures, in dB."""
        return sum(self.psnr) / len(self.psnr)


@dataclass(frozen=True)
class Eigenvalues:
    """The smallest eigenvalue of J_D at points z_k of one run, by Lanczos iteration."""

    picture: str  # whose run
    at: tuple[int, ...]  # the iterations k
    smallest: tuple[float, ...]  # at each, an upper bound of the true one
    residuals: tuple[float, ...]  # at each; some eigenvalue is within this distance
    lanczos: int  # iterations spent at each

    @property
    def least(self) -> float:
        """The smallest of all."""
        return min(self.smallest)

    @property
    def product(self) -> float:
        """The product t L: J_D = Id - t H, with L the largest eigenvalue of H that was found."""
        return 1 - self.least

    @property
    def proximal(self) -> bool:
        """Whether J_D is positive definite wherever it was looked at."""
        return self.least > 0


@dataclass(frozen=True)
class Story:
    """Everything there is to tell."""

    plan: Setup  # what was done
    scenes: tuple[Scene, ...]  # the pictures
    crops: Tensor  # what was adapted to and chosen on, (N, 3, size, size)
    rows: tuple[StoryRow, ...]  # the methods
    diagnosis: Diagnosis  # of the wrong denoiser, on the crops
    adapted: ProximalDenoiser  # the adapted denoiser at its strength
    eigenvalues: Eigenvalues  # of it, along a run
    warm: int  # how many of the steps are of the warm start
    seconds: float  # of the adaptation

    def row(self, key: str) -> StoryRow:
        """The row with this key."""
        return next(row for row in self.rows if row.key == key)


def tell(plan: Setup = REAL, on_stage: Callable[[str], None] = lambda stage: None) -> Story:
    """Do what the plan says, in pieces side by side (:mod:`proxmatch.demo.cores`)."""
    ahead = iter(STAGES)

    def done(*pieces: Future[Any]) -> list[Any]:
        on_stage(next(ahead))
        return [piece.result() for piece in pieces]

    scenes = tuple(_scene(about, plan) for about in plan.pictures)
    parts = [crops(whole(name, plan.reduce), plan.size, plan.crops) for name in plan.others]
    few = torch.cat(parts)
    some = few[spread(len(few), plan.judged)]
    small = problem_of(plan, (plan.size, plan.size))
    with side_by_side() as begin:
        adapting = begin(_adapted, few, some, small, plan)
        diagnosing = begin(_diagnosed, some, small, plan)
        fitting = begin(wiener_filter, few, small, seed=plan.seed)
        stopping = begin(no_denoiser, some, small, seed=plan.seed)

        [diagnosis] = done(diagnosing)
        wiener, none = done(fitting, stopping)
        chosen: dict[str, Tuned[Any]] = {
            "wrong": _strong(plan.wrong, diagnosis),
            "right": _strong(plan.right, diagnosis),
            "wiener": wiener,
            "tv": _strong(TV, diagnosis),
            "none": none,
        }
        runs = {
            key: [begin(_run, scene, tuned, key) for scene in scenes]
            for key, tuned in chosen.items()
        }
        [(adapted, seconds)] = done(adapting)
        chosen["adapted"] = adapted
        runs["adapted"] = [begin(_run, scene, adapted, "adapted") for scene in scenes]
        rows = tuple(
            _row(key, name.format(plan=plan), chosen[key], done(*runs[key]))
            for key, name in ROWS.items()
        )
        first: PnPResult = runs["adapted"][0].result()
        at = _looked_at(first, plan)
        spectra = done(*(begin(_spectrum, adapted.denoiser, first, k, plan) for k in at))
    return Story(
        plan=plan,
        scenes=scenes,
        crops=few,
        rows=rows,
        diagnosis=diagnosis,
        adapted=adapted.denoiser,
        eigenvalues=Eigenvalues(
            picture=scenes[0].about.name,
            at=tuple(at),
            smallest=tuple(float(each.smallest) for each in spectra),
            residuals=tuple(float(each.smallest_residual) for each in spectra),
            lanczos=plan.lanczos,
        ),
        warm=first.warm,
        seconds=seconds,
    )


def _diagnosed(some: Tensor, problem: Problem, plan: Setup) -> Diagnosis:
    """The wrong denoiser beside the right one and the plain methods."""
    wrong, right = ({name: load(name)} for name in (plan.wrong, plan.right))
    return diagnose(wrong, some, problem, sources=right, seed=plan.seed)


def _strong(name: str, diagnosis: Diagnosis) -> Tuned[Any]:
    """A denoiser at the strength that the diagnosis chose for it on the crops."""
    one = next(each for each in diagnosis.standings if each.name == name)
    trial = Trial(one.strength, one.score, one.score, 0, one.seconds, one.scores, one.sigma)
    made: Any = TotalVariation(one.strength)
    if name != TV:
        made = Relaxed(load(name), one.strength, one.sigma)
    return Tuned(made, trial, (trial,))


def problem_of(plan: Setup, size: tuple[int, int]) -> Problem:
    """The problem for pictures of (H, W) pixels."""
    return make_problem(plan.problem, size, plan.options, iterations=plan.iterations)


def _scene(about: Picture, plan: Setup) -> Scene:
    """Measured as ``proxmatch reconstruct --simulate`` measures the file of the picture."""
    truth = whole(about.name, plan.reduce)
    problem = problem_of(plan, (truth.shape[1], truth.shape[2]))
    digest = hashlib.sha256(encode_image(truth)).hexdigest()
    measured = problem.measure(truth[None], ids=[digest], seed=plan.seed)[0]
    return Scene(about, truth, measured, problem)


def _adapted(
    few: Tensor, some: Tensor, problem: Problem, plan: Setup
) -> tuple[Tuned[Relaxed], float]:
    """A short training on all crops, and its seconds; the whole pictures are held out."""
    started = time.perf_counter()
    source = load(plan.wrong)
    settings = gentle_settings(
        source, len(few), steps=plan.steps, check_every=plan.steps, seed=plan.seed
    )
    trained = adapt(
        source, few, problem=problem, settings=settings, select="last", held_out=False, draws=None
    ).denoiser
    seconds = time.perf_counter() - started
    return choose_strength(trained, some, problem, measured=plan.measured, seed=plan.seed), seconds


def _run(scene: Scene, tuned: Tuned[Any], key: str) -> PnPResult:
    """The reconstruction of a picture; without a denoiser, plain steps up to the best one."""
    stopped = key == "none"
    return pnp_pgd(
        tuned.denoiser,
        scene.measured[None],
        scene.problem,
        truth=scene.truth[None],
        record=("psnr", "iterates") if key == "adapted" else ("psnr",),
        iterations=tuned.chosen.iteration if stopped else None,
        warm=0 if stopped else None,
        on_divergence="ignore",
    )


def _row(key: str, name: str, tuned: Tuned[Any], runs: list[PnPResult]) -> StoryRow:
    curves = []
    for run in runs:
        assert run.psnr is not None  # noqa: S101
        curves.append(tuple(run.psnr[0, : int(run.iterations[0]) + 1].tolist()))
    trial = tuned.chosen
    strength = {
        "none": f"{trial.iteration} steps",
        "wiener": f"sigma {trial.strength:g}",
        "tv": f"weight {trial.strength:g}",
    }.get(key, f"t {trial.strength:.2g}")
    if trial.sigma is not None:
        strength = f"level {trial.sigma:.2g}, {strength}"
    return StoryRow(
        key=key,
        name=name,
        strength=strength,
        images=tuple(run.images[0] for run in runs),
        curves=tuple(curves),
        diverged=sum(run.status[0] is Status.DIVERGED for run in runs),
    )


def _looked_at(run: PnPResult, plan: Setup) -> list[int]:
    """Steps spread over a run, the last one among them."""
    steps = int(run.iterations[0])
    return sorted({round(steps * (i + 1) / plan.certified) for i in range(plan.certified)})


def _spectrum(denoiser: ProximalDenoiser, run: PnPResult, step: int, plan: Setup) -> Spectrum:
    """The extreme eigenvalues of J_D at the query point of a step."""
    assert run.queries is not None  # noqa: S101
    point = run.queries[:, step - 1]
    return jacobian_spectrum(denoiser, point, iterations=plan.lanczos, seed=plan.seed)
