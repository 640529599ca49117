"""Images from measurements of any size and number, in bounded memory.

The iteration is PnP-PGD on whole images, whatever their size; the denoiser alone is applied in
tiles (:mod:`proxmatch.denoisers.tiles`), which changes nothing but the memory. Small images of one
size are handled together. The result for an image does not depend on the others.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from proxmatch.data import embedded
from proxmatch.data.any_form import check_real, image_list
from proxmatch.data.domain import LUMA
from proxmatch.denoisers import AnyDenoiser, ProximalDenoiser
from proxmatch.denoisers.base import each
from proxmatch.denoisers.levels import as_level, told_once
from proxmatch.denoisers.tiles import TILE, tiled
from proxmatch.errors import DivergenceWarning, InputError, SuspiciousWarning
from proxmatch.plots.shown import ShownReconstruction
from proxmatch.pnp import OnDivergence, Status, Watched, pnp_pgd
from proxmatch.problems import Problem
from proxmatch.problems.catalog import entry, image_side, make_problem, options as read_options
from proxmatch.reconstruction.signs import ADVICE, TRY, Sign
from proxmatch.reconstruction.soundness import check_measured_noise, examine, last_residual
from proxmatch.transforms import Relaxed, choose_strength, choose_strength_from_measurements
from proxmatch.transforms.fitting import fitting
from proxmatch.transforms.strength import MARGIN, MIDDLING_LEVEL

#: Pixels of all images that are handled together.
TOGETHER = 512 * 512

#: Side of the embedded crops for choosing a strength; one in this many of them is used.
SIDE, PICTURES = 64, 12

#: Makes the problem for measurements of (h, w) pixels.
Builder = Callable[[tuple[int, int]], Problem]


@dataclass(frozen=True, repr=False)
class Reconstruction(ShownReconstruction):
    """Reconstructed images, in the order of their measurements.

    Attributes:
        images: ``(C, H, W)`` each, on the CPU, not clipped.
        status: how each iteration ended; ``suspicious`` if the run shows that the image is
            probably worse than its start (:mod:`proxmatch.reconstruction.soundness`).
        iterations: number of steps each image made.
        signs: why an image is suspicious; empty for one that is not.
    """

    images: tuple[Tensor, ...]
    status: tuple[Status, ...]
    iterations: tuple[int, ...]
    signs: tuple[tuple[Sign, ...], ...]


@torch.no_grad()
@told_once()
def reconstruct(
    denoiser: AnyDenoiser,
    measurements: Any,
    problem: str | Problem | Builder,
    *,
    options: Iterable[str] | Mapping[str, Any] = (),
    iterations: int | None = None,
    sigma: float | Sequence[float] | Tensor | None = None,
    tile: int = TILE,
    batch: int | None = None,
    on_step: Callable[[int], None] = lambda images: None,
    on_divergence: OnDivergence = "warn",
) -> Reconstruction:
    """Reconstruct images from their measurements.

    Args:
        denoiser: D; one that is not a :class:`ProximalDenoiser` is used as a
            :class:`~proxmatch.denoisers.PlainDenoiser`, and one of color images is
            :class:`~proxmatch.transforms.Lifted` to gray ones.
        measurements: ``(B, C, h, w)``, or ``(C, h, w)`` each, of any sizes; or pictures, as arrays,
            files or folders (:mod:`proxmatch.data.any_form`).
        problem: a name of ``PROBLEMS``, a problem, or a function from (h, w) of the measurements to
            one.
        options: of a problem that is given by name, such as ``["factor=2"]``.
        iterations: number of steps, if not that of the problem.
        sigma: noise level for the denoiser, a number or one for each image, if not its own. A
            denoiser of many levels that has been given neither this nor a strength gets the one of
            :func:`at_strength`.
        tile: side of the tiles of the denoiser, in pixels.
        batch: images of one size handled together; as many as have 512 x 512 pixels by default.
        on_step: called after each step with the number of images that made it.
        on_divergence: ``warn`` of images that diverged or are suspicious, or ``ignore`` where the
            status is looked at.

    Raises:
        InputError: measurements that do not fit.
        TooLargeError: not even a small tile fits the memory.

    Warns:
        DivergenceWarning: naming the images that diverged.
        SuspiciousWarning: naming those that are probably ruined, and what to try.
        MismatchedPhysicsWarning: the measurements have another noise than the problem.

    Example:
        >>> from proxmatch.denoisers import LPN, LPNConfig
        >>> denoiser = LPN(LPNConfig(channels=1, size=8, hidden=4, features=3, strides=(2,)))
        >>> blurred = [torch.rand(1, 8, 8), torch.rand(1, 12, 9)]
        >>> found = reconstruct(
        ...     denoiser, blurred, "deblurring", iterations=2, on_divergence="ignore"
        ... )
        >>> [tuple(image.shape) for image in found.images]
        [(1, 8, 8), (1, 12, 9)]
    """
    if batch is not None and batch < 1:
        raise InputError(f"a batch has at least 1 image, not {batch}")
    given = _given(measurements, problem)
    denoiser = fitting(denoiser, _channels(given, problem))
    place = next(denoiser.parameters(), given[0])
    build = builder(problem, options, denoiser.channels)
    if sigma is None and isinstance(problem, Problem):
        first = given[0][None].to(place)
        denoiser = at_strength(denoiser, first, placed(problem, place))
    elif sigma is None:
        denoiser = at_strength(denoiser, None, build)
    applied = tiled(denoiser, tile)
    level = as_level(sigma, place.new_empty(len(given)))
    levels = each(level)

    denoise = Watched(applied, lambda z, x, factor: on_step(len(z)))
    found: dict[int, tuple[Tensor, Status, int, tuple[Sign, ...]]] = {}
    for shape, numbers in _by_shape(given).items():
        solved = placed(build((shape[-2], shape[-1])), place)
        together = batch or max(1, TOGETHER // (solved.img_size[1] * solved.img_size[2]))
        for start in range(0, len(numbers), together):
            some = numbers[start : start + together]
            y = given[some[0]][None] if len(some) == 1 else torch.stack([given[i] for i in some])
            y = y.to(place)
            solved.check_measurement(y)
            if on_divergence == "warn":
                check_measured_noise(solved, y)
            run = pnp_pgd(
                denoise,
                y,
                solved,
                record=("residual",),
                sigma=level if levels is None else levels[some],
                iterations=iterations,
                on_divergence="ignore",
            )
            signs = examine(run.images, y, solved, residual=last_residual(run)).signs()
            images = run.images.cpu()
            for j, i in enumerate(some):
                ended = run.status[j]
                if signs[j] and ended is not Status.DIVERGED:
                    ended = Status.SUSPICIOUS
                found[i] = images[j], ended, int(run.iterations[j]), signs[j]
    images_, status, steps, why = zip(*(found[i] for i in range(len(given))), strict=True)
    diverged = [i for i, s in enumerate(status) if s is Status.DIVERGED]
    if diverged and on_divergence == "warn":
        warnings.warn(
            f"the images {diverged} diverged and were left where they were; the denoiser expands: "
            "relax it, adapt it, or take fewer iterations",
            DivergenceWarning,
            stacklevel=4,
        )
    suspicious = [i for i, s in enumerate(status) if s is Status.SUSPICIOUS]
    if suspicious and on_divergence == "warn":
        warnings.warn(
            f"the images {suspicious} are probably worse than what they were made from: "
            f"{'; '.join(dict.fromkeys(ADVICE[why[i][0]] for i in suspicious))}. {TRY}",
            SuspiciousWarning,
            stacklevel=4,
        )
    return Reconstruction(images_, status, steps, why)


def at_strength(
    denoiser: ProximalDenoiser, measurements: Tensor | None, problem: Problem | Builder
) -> ProximalDenoiser:
    """A denoiser of many levels at a strength that suits a problem; any other as it is.

    One whose strength was chosen already (:func:`proxmatch.transforms.choose_strength`) is left
    alone. For a problem that can be made for any size, the strength is chosen on pictures that
    come with proxmatch, so that it depends on the denoiser and the problem alone; for a given
    problem it is chosen on the measurements. To have it chosen on images of your own, call
    ``choose_strength`` yourself.

    Args:
        denoiser: D.
        measurements: of a given problem, ``(B, ...)``; else None.
        problem: a problem, or what makes one for measurements of a size.

    Example:
        >>> from proxmatch.denoisers import LPN, LPNConfig
        >>> denoiser = LPN(LPNConfig(channels=1, size=8, hidden=4, features=3, strides=(2,)))
        >>> at_strength(denoiser, None, "deblurring") is denoiser  # a denoiser of one level
        True
    """
    if not denoiser.conditional:
        return denoiser
    place = next(denoiser.parameters())
    if isinstance(problem, Problem):
        if measurements is None:
            raise InputError("give measurements of the problem to choose a strength on")
        return choose_strength_from_measurements(
            denoiser, measurements, problem, measured=False
        ).denoiser
    found = simulation(problem, denoiser.channels)
    if found is None:  # a mask or a kernel of one size: nothing to simulate on
        return Relaxed(
            denoiser, min(1.0, MARGIN / (denoiser.core.lipschitz or 1.0)), MIDDLING_LEVEL
        )
    small, images = placed(found[0], place), found[1].to(place)
    return choose_strength(denoiser, images, small, measured=False).denoiser


def simulation(build: Builder, channels: int) -> tuple[Problem, Tensor] | None:
    """A small problem, and embedded pictures of its size; None if it is for another size only."""
    small = _small(build)
    if small is None:
        return None
    images = embedded("photographs", SIDE).adaptation[::PICTURES]
    rows, cols = (n - SIDE for n in small.img_size[1:])
    images = F.pad(images, (0, cols, 0, rows), "reflect")
    if channels != images.shape[1]:
        gray = torch.einsum("c,nchw->nhw", LUMA, images)[:, None]
        images = gray.expand(-1, channels, -1, -1)
    return small, images.contiguous()


def _small(build: Builder) -> Problem | None:
    """The problem for images just large enough for the embedded crops, if it can be made."""
    for side in (8, 16, 32, SIDE):
        try:
            problem = build((side, side))
        except InputError:
            continue
        if all(SIDE <= n < 2 * SIDE for n in problem.img_size[1:]):
            return problem
    return None


def _given(measurements: Any, problem: str | Problem | Builder) -> list[Tensor]:
    """Measurements one by one: tensors as they are, anything else read as pictures."""
    if isinstance(measurements, Tensor):
        if isinstance(problem, Problem):
            measurements = problem.measurements(measurements)
        elif measurements.ndim == 3:
            measurements = measurements[None]
        given = list(measurements) if measurements.ndim > 0 else []
    elif isinstance(measurements, Sequence) and not isinstance(measurements, str):
        given = [
            one for y in measurements for one in ([y] if isinstance(y, Tensor) else image_list(y))
        ]
    else:
        given = image_list(measurements)
    for number, y in enumerate(given):
        check_real(y)
        if y.ndim < 2:
            raise InputError(f"measurement {number} is not a tensor (C, h, w)")
    if not given:
        raise InputError("there are no measurements; give at least one")
    return given


def _channels(given: Sequence[Tensor], problem: str | Problem | Builder) -> int | None:
    """Channels of the images that were measured, as far as problem and measurements say."""
    if isinstance(problem, Problem):
        return problem.img_size[0]
    if callable(problem):
        return problem((given[0].shape[-2], given[0].shape[-1])).img_size[0]
    if not entry(problem).pictures:
        return None
    found = {len(y) for y in given}
    if len(found) > 1:
        raise InputError(
            f"the measurements have {sorted(found)} channels; reconstruct gray and color apart"
        )
    return found.pop()


def placed(problem: Problem, like: Tensor) -> Problem:
    """A problem where a tensor is, in its precision; the same one if it is there already."""
    if torch.device(problem.device) != like.device:
        problem = problem.to(like.device)
    return problem if problem.dtype == like.dtype else problem.to(like.dtype)


def builder(
    problem: str | Problem | Builder, options: Iterable[str] | Mapping[str, Any], channels: int
) -> Builder:
    """What makes a problem, given in any way, for measurements of a size."""
    if isinstance(problem, Problem):
        return lambda size: problem
    if callable(problem):
        return problem
    read = dict(options) if isinstance(options, Mapping) else read_options(problem, options)
    return lambda size: make_problem(
        problem, image_side(problem, size, read), read, channels=channels
    )


def _by_shape(given: Sequence[Tensor]) -> dict[torch.Size, list[int]]:
    groups: dict[torch.Size, list[int]] = {}
    for number, y in enumerate(given):
        groups.setdefault(y.shape, []).append(number)
    return groups
