r"""Targets with known answers: priors p = exp(-E) whose denoisers can be written down.

For y = x + noise of standard deviation sigma, each prior knows

    its mode             prox of sigma^2 E at y: the MAP denoiser      (equation 28)
    its posterior mean   E[x | y]: the target of the MSE               (equation 31)
    its smoothed mode    that of p(x | y) convolved with N(0, gamma^2): the target of proximal
                         matching                                      (equation 33)

in closed form, or by a solve that is exact to rounding. All maps are on vectors ``(N, d)``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from proxmatch.errors import InputError


class Prior(ABC):
    """A function E whose proximal map is known."""

    #: d, the dimension of the vectors.
    dimension: int = 1

    @abstractmethod
    def energy(self, x: Tensor) -> Tensor:
        """E(x) = -log p(x), ``(N,)``."""

    @abstractmethod
    def slope(self, x: Tensor) -> Tensor:
        """The gradient of E, ``(N, d)``."""

    @abstractmethod
    def curvature(self, x: Tensor) -> Tensor:
        """The Hessian of E, ``(N, d, d)``."""

    @property
    @abstractmethod
    def curvature_range(self) -> tuple[float, float]:
        """Bounds of the eigenvalues of the Hessian over all x."""

    @abstractmethod
    def mode(self, y: Tensor, sigma: float) -> Tensor:
        """Prox of sigma^2 E at y, ``(N, d)``: the mode of the posterior p(x | y)."""


class Density(Prior):
    """A prior that can be drawn from, and whose posterior is known."""

    @abstractmethod
    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Draws from p, ``(count, d)``, in float32."""

    @abstractmethod
    def mean(self, y: Tensor, sigma: float) -> Tensor:
        """E[x | y], ``(N, d)``."""

    @abstractmethod
    def smoothed_mode(self, y: Tensor, sigma: float, gamma: float) -> Tensor:
        """Argmax over z of E[exp(-|z - x|^2 / (2 gamma^2)) | y], ``(N, d)``."""


@dataclass(frozen=True)
class Gaussian(Density):
    """N(center, scale^2): linear shrinkage toward the center, the same for all three maps."""

    scale: float = 1.0
    center: float = 0.0

    def energy(self, x: Tensor) -> Tensor:
        """(x - center)^2 / (2 scale^2) and the logarithm of the normalization."""
        log_norm = math.log(self.scale * math.sqrt(2 * math.pi))
        return ((x - self.center) / self.scale).square().sum(1) / 2 + log_norm

    def slope(self, x: Tensor) -> Tensor:
        """(x - center) / scale^2."""
        return (x - self.center) / self.scale**2

    def curvature(self, x: Tensor) -> Tensor:
        """1 / scale^2."""
        return torch.full_like(x, 1 / self.scale**2)[:, :, None]

    @property
    def curvature_range(self) -> tuple[float, float]:
        """It is constant."""
        return 1 / self.scale**2, 1 / self.scale**2

    def mode(self, y: Tensor, sigma: float) -> Tensor:
        """Center + (y - center) scale^2 / (scale^2 + sigma^2)."""
        return self.center + (y - self.center) * (self.scale**2 / (self.scale**2 + sigma**2))

    def mean(self, y: Tensor, sigma: float) -> Tensor:
        """The mode: the posterior is Gaussian."""
        return self.mode(y, sigma)

    def smoothed_mode(self, y: Tensor, sigma: float, gamma: float) -> Tensor:
        """The mode: smoothing a Gaussian does not move it."""
        return self.mode(y, sigma)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Draws, ``(count, 1)``."""
        return self.center + self.scale * torch.randn(count, 1, generator=generator)


@dataclass(frozen=True)
class Huber(Prior):
    """|x| / scale with its tip rounded to a parabola on |x| <= width.

    Its proximal map is the soft threshold with a slope in place of the dead zone, so that it can
    be inverted; with width 0 it is the soft threshold itself.
    """

    scale: float = 1.0
    width: float = 0.1

    def energy(self, x: Tensor) -> Tensor:
        """|x| / scale - width / (2 scale) outside, x^2 / (2 scale width) inside."""
        size = x.abs().sum(1)
        outside = (size - self.width / 2) / self.scale
        if self.width == 0:
            return outside
        return torch.where(size > self.width, outside, size**2 / (2 * self.scale * self.width))

    def slope(self, x: Tensor) -> Tensor:
        """The slope clamp(x / width, -1, 1) / scale."""
        unit = (x / self.width).clamp(-1, 1) if self.width else x.sign()
        return unit / self.scale

    def curvature(self, x: Tensor) -> Tensor:
        """1 / (scale width) inside, 0 outside."""
        inside = x.abs() <= self.width
        return torch.where(inside, self.curvature_range[1], 0.0).to(x)[:, :, None]

    @property
    def curvature_range(self) -> tuple[float, float]:
        """From 0 to 1 / (scale width)."""
        return 0.0, 1 / (self.scale * self.width) if self.width else math.inf

    def mode(self, y: Tensor, sigma: float) -> Tensor:
        """Soft threshold at sigma^2 / scale, with the slope of the parabola in its middle."""
        threshold = sigma**2 / self.scale
        inside = y * (self.width / (self.width + threshold))
        return torch.where(y.abs() > self.width + threshold, y - threshold * y.sign(), inside)


@dataclass(frozen=True)
class Laplace(Huber, Density):
    """exp(-|x| / scale) / (2 scale): the mode is the soft threshold at sigma^2 / scale."""

    width: float = 0.0

    def __post_init__(self) -> None:
        if self.width:
            raise InputError("a Laplace density has a sharp tip; use Huber for a rounded one")

    def energy(self, x: Tensor) -> Tensor:
        """|x| / scale + log(2 scale)."""
        return super().energy(x) + math.log(2 * self.scale)

    def mean(self, y: Tensor, sigma: float) -> Tensor:
        """The mean y - (sigma^2 / scale) t(y, sigma^2); see :meth:`_tilt`."""
        return y - sigma**2 / self.scale * self._tilt(y, sigma**2)

    def smoothed_mode(self, y: Tensor, sigma: float, gamma: float) -> Tensor:
        """The z with z = y - (sigma^2 / scale) t(c, v), by bisection.

        The product of the two Gaussians in x is a Gaussian of mean c = (z sigma^2 + y gamma^2) / s
        and variance v = sigma^2 gamma^2 / s, s = sigma^2 + gamma^2. The smoothed posterior is
        log-concave, so its derivative changes sign once.
        """
        threshold, s = sigma**2 / self.scale, sigma**2 + gamma**2

        def descent(z: Tensor) -> Tensor:
            c = (z * sigma**2 + y * gamma**2) / s
            return z - y + threshold * self._tilt(c, sigma**2 * gamma**2 / s)

        return bisect(descent, y - threshold, y + threshold)

    def _tilt(self, c: Tensor, v: float) -> Tensor:
        """P(x > 0) - P(x < 0) under exp(-|x| / scale) N(x; c, v), in (-1, 1)."""
        b, deviation = self.scale, math.sqrt(v)
        right = torch.special.log_ndtr((c - v / b) / deviation) - c / b
        left = torch.special.log_ndtr(-(c + v / b) / deviation) + c / b
        return torch.tanh((right - left) / 2)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Draws, ``(count, 1)``."""
        size = -self.scale * torch.rand(count, 1, generator=generator).clamp_min(1e-30).log()
        return size * (2 * torch.randint(2, (count, 1), generator=generator) - 1)


