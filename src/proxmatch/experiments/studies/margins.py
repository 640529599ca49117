"""Whether the gradient-step rows are proximal maps where they are used, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from proxmatch.denoisers import ProximalDenoiser, jacobian_spectrum
from proxmatch.experiments.studies.priors import (
    DOMAINS,
    PROBLEMS,
    cell_of,
    deployed,
    fitting,
    given_by,
    prior_of,
)
from proxmatch.experiments.studies.study import Study, Work, markdown
from proxmatch.metrics import psnr
from proxmatch.pnp import pnp_pgd

#: Points along each run at which the smallest eigenvalue of J_D is found.
POINTS = 20
LANCZOS = 16


def plan(work: Work) -> list[dict[str, Any]]:
    """A cell for each domain, problem and denoiser whose L is not below one by construction."""
    return [
        cell_of(denoiser, work, work.images or 20, domain=domain, problem=problem)
        for domain in ("faces",)
        for problem in PROBLEMS
        for denoiser in fitting(list(work.models), DOMAINS[domain].channels)
        if isinstance(prior_of(denoiser), ProximalDenoiser) and prior_of(denoiser).penalized
    ]


@torch.no_grad()
def compute(settings: Mapping[str, Any], work: Work) -> dict[str, Any]:
    """Extreme eigenvalues along the runs, and PSNR with and without the bound t L < 1."""
    seed = settings["seed"]
    test, problem, fingerprint = given_by(settings, work)
    y = problem.measure(test, seed=seed)
    found: dict[str, Any] = {"data": fingerprint}
    for name, proximal in (("proximal", True), ("free", False)):
        denoiser, about = deployed(settings, work, proximal=proximal)
        run = pnp_pgd(denoiser, y, problem, record=("iterates",))
        found[name] = {
            **about,
            "psnr": [round(v, 4) for v in psnr(run.images, test).tolist()],
        }
        if not proximal or run.queries is None or not isinstance(denoiser, ProximalDenoiser):
            continue
        steps = run.queries.shape[1]
        places = [round(i * (steps - 1) / (POINTS - 1)) for i in range(POINTS)]
        ends = [
            jacobian_spectrum(denoiser, run.queries[i, places], iterations=LANCZOS)
            for i in range(len(test))
        ]
        found["smallest"] = [[round(v, 4) for v in e.smallest.tolist()] for e in ends]
        found["largest"] = [[round(v, 4) for v in e.largest.tolist()] for e in ends]
        found["residual"] = max(float(e.smallest_residual.max()) for e in ends)
    return found


def tables(cells: Sequence[Mapping[str, Any]]) -> str:
    """One row per problem and denoiser."""
    rows = []
    for cell in cells:
        smallest = np.array(cell["smallest"])
        bound, free = (np.array(cell[name]["psnr"]) for name in ("proximal", "free"))
        rows.append(
            [
                cell["problem"],
                cell["prior"],
                f"{cell['proximal']['margin']:.2f}",
                f"{smallest.min():.3f}",
                f"{np.max(cell['largest']):.2f}",
                f"{(smallest > 0).mean() * 100:.1f} % of {smallest.size}",
                f"{bound.mean():.2f}",
                f"{free.mean():.2f}",
                f"{(free - bound).mean():+.2f}",
            ]
        )
    header = [
        "problem",
        "denoiser",
        "t L chosen",
        "smallest eigenvalue of J",
        "largest",
        "positive at",
        "PSNR, t L < 1",
        "PSNR, unbounded",
        "cost in dB",
    ]
    return markdown(header, rows)


PROXIMAL = Study("proximal", "Proximal along the run, and what that costs", plan, compute, tables)
