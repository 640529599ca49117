"""Total variation by deepinv, as a denoiser for PnP-PGD."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from deepinv.models import TVDenoiser
from torch import Tensor

from proxmatch.denoisers.levels import as_level
from proxmatch.errors import InputError
from proxmatch.problems import Problem
from proxmatch.transforms.strength import Tuned, tune

TAU = 0.05  # step of the inner iteration; deepinv's 0.01 needs 4 times as many of them
#: What :func:`total_variation` tries, from strong to weak.
WEIGHTS = (0.1, 0.05, 0.03, 0.02, 0.01, 0.005, 0.003, 0.001, 0.0005, 0.0002)


class TotalVariation:
    """The proximal map of weight * TV, isotropic, each channel on its own.

    Not a :class:`~proxmatch.denoisers.ProximalDenoiser`: TV is not smooth, and its proximal map has
    no inverse.

    Args:
        weight: of the total variation.
        steps: of the inner iteration, started afresh at every call: deepinv's own warm start would
            make the result depend on what was denoised before. After 20 the result is within 1 %
            of the proximal map (weights up to 0.02).
    """

    #: It has no noise levels.
    conditional = False

    def __init__(self, weight: float, steps: int = 20) -> None:
        if not 0 < weight < float("inf"):
            raise InputError(f"the weight must be positive and finite, got {weight}")
        self.weight, self.steps = weight, steps

    @torch.no_grad()
    def __call__(self, x: Tensor, sigma: Any = None) -> Tensor:
        """Prox of weight * TV at x ``(B, C, H, W)``; the noise level is not used."""
        as_level(sigma, x)  # refused if it is not one
        # No early stop: deepinv's looks at the whole batch, and one image would change another.
        solver = TVDenoiser(ths=self.weight, n_it_max=self.steps, tau=TAU, crit=0.0)
        out: Tensor = solver(x)
        return out


def total_variation(
    images: Any,
    problem: Problem,
    *,
    weights: Sequence[float] = WEIGHTS,
    iterations: int | None = None,
    seed: int = 0,
) -> Tuned[TotalVariation]:
    """TV with its weight chosen for a problem by simulating it on given images.

    Args:
        images: of the problem's size, ``(N, C, H, W)``, or in any form of
            :mod:`proxmatch.data.any_form`.
        problem: what to reconstruct from.
        weights: values to try, in order.
        iterations: PnP steps, if not those of the problem.
        seed: of the simulated noise.

    Example:
        >>> import torch
        >>> from proxmatch.problems import denoising
        >>> flat = torch.full((1, 1, 8, 8), 0.5)
        >>> problem = denoising(8, noise=0.1, channels=1, iterations=4)
        >>> total_variation(flat, problem, weights=(0.1, 0.001)).chosen.strength
        0.1
    """
    images = problem.batch(images)
    return tune(TotalVariation, weights, images, problem, iterations=iterations, seed=seed)