@dataclass(frozen=True)
class Mixture(Density):
    """A mixture of Gaussians of one width: sum_j weight_j N(mean_j, scale^2 Id), in any dimension.

    Its posterior is again such a mixture, and so is the smoothed posterior.

    Attributes:
        means: of the components, each of d numbers.
        scale: standard deviation of every component.
        weights: positive; normalized here. Equal unless given.
    """

    means: tuple[tuple[float, ...], ...] = ((-1.0,), (1.0,))
    scale: float = 0.7
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if len({len(mean) for mean in self.means}) != 1:
            raise InputError(f"the means of a mixture must have one dimension, got {self.means}")
        if self.weights and (len(self.weights) != len(self.means) or min(self.weights) <= 0):
            raise InputError(
                f"a mixture of {len(self.means)} needs as many positive weights, not {self.weights}"
            )

    @property
    def dimension(self) -> int:  # type: ignore[override]
        """The dimension d."""
        return len(self.means[0])

    def energy(self, x: Tensor) -> Tensor:
        """-log p."""
        logits, _ = self._posterior(x, self.scale**2)
        log_norm = self.dimension / 2 * math.log(2 * math.pi * self.scale**2)
        return log_norm - torch.logsumexp(logits, 1)

    def slope(self, x: Tensor) -> Tensor:
        """(x - sum_j r_j mean_j) / scale^2 with the responsibilities r."""
        logits, means = self._posterior(x, self.scale**2)
        average, _ = _moments(logits.softmax(1), means)
        return (x - average) / self.scale**2

    def curvature(self, x: Tensor) -> Tensor:
        """Id / scale^2 - Cov_r(mean) / scale^4."""
        logits, means = self._posterior(x, self.scale**2)
        _, covariance = _moments(logits.softmax(1), means)
        eye = torch.eye(self.dimension, dtype=x.dtype, device=x.device)
        return eye / self.scale**2 - covariance / self.scale**4

    @property
    def curvature_range(self) -> tuple[float, float]:
        """Up to 1 / scale^2; below it by diameter^2 / (4 scale^4) at most (Popoviciu)."""
        m = torch.tensor(self.means, dtype=torch.float64)
        diameter = float(torch.cdist(m, m).max())
        top = 1 / self.scale**2
        return top - diameter**2 / 4 * top**2, top

    def mode(self, y: Tensor, sigma: float) -> Tensor:
        """The highest mode of the posterior."""
        return self.smoothed_mode(y, sigma, 0.0)

    def mean(self, y: Tensor, sigma: float) -> Tensor:
        """The mean of the means of the posterior."""
        logits, means = self._given(y, sigma)
        return _moments(logits.softmax(1), means)[0]

    def smoothed_mode(self, y: Tensor, sigma: float, gamma: float) -> Tensor:
        """The highest mode of the posterior with gamma^2 added to its variances."""
        logits, means = self._given(y, sigma)
        variance = self.scale**2 * sigma**2 / (self.scale**2 + sigma**2)
        return highest_mode(logits, means, variance + gamma**2)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Draws, ``(count, d)``."""
        chosen = torch.multinomial(
            self._weights(torch.empty(0)).float(), count, replacement=True, generator=generator
        )
        noise = torch.randn(count, self.dimension, generator=generator)
        return torch.tensor(self.means)[chosen] + self.scale * noise

    def _weights(self, like: Tensor) -> Tensor:
        weights = torch.tensor(self.weights or [1.0] * len(self.means), dtype=torch.float64)
        return (weights / weights.sum()).to(like)

    def _posterior(self, x: Tensor, variance: float) -> tuple[Tensor, Tensor]:
        """log(weight_j exp(-|x - mean_j|^2 / (2 variance))), ``(N, J)``, and the means."""
        means = torch.tensor(self.means, dtype=torch.float64).to(x)
        distance = (x[:, None] - means).square().sum(2)
        return self._weights(x).log() - distance / (2 * variance), means.expand(len(x), -1, -1)

    def _given(self, y: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
        """Log-weights and means of the components of p(x | y), ``(N, J)`` and ``(N, J, d)``."""
        total = self.scale**2 + sigma**2
        logits, means = self._posterior(y, total)
        return logits, (self.scale**2 * y[:, None] + sigma**2 * means) / total


def highest_mode(
    logits: Tensor, means: Tensor, variance: float, max_iterations: int = 100
) -> Tensor:
    """Argmax of sum_j exp(logit_j) N(mean_j, variance Id), ``(N, d)``, by Newton and mean shift.

    From the mean of every component, take the better of a Newton step and a mean-shift step (which
    never descends) until nothing moves; then keep the best of the end points.

    Args:
        logits: ``(N, J)``.
        means: ``(N, J, d)``.
        variance: of every component.
        max_iterations: bound on the steps.

    Example:
        >>> logits, means = torch.tensor([[0.0, -1.0]]), torch.tensor([[[0.0], [5.0]]])
        >>> highest_mode(logits, means, 0.1)
        tensor([[0.]])
    """
    x, components = means, means[:, None]  # one start per component
    eye = torch.eye(means.shape[-1], dtype=means.dtype, device=means.device)

    def height(x: Tensor) -> tuple[Tensor, Tensor]:
        terms = logits[:, None] - (x[:, :, None] - components).square().sum(3) / (2 * variance)
        return torch.logsumexp(terms, 2), terms.softmax(2)

    _, r = height(x)
    for _ in range(max_iterations):
        shifted, covariance = _moments(r, components.expand(-1, x.shape[1], -1, -1))
        hessian = eye - covariance / variance
        newton = x + torch.linalg.solve(hessian, (shifted - x)[..., None])[..., 0]
        (h_shift, r_shift), (h_newton, r_newton) = height(shifted), height(newton)
        better = h_newton >= h_shift - 1e-12  # at the top both are equal, and Newton is sharper
        new = torch.where(better[..., None], newton, shifted)
        r = torch.where(better[..., None], r_newton, r_shift)
        moved, x = (new - x).abs().max(), new
        if float(moved) <= 32 * torch.finfo(x.dtype).eps * float(x.abs().max()):
            break
    best = height(x)[0].argmax(1)
    return x[torch.arange(len(x), device=x.device), best]


def bisect(f: Callable[[Tensor], Tensor], low: Tensor, high: Tensor, steps: int = 64) -> Tensor:
    """The zero of an increasing function between ``low`` and ``high``, element by element.

    Example:
        >>> bisect(lambda x: x**2 - 2, torch.tensor([0.0]), torch.tensor([2.0]))
        tensor([1.4142])
    """
    for _ in range(steps):
        middle = (low + high) / 2
        above = f(middle) > 0
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    return (low + high) / 2


def _moments(r: Tensor, means: Tensor) -> tuple[Tensor, Tensor]:
    """Mean ``(..., d)`` and covariance ``(..., d, d)`` of the points ``(..., J, d)`` under r."""
    average = (r[..., None] * means).sum(-2)
    centered = means - average[..., None, :]
    return average, torch.einsum("...j,...jk,...jl->...kl", r, centered, centered)
