r"""Relaxation: a step part of the way toward the denoised image, and a prior of any strength.

    D_t = t D + (1 - t) Id = grad h_t,    h_t(x) = t h(x) + (1 - t) |x|^2 / 2,    0 < t <= 1.

**What it does to the prior.** Let u = D_t(z) and v = D(z). Then z - v = grad R(v), so that

    u = v + (1 - t) grad R(v),    grad R_t(u) = z - u = t (z - v) = t grad R(v).

The first equation says that v minimizes R(v) + |u - v|^2 / (2 (1 - t)), a strictly convex function
of v because R + |.|^2 / 2 = h* is convex and 1 - t < 1; the second is then t times the gradient of
its minimum in u. So R_t is t times the Moreau envelope of R at level 1 - t, for any proximal map,
convex R or not:

    R_t(u) = t min_v { R(v) + |u - v|^2 / (2 (1 - t)) }.

It is R at t = 1 and goes to t times the envelope of R at level 1 as t -> 0: t is the weight of the
prior against the data, which a denoiser trained at one noise level does not have.

**What it does to the spectrum.** J_t = t J + (1 - t) Id: eigenvalues move to 1 by the factor t. If
those of J are at least mu, those of J_t are at least 1 - t + t mu, and L_H = 1 / (1 - t + t mu); a
largest one of 1 + e becomes 1 + t e. A gradient-step denoiser becomes Id - t grad g, with t L in
place of L: one with L >= 1 is a proximal map again for t < 1 / L (as in Hurault, Chambolle,
Leclaire and Papadakis, "Convergent plug-and-play with proximal denoiser and unconstrained
regularization parameter", J. Math. Imaging Vis. 66, 2024).

t > 1 exaggerates what D does and may break convexity: the bound 1 - t + t mu goes through zero at
t = 1 / (1 - mu). It is refused.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from proxmatch.denoisers.base import Linearization, ProximalDenoiser
from proxmatch.denoisers.levels import NONE, number
from proxmatch.errors import InputError
from proxmatch.transforms.transformed import Transformed


class Relaxed(Transformed):
    """t D_s + (1 - t) Id: a denoiser at a strength of two numbers, (s, t).

    Args:
        inner: D.
        t: how far to go toward D(x), in (0, 1].
        sigma: the noise level s passed to D, whatever level this denoiser gets; None to pass on
            the latter.
        lipschitz: L of Id - D_s where it is used, if it was measured there: J >= 1 - t L.

    Raises:
        InputError: t is outside (0, 1], or a level for a denoiser that takes none.
    """

    kind = "relaxed"

    def __init__(
        self,
        inner: ProximalDenoiser,
        t: float,
        sigma: float | None = None,
        lipschitz: float | None = None,
    ) -> None:
        self.level: float | None = None
        super().__init__(inner)
        if not 0 < t <= 1:
            raise InputError(
                f"t must be in (0, 1], got {t}: at 0 there is no denoiser left, and above 1 the "
                "potential t h + (1 - t) |x|^2 / 2 need not be convex"
            )
        if sigma is not None and not inner.conditional:
            raise InputError(NONE)
        level = None if sigma is None else number(sigma)
        self.t, self.level, self.lipschitz = float(t), level, lipschitz

    @property
    def settings(self) -> dict[str, Any]:
        """The strength, and L where it was measured."""
        told = {"t": self.t, "sigma": self.level, "lipschitz": self.lipschitz}
        return {name: value for name, value in told.items() if value is not None}

    @property
    def sigma(self) -> float | None:
        """Noise level passed to D: s, or its own."""
        return self.inner.sigma if self.level is None else self.level

    @sigma.setter
    def sigma(self, sigma: float | None) -> None:
        if "inner" not in self._modules:  # the base class sets None before ``inner`` is there
            return
        if self.level is None:
            self.inner.sigma = sigma
        else:
            self.level, self.lipschitz = sigma, None  # L was that of another level

    @property
    def conditional(self) -> bool:
        """Whether D takes the noise level, and s does not stand in its place."""
        return self.level is None and self.inner.conditional

    def stronger(self, factor: float) -> ProximalDenoiser:
        """The same at ``factor`` times the level s, at most the highest that D was trained for."""
        if self.level is None:
            return self
        highest = math.inf if self.inner.levels is None else self.inner.levels[1]
        return Relaxed(self.inner, self.t, max(self.level, min(factor * self.level, highest)))

    def convexity(self, sigma: float | None = None) -> float:
        """1 - t L if L was measured, else 1 - t + t mu with mu that of D_s."""
        if self.lipschitz is not None:
            return 1 - self.t * self.lipschitz
        return 1 - self.t + self.t * super().convexity(self._level(sigma))

    def forward(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """D_t(x) = t D_s(x) + (1 - t) x, the shape of x."""
        return self._step(x, self.inner(self._check(x), self._level(sigma)))

    def near(self, x: Tensor, guess: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """D_t(x), where a point near it is known: D(x) is then near x + (guess - x) / t."""
        inside = torch.lerp(x, guess, 1 / self.t)
        return self._step(x, self.inner.near(self._check(x), inside, self._level(sigma)))

    def potential(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """h_t(x) = t h(x) + (1 - t) |x|^2 / 2, ``(B,)``."""
        h = self.inner.potential(self._check(x), self._level(sigma))
        return self.t * h + (1 - self.t) / 2 * x.square().flatten(1).sum(1)

    def linearize(self, x: Tensor, sigma: float | Tensor | None = None) -> Linearization:
        """D_t(x) and v -> t J(x) v + (1 - t) v."""
        x = self._check(x).detach()
        value, product = self.inner.linearize(x, self._level(sigma))
        return self._step(x, value), lambda v: self._step(v.detach(), product(v))

    def _step(self, x: Tensor, toward: Tensor) -> Tensor:
        return torch.lerp(x, toward, self.t)

    def _level(self, sigma: Any) -> Any:
        return sigma if self.level is None else self.level
