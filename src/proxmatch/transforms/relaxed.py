r"""Relaxation: a step part of the way towards the denoised image, and a prior of any strength.

    D_t = t D + (1 - t) Id = grad h_t,    h_t(x) = t h(x) + (1 - t) |x|^2 / 2,    0 < t <= 1.

**What it does to the prior.** Let u = D_t(z) and v = D(z). Then z - v = grad R(v), so that

    u = v + (1 - t) grad R(v),    grad R_t(u) = z - u = t (z - v) = t grad R(v).

The first equation says that v minimises R(v) + |u - v|^2 / (2 (1 - t)), a strictly convex function
of v because R + |.|^2 / 2 = h* is convex and 1 - t < 1; the second is then t times the gradient of
its minimum in u. So R_t is t times the Moreau envelope of R at level 1 - t, for any proximal map,
convex R or not:

    R_t(u) = t min_v { R(v) + |u - v|^2 / (2 (1 - t)) }.

It is R at t = 1 and goes to t times the envelope of R at level 1 as t -> 0: t is the weight of the
prior against the data, which a denoiser trained at one noise level does not have.

**What it does to the spectrum.** J_t = t J + (1 - t) Id: eigenvalues move to 1 by the factor t. If
those of J are at least mu, those of J_t are at least 1 - t + t mu, and L_H = 1 / (1 - t + t mu); a
largest one of 1 + e becomes 1 + t e. A gradient-step denoiser becomes Id - t grad g, with t L in
the place of L: one with L >= 1 is a proximal map again for t < 1 / L (as in Hurault, Chambolle,
Leclaire and Papadakis, "Convergent plug-and-play with proximal denoiser and unconstrained
regularization parameter", J. Math. Imaging Vis. 66, 2024).

t > 1 exaggerates what D does and may break convexity: the bound 1 - t + t mu goes through zero at
t = 1 / (1 - mu). It is refused.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from proxmatch.denoisers.base import Linearization, ProximalDenoiser
from proxmatch.errors import InputError
from proxmatch.transforms.base import Transformed


class Relaxed(Transformed):
    """t D + (1 - t) Id.

    Args:
        inner: D.
        t: strength of the prior, in (0, 1].

    Raises:
        InputError: t is outside (0, 1].
    """

    kind = "relaxed"

    def __init__(self, inner: ProximalDenoiser, t: float) -> None:
        super().__init__(inner)
        if not 0 < t <= 1:
            raise InputError(
                f"t must be in (0, 1], got {t}: at 0 there is no denoiser left, and above 1 the "
                "potential t h + (1 - t) |x|^2 / 2 need not be convex"
            )
        self.t = float(t)

    @property
    def settings(self) -> dict[str, Any]:
        """The strength t."""
        return {"t": self.t}

    def convexity(self, sigma: float | None = None) -> float:
        """1 - t + t mu, with mu that of D."""
        return 1 - self.t + self.t * super().convexity(sigma)

    def forward(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """D_t(x) = t D(x) + (1 - t) x, the shape of x."""
        return self._step(x, self.inner(self._check(x), sigma))

    def potential(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """h_t(x) = t h(x) + (1 - t) |x|^2 / 2, ``(B,)``."""
        h = self.inner.potential(self._check(x), sigma)
        return self.t * h + (1 - self.t) / 2 * x.square().flatten(1).sum(1)

    def linearize(self, x: Tensor, sigma: float | Tensor | None = None) -> Linearization:
        """D_t(x) and v -> t J(x) v + (1 - t) v."""
        x = self._check(x).detach()
        value, product = self.inner.linearize(x, sigma)
        return self._step(x, value), lambda v: self._step(v.detach(), product(v))

    def _step(self, x: Tensor, towards: Tensor) -> Tensor:
        return self.t * towards + (1 - self.t) * x
