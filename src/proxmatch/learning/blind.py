"""Adaptation without a clean image: from the measurements themselves.

The measurements are reconstructed by total variation, which knows no domain, and halved: averaging
2 x 2 pixels removes most of what a reconstruction lacks or adds, so that these are nearly clean
images of the domain (:mod:`proxmatch.transforms.strength`). One half of them is adapted to as if
they were clean, and candidates are scored on the other half (:mod:`proxmatch.learning.auto`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from proxmatch._internal.cluster import Begin, at_once
from proxmatch._internal.randomness import fingerprint
from proxmatch.baselines import TotalVariation
from proxmatch.learning.adaptation_plan import AdaptationPlan
from proxmatch.learning.auto import explore
from proxmatch.learning.evidence import AdaptationResult
from proxmatch.learning.hold_out import HoldOut
from proxmatch.pnp import pnp_pgd
from proxmatch.problems import Problem
from proxmatch.transforms.strength import halved

#: Of the total variation.
WEIGHT = 0.005


@torch.no_grad()
def stand_ins(measurements: Tensor, problem: Problem) -> Tensor:
    """Nearly clean images of the problem's size, ``(N, C, H, W)``, made from measurements alone."""
    prior = TotalVariation(WEIGHT)
    run = pnp_pgd(prior, measurements, problem, record=(), on_divergence="ignore")
    return halved(run.images.clamp(0, 1))


def blind(
    plan: AdaptationPlan,
    *,
    budget: float | None = None,
    on_candidate: Callable[[str], None] = lambda name: None,
    begin: Begin = at_once,
) -> AdaptationResult:
    """Adapt a denoiser to the measurements of a plan; no clean image is needed.

    The arguments are those of :func:`proxmatch.learning.auto.auto`. There is no evidence that it
    helped: the scores in the table are PSNRs on halved reconstructions, which say which candidate
    is best, not how good it is.

    Warns:
        AdaptationWarning: nothing better was found.
    """
    assert plan.measurements is not None  # noqa: S101
    [problem] = plan.problems
    began = time.monotonic()
    images = stand_ins(plan.measurements, problem)
    held, training = (images[1::2], images[::2]) if plan.held_out else (images, images)
    count = len(held)
    trials = explore(
        plan.sources,
        HoldOut(list(training.cpu()), held, (0,) * count, tuple(range(count)), plan.held_out),
        training,
        problems=plan.problems,
        size=plan.size,
        search=plan.search,
        budget=budget,
        seed=plan.seed,
        on_candidate=on_candidate,
        begin=begin,
        began=began,
    )
    about = {"measurements": fingerprint(list(plan.measurements))}
    return trials.result(plan.sources, about)
