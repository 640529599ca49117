r"""The best linear reconstruction of a picture whose spectrum is fitted to it, and its error.

x_G is the posterior mean of x given y if x is Gaussian, with the mean and the covariance of the
colors of the start x_0 and an isotropic spectrum S. It is the limit of PnP-PGD with the Wiener
filter of S.

**The spectrum** begins as 1 / f^2.5. A picture x' is drawn from it, measured, and reconstructed in
the same way. In a band of frequencies let kappa = |x'_G|^2 / |x'|^2, the share of the picture that
is recovered there. What is recovered has passed through the same filter as what was measured, so
that for a picture of spectrum T in place of S its energy would be 1 - kappa + kappa T / S times as
large: kappa is also the share of signal in what was measured there. This gives T / S from
|x_G|^2 / |x'_G|^2. A band in which kappa is below :data:`KNOWN` follows the nearest one in which it
is not. Then x_G is computed again, with T.

**The error.** Of a picture that is drawn from T, measured and reconstructed, x' - x'_G is known:
its energy in every band is what x_G is expected to miss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from proxmatch.baselines.wiener import Wiener, WienerOfEach
from proxmatch.pnp import pnp_pgd
from proxmatch.problems import Problem
from proxmatch.problems.measuring import measured
from proxmatch.transforms.colors import color_statistics

#: Steps to x_G, all with momentum, and the smallest noise that is assumed.
STEPS, LEAST_NOISE = 40, 0.01
#: Share of a band that must be recovered to say something about its spectrum.
KNOWN = 0.3
#: How far a spectrum may be from 1 / f^2.5.
LEAST, MOST = 0.03, 30.0


@dataclass(frozen=True)
class Linear:
    """Linear reconstructions."""

    images: Tensor  # x_G, (B, C, H, W)
    priors: list[Wiener]  # the filter of the spectrum that was fitted to each, B of them
    missed: Tensor  # energy that x_G is expected to miss in each band, (B, bands)


@torch.no_grad()
def reconstruct_linearly(y: Tensor, problem: Problem, start: Tensor, variance: Tensor) -> Linear:
    """x_G of each picture, and what it is expected to miss.

    Args:
        y: measurements, ``(B, ...)``.
        problem: what they were measured by.
        start: x_0, ``(B, C, H, W)``.
        variance: of the noise in y, ``(B,)``.

    Example:
        >>> from proxmatch.problems import denoising
        >>> problem = denoising(16, noise=0.1, channels=1)
        >>> y = problem.measure(torch.linspace(0, 1, 256).view(1, 1, 16, 16))
        >>> found = reconstruct_linearly(y, problem, y, torch.tensor([0.01]))
        >>> found.images.shape, bool(found.missed.sum() > 0)
        (torch.Size([1, 1, 16, 16]), True)
    """
    levels = (problem.eta * variance).sqrt().clamp_min(math.sqrt(problem.eta) * LEAST_NOISE)
    size = (start.shape[-2], start.shape[-1])
    priors = [
        Wiener.natural(color_statistics(start[i : i + 1]), level, size).to(start)
        for i, level in enumerate(levels.tolist())
    ]
    found, drawn, again = _both(priors, y, problem, start, 0)
    mean = start.mean((2, 3), keepdim=True)
    for i, prior in enumerate(priors):
        _fit_(prior, *((v - mean)[i : i + 1] for v in (found, drawn, again)))
    found, drawn, again = _both(priors, y, problem, start, 1)
    missed = [prior.bands((drawn - again)[i : i + 1]) for i, prior in enumerate(priors)]
    return Linear(found, priors, torch.cat(missed))


def _fit_(prior: Wiener, found: Tensor, drawn: Tensor, again: Tensor) -> None:
    """Give a prior the spectrum T, from x_G, x' and x'_G; see the module docstring."""
    tiny = torch.finfo(found.dtype).tiny
    energy, recovered = prior.bands(drawn)[0], prior.bands(again)[0]
    share = (recovered / energy.clamp_min(tiny)).clamp(0, 1)
    ratio = prior.bands(found)[0] / recovered.clamp_min(tiny)
    known = (share > KNOWN).nonzero().flatten()
    if len(known):
        excess = (1 + (ratio - 1) / share.clamp_min(KNOWN)).clamp(LEAST, MOST)
        places = torch.arange(len(excess), device=excess.device)
        nearest = known[(places[:, None] - known).abs().argmin(1)]
        prior.log_snr.add_(excess[nearest].log())


def _both(
    priors: list[Wiener], y: Tensor, problem: Problem, start: Tensor, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """x_G, a picture that is drawn from each prior, and what is reconstructed of it."""
    size, number = (start.shape[-2], start.shape[-1]), len(priors)
    drawn = torch.cat([prior.draw(1, size, seed) for prior in priors])
    theirs = measured(problem.physics, drawn, [0] * number, seed)
    initial = torch.cat([start, problem.initialization(theirs, problem.physics)])
    filters = WienerOfEach(2 * priors, initial)
    run = pnp_pgd(
        lambda z, place: filters(z, place - 1),
        torch.cat([y, theirs]),
        problem,
        record=(),
        sigma=torch.arange(1, 2 * number + 1, device=start.device),  # a filter's place as its level
        iterations=STEPS,
        warm=STEPS,
        initial=initial,
        on_divergence="ignore",
    )
    return run.images[:number], drawn, run.images[number:]
