"""The strength of a prior, chosen by simulating the problem on images at hand.

A denoiser that is good at one noise level is too strong, or too weak, for a given problem. Any
family of denoisers with one strength (the t of a relaxation, the sigma of a Wiener filter, the
weight of total variation) is treated alike here: measure the images, reconstruct them with each
strength, and keep the one of highest PSNR. Every method of a comparison is entitled to it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from proxmatch.errors import DivergenceWarning, InputError
from proxmatch.metrics import psnr
from proxmatch.pnp import Denoise, pnp_pgd
from proxmatch.problems import Problem

#: How many strengths in a row may fall short of the best one before the rest is left out.
PATIENCE = 2

D = TypeVar("D", bound=Denoise)


@dataclass(frozen=True)
class Trial:
    """How one strength did on the simulated measurements.

    Attributes:
        strength: what was tried.
        psnr: of the last iterate, mean over the images, in dB. An image that diverged counts as
            it was left.
        best: the highest of the mean PSNR of any iterate, in dB.
        iteration: which iterate that is: where to stop.
        seconds: how long it took.
    """

    strength: float
    psnr: float
    best: float
    iteration: int
    seconds: float


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
    problem: Problem,
    images: Tensor,
    *,
    iterations: int | None = None,
    seed: int = 0,
) -> Tuned[D]:
    """Try strengths in turn, and keep the one whose last iterates have the highest mean PSNR.

    PSNR rises and then falls along a sequence from strong to weak (or weak to strong): once
    :data:`PATIENCE` strengths in a row were below the best, the rest is not tried.

    Args:
        make: a denoiser of a given strength.
        strengths: what to try, in order of size.
        problem: what to reconstruct from.
        images: of the problem's size, ``(N, C, H, W)``; all are reconstructed together.
        iterations: PnP steps, if not those of the problem.
        seed: of the noise in the simulated measurements.
    """
    if not strengths:
        raise InputError("there is no strength to choose from; give at least one")
    y = problem.measure(images, seed=seed)
    made: list[tuple[Trial, D]] = []
    for strength in strengths:
        denoiser = make(strength)
        made.append((_trial(strength, denoiser, y, problem, images, iterations), denoiser))
        scores = [trial.psnr for trial, _ in made]
        if len(scores) - 1 - scores.index(max(scores)) == PATIENCE:
            break
    chosen, denoiser = max(made, key=lambda pair: pair[0].psnr)
    return Tuned(denoiser, chosen, tuple(trial for trial, _ in made))


def _trial(
    strength: float,
    denoiser: Denoise,
    y: Tensor,
    problem: Problem,
    images: Tensor,
    iterations: int | None,
) -> Trial:
    started = time.perf_counter()
    with warnings.catch_warnings():  # a strength that diverges loses, and that is all
        warnings.simplefilter("ignore", DivergenceWarning)
        run = pnp_pgd(y, problem, denoiser, truth=images, record=("psnr",), iterations=iterations)
    curve = torch.zeros(1) if run.psnr is None else run.psnr.nan_to_num(0.0).mean(0)
    return Trial(
        strength=float(strength),
        psnr=float(psnr(run.reconstruction, images).mean()),
        best=float(curve.max()),
        iteration=int(curve.argmax()),
        seconds=time.perf_counter() - started,
    )
