"""PnP-PGD against the calls it cannot do without: its own denoiser and gradient calls.

Both are timed in the same run, from inside, so that neither cache nor neighbor favors one.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from proxmatch.denoisers import load
from proxmatch.pnp import pnp_pgd
from proxmatch.problems import Problem

BATCH, ITERATIONS = 16, 40


class Stopwatch:
    """Adds up the seconds spent in the calls it wraps."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def wrap(self, call: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """The same call, timed."""

        def timed(*args: Any) -> Tensor:
            started = time.perf_counter()
            out = call(*args)
            self.seconds += time.perf_counter() - started
            return out

        return timed


def overhead(
    problem: Problem, model: str, record: Collection[str] | None = None, rounds: int = 5
) -> tuple[float, float]:
    """Median seconds of a run, and its ratio to the denoiser and gradient calls within it."""
    torch.manual_seed(0)
    denoiser = load(model)
    truth = torch.rand(BATCH, 3, 64, 64)
    y = problem.measure(truth)
    watch = Stopwatch()
    timed = replace(problem, physics=problem.to("cpu").physics)  # a copy to put the watch on
    timed.physics.A_adjoint_A = watch.wrap(timed.physics.A_adjoint_A)
    totals, ratios = [], []
    for _ in range(rounds + 1):
        watch.seconds = 0.0
        started = time.perf_counter()
        pnp_pgd(watch.wrap(denoiser), y, timed, truth=truth, record=record, iterations=ITERATIONS)
        totals.append(time.perf_counter() - started)
        ratios.append(totals[-1] / watch.seconds)
    return statistics.median(totals[1:]), statistics.median(ratios[1:])
