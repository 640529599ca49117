"""Relaxation chosen for a problem: the t of t D + (1 - t) Id, from images or measurements.

With images of the domain their measurements are simulated, and the t of highest PSNR is kept.

Without any, the measurements themselves make the images: they are reconstructed at a middling t
and **halved**. Images look alike at all scales, and averaging 2 x 2 pixels removes most of what a
reconstruction lacks or adds at the finest one, so that these are nearly clean images of half the
size; mirrored at their edges they fill the frame again. Then the problem is simulated on them. Not
halved, they would vote for the t that made them.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from proxmatch.denoisers.base import ProximalDenoiser
from proxmatch.errors import DivergenceWarning
from proxmatch.pnp import pnp_pgd
from proxmatch.problems import Problem
from proxmatch.transforms.relaxed import Relaxed
from proxmatch.transforms.tuning import Quality, Tuned, tune

#: About even steps in log t, from the denoiser as it is to nearly none.
STRENGTHS = (1.0, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02)
#: Where the measurements are reconstructed at before any t is chosen.
MIDDLING = 0.1


def relax(
    model: ProximalDenoiser,
    problem: Problem | Sequence[Problem],
    images: Tensor,
    *,
    strengths: Sequence[float] = STRENGTHS,
    quality: Quality | None = None,
    iterations: int | None = None,
    seed: int = 0,
) -> Tuned[Relaxed]:
    """Choose t for a problem by simulating its measurements on given images.

    The denoiser itself, t = 1, is always tried, so that the winner is never worse than it on the
    given images.

    Args:
        model: D, which is held and not changed.
        problem: what to reconstruct from; several share one t.
        images: of the domain and of the problem's size, ``(N, C, H, W)``; one will do.
        strengths: values of t in (0, 1].
        quality: of reconstructions, ``(N,)`` in dB; their PSNR unless given.
        iterations: PnP steps, if not those of the problem.
        seed: of the simulated noise.

    Returns:
        The relaxed denoiser, with the scores of all t that were tried, also in its record.
    """
    grid = sorted({1.0, *strengths}, reverse=True)
    found = tune(
        lambda t: Relaxed(model, t),
        grid,
        problem,
        images,
        quality=quality,
        iterations=iterations,
        seed=seed,
    )
    names = ", ".join(found.chosen.by_problem)
    found.denoiser.record = {"problem": names, "images": len(images), **found.to_json()}
    return found


def relax_from_measurements(
    model: ProximalDenoiser,
    problem: Problem,
    y: Tensor,
    *,
    strengths: Sequence[float] = STRENGTHS,
    iterations: int | None = None,
    seed: int = 0,
) -> Tuned[Relaxed]:
    """Choose t for a problem from measurements alone; see the module's text.

    The scores are PSNR on halved reconstructions, which says which t is best, not how good it is.
    Of the criteria tried on photographs and validation faces with LPNs (three to five problems, 4
    to 20 images) this one lost least against the best t: at most 0.6 dB, mostly below 0.1. The
    discrepancy principle lost up to 5.7 dB and has nothing to say without noise; the same without
    halving 4.0 dB; SURE and R2R 0.6 dB in deblurring, where halving lost nothing.

    Args:
        model: D, which is held and not changed.
        problem: what y was measured by.
        y: measurements, ``(N, ...)``, N >= 1.
        strengths: values of t in (0, 1].
        iterations: PnP steps, if not those of the problem.
        seed: of the simulated noise.
    """
    found = relax(
        model,
        problem,
        stand_ins(model, problem, y, iterations=iterations),
        strengths=strengths,
        iterations=iterations,
        seed=seed,
    )
    del found.denoiser.record["images"]
    found.denoiser.record["measurements"] = len(y)
    return found


def stand_ins(
    model: ProximalDenoiser, problem: Problem, y: Tensor, *, iterations: int | None = None
) -> Tensor:
    """Nearly clean images from measurements alone: halved reconstructions at a middling t.

    Args:
        model: D.
        problem: what y was measured by.
        y: measurements, ``(N, ...)``.
        iterations: PnP steps, if not those of the problem.

    Returns:
        Images of the problem's size, ``(N, C, H, W)``, in [0, 1].
    """
    with warnings.catch_warnings():  # what is left of an image that diverged is used as well
        warnings.simplefilter("ignore", DivergenceWarning)
        run = pnp_pgd(y, problem, Relaxed(model, MIDDLING), record=(), iterations=iterations)
    return halved(run.reconstruction.clamp(0, 1))


def halved(images: Tensor) -> Tensor:
    """Images of half the size, mirrored at their right and lower edges to the size they had.

    Args:
        images: ``(N, C, H, W)``, at least 2 x 2.
    """
    small = F.avg_pool2d(images, 2)
    rows, cols = (
        _mirror(n, half, images.device)
        for n, half in zip(images.shape[-2:], small.shape[-2:], strict=True)
    )
    return small[..., rows[:, None], cols]


def _mirror(n: int, half: int, device: torch.device) -> Tensor:
    """0, 1, ..., half - 1, half - 1, ..., 1, 0, ... : n indices."""
    place = torch.arange(n, device=device) % (2 * half)
    return torch.minimum(place, 2 * half - 1 - place)
