"""Adaptation without a clean image: from the measurements themselves.

The colors of the images that were measured are found from their measurements
(:mod:`proxmatch.transforms.measured_colors`), and align the denoiser. Strengths are chosen on
halved reconstructions (:mod:`proxmatch.transforms.strength`), the same for every candidate.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import replace

from torch import Tensor

from proxmatch._internal.provenance import versions
from proxmatch._internal.randomness import fingerprint
from proxmatch.denoisers import ProximalDenoiser, checkpoint
from proxmatch.errors import AdaptationWarning, DegenerateStatisticsWarning, InputError
from proxmatch.learning.engine import RunStatus
from proxmatch.learning.evidence import LEEWAY, AdaptationResult, Candidate
from proxmatch.problems import Problem
from proxmatch.transforms import (
    align,
    choose_strength,
    colors_of,
    stand_ins,
    statistics_from_measurements,
)


def blind(
    denoiser: ProximalDenoiser, measurements: Tensor, problem: Problem, *, seed: int = 0
) -> AdaptationResult:
    """Align and relax a denoiser for measurements; no clean image is needed.

    There is no evidence that it helped: the scores in the table are PSNRs on halved
    reconstructions, which say which candidate is best, not how good it is.

    Args:
        denoiser: the source; it is not changed.
        measurements: ``(N, ...)``, as ``problem.measure`` makes them.
        problem: what they were measured by.
        seed: of the simulated noise.

    Warns:
        AdaptationWarning: nothing is known of the colors of the denoiser, or the problem hides
            those of the images, so that it is only relaxed; or nothing better was found.
    """
    began = time.monotonic()
    bases: dict[str, ProximalDenoiser] = {"relaxed": denoiser}
    try:
        if colors_of(denoiser) is None:
            raise InputError("the record of this denoiser does not say which colors it knows")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DegenerateStatisticsWarning)
            target = statistics_from_measurements(measurements, problem)
            bases["aligned + relaxed"] = align(denoiser, target)
    except InputError as error:
        warnings.warn(f"{error}; it is relaxed only", AdaptationWarning, stacklevel=3)
    images = stand_ins(list(bases.values())[-1], measurements, problem)
    tried, table = {}, []
    for name, base in bases.items():
        started = time.monotonic()
        found = choose_strength(base, images, problem, seed=seed)
        tried[name] = found.denoiser
        table.append(
            Candidate(
                name, found.chosen.by_problem, found.chosen.strength, time.monotonic() - started
            )
        )
        if name == "relaxed":
            as_it_is = found.table[0]
            table.insert(0, Candidate("source", as_it_is.by_problem, 1.0, as_it_is.seconds))
    chosen = max(table, key=lambda candidate: candidate.score)
    if chosen.score < table[0].score + LEEWAY:
        chosen = table[0]
        warnings.warn(
            "nothing that was tried is better than the denoiser as it is, which is returned",
            AdaptationWarning,
            stacklevel=3,
        )
    best = tried.get(chosen.name, denoiser)
    if best is not denoiser:
        best.record = {
            **best.record,
            "auto": {
                "measurements": fingerprint(list(measurements)),
                "source": checkpoint.fingerprint(denoiser),
                "problems": [problem.name],
                "seed": seed,
                "chosen": chosen.name,
                "seconds": round(time.monotonic() - began, 1),
                "versions": versions(),
            },
        }
    rows = tuple(replace(c, chosen=c is chosen) for c in table)
    return AdaptationResult(best, RunStatus.COMPLETED, 0, [], None, table=rows)
