"""Adaptation that chooses for itself: what can be made of a few images, tried on some of them.

Every candidate is made from one part of the images and scored on the other by simulated
reconstructions:

- the denoiser as it is, and relaxed;
- aligned, and relaxed;
- aligned, gently fine-tuned, and relaxed; gradient-step denoisers with the contractivity penalty
  too;
- the Wiener filter of the images: what a learned prior has to beat. It is a proximal map like the
  others and is returned where it wins, which says that the denoiser adds nothing here.

Total variation stands in the table and cannot be chosen: it has no potential.

The strength of each (:mod:`proxmatch.transforms.strength`) is chosen on all the images: one number
does not overfit them, and one odd held-out image would mislead it. With few of them, a paler copy
stands beside each, here and in the scores: a prior that suits one busy image is too weak for the
smooth ones of its domain (2.4 dB were lost so on photographs). The one of highest mean score wins,
among those that do not lose on any problem against the denoiser as it is. What has no weights to
train is then fitted again, to all the images. What has been trained must win by two standard
errors, 1 dB on a single held-out image: on faces it was seen to win there by 0.5 dB and to lose as
much on others.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

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
from proxmatch.learning.train import versions
from proxmatch.pnp import Denoise
from proxmatch.problems import Problem
from proxmatch.randomness import fingerprint
from proxmatch.transforms import Relaxed, align, colours_of, tune
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
        fit: from images ``(N, C, size, size)``, a denoiser of every strength.
        strengths: to try.
        refit: whether it is fitted again to all the images once it has won.
    """

    name: str
    fit: Callable[[Tensor], Callable[[float], Denoise]]
    strengths: Sequence[float] = STRENGTHS
    refit: bool = True


def auto(
    model: ProximalDenoiser,
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
        model: the source; it is not changed.
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
    place = next(model.parameters())
    placed = [p.to(place.device).to(place.dtype) for p in problems]
    windows, every = (tiles(some, size).to(place) for some in (split.training, images))
    few = _some(every, search.crops)
    judged = split
    if len(every) < ENOUGH:
        few = _with_paler(few)
        judged = replace(split, crops=_with_paler(split.crops), first=2 * split.first)
    held = judged.crops.to(place)
    tried: list[tuple[Candidate, _Maker, Denoise]] = []
    for maker in _makers(model, images, placed, size, search, seed):
        if budget is not None and tried and time.monotonic() - began > budget:
            break
        on_candidate(maker.name)
        started = time.monotonic()
        made = maker.fit(windows)
        strength = tune(made, maker.strengths, placed, few, seed=seed).chosen.strength
        found = tune(made, (strength,), placed, held, quality=judged.quality, seed=seed)
        seconds = time.monotonic() - started
        candidate = Candidate(maker.name, found.chosen.by_problem, strength, seconds)
        tried.append((candidate, maker, found.denoiser))
    source = tried[0][0]
    sound = [
        (candidate, maker, denoiser)
        for candidate, maker, denoiser in tried
        if isinstance(denoiser, ProximalDenoiser)
        and all(candidate.scores[p] >= source.scores[p] - LEEWAY for p in source.scores)
    ]
    margin = 2 * SCATTER / math.sqrt(len(split.crops))
    chosen, maker, winner = max(
        sound, key=lambda entry: entry[0].score - (0 if entry[1].refit else margin)
    )
    before, after = (
        assess(d, split.crops, placed, first=split.first, seed=seed) for d in (model, winner)
    )
    strength = chosen.strength
    if maker.refit:
        fitted = tune(maker.fit(every), maker.strengths, placed, few, seed=seed)
        if isinstance(fitted.denoiser, ProximalDenoiser):
            winner, strength = fitted.denoiser, fitted.chosen.strength
    if chosen is source:
        warnings.warn(
            "nothing that was tried is better than the denoiser as it is, which is returned",
            AdaptationWarning,
            stacklevel=3,
        )
    table = tuple(replace(c, chosen=c is chosen) for c, _, _ in tried)
    if winner is not model:
        winner.record = {
            **winner.record,
            "auto": {
                "images": fingerprint(images),
                "source": checkpoint.fingerprint(model),
                "problems": [p.name for p in problems],
                "size": size,
                "seed": seed,
                "chosen": chosen.name,
                "strength": strength,
                "table": {c.name: {**c.scores, "strength": c.strength} for c in table},
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
    model: ProximalDenoiser,
    images: Sequence[Tensor],
    problems: Sequence[Problem],
    size: int,
    search: Search,
    seed: int,
) -> Iterator[_Maker]:
    """The candidates, cheap ones first."""
    yield _Maker("source", lambda _: lambda _: model, (1.0,))
    yield _Maker("relaxed", lambda _: lambda t: Relaxed(model, t), search.strengths)
    yield _Maker("Wiener", lambda windows: lambda sigma: Wiener.fit(windows, sigma), SIGMAS)
    if colours_of(model) is not None:
        yield _Maker(
            "aligned + relaxed",
            lambda windows: _relaxed(_aligned(model, windows)),
            search.strengths,
        )
    if search.compare:
        yield _Maker("total variation", lambda _: TotalVariation, WEIGHTS)
    if not model.trainable or search.steps == 0:
        return
    penalties: list[Penalty | None] = [None]
    if model.penalized:
        penalties.append(Penalty(iterations=5))
    for penalty in penalties:
        settings = gentle_settings(model, len(images), seed=seed, penalty=penalty)
        if search.steps is not None:
            bound = min(search.steps, settings.steps)
            settings = settings.model_copy(update={"steps": bound, "check_every": bound})

        def tuned(
            windows: Tensor, settings: TrainingSettings = settings
        ) -> Callable[[float], Denoise]:
            start = model if colours_of(model) is None else _aligned(model, windows)
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
            return _relaxed(found.model)

        begun = "fine-tuned" if colours_of(model) is None else "aligned + fine-tuned"
        name = f"{begun} + relaxed" if penalty is None else f"{begun} with penalty + relaxed"
        yield _Maker(name, tuned, search.strengths, refit=False)


def _aligned(model: ProximalDenoiser, windows: Tensor) -> ProximalDenoiser:
    with warnings.catch_warnings():  # it is scored like the others
        warnings.simplefilter("ignore", DegenerateStatisticsWarning)
        return align(model, windows)


def _relaxed(model: ProximalDenoiser) -> Callable[[float], ProximalDenoiser]:
    return lambda t: Relaxed(model, t)
