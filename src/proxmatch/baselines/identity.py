"""No denoiser: gradient steps on the data alone."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from proxmatch.denoisers.base import Linearization, ProximalDenoiser
from proxmatch.problems import Problem
from proxmatch.transforms.strength import Tuned, tune


class Identity(ProximalDenoiser):
    """D = Id = grad |x|^2 / 2, the proximal map of R = 0.

    Args:
        channels: of the images.
    """

    def __init__(self, channels: int = 3) -> None:
        super().__init__(channels)

    def forward(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """A copy of x."""
        return self._check(x).clone()

    def potential(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """|x|^2 / 2, ``(B,)``."""
        return self._check(x).square().flatten(1).sum(1) / 2

    def linearize(self, x: Tensor, sigma: float | Tensor | None = None) -> Linearization:
        """A copy of x, and v -> v."""
        return self._check(x).detach().clone(), lambda v: v.detach().clone()

    @property
    def smoothness(self) -> float:
        """L_H = 1."""
        return 1.0


def no_denoiser(images: Any, problem: Problem, *, seed: int = 0) -> Tuned[Identity]:
    """Plain gradient steps without a denoiser, and where to stop them.

    Stopping early is all the regularization there is: ``chosen.iteration`` steps did best on the
    images, for ``pnp_pgd(..., iterations=..., warm=0)``; 0 is the start itself.

    Args:
        images: of the problem's size, ``(N, C, H, W)``, or in any form of
            :mod:`proxmatch.data.any_form`.
        problem: what to reconstruct from.
        seed: of the simulated noise.

    Example:
        >>> import torch
        >>> from proxmatch.problems import denoising
        >>> images = torch.linspace(0, 1, 64).reshape(1, 1, 8, 8)
        >>> no_denoiser(images, denoising(8, channels=1, iterations=4)).chosen.iteration
        0
    """
    images = problem.batch(images)
    return tune(lambda _: Identity(problem.img_size[0]), (0.0,), images, problem.plain(), seed=seed)
