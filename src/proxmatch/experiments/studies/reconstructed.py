"""Six inverse problems, every prior at its best strength and with the same solver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from proxmatch.experiments.studies.priors import (
    BASELINES,
    DOMAINS,
    PROBLEMS,
    cell_of,
    deployed,
    fitting,
    given_by,
)
from proxmatch.experiments.studies.study import Study, Work, markdown, mean_and_interval
from proxmatch.metrics import psnr
from proxmatch.pnp import pnp_pgd

#: Images reconstructed at once.
TOGETHER = 10
#: Domains that are reconstructed.
ALL = ("faces", "photographs", "histology", "gray")


def plan(work: Work) -> list[dict[str, Any]]:
    """A cell for each domain, problem and prior; gray images only for models of such."""
    models = {name: fitting(list(work.models), DOMAINS[name].channels) for name in ALL}
    return [
        cell_of(prior, work, work.images, domain=domain, problem=problem)
        for domain, fit in models.items()
        for problem in PROBLEMS
        for prior in (*BASELINES, *fit)
        if fit or DOMAINS[domain].channels > 1
    ]


@torch.no_grad()
def compute(settings: Mapping[str, Any], work: Work) -> dict[str, Any]:
    """PSNR of every image, at the start and at the end."""
    seed = settings["seed"]
    test, problem, fingerprint = given_by(settings, work)
    denoiser, about = deployed(settings, work)
    start: list[float] = []
    found: list[float] = []
    status: list[str] = []
    for some in torch.split(test, TOGETHER):
        y = problem.measure(some, seed=seed)
        start += psnr(problem.initial(y), some).tolist()
        steps = about.get("iterations")  # of no denoiser: plain steps, stopped early
        warm = None if steps is None else 0
        run = pnp_pgd(denoiser, y, problem, record=(), iterations=steps, warm=warm)
        found += psnr(run.images, some).tolist()
        status += [str(s) for s in run.status]
    return {
        "psnr": [round(v, 4) for v in found],
        "start": [round(v, 4) for v in start],
        "status": {s: status.count(s) for s in set(status)},
        "data": fingerprint,
        "solver": problem.describe(),
        **about,
    }


def tables(cells: Sequence[Mapping[str, Any]]) -> str:
    """A table of PSNR a domain, and one of the differences to the better plain baseline."""
    parts = []
    for domain in dict.fromkeys(cell["domain"] for cell in cells):
        here = {
            (cell["problem"], cell["prior"]): cell for cell in cells if cell["domain"] == domain
        }
        problems = list(dict.fromkeys(problem for problem, _ in here))
        priors = list(dict.fromkeys(prior for _, prior in here))
        rows = []
        for prior in priors:
            row = [prior]
            for problem in problems:
                cell = here.get((problem, prior))
                row.append("" if cell is None else f"{np.mean(cell['psnr']):.2f}")
            rows.append(row)
        count = len(next(iter(here.values()))["psnr"])
        parts.append(markdown([f"{domain}, {count} images", *problems], rows))
        gains = []
        for prior in priors:
            if prior in BASELINES:
                continue
            row = [prior]
            for problem in problems:
                plain = [here[problem, b]["psnr"] for b in ("wiener", "tv") if (problem, b) in here]
                cell = here.get((problem, prior))
                if cell is None or not plain:
                    row.append("")
                    continue
                better = max(plain, key=np.mean)
                row.append(mean_and_interval(np.subtract(cell["psnr"], better).tolist()))
            gains.append(row)
        parts.append(markdown(["above the better of Wiener and TV, dB [95 %]", *problems], gains))
        strengths = [
            [prior, *(_strength(here.get((problem, prior))) for problem in problems)]
            for prior in priors
        ]
        parts.append(markdown(["strength", *problems], strengths))
    return "\n\n".join(parts)


def _strength(cell: Mapping[str, Any] | None) -> str:
    """How a prior was set."""
    if cell is None:
        return ""
    if "iterations" in cell:
        return f"{cell['iterations']} steps"
    text = f"{cell['strength']:.3g}"
    if cell["sigma"] is not None:
        text = f"s {cell['sigma']:.3g}, t {cell['strength']:.2f}"
    return text if cell["margin"] is None else f"{text}, tL {cell['margin']:.2f}"


RECONSTRUCTION = Study(
    "reconstruction", "Reconstruction of 128 x 128 images, mean PSNR in dB", plan, compute, tables
)
