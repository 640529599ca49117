"""Adapt a denoiser to a few images, or to measurements alone, and know whether it helped."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor

from proxmatch.data import FewShot, image_list
from proxmatch.denoisers import ProximalDenoiser
from proxmatch.errors import AdaptationWarning, InputError, NotProximalError
from proxmatch.learning.auto import Search, auto, tiles
from proxmatch.learning.blind import blind
from proxmatch.learning.engine import RunStatus
from proxmatch.learning.evidence import AdaptationResult, Evidence
from proxmatch.learning.fine_tune import Select, adaptation_settings, fine_tune, look
from proxmatch.learning.hold_out import hold_out
from proxmatch.learning.settings import TrainingSettings
from proxmatch.learning.start import Sources, nearest_first, sources_of
from proxmatch.learning.training import default_problems
from proxmatch.methods import chosen
from proxmatch.problems import Problem
from proxmatch.transforms import align

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def adapt(
    denoiser: Sources,
    images: Any = None,
    problem: Problem | Sequence[Problem] | None = None,
    *,
    method: str = "auto",
    measurements: Tensor | None = None,
    steps: int | None = None,
    select: Select = "best",
    settings: TrainingSettings | None = None,
    draws: int | Literal["auto"] | None = "auto",
    held_out: bool = True,
    size: int | None = None,
    budget: float | None = None,
    seed: int = 0,
    folder: str | Path | None = None,
    fabric: Fabric | None = None,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
    on_candidate: Callable[[str], None] = lambda name: None,
) -> AdaptationResult:
    """Adapt a denoiser to a new domain, with a few clean images of it or with measurements alone.

    Args:
        denoiser: the source, or its name; it is not changed. Of several, the one that is nearest to
            the images is adapted; with None, of all that come with proxmatch.
        images: clean images in [0, 1], ``(N, C, H, W)``, or ``(C, H, W)`` each, or in any form of
            :mod:`proxmatch.data.given`.
        problem: that decides what is best; the paper's two by default. Name the one you have:
            several share one strength.
        method: one that :func:`proxmatch.methods.offered` lists: ``auto`` tries what can be made
            of the images and keeps the best (:mod:`proxmatch.learning.auto`), ``align`` trains
            nothing, the others fine-tune.
        measurements: in place of images: what ``problem`` measured, ``(N, ...)``.
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
        budget: of ``auto``: seconds that it may take.
        seed: of everything that is drawn, unless ``settings`` say it.
        folder: of a fine-tuning: for the state and the log, so that an interrupted one can go on;
            by default nothing is kept.
        fabric: where and in what precision a fine-tuning runs.
        on_step: told the step of a fine-tuning and its loss.
        on_candidate: told what ``auto`` is about to try.

    Raises:
        InputError: something that does not fit.

    Warns:
        AdaptationWarning: it made things worse, or nothing better was found.
    """
    way = chosen(method)
    if select not in get_args(Select):
        raise InputError(f"select is 'best' or 'last', not {select!r}")
    problems = [problem] if isinstance(problem, Problem) else list(problem or ())
    if measurements is not None:
        if images is not None or len(problems) != 1 or method != "auto" or settings is not None:
            raise InputError(
                "with measurements, give the one problem that made them, and neither images nor "
                "settings nor a method: strength and start are found from them"
            )
        sources = sources_of(denoiser, problems[0].img_size[0], measurements.device)
        return blind(sources, measurements, problems[0], seed=seed)
    if images is None:
        raise InputError("give images of the new domain, or measurements and their problem")
    given = _checked(images)
    sources = sources_of(denoiser, len(given[0]))
    first = next(iter(sources.values()))
    wrong = [i for i, image in enumerate(given) if len(image) != first.channels]
    if wrong:
        raise InputError(
            f"image {wrong[0]} should be ({first.channels}, height, width), it is "
            f"{tuple(given[wrong[0]].shape)}"
        )
    if not first.proximal and (settings is not None or way.role == "adapted"):
        raise NotProximalError(
            "only a denoiser with a potential is trained: make it a GradientStep.of(network, "
            "smooth=True), or take method='auto' or 'align'"
        )
    if settings is None and way.role == "adapted":
        adaptation_settings(first, method, 1)  # refuses at once what does not fit
    size = size or _window(sources.values(), given, problems)
    small = [tuple(image.shape) for image in given if min(image.shape[1:]) < size]
    if small:
        raise InputError(f"the images must be at least {size} x {size}, got {small[0]}")
    if settings is None and way.role == "auto":
        if not held_out:
            raise InputError("auto compares on held-out pixels; leave held_out=True")
        return auto(
            sources,
            given,
            problems=problems or default_problems((size, size), first.channels),
            size=size,
            search=Search(steps=steps),
            budget=budget,
            seed=seed,
            on_candidate=on_candidate,
        )
    nearest = nearest_first(sources, tiles(given, size).to(next(first.parameters())), seed=seed)
    source = sources[next(iter(nearest))]
    if draws == "auto":
        draws = 4 if len(given) <= 10 else 1
    if settings is None and way.role == "adapted":
        number = len(hold_out(given, size).training if held_out else given)
        settings = adaptation_settings(
            source, method, number * (draws or 1), seed=seed, **_looks(steps)
        )
    if held_out or (settings is not None and settings.trajectory is not None):
        problems = problems or default_problems((size, size), first.channels)
    if settings is None:
        return _align(source, given, problems, size, held_out)
    return fine_tune(
        source,
        given,
        settings,
        problems=problems,
        size=size,
        select=select,
        draws=draws,
        held_out=held_out,
        folder=folder,
        fabric=fabric,
        on_step=on_step,
    )


def _looks(steps: int | None) -> dict[str, int]:
    """What a number of steps says about looks at the denoiser."""
    if steps is None:
        return {}
    every = max(1, steps // 10)
    return {"steps": steps, "check_every": every, "checkpoint_every": every}


def _align(
    denoiser: ProximalDenoiser,
    images: Sequence[Tensor],
    problems: Sequence[Problem],
    size: int,
    held_out: bool,
) -> AdaptationResult:
    """Alignment to all images; the evidence is of an alignment to a part of them."""
    evidence = None
    if held_out:
        split = hold_out(images, size)
        partial = align(denoiser, tiles(split.training, size))
        before, after = (look(d, split, problems, TrainingSettings()) for d in (denoiser, partial))
        evidence = Evidence(before, after, split.owners, split.whole)
        if evidence.worse:
            warnings.warn(
                f"the alignment made things worse: {evidence}; keep the source, or try 'auto', "
                "which compares",
                AdaptationWarning,
                stacklevel=3,
            )
    aligned = align(denoiser, tiles(images, size))
    return AdaptationResult(aligned, RunStatus.COMPLETED, 0, [], evidence)


def _checked(images: Any) -> list[Tensor]:
    images = images.images if isinstance(images, FewShot) else images
    tensors = isinstance(images, Tensor) or (
        isinstance(images, Sequence) and all(isinstance(one, Tensor) for one in images)
    )
    given = list(images) if tensors else image_list(images)
    if not given:
        raise InputError("there are no images to adapt to; give at least one")
    for number, image in enumerate(given):
        if not isinstance(image, Tensor) or image.ndim != 3:
            shape = tuple(image.shape) if isinstance(image, Tensor) else type(image).__name__
            raise InputError(f"image {number} should be (channels, height, width), it is {shape}")
        if not image.is_floating_point() or not bool(torch.isfinite(image).all()):
            raise InputError(f"image {number} must hold finite floating-point numbers in [0, 1]")
        low, high = image.aminmax()
        if low < -0.5 or high > 1.5:
            raise InputError(
                f"image {number} runs from {float(low):.3g} to {float(high):.3g}: scale it to "
                "[0, 1] (divide 8-bit images by 255)"
            )
    return [image.detach().cpu().float() for image in given]


def _window(
    sources: Iterable[ProximalDenoiser], images: Sequence[Tensor], problems: Sequence[Problem]
) -> int:
    sizes = {side for problem in problems for side in problem.img_size[1:]}
    if len(sizes) > 1:
        raise InputError(f"the problems must be for square images of one size, got {sizes}")
    if sizes:
        return sizes.pop()
    natives = [one.native_size for one in sources if one.native_size]
    return max(natives, default=min(64, *(min(image.shape[1:]) for image in images)))
