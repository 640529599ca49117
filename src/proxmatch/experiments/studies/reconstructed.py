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
    RECONSTRUCTED,
    cell_of,
    deployed,
    fitting,
    given_by,
)
from proxmatch.experiments.studies.study import Study, Work, grouped, markdown, mean_and_interval
from proxmatch.metrics import psnr
from proxmatch.pnp import pnp_pgd

#: Images reconstructed at once.
TOGETHER = 10


def plan(work: Work) -> list[dict[str, Any]]:
    """A cell for each domain, problem and prior; gray images only for models of such."""
    models = {name: fitting(list(work.models), DOMAINS[name].channels) for name in RECONSTRUCTED}
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
    for domain, some in grouped(cells, "domain").items():
        here = {(cell["problem"], cell["prior"]): cell for cell in some}
        problems = list(dict.fromkeys(problem for problem, _ in here))
        priors = list(dict.fromkeys(prior for _, prior in here))
        rows = [[prior, *(_mean(here.get((p, prior))) for p in problems)] for prior in priors]
        count = len(next(iter(here.values()))["psnr"])
        parts.append(markdown([f"{domain}, {count} images", *problems], rows))
        gains = [
            [prior, *(_gain(here, problem, prior) for problem in problems)]
            for prior in priors
            if prior not in BASELINES
        ]
        parts.append(markdown(["above the better of Wiener and TV, dB [95 %]", *problems], gains))
        strengths = [
            [prior, *(_strength(here.get((problem, prior))) for problem in problems)]
            for prior in priors
        ]
        parts.append(markdown(["strength", *problems], strengths))
    return "\n\n".join(parts)


def _mean(cell: Mapping[str, Any] | None) -> str:
    return "" if cell is None else f"{np.mean(cell['psnr']):.2f}"


def _gain(here: Mapping[tuple[str, str], Mapping[str, Any]], problem: str, prior: str) -> str:
    """What a prior gains over the better of the plain baselines."""
    plain = [here[problem, b]["psnr"] for b in ("wiener", "tv") if (problem, b) in here]
    if not plain or (problem, prior) not in here:
        return ""
    better = max(plain, key=np.mean)
    return mean_and_interval(np.subtract(here[problem, prior]["psnr"], better).tolist())


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
