"""A denoiser with a mismatch of given size: D(z_k) = D*(z_k) + xi_k with |xi_k| = d_k."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from proxmatch.denoisers import ProximalDenoiser
from proxmatch.metrics import norm
from proxmatch.pnp import Denoise
from proxmatch.problems import Problem
from proxmatch.theory.trajectory import trace


class Perturbed:
    """Adds an error of a given length and random direction to every output of a denoiser.

    The k-th call adds the k-th error, so a new one is made for every run.

    Args:
        denoiser: D*.
        size: k -> d_k, from k = 1, in units of the norm of an image.
        seed: of the directions.
    """

    def __init__(self, denoiser: Denoise, size: Callable[[int], float], seed: int = 0) -> None:
        self.denoiser, self.size, self.calls = denoiser, size, 0
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, z: Tensor, sigma: Any = None) -> Tensor:
        """D*(z) + xi_k."""
        self.calls += 1
        direction = torch.randn(z.shape, generator=self.generator, dtype=torch.float64).to(z)
        length = self.size(self.calls) / norm(direction)
        return self.denoiser(z, sigma) + length.view(-1, 1, 1, 1) * direction


def power_law(scale: float, exponent: float) -> Callable[[int], float]:
    """d_k with d_k^2 = scale^2 k^-exponent: summable squares for an exponent above 1.

    Example:
        >>> [power_law(1.0, 4)(k) for k in (1, 2, 4)]
        [1.0, 0.25, 0.0625]
    """
    return lambda k: float(scale * k ** (-exponent / 2))


def stationarity_under(
    size: Callable[[int], float],
    reference: ProximalDenoiser,
    measurements: Tensor,
    problem: Problem,
    *,
    iterations: int,
) -> Tensor:
    """|grad F*(x_k)| of a run with injected mismatch, ``(B, K)``.

    With d_k^2 summable it goes to zero (Theorem 3.1); with a constant d it stops at a floor.
    """
    deployed = Perturbed(reference, size)
    return trace(
        deployed, measurements, problem, reference=reference, iterations=iterations
    ).stationarity[:, 1:]
