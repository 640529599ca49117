"""Adaptation that chooses for itself: what can be made of a few images, tried on some of them.

Every candidate is made from one part of the images and scored on the other by simulated
reconstructions:

- the denoiser as it is, and at the best strength;
- aligned, at the best strength;
- gently fine-tuned, aligned before where it was trained at one noise level; gradient-step
  denoisers of one level with the contractivity penalty too;
- the Wiener filter of the images: what a learned prior has to beat. It is a proximal map like the
  others and is returned where it wins, which says that the denoiser adds nothing here.

Total variation stands in the table and cannot be chosen: it has no potential.

Weights, filters, colors and strengths (:mod:`proxmatch.transforms.strength`) all come from the
first part; no held-out pixel has any part in the denoiser that is returned, and the evidence is of
that very denoiser. With few images, a paler copy stands beside each, in the choice of a strength
and in the scores: a prior that suits one busy image is too weak for the smooth ones of its domain
(2.4 dB were lost so on photographs). The candidate of highest mean score wins, among those that do
not lose on any problem against the denoiser as it is. One that was trained must win by two
standard errors, 1 dB on a single held-out image: on faces it was seen to win there by 0.5 dB and
to lose as much on others.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from proxmatch._internal.provenance import versions
from proxmatch._internal.randomness import fingerprint
from proxmatch.baselines import TotalVariation, Wiener
from proxmatch.baselines.total_variation import WEIGHTS
from proxmatch.baselines.wiener import SIGMAS
from proxmatch.denoisers import ProximalDenoiser, checkpoint
from proxmatch.errors import AdaptationWarning, DegenerateStatisticsWarning
from proxmatch.learning.assess import assess
from proxmatch.learning.engine import RunStatus
from proxmatch.learning.evidence import LEEWAY, AdaptationResult, Candidate, Evidence
from proxmatch.learning.fine_tune import fine_tune, gentle_settings
from proxmatch.learning.hold_out import hold_out
from proxmatch.learning.settings import Penalty, TrainingSettings
from proxmatch.pnp import Denoise
from proxmatch.problems import Problem
from proxmatch.transforms import Tuned, align, choose_strength, colors_of, tune
from proxmatch.transforms.strength import STRENGTHS

#: How much the difference of two denoisers varies from image to image, in dB.
SCATTER = 0.5
#: Windows of the images that statistics are taken from.
WINDOWS = 64
#: Of them, those that strengths are compared on.
CROPS = 8
#: With fewer windows than these, paler copies stand beside them.
ENOUGH = 4


@dataclass(frozen=True)
class Search:
    """How much is tried.

    Attributes:
        strengths: of a relaxation.
        crops: windows that strengths are compared on, at most.
        steps: of a fine-tuning, at most; None for all of them, 0 to fine-tune nothing.
        compare: try total variation too, which takes long and cannot be chosen.
    """

    strengths: Sequence[float] = STRENGTHS
    crops: int = CROPS
    steps: int | None = None
    compare: bool = True


@dataclass(frozen=True)
class _Maker:
    """How a candidate is made.

    Attributes:
        name: of the candidate.
        make: from images ``(N, C, size, size)`` to fit to, and some to choose a strength on, the
            denoiser at its best strength.
        trained: whether weights were changed.
    """

    name: str
    make: Callable[[Tensor, Tensor], Tuned[Any]]
    trained: bool = False


def auto(
    denoiser: ProximalDenoiser,
    images: Sequence[Tensor],
    *,
    problems: Sequence[Problem],
    size: int,
    search: Search | None = None,
    budget: float | None = None,
    seed: int = 0,
    on_candidate: Callable[[str], None] = lambda name: None,
) -> AdaptationResult:
    """The best that can be made of a denoiser with these images; see :mod:`.auto`.

    Args:
        denoiser: the source; it is not changed.
        images: clean, ``(C, H, W)`` each, at least ``size`` on a side.
        problems: that decide, of images of ``size``; all share one strength.
        size: side of the windows.
        search: how much is tried; everything unless given.
        budget: seconds after which no further candidate is begun; the cheap ones come first. What
            is chosen then depends on the speed of the machine.
        seed: of everything that is drawn.
        on_candidate: told the name of the candidate that is begun.
    """
    began = time.monotonic()
    search = search or Search()
    split = hold_out(images, size)
    place = next(denoiser.parameters())
    placed = [p.to(place.device).to(place.dtype) for p in problems]
    windows = tiles(split.training, size).to(place)
    few, judged = _some(windows, search.crops), split
    if len(windows) < ENOUGH:
        few = _with_paler(few)
        judged = replace(split, crops=_with_paler(split.crops), first=2 * split.first)
    held = judged.crops.to(place)
    tried: list[tuple[Candidate, _Maker, Denoise]] = []
    stopped = False
    for maker in _makers(denoiser, images, placed, size, search, seed):
        stopped = budget is not None and bool(tried) and time.monotonic() - began > budget
        if stopped:
            break
        on_candidate(maker.name)
        started = time.monotonic()
        made = maker.make(windows, few)
        strength = made.chosen.strength
        found = tune(
            partial(_itself, made.denoiser),
            (strength,),
            held,
            placed,
            quality=judged.quality,
            seed=seed,
        )
        seconds = time.monotonic() - started
        candidate = Candidate(
            maker.name,
            found.chosen.by_problem,
            strength,
            seconds,
            sigma=made.chosen.sigma,
            margin=made.margin,
        )
        tried.append((candidate, maker, made.denoiser))
    source = tried[0][0]
    sound = [
        (candidate, maker, made)
        for candidate, maker, made in tried
        if isinstance(made, ProximalDenoiser)
        and all(candidate.scores[p] >= source.scores[p] - LEEWAY for p in source.scores)
    ]
    margin = 2 * SCATTER / math.sqrt(len(split.crops))
    chosen, _, winner = max(
        sound, key=lambda entry: entry[0].score - (margin if entry[1].trained else 0)
    )
    before, after = (
        assess(d, split.crops, placed, first=split.first, seed=seed) for d in (denoiser, winner)
    )
    if chosen is source:
        warnings.warn(
            "nothing that was tried is better than the denoiser as it is, which is returned"
            + (f"; the budget of {budget:g} s ended before all was tried" if stopped else ""),
            AdaptationWarning,
            stacklevel=3,
        )
    table = tuple(replace(c, chosen=c is chosen) for c, _, _ in tried)
    if winner is not denoiser:
        winner.record = {
            **winner.record,
            "auto": {
                "images": fingerprint(images),
                "source": checkpoint.fingerprint(denoiser),
                "problems": [p.name for p in problems],
                "size": size,
                "seed": seed,
                "chosen": chosen.name,
                "strength": chosen.strength,
                "sigma": chosen.sigma,
                "stopped_by_budget": stopped,
                "table": {
                    c.name: {**c.scores, "strength": c.strength, "sigma": c.sigma} for c in table
                },
                "seconds": round(time.monotonic() - began, 1),
                "versions": versions(),
            },
        }
    evidence = Evidence(before, after)
    return AdaptationResult(winner, RunStatus.COMPLETED, 0, [], evidence, table=table)


def tiles(images: Sequence[Tensor], size: int) -> Tensor:
    """Windows side by side, from all images alike, ``(N, C, size, size)`` with N <= 64."""
    found = [
        image[:, top : top + size, left : left + size]
        for image in images
        for top in range(0, image.shape[1] - size + 1, size)
        for left in range(0, image.shape[2] - size + 1, size)
    ]
    return _some(torch.stack(found), WINDOWS)


def _some(images: Tensor, most: int) -> Tensor:
    """At most so many of the images, evenly spread."""
    return images[:: -(-len(images) // most)]


def _with_paler(images: Tensor) -> Tensor:
    """Images, and each once more with half its contrast, ``(2 N, C, H, W)``."""
    return torch.cat([images, (images + images.mean((-2, -1), keepdim=True)) / 2])


def _makers(
    denoiser: ProximalDenoiser,
    images: Sequence[Tensor],
    problems: Sequence[Problem],
    size: int,
    search: Search,
    seed: int,
) -> Iterator[_Maker]:
    """The candidates, cheap ones first."""

    def chosen(base: ProximalDenoiser, few: Tensor) -> Tuned[Any]:
        return choose_strength(base, few, problems, strengths=search.strengths, seed=seed)

    def along(make: Callable[[float], Any], grid: Sequence[float], few: Tensor) -> Tuned[Any]:
        return tune(make, grid, few, problems, seed=seed)

    yield _Maker("source", lambda _, few: along(partial(_itself, denoiser), (1.0,), few))
    yield _Maker("relaxed", lambda _, few: chosen(denoiser, few))
    yield _Maker("Wiener", lambda windows, few: along(partial(Wiener.fit, windows), SIGMAS, few))
    if colors_of(denoiser) is not None and not denoiser.conditional:
        yield _Maker(
            "aligned + relaxed", lambda windows, few: chosen(_aligned(denoiser, windows), few)
        )
    if search.compare:
        yield _Maker("total variation", lambda _, few: along(TotalVariation, WEIGHTS, few))
    if not denoiser.trainable or search.steps == 0:
        return
    penalties: list[Penalty | None] = [None]
    aligning = colors_of(denoiser) is not None and not denoiser.conditional
    if denoiser.penalized and not denoiser.conditional:  # else t L < 1 is a choice of strength
        penalties.append(Penalty(iterations=5))
    for penalty in penalties:
        settings = gentle_settings(denoiser, len(images), seed=seed, penalty=penalty)
        if search.steps is not None:
            bound = min(search.steps, settings.steps)
            settings = settings.model_copy(update={"steps": bound, "check_every": bound})

        def tuned(
            windows: Tensor, few: Tensor, settings: TrainingSettings = settings
        ) -> Tuned[Any]:
            start = _aligned(denoiser, windows) if aligning else denoiser
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", AdaptationWarning)
                found = fine_tune(
                    start,
                    list(windows.cpu()),
                    settings,
                    problems=problems,
                    size=size,
                    select="last",
                    held_out=False,
                )
            return chosen(found.denoiser, few)

        begun = "aligned + fine-tuned" if aligning else "fine-tuned"
        name = f"{begun} + relaxed" if penalty is None else f"{begun} with penalty + relaxed"
        yield _Maker(name, tuned, trained=True)


def _aligned(denoiser: ProximalDenoiser, windows: Tensor) -> ProximalDenoiser:
    with warnings.catch_warnings():  # it is scored like the others
        warnings.simplefilter("ignore", DegenerateStatisticsWarning)
        return align(denoiser, windows)


def _itself(denoiser: Any, _: float) -> Any:
    """A denoiser whose strength is set already."""
    return denoiser
