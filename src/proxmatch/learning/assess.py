"""What a denoiser is worth on given images: denoising, reconstruction, and its L."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from proxmatch._internal.randomness import generator_of
from proxmatch.denoisers import ProximalDenoiser, jacobian_spectrum
from proxmatch.learning.hold_out import psnr_from
from proxmatch.pnp import Denoise, Status, pnp_pgd
from proxmatch.problems import Problem, by_name
from proxmatch.transforms.strength import quick


@dataclass(frozen=True)
class Assessment:
    """Figures of a denoiser on B images.

    Attributes:
        denoising: PSNR of D(x + sigma noise) in dB, ``(B,)``, by sigma.
        reconstruction: PSNR of the last PnP iterate in dB, ``(B,)``, by problem.
        diverged: how many reconstructions diverged, by problem.
        lipschitz: largest L of Id - D found on the images with noise, an estimate from below; NaN
            where it was not looked for, as the next two.
        largest: largest eigenvalue of J_D found there.
        residual: by how much that eigenvalue may be off.
    """

    denoising: dict[float, Tensor]
    reconstruction: dict[str, Tensor]
    diverged: dict[str, int]
    lipschitz: float = math.nan
    largest: float = math.nan
    residual: float = math.nan

    def of_first(self, count: int) -> Assessment:
        """The same of the first images alone."""
        return replace(
            self,
            denoising={level: v[:count] for level, v in self.denoising.items()},
            reconstruction={name: v[:count] for name, v in self.reconstruction.items()},
        )

    def means(self) -> dict[str, Any]:
        """The means over the images, ready for JSON: None for what was not measured."""
        spectrum = (self.lipschitz, self.largest, self.residual)
        constant, largest, residual = (None if math.isnan(v) else round(v, 4) for v in spectrum)
        return {
            "denoising": {str(s): round(float(v.mean()), 3) for s, v in self.denoising.items()},
            "reconstruction": {
                name: round(float(v.mean()), 3) for name, v in self.reconstruction.items()
            },
            "diverged": self.diverged,
            "lipschitz": constant,
            "largest_eigenvalue": largest,
            "eigenvalue_residual": residual,
            "images": len(next(iter(self.denoising.values()))),
        }


def compared(denoiser: Denoise) -> Denoise:
    """A denoiser as it is compared with others: :func:`quick`, if it has such a form."""
    return quick(denoiser) if isinstance(denoiser, ProximalDenoiser) else denoiser


@torch.no_grad()
def assess(
    denoiser: Denoise,
    images: Tensor,
    problems: Sequence[Problem],
    *,
    noise: Sequence[float] = (0.05,),
    first: Sequence[int] | None = None,
    iterations: int = 40,
    spectrum: bool = True,
    seed: int = 0,
) -> Assessment:
    """Measure a denoiser on clean images, with noise that depends on the images and the seed alone.

    Args:
        denoiser: the denoiser.
        images: clean, ``(B, C, H, W)``.
        problems: to reconstruct the images from simulated measurements of them.
        noise: levels of the denoising figures, passed to the model. L is taken at the first, of the
            model as PnP runs it (a network that is conditioned on the level keeps its own).
        first: the first column of each image that counts in the PSNR; 0 by default.
        iterations: of the estimate of L.
        spectrum: estimate L, for which the denoiser must have a Jacobian.
        seed: of the noise.

    Example:
        >>> from proxmatch.baselines import Identity
        >>> from proxmatch.problems import denoising
        >>> images = torch.rand(2, 1, 8, 8)
        >>> found = assess(Identity(1), images, [denoising(8, channels=1, iterations=2)])
        >>> list(found.reconstruction), found.denoising[0.05].shape
        (['denoising'], torch.Size([2]))
    """
    place = next(iter(denoiser.parameters()), images) if isinstance(denoiser, Module) else images
    images = images.to(place)
    first = first or (0,) * len(images)
    swift = compared(denoiser)

    def quality(found: Tensor) -> Tensor:
        return psnr_from(found, images, first).cpu()

    unit = torch.randn(images.shape, generator=generator_of(seed, "noise")).to(place)
    denoising = {level: quality(swift(images + level * unit, level)) for level in noise}
    reconstruction, diverged = {}, {}
    for name, problem in by_name(problems).items():
        placed = problem.to(place.device).to(place.dtype)
        y = placed.measure(images, seed=seed)
        result = pnp_pgd(swift, y, placed, record=(), on_divergence="ignore")  # they are counted
        reconstruction[name] = quality(result.images)
        diverged[name] = result.status.count(Status.DIVERGED)
    found = Assessment(denoising, reconstruction, diverged)
    if not spectrum or not isinstance(denoiser, ProximalDenoiser) or not denoiser.proximal:
        return found
    return with_spectrum(found, denoiser, images + noise[0] * unit, iterations)


def with_spectrum(
    found: Assessment, denoiser: ProximalDenoiser, at: Tensor, iterations: int = 40
) -> Assessment:
    """Figures with an estimate of L, which a denoiser without a potential does not have."""
    if not denoiser.proximal:
        return found
    spectrum = jacobian_spectrum(denoiser, at, iterations=iterations)
    return replace(
        found,
        lipschitz=float(spectrum.constant.max()),
        largest=float(spectrum.largest.max()),
        residual=float(torch.maximum(spectrum.largest_residual, spectrum.smallest_residual).max()),
    )
