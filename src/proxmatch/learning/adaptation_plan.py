"""The plan of an adaptation: everything that is decided before the work, in one place.

``adapt``, its command and the cells of an experiment all plan here: which window, which images are
held out, how many noise draws, which settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from proxmatch.data import FewShot, image_list
from proxmatch.denoisers import ProximalDenoiser
from proxmatch.errors import InputError, NotProximalError
from proxmatch.learning.auto import Search, tiles
from proxmatch.learning.fine_tune import CROP, Select, adaptation_settings
from proxmatch.learning.hold_out import hold_out
from proxmatch.learning.settings import TrainingSettings
from proxmatch.learning.start import Sources, nearest_first, sources_of
from proxmatch.learning.training import default_problems
from proxmatch.methods import Method, chosen
from proxmatch.problems import Problem

#: With more images than these, each has one noise draw, else :data:`DRAWS`.
FEW, DRAWS = 10, 4
#: With fewer measurements than these, none is set aside and nothing is fine-tuned.
ENOUGH = 4

#: Problems, or a function from a side length to one.
Problems = Problem | Sequence[Problem] | Callable[[int], Problem] | None


@dataclass(frozen=True)
class AdaptationPlan:
    """What is done to which denoiser, with which images.

    Attributes:
        sources: by name; ``auto`` chooses among them, anything else starts from the nearest, the
            only one here.
        images: clean, ``(C, H, W)`` each; none with measurements.
        method: what is done.
        problems: that decide, of images of ``size``; may be empty where nothing is decided.
        size: side of the windows.
        settings: of a fine-tuning; None where nothing is trained by itself.
        draws: noise draws for each image; None for new noise each time.
        held_out: a part of the images is kept to measure on.
        select: which weights of a fine-tuning are returned.
        search: how much ``auto`` tries.
        seed: of everything that is drawn.
        measurements: of the one problem, in place of images.
    """

    sources: dict[str, ProximalDenoiser]
    images: list[Tensor]
    method: Method
    problems: list[Problem]
    size: int
    settings: TrainingSettings | None
    draws: int | None
    held_out: bool
    select: Select
    search: Search
    seed: int
    measurements: Tensor | None = None

    @property
    def source(self) -> ProximalDenoiser:
        """The denoiser to start from, or the first of several."""
        return next(iter(self.sources.values()))


def plan_adaptation(
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
    seed: int = 0,
) -> AdaptationPlan:
    """Decide everything; the arguments are those of :func:`proxmatch.learning.adapt`.

    Raises:
        InputError: something that does not fit.

    Example:
        >>> from proxmatch.denoisers import load
        >>> images = [torch.rand(3, 64, 64) for _ in range(5)]
        >>> plan = plan_adaptation(load("lpn-faces"), images, method="mse")
        >>> plan.size, plan.draws, len(plan.problems)
        (64, 4, 2)
    """
    if select not in get_args(Select):
        raise InputError(f"select is 'best' or 'last', not {select!r}")
    way = method if isinstance(method, Method) else chosen(method)
    search = search or Search(compare=measurements is None)
    if steps is not None:
        search = replace(search, steps=steps)
    if measurements is not None:
        if (
            images is not None
            or not isinstance(problem, Problem)
            or way.role != "auto"
            or settings is not None
        ):
            raise InputError(
                "with measurements, give the one problem that made them, and neither images nor "
                "settings nor a method: strength and start are found from them"
            )
        return _from_measurements(denoiser, measurements, problem, way, size, search, seed)
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
    if steps is not None and settings is not None:
        raise InputError("settings say how many steps there are: leave out steps")
    if steps is not None and way.role == "aligned":
        raise InputError(f"steps are for methods that train, not for {way.name}")
    if settings is None and way.role == "adapted":
        adaptation_settings(first, way, 1)  # refuses at once what does not fit
    problems = [] if problem is None or callable(problem) else _listed(problem)
    size = size or _window(sources.values(), given, problems, 4 if problem is None else 1)
    small = [tuple(image.shape) for image in given if min(image.shape[1:]) < size]
    if small:
        raise InputError(f"the images must be at least {size} x {size}, got {small[0]}")
    if callable(problem):
        problems = [problem(size)]
    if settings is None and way.role == "auto":
        if not held_out:
            raise InputError("auto compares on held-out pixels; leave held_out=True")
    else:
        some = tiles(given, size)
        some = some.to(next(first.parameters(), some))
        nearest = next(iter(nearest_first(sources, some, seed=seed)))
        sources = {nearest: sources[nearest]}
    if draws == "auto":
        draws = DRAWS if len(given) <= FEW else 1
    if settings is None and way.role == "adapted":
        number = len(hold_out(given, size).training if held_out else given)
        source = next(iter(sources.values()))
        told = {"seed": seed, **_looks(steps)}
        settings = adaptation_settings(source, way, number * (draws or 1), **told)
    if held_out or (settings is not None and settings.trajectory is not None):
        problems = problems or default_problems((size, size), first.channels)
    return AdaptationPlan(
        sources, given, way, problems, size, settings, draws, held_out, select, search, seed
    )


def _from_measurements(
    denoiser: Sources,
    given: Any,
    problem: Problem,
    way: Method,
    size: int | None,
    search: Search,
    seed: int,
) -> AdaptationPlan:
    """The plan for measurements alone: half of them are set aside, if there are enough."""
    measurements = problem.measurements(given)
    channels, *sides = problem.img_size
    sources = sources_of(denoiser, channels, measurements.device)
    enough = len(measurements) >= ENOUGH
    # Windows of one size could not follow this problem.
    if not enough or not all(source.conditional for source in sources.values()):
        search = replace(search, steps=0)
    if size is not None and size > min(sides):
        raise InputError(f"windows of {size} x {size} do not fit images of {sides[0]} x {sides[1]}")
    size = size or min(CROP, *(side - side % 2 for side in sides))
    return AdaptationPlan(
        sources, [], way, [problem], size, None, None, enough, "best", search, seed, measurements
    )


def _listed(problem: Problem | Sequence[Problem]) -> list[Problem]:
    return [problem] if isinstance(problem, Problem) else list(problem)


def _looks(steps: int | None) -> dict[str, int]:
    """Settings that follow from a number of steps: when the denoiser is checked and saved."""
    if steps is None:
        return {}
    every = max(1, steps // 10)
    return {"steps": steps, "check_every": every, "checkpoint_every": every}


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
    sources: Iterable[ProximalDenoiser],
    images: Sequence[Tensor],
    problems: Sequence[Problem],
    multiple: int,
) -> int:
    """The side of the windows, as large as can be: a multiple where nothing else decides it."""
    sizes = {side for problem in problems for side in problem.img_size[1:]}
    if len(sizes) > 1:
        raise InputError(f"the problems must be for square images of one size, got {sizes}")
    if sizes:
        return sizes.pop()
    natives = [one.native_size for one in sources if one.native_size]
    most = min(CROP, *(min(image.shape[1:]) for image in images))
    return max(natives, default=max(1, most // multiple) * multiple)
