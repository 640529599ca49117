"""Adapt a denoiser to a few images, or to measurements alone, and know whether it helped."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from proxmatch._internal.cluster import Workers, spread
from proxmatch.errors import AdaptationWarning, InputError
from proxmatch.learning.adaptation_plan import AdaptationPlan, Problems, plan_adaptation
from proxmatch.learning.auto import Search, auto, tiles
from proxmatch.learning.blind import blind
from proxmatch.learning.engine import RunStatus
from proxmatch.learning.evidence import AdaptationResult, Evidence
from proxmatch.learning.fine_tune import Select, fine_tune, look
from proxmatch.learning.hold_out import hold_out
from proxmatch.learning.settings import TrainingSettings
from proxmatch.learning.start import Sources
from proxmatch.methods import Method
from proxmatch.transforms import align

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def adapt(
    denoiser: Sources,
    images: Any = None,
    problem: Problems = None,
    *,
    method: str | Method = "auto",
    measurements: Any = None,
    steps: int | None = None,
    select: Select = "best",
    settings: TrainingSettings | None = None,
    draws: int | Literal["auto"] | None = "auto",
    held_out: bool = True,
    size: int | None = None,
    search: Search | None = None,
    budget: float | None = None,
    seed: int = 0,
    folder: str | Path | None = None,
    fabric: Fabric | None = None,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
    on_candidate: Callable[[str], None] = lambda name: None,
    workers: Workers | None = None,
) -> AdaptationResult:
    """Adapt a denoiser to a new domain, with a few clean images of it or with measurements alone.

    Args:
        denoiser: the source, or its name; it is not changed. Of several, the one that is nearest to
            the images is adapted; with None, of all that come with proxmatch.
        images: clean images in [0, 1], ``(N, C, H, W)``, or ``(C, H, W)`` each, or in any form of
            :mod:`proxmatch.data.any_form`.
        problem: that decides what is best; the paper's two by default. Name the one you have:
            several share one strength. A function from the side of a window to a problem will do.
        method: one that :func:`proxmatch.methods.offered` lists: ``auto`` tries what can be made
            of the images and keeps the best (:mod:`proxmatch.learning.auto`), ``align`` trains
            nothing, the others fine-tune.
        measurements: in place of images: what ``problem`` measured, ``(N, ...)``, or pictures
            (:meth:`~proxmatch.problems.Problem.measurements`).
        steps: of a fine-tuning; as many as suit the number of images unless given.
        select: of a fine-tuning: ``best`` returns the weights of the best held-out
            reconstructions, those of the source if none were better; ``last`` those after the last
            step, as in the paper.
        settings: of a fine-tuning, in place of :func:`adaptation_settings`; they decide, whatever
            ``method`` says.
        draws: noise draws for each image, the same in every epoch; None for new noise each time;
            by default 4 for up to 10 images, else 1.
        held_out: keep a part of the images to measure on (see :mod:`proxmatch.learning.hold_out`);
            without it there is no evidence, and ``select`` must be ``last``.
        size: side of the windows; by default that of the problems or the LPN, or 64.
        search: how much ``auto`` tries; everything unless given (from measurements, no total
            variation).
        budget: of ``auto``: seconds that it may take.
        seed: of everything that is drawn, unless ``settings`` say it.
        folder: of a fine-tuning: for the state and the log, so that it can be resumed after an
            interruption; by default nothing is kept.
        fabric: where and in what precision a fine-tuning runs.
        on_step: called with the step of a fine-tuning and its loss.
        on_candidate: called with the name of what ``auto`` tries next.
        workers: who makes the candidates of ``auto``; this process unless given. Those of a cluster
            come to the same result with the same number of threads, without a budget.

    Raises:
        InputError: something that does not fit.

    Warns:
        AdaptationWarning: it made things worse, or nothing better was found.

    Example:
        >>> import torch
        >>> from proxmatch import gaussian_deblurring, load
        >>> images = torch.rand(1, 3, 64, 64)
        >>> result = adapt(load("lpn-faces"), images, gaussian_deblurring(64, iterations=2),
        ...                method="mse", steps=1, select="last", held_out=False)
        >>> result.step, result.evidence is None
        (1, True)
    """
    plan = plan_adaptation(
        denoiser,
        images,
        problem,
        method=method,
        measurements=measurements,
        steps=steps,
        select=select,
        settings=settings,
        draws=draws,
        held_out=held_out,
        size=size,
        search=search,
        seed=seed,
    )
    return carry_out(
        plan,
        budget=budget,
        folder=folder,
        fabric=fabric,
        on_step=on_step,
        on_candidate=on_candidate,
        workers=workers,
    )


def carry_out(
    plan: AdaptationPlan,
    *,
    budget: float | None = None,
    folder: str | Path | None = None,
    fabric: Fabric | None = None,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
    on_candidate: Callable[[str], None] = lambda name: None,
    workers: Workers | None = None,
) -> AdaptationResult:
    """Do what was planned; the arguments are those of :func:`adapt`.

    Example:
        >>> import torch
        >>> from proxmatch import load
        >>> plan = plan_adaptation(load("lpn-faces"), torch.rand(1, 3, 64, 64), method="align",
        ...                        held_out=False)
        >>> type(carry_out(plan).denoiser).__name__
        'Aligned'
    """
    comparing = plan.method.role == "auto" and plan.settings is None
    if budget is not None and not comparing:
        raise InputError(f"a budget is for the method auto, not for {plan.method.name}")
    if workers is not None and workers.engine != "local":
        if not comparing:
            raise InputError("several workers can only share the candidates of auto")
        if budget is not None:
            raise InputError("a budget is for a single process, whose clock counts")
    if plan.settings is not None:
        return fine_tune(
            plan.source,
            plan.images,
            plan.settings,
            problems=plan.problems,
            size=plan.size,
            select=plan.select,
            draws=plan.draws,
            held_out=plan.held_out,
            folder=folder,
            fabric=fabric,
            on_step=on_step,
        )
    if plan.method.role == "aligned":
        return _align(plan)
    on_gpus = next(plan.source.parameters(), torch.empty(0)).device.type != "cpu"
    with spread(workers or Workers(), gpus=int(on_gpus)) as begin:
        if plan.measurements is not None:
            return blind(plan, budget=budget, on_candidate=on_candidate, begin=begin)
        return auto(
            plan.sources,
            plan.images,
            problems=plan.problems,
            size=plan.size,
            search=plan.search,
            budget=budget,
            seed=plan.seed,
            on_candidate=on_candidate,
            begin=begin,
        )


def _align(plan: AdaptationPlan) -> AdaptationResult:
    """Alignment to all images; the evidence is of an alignment to a part of them."""
    denoiser, size, evidence = plan.source, plan.size, None
    if plan.held_out:
        split, settings = hold_out(plan.images, size), TrainingSettings(seed=plan.seed)
        partial = align(denoiser, tiles(split.training, size))
        before, after = (look(d, split, plan.problems, settings) for d in (denoiser, partial))
        evidence = Evidence(before, after, split.owners, split.whole)
        if evidence.worse:
            warnings.warn(
                f"the alignment made things worse: {evidence}; keep the source, or try 'auto', "
                "which compares",
                AdaptationWarning,
                stacklevel=4,  # to who calls adapt
            )
    aligned = align(denoiser, tiles(plan.images, size))
    return AdaptationResult(aligned, RunStatus.COMPLETED, 0, [], evidence)
