r"""What the losses converge to (Proposition 4.1), seen on a prior whose answers are known.

A pointwise denoiser is trained on fresh draws by the MSE, and from there on by proximal matching
with gamma going down. The MSE lands on the posterior mean; proximal matching on the mode of the
smoothed posterior, which approaches the MAP map. The learned regularizer is compared with
sigma^2 (-log p), up to the constant that no denoiser determines.

The proposition is about all measurable maps. The two families are continuous, and an LPN is the
gradient of a convex function: where the MAP map jumps (several posterior modes), neither can
follow it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from proxmatch._internal.palette import BLACK, BLUE, GREEN, ORANGE, RED, SKY
from proxmatch.denoisers import ProximalDenoiser
from proxmatch.losses import proximal_matching, squared_error
from proxmatch.theory.known import Density
from proxmatch.theory.pointwise import PointwiseLPN, pointwise_gradient_step
from proxmatch.theory.trajectory import in_float64

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIDE = 96  # 96 x 96 pixels: 9216 draws per step; fewer leave the smallest gamma noisy


@dataclass(frozen=True)
class Trained:
    """One trained denoiser; distances are root mean squares over y.

    Attributes:
        gamma: of proximal matching; None for the MSE.
        outputs: D(y) on the grid of the study, ``(N, d)``.
        to_mean: distance to the posterior mean.
        to_mode: distance to the MAP map.
        to_target: distance to its own target: the mean, or the smoothed mode.
        regularizer: R - R(0) at the points of the study's grid, ``(N,)``; NaN where no inverse was
            found.
    """

    gamma: float | None
    outputs: Tensor
    to_mean: float
    to_mode: float
    to_target: float
    regularizer: Tensor


@dataclass(frozen=True)
class PopulationStudy:
    """The population experiment on one prior.

    Attributes:
        prior: p.
        sigma: of the noise.
        family: ``lpn`` or ``gs``.
        grid: where maps and regularizers are shown, ``(N, d)``: along the first axis.
        trained: the MSE first, then gamma going down.
    """

    prior: Density
    sigma: float
    family: str
    grid: Tensor
    trained: tuple[Trained, ...]


def study(
    prior: Density,
    sigma: float,
    *,
    family: Literal["lpn", "gs"] = "lpn",
    gammas: Sequence[float] = (0.5, 0.2, 0.08),
    steps: int = 600,
    radius: float = 5.0,
    seed: int = 0,
) -> PopulationStudy:
    """Train by the MSE, then by proximal matching at each gamma, and measure.

    Args:
        prior: p.
        sigma: standard deviation of the noise.
        family: ``lpn`` (:class:`PointwiseLPN`) or ``gs`` (a gradient-step denoiser).
        gammas: of proximal matching, in units of the norm of a vector.
        steps: optimizer steps in each stage.
        radius: the grid goes from -radius to radius.
        seed: of the draws.
    """
    d = prior.dimension
    denoiser: ProximalDenoiser = (
        PointwiseLPN(d, 2.5 * radius, units=96 * d)
        if family == "lpn"
        else pointwise_gradient_step(d)
    )
    generator = torch.Generator().manual_seed(seed)
    grid = torch.zeros(201, d, dtype=torch.float64)
    grid[:, 0] = torch.linspace(-radius, radius, 201, dtype=torch.float64)
    y = _noisy(prior, sigma, generator)[1].double()
    trained = []
    for gamma in (None, *gammas):
        train(denoiser, prior, sigma, gamma, steps=steps, generator=generator)
        trained.append(_measured(denoiser, prior, sigma, gamma, grid, y))
    return PopulationStudy(prior, sigma, family, grid, tuple(trained))


def train(
    denoiser: ProximalDenoiser,
    prior: Density,
    sigma: float,
    gamma: float | None,
    *,
    steps: int,
    generator: torch.Generator,
    rate: float | None = None,
) -> None:
    """Minimize the population MSE or PM risk by Adam on fresh draws, the rate going to zero.

    Args:
        denoiser: pointwise; trained in place.
        prior: p.
        sigma: of the noise.
        gamma: of proximal matching; None for the MSE.
        steps: of the optimizer.
        generator: of the draws.
        rate: learning rate at the start; 1e-2 for the MSE and 3e-3 for proximal matching, whose
            gradient comes from the few draws within reach of gamma and is noisier.

    Example:
        >>> from proxmatch.theory.known import Gaussian
        >>> denoiser = PointwiseLPN(1, 5.0)
        >>> train(denoiser, Gaussian(), 1.0, None, steps=1, generator=torch.Generator())
    """
    rate = rate or (1e-2 if gamma is None else 3e-3)
    optimizer = torch.optim.Adam(denoiser.parameters(), lr=rate, betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    d = prior.dimension
    for _ in range(steps):
        clean, noisy = _noisy(prior, sigma, generator)
        output = _as_vectors(denoiser(_as_image(noisy)))
        if gamma is None:
            loss = squared_error(output, clean).mean()
        else:
            loss = proximal_matching(output, clean, gamma / math.sqrt(d)).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()


def draw(*studies: PopulationStudy) -> Figure:
    """One line per study: the maps, their distances and the regularizers, along the first axis."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.6 * len(studies)), layout="constrained")
    lines = figure.subplots(len(studies), 3, squeeze=False, width_ratios=(1.2, 1, 1.2))
    shades = (ORANGE, SKY, GREEN, RED)
    for axes, found in zip(lines, studies, strict=True):
        prior, sigma, y = found.prior, found.sigma, found.grid
        x = y[:, 0].tolist()
        maps, bars, regularizer = axes
        maps.plot(x, prior.mean(y, sigma)[:, 0], color=BLACK, lw=1, ls="--", label="posterior mean")
        maps.plot(x, prior.mode(y, sigma)[:, 0], color=BLACK, lw=1, label="MAP = prox")
        true = sigma**2 * prior.energy(y)
        regularizer.plot(x, true - true[len(x) // 2], color=BLACK, lw=1, label=r"$-\sigma^2\log p$")
        names = []
        for run, shade in zip(found.trained, shades, strict=False):
            name = "MSE" if run.gamma is None else rf"PM, $\gamma={run.gamma:g}$"
            names.append(name)
            maps.plot(x, run.outputs[:, 0], color=shade, lw=2, alpha=0.85, label=name)
            regularizer.plot(x, run.regularizer, color=shade, lw=2, alpha=0.85, label=name)
        place = torch.arange(len(names), dtype=torch.float64)
        mean = [run.to_mean for run in found.trained]
        mode = [run.to_mode for run in found.trained]
        hatched = {"color": "white", "edgecolor": BLACK, "hatch": "//"}
        bars.bar(place - 0.2, mean, 0.38, **hatched, label="to the posterior mean")
        bars.bar(place + 0.2, mode, 0.38, color=BLUE, label="to the MAP map")
        bars.set_xticks(place.tolist(), names, fontsize=8)
        reach = float(y[:, 0].max()) * 0.8
        label = f"{type(prior).__name__}, {found.family.upper()}"
        maps.set(
            xlabel="noisy y", ylabel="D(y)", title=f"{label}: the denoiser", xlim=(-reach, reach)
        )
        maps.set_ylim(-reach, reach)
        bars.set(title="its distance (root mean square)")
        top = float((true - true[len(x) // 2])[y[:, 0].abs() <= reach].max())
        regularizer.set(xlabel="x", title="the regularizer it learned", xlim=(-reach, reach))
        regularizer.set_ylim(-0.15 * top, 1.25 * top)
        for axis in axes:
            axis.legend(fontsize=7, frameon=False)
    return figure


def _measured(
    denoiser: ProximalDenoiser,
    prior: Density,
    sigma: float,
    gamma: float | None,
    grid: Tensor,
    y: Tensor,
) -> Trained:
    denoiser = in_float64(denoiser)
    with torch.no_grad():
        output = _as_vectors(denoiser(_as_image(y)))
        shown = _as_vectors(denoiser(grid.T[None, :, None]))
    target = prior.mean(y, sigma) if gamma is None else prior.smoothed_mode(y, sigma, gamma)
    # One image per point, so that each has its own inverse and its own value.
    points = grid[:, :, None, None]
    inverse = denoiser.inverse(points, tolerance=1e-8)
    with torch.no_grad():
        value = (inverse.z - points / 2).mul(points).flatten(1).sum(1) - denoiser.potential(
            inverse.z
        )
    value = value.masked_fill(~inverse.converged, math.nan)
    return Trained(
        gamma,
        shown,
        _rms(output - prior.mean(y, sigma)),
        _rms(output - prior.mode(y, sigma)),
        _rms(output - target),
        value - value[len(value) // 2],
    )


def _noisy(prior: Density, sigma: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draws x and y = x + noise, ``(SIDE^2, d)`` each."""
    clean = prior.sample(SIDE**2, generator)
    return clean, clean + sigma * torch.randn(clean.shape, generator=generator)


def _as_image(vectors: Tensor) -> Tensor:
    """SIDE^2 vectors as the pixels of one image, ``(1, d, SIDE, SIDE)``."""
    return vectors.T.reshape(1, -1, SIDE, SIDE)


def _as_vectors(image: Tensor) -> Tensor:
    return image[0].flatten(1).T


def _rms(error: Tensor) -> float:
    return float(error.square().sum(1).mean().sqrt())
