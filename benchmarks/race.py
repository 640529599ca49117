"""Timing several ways of doing one thing, in turns, so that what disturbs one disturbs all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def race(
    runners: dict[str, Callable[[], object]],
    rounds: int = 15,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Median seconds of each runner over ``rounds`` rounds, after two to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in runners}
    for round_ in range(rounds + 2):
        for name, run in runners.items():
            started = clock()
            run()
            if round_ >= 2:
                seconds[name].append(clock() - started)
    return {name: statistics.median(times) for name, times in seconds.items()}
