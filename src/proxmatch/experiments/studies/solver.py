"""How many calls of the denoiser it takes to come within 0.1 dB of the limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from proxmatch.experiments.studies.priors import (
    DOMAINS,
    PROBLEMS,
    cell_of,
    deployed,
    fitting,
    given_by,
)
from proxmatch.experiments.studies.study import Study, Work, markdown
from proxmatch.pnp import pnp_pgd

#: Steps of the run that stands for the limit, and of those that are compared.
LIMIT, STEPS = 200, 120
WITHIN = 0.1


def plan(work: Work) -> list[dict[str, Any]]:
    """A cell for each problem and denoiser, on a few faces."""
    return [
        cell_of(denoiser, work, work.images or 6, domain="faces", problem=problem)
        for problem in PROBLEMS
        for denoiser in fitting(list(work.models), DOMAINS["faces"].channels)
    ]


@torch.no_grad()
def compute(settings: Mapping[str, Any], work: Work) -> dict[str, Any]:
    """Mean PSNR after every step, plain and with the warm start."""
    test, problem, fingerprint = given_by(settings, work)
    denoiser, about = deployed(settings, work)
    y = problem.measure(test, seed=settings["seed"])
    curves = {}
    for name, steps, warm in (
        ("plain", STEPS, 0),
        ("warm", STEPS, STEPS),
        ("limit", LIMIT, LIMIT - 50),
    ):
        run = pnp_pgd(
            denoiser, y, problem, truth=test, record=("psnr",), iterations=steps, warm=warm
        )
        assert run.psnr is not None  # noqa: S101
        curves[name] = [round(v, 4) for v in run.psnr.mean(0).tolist()]
    return {"curves": curves, "data": fingerprint, **about}


def calls(curve: Sequence[float], limit: float) -> int | None:
    """After how many steps a curve stays within :data:`WITHIN` of the limit."""
    inside = [abs(v - limit) <= WITHIN for v in curve]
    after = [k for k in range(len(curve)) if all(inside[k:])]
    return after[0] if after else None


def tables(cells: Sequence[Mapping[str, Any]]) -> str:
    """One row per problem and denoiser."""
    rows = []
    for cell in cells:
        limit = cell["curves"]["limit"][-1]
        plain, warm = (calls(cell["curves"][name], limit) for name in ("plain", "warm"))
        ratio = f"{plain / warm:.1f}" if plain and warm else "-"
        shown = [f"more than {STEPS}" if n is None else str(n) for n in (plain, warm)]
        after = [f"{cell['curves'][name][40]:.2f}" for name in ("plain", "warm")]
        rows.append([cell["problem"], cell["prior"], *shown, ratio, *after, f"{limit:.2f}"])
    header = ["problem", "denoiser", "plain", "warm start", "ratio"]
    return markdown([*header, "plain, 40 steps", "warm start, 40 steps", "limit"], rows)


SOLVER = Study("solver", "Denoiser calls to come within 0.1 dB of the limit", plan, compute, tables)
