"""Reconstructions with numbers of our choice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from proxmatch.experiments.collect import ReconstructionScores
from proxmatch.records import PER_IMAGE, Label


def made_up(
    family: str,
    method: str,
    n: int,
    psnr: Sequence[float],
    *,
    source: str = "extreme",
    number: int = 0,
    problem: str = "deblurring",
    relaxation: str = "paper",
    gap: Sequence[float] | None = None,
    curves: Sequence[Sequence[float]] | None = None,
    **values: Sequence[float],
) -> ReconstructionScores:
    """A cell with the given values; what is not given is NaN."""
    count = len(psnr)
    known = {"psnr": psnr, "gap": gap, **values}
    columns = {
        name: np.full(count, np.nan) if known.get(name) is None else np.array(known[name], float)
        for name in PER_IMAGE
    }
    every = None if curves is None else np.array(curves, float)
    means = [float(np.mean(psnr))] * 2 if every is None else every.mean(0).tolist()
    result = {
        "t": 1.0,
        "means": {"psnr": means, "gap": [None] * len(means), "lipschitz": {}},
        "images": {
            name: [None if np.isnan(v) else float(v) for v in column]
            for name, column in columns.items()
        },
    }
    kind = "" if method == "reference" else source
    label = Label(family, kind, method, n, number, problem, relaxation)
    return ReconstructionScores(label, tuple(f"i{k}" for k in range(count)), columns, every, result)
