"""Adaptation without a clean image: from the measurements themselves.

The measurements are reconstructed by total variation, which knows no domain, and halved: averaging
2 x 2 pixels removes most of what a reconstruction lacks or adds, so that these are nearly clean
images of the domain (:mod:`proxmatch.transforms.strength`). One half of them is adapted to as if
they were clean, and candidates are scored on the other half (:mod:`proxmatch.learning.auto`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from proxmatch._internal.cluster import Begin, at_once
from proxmatch._internal.randomness import fingerprint
from proxmatch.baselines import TotalVariation
from proxmatch.denoisers import ProximalDenoiser
from proxmatch.learning.auto import Search, explore
from proxmatch.learning.evidence import AdaptationResult
from proxmatch.learning.fine_tune import CROP
from proxmatch.learning.hold_out import HoldOut
from proxmatch.pnp import pnp_pgd
from proxmatch.problems import Problem
from proxmatch.transforms.strength import halved

#: Of the total variation.
WEIGHT = 0.005
#: With fewer measurements than these, none is set aside and nothing is fine-tuned.
ENOUGH = 4


@torch.no_grad()
def stand_ins(measurements: Tensor, problem: Problem) -> Tensor:
    """Nearly clean images of the problem's size, ``(N, C, H, W)``, made from measurements alone."""
    prior = TotalVariation(WEIGHT)
    run = pnp_pgd(prior, measurements, problem, record=(), on_divergence="ignore")
    return halved(run.images.clamp(0, 1))


def blind(
    sources: Mapping[str, ProximalDenoiser],
    measurements: Tensor,
    problem: Problem,
    *,
    search: Search | None = None,
    budget: float | None = None,
    seed: int = 0,
    on_candidate: Callable[[str], None] = lambda name: None,
    begin: Begin = at_once,
) -> AdaptationResult:
    """Adapt a denoiser to measurements; no clean image is needed.

    The arguments are those of :func:`proxmatch.learning.auto.auto`. There is no evidence that it
    helped: the scores in the table are PSNRs on halved reconstructions, which say which candidate
    is best, not how good it is.

    Warns:
        AdaptationWarning: nothing better was found.
    """
    search = search or Search(compare=False)
    images = stand_ins(measurements, problem)
    few = len(images) < ENOUGH
    held = images if few else images[1::2]
    training = images if few else images[::2]
    count = len(held)
    split = HoldOut(list(training.cpu()), held, (0,) * count, tuple(range(count)), not few)
    trainable = all(source.conditional for source in sources.values())
    if few or not trainable:  # windows of one size could not follow this problem
        search = replace(search, steps=0)
    size = min(CROP, *(side - side % 2 for side in images.shape[2:]))
    trials = explore(
        sources,
        split,
        training,
        problems=[problem],
        size=size,
        search=search,
        budget=budget,
        seed=seed,
        on_candidate=on_candidate,
        begin=begin,
    )
    return trials.result(sources, {"measurements": fingerprint(list(measurements))})
