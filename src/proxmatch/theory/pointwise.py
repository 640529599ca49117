r"""Denoisers of single pixels: a learned proximal network and a gradient-step denoiser in R^d.

They act on the d channels of every pixel by itself, so that an image is a batch of vectors. The
convolutional networks would do the same on images of one pixel, hundreds of times slower.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from proxmatch.denoisers import GradientStep, ProximalDenoiser
from proxmatch.denoisers.base import Linearization


class PointwiseLPN(ProximalDenoiser):
    """An LPN with one layer: Psi(x) = sum_j a_j softplus(<w_j, x> + b_j) + <c, x> + alpha/2 |x|^2.

    The weights a_j are used as softplus of the parameters, so they are positive. At the start the
    kinks of the units are spread evenly over the disc of the given radius.

    Args:
        dimension: d, the number of channels.
        radius: where the data are.
        units: number of terms.
        beta: of the softplus, whose kink is about 1 / beta wide.
        alpha: strong convexity.
    """

    def __init__(
        self,
        dimension: int,
        radius: float,
        units: int = 64,
        beta: float = 10.0,
        alpha: float = 0.02,
    ) -> None:
        super().__init__(dimension)
        self.beta, self.alpha = beta, alpha
        generator = torch.Generator().manual_seed(0)
        w = F.normalize(torch.randn(units, dimension, generator=generator), dim=1)
        self.w = nn.Parameter(w)
        self.b = nn.Parameter(
            torch.linspace(-radius, radius, units)[torch.randperm(units, generator=generator)]
        )
        # sum_j a w w^T / (2 radius) is the slope of D away from the kinks: start at the identity
        start = 2 * radius * dimension / units
        self.a = nn.Parameter(torch.full((units,), math.log(math.expm1(start))))
        self.c = nn.Parameter(torch.zeros(dimension))

    def forward(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """D(x), the shape of x."""
        gate = torch.sigmoid(self.beta * self._inner(x))
        return self._back(F.softplus(self.a) * gate) + self.alpha * x + self._column(self.c)

    def potential(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """Psi(x), ``(B,)``."""
        terms = (F.softplus(self.a) * F.softplus(self._inner(x), beta=self.beta)).flatten(1).sum(1)
        return terms + ((self.alpha / 2 * x + self._column(self.c)) * x).flatten(1).sum(1)

    @torch.no_grad()
    def linearize(self, x: Tensor, sigma: float | Tensor | None = None) -> Linearization:
        """D(x) and v -> J_D(x) v."""
        gate = torch.sigmoid(self.beta * self._inner(x))
        slope = F.softplus(self.a) * self.beta * gate * (1 - gate)

        def jacobian(v: Tensor) -> Tensor:
            inner = torch.einsum("uc,bchw->bhwu", self.w, v)
            return (self._back(slope * inner) + self.alpha * v).detach()

        return self.forward(x), jacobian

    @property
    def smoothness(self) -> float:
        """L_H = 1 / alpha."""
        return 1 / self.alpha

    def _inner(self, x: Tensor) -> Tensor:
        """<w_j, x> + b_j, ``(B, H, W, units)``."""
        return torch.einsum("uc,bchw->bhwu", self.w, self._check(x)) + self.b

    def _back(self, values: Tensor) -> Tensor:
        return torch.einsum("bhwu,uc->bchw", values, self.w)

    def _column(self, c: Tensor) -> Tensor:
        return c.view(-1, 1, 1)


class _Residual(nn.Module):
    """N(x) = x + a perceptron of every pixel."""

    def __init__(self, dimension: int, units: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(dimension, units),
            nn.Softplus(3),
            nn.Linear(units, units),
            nn.Softplus(3),
            nn.Linear(units, dimension),
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.layers(x.movedim(1, -1)).movedim(-1, 1)
        return out


def pointwise_gradient_step(dimension: int, units: int = 32) -> GradientStep:
    """A gradient-step denoiser whose network is a perceptron of every pixel."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return GradientStep.of(_Residual(dimension, units), channels=dimension)
