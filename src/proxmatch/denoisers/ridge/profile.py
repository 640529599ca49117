r"""The function psi of a ridge: convex near zero, then concave, then linear.

    psi''(x) = (m + rho) hat(a x / w) - rho hat(a x),        0 < w <= 1,

hat is 1 up to 1 - c, falls in a straight line and is 0 from 1 + c on, in |x|. It does not rise with
|x|, so hat(x / w) <= hat(x) and

    -rho <= psi'' <= m

for all a, m > 0. The function is the minimax concave penalty (Zhang, 2010) with rounded corners if
(m + rho) w = rho: then psi' is zero far out, and what is large is not shrunk at all. In general
psi' ends at a constant, the *tail* t = (m + rho) w - rho, over a. With rho = 0 it is Huber's.

The splines that Goujon, Neumayer and Unser (2024) learn come out as this function, with c = 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Profile:
    """psi of every image and filter.

    Attributes:
        scale: a, ``(B, K, 1, 1)``.
        curvature: m, ``(B, 1, 1, 1)``.
        width: w, the same shape, in (0, 1].
        rho: bound on the concavity.
        corner: c, in (0, 1].
    """

    scale: Tensor
    curvature: Tensor
    width: Tensor
    rho: float
    corner: float

    def value(self, x: Tensor) -> Tensor:
        """psi(x), the shape of x: ``(B, K, H, W)``."""
        core = self._height * self.width**2 * _integral(x * self._inner, self.corner)
        return (core - self.rho * _integral(x * self.scale, self.corner)) / self.scale**2

    def slope(self, x: Tensor) -> Tensor:
        """psi'(x)."""
        core = self._height / self._inner * _clip(x * self._inner, self.corner)
        return core.addcmul(self.rho / self.scale, _clip(x * self.scale, self.corner), value=-1)

    def bend(self, x: Tensor) -> Tensor:
        """psi''(x), in [-rho, m]."""
        size = x.abs()
        core = self._height * _hat(size * self._inner, self.corner)
        return core.sub(_hat(size * self.scale, self.corner), alpha=self.rho)

    def each(self, change: Callable[[Tensor], Tensor]) -> Profile:
        """The same with changed tensors."""
        scale, curvature, width = map(change, (self.scale, self.curvature, self.width))
        return replace(self, scale=scale, curvature=curvature, width=width)

    @property
    def _inner(self) -> Tensor:
        return self.scale / self.width

    @property
    def _height(self) -> Tensor:
        return self.curvature + self.rho


def _hat(size: Tensor, corner: float) -> Tensor:
    """The hat, of |x|."""
    return (1 + corner - size).div(2 * corner).clamp(0, 1)


def _clip(x: Tensor, corner: float) -> Tensor:
    """The integral of the hat: x, then a parabola, then 1; odd."""
    inside = x.clamp(-1 - corner, 1 + corner)
    excess = F.softshrink(inside, 1 - corner)
    return inside.addcmul(excess, excess.abs(), value=-0.25 / corner)


def _integral(x: Tensor, corner: float) -> Tensor:
    """The integral of the clip from zero; even."""
    size = x.abs()
    inside = size.clamp(max=1 + corner)
    excess = (inside - (1 - corner)).clamp_min(0)
    return inside**2 / 2 - excess**3 / (12 * corner) + size - inside
