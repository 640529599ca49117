"""The strength of a prior, chosen by simulating the problem on images at hand.

A denoiser that is good at one noise level is too strong, or too weak, for a given problem. Any
family of denoisers with one strength (the t of a relaxation, the sigma of a Wiener filter, the
weight of total variation) is treated alike here: measure the images, reconstruct them with each
strength, and keep the one of highest PSNR. Every method of a comparison is entitled to it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from proxmatch.errors import DivergenceWarning, InputError
from proxmatch.metrics import psnr
from proxmatch.pnp import Denoise, pnp_pgd
from proxmatch.problems import Problem, by_name

#: How many strengths in a row may fall short of the best one before the rest is left out.
PATIENCE = 2

D = TypeVar("D", bound=Denoise)
Quality = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Trial:
    """How one strength did on the simulated measurements.

    Attributes:
        strength: what was tried.
        psnr: of the last iterate, mean over images and problems, in dB. An image that diverged
            counts as it was left.
        best: the highest of the mean PSNR of any iterate, in dB; mean over the problems.
        iteration: which iterate that is, of the first problem: where to stop.
        seconds: how long it took.
        by_problem: the PSNR of the last iterate of each problem, by name.
    """

    strength: float
    psnr: float
    best: float
    iteration: int
    seconds: float
    by_problem: dict[str, float]


@dataclass(frozen=True)
class Tuned(Generic[D]):
    """A denoiser of the strength that did best, and what was tried.

    Attributes:
        denoiser: the winner.
        chosen: how it did.
        table: all trials, in the order they were made.
    """

    denoiser: D
    chosen: Trial
    table: tuple[Trial, ...]

    def to_json(self) -> dict[str, Any]:
        """The strength and the table, for a record."""
        return {"strength": self.chosen.strength, "trials": [asdict(t) for t in self.table]}


@torch.no_grad()
def tune(
    make: Callable[[float], D],
    strengths: Sequence[float],
    problem: Problem | Sequence[Problem],
    images: Tensor,
    *,
    quality: Quality | None = None,
    iterations: int | None = None,
    seed: int = 0,
) -> Tuned[D]:
    """Try strengths in turn, and keep the one whose last iterates have the highest mean PSNR.

    PSNR rises and then falls along a sequence from strong to weak (or weak to strong): once
    :data:`PATIENCE` strengths in a row were below the best, the rest is not tried.

    Args:
        make: a denoiser of a given strength.
        strengths: what to try, in order of size.
        problem: what to reconstruct from; several share one strength.
        images: of the problem's size, ``(N, C, H, W)``; all are reconstructed together.
        quality: of reconstructions, ``(N,)`` in dB; their PSNR unless given.
        iterations: PnP steps, if not those of the problem.
        seed: of the noise in the simulated measurements.
    """
    if not strengths:
        raise InputError("there is no strength to choose from; give at least one")
    problems = [problem] if isinstance(problem, Problem) else list(problem)
    if not problems:
        raise InputError("there is no problem to choose a strength for; give at least one")
    simulated = {name: (p, p.measure(images, seed=seed)) for name, p in by_name(problems).items()}
    quality = quality or (lambda found: psnr(found, images))
    made: list[tuple[Trial, D]] = []
    for strength in strengths:
        denoiser = make(strength)
        trial = _trial(strength, denoiser, simulated, images, quality, iterations)
        made.append((trial, denoiser))
        scores = [trial.psnr for trial, _ in made]
        if len(scores) - 1 - scores.index(max(scores)) == PATIENCE:
            break
    chosen, denoiser = max(made, key=lambda pair: pair[0].psnr)
    return Tuned(denoiser, chosen, tuple(trial for trial, _ in made))


def _trial(
    strength: float,
    denoiser: Denoise,
    simulated: Mapping[str, tuple[Problem, Tensor]],
    images: Tensor,
    quality: Quality,
    iterations: int | None,
) -> Trial:
    started = time.perf_counter()
    last, curves = {}, []
    for name, (problem, y) in simulated.items():
        with warnings.catch_warnings():  # a strength that diverges loses, and that is all
            warnings.simplefilter("ignore", DivergenceWarning)
            run = pnp_pgd(
                y, problem, denoiser, truth=images, record=("psnr",), iterations=iterations
            )
        last[name] = float(quality(run.reconstruction).mean())
        curves.append(torch.zeros(1) if run.psnr is None else run.psnr.nan_to_num(0.0).mean(0))
    return Trial(
        strength=float(strength),
        psnr=sum(last.values()) / len(last),
        best=sum(float(curve.max()) for curve in curves) / len(curves),
        iteration=int(curves[0].argmax()),
        seconds=time.perf_counter() - started,
        by_problem=last,
    )
