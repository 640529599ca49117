"""Whether the gradient-step rows are proximal maps where they are used, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from proxmatch._internal.randomness import generator_of
from proxmatch.denoisers import ProximalDenoiser, jacobian_spectrum
from proxmatch.denoisers.spectrum import Spectrum
from proxmatch.experiments.studies.priors import (
    DOMAINS,
    PROBLEMS,
    RECONSTRUCTED,
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
#: Lanczos iterations at each of them.
LANCZOS = 24


def plan(work: Work) -> list[dict[str, Any]]:
    """A cell for each domain, problem and denoiser whose L is not below one by construction."""
    return [
        cell_of(denoiser, work, work.images or 20, domain=domain, problem=problem)
        for domain in RECONSTRUCTED
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
        found[name] = {**about, "psnr": [round(v, 4) for v in psnr(run.images, test).tolist()]}
        if not proximal or run.queries is None or not isinstance(denoiser, ProximalDenoiser):
            continue
        steps = run.queries.shape[1]
        places = [round(i * (steps - 1) / (POINTS - 1)) for i in range(POINTS)]
        found |= _ends(denoiser, run.queries[:, places])
    return found


def _ends(denoiser: ProximalDenoiser, points: Tensor) -> dict[str, Any]:
    """Extreme eigenvalues of J_D at points ``(B, K, C, H, W)`` of B runs, and their residuals.

    Each search starts from the direction found at the point before and, as much, from a random one:
    the direction soon finds its eigenvalue again, but another one may have become the smallest.
    With the direction alone and 8 iterations, 0.32 was found where there was -0.13.
    """
    ends: list[Spectrum] = []
    for k in range(points.shape[1]):
        z = points[:, k]
        start = torch.randn(z.shape, generator=generator_of(k, "start"))
        if ends:
            start = F.normalize(start.flatten(1), dim=1).view_as(z) + ends[-1].direction
        ends.append(jacobian_spectrum(denoiser, z, iterations=LANCZOS, start=start))
    smallest, residual = (
        torch.stack([getattr(e, name) for e in ends], 1)
        for name in ("smallest", "smallest_residual")
    )
    return {
        "smallest": smallest.round(decimals=4).tolist(),
        "residual": residual.round(decimals=4).tolist(),
        "largest": ends[0].largest.round(decimals=4).tolist(),
    }


def tables(cells: Sequence[Mapping[str, Any]]) -> str:
    """One row per domain, problem and denoiser."""
    rows = []
    for cell in cells:
        smallest = np.array(cell["smallest"])
        # Without the bound any strength may be chosen, also the one that obeys it.
        best = max((cell["free"], cell["proximal"]), key=lambda one: one["validation"])
        bound, free = (np.array(one["psnr"]) for one in (cell["proximal"], best))
        rows.append(
            [
                cell["domain"],
                cell["problem"],
                cell["prior"],
                f"{cell['proximal']['margin']:.2f}",
                f"{smallest.min():.3f} +- {np.max(cell['residual']):.3f}",
                f"{np.max(cell['largest']):.2f}",
                f"{(smallest > 0).mean() * 100:.1f} % of {smallest.size}",
                f"{bound.mean():.2f}",
                f"{free.mean():.2f}",
                f"{(free - bound).mean():+.2f}",
            ]
        )
    header = [
        "domain",
        "problem",
        "denoiser",
        "t L chosen",
        "smallest eigenvalue of J",
        "largest, at the first point",
        "positive at",
        "PSNR, t L < 1",
        "PSNR, unbounded",
        "cost in dB",
    ]
    return markdown(header, rows)


PROXIMAL = Study("proximal", "Proximal along the run, and what that costs", plan, compute, tables)
