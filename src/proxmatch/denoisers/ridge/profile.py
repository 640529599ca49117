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

import torch
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
        return self.slope_and_bend(x)[0]

    def bend(self, x: Tensor) -> Tensor:
        """psi''(x), in [-rho, m]."""
        return self.slope_and_bend(x)[1]

    def slope_and_bend(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """psi'(x) and psi''(x), which share most of their work."""
        core, lost = _clip(x * self._inner, self.corner)
        outer, regained = _clip(x * self.scale, self.corner)
        slope = (self._height / self._inner * core).addcmul(self.rho / self.scale, outer, value=-1)
        return slope, torch.add(self.curvature - self._height * lost, regained, alpha=self.rho)

    def each(self, change: Callable[[Tensor], Tensor]) -> Profile:
        """The same with changed tensors."""
        scale, curvature, width = map(change, (self.scale, self.curvature, self.width))
        return replace(self, scale=scale, curvature=curvature, width=width)

    def rows(self, which: Tensor) -> Profile:
        """The psi of some of the images."""
        return self.each(lambda t: t[which])

    def split(self, filters: int) -> list[Profile]:
        """The psi of so many filters at a time."""
        return [replace(self, scale=scale) for scale in torch.split(self.scale, filters, 1)]

    @property
    def _inner(self) -> Tensor:
        return self.scale / self.width

    @property
    def _height(self) -> Tensor:
        return self.curvature + self.rho


def _clip(x: Tensor, corner: float) -> tuple[Tensor, Tensor]:
    """The integral of the hat: x, then a parabola, then 1; odd. And one less the hat."""
    inside = x.clamp(-1 - corner, 1 + corner)
    excess = F.softshrink(inside, 1 - corner)
    size = excess.abs()
    return inside.addcmul(excess, size, value=-0.25 / corner), size / (2 * corner)


def _integral(x: Tensor, corner: float) -> Tensor:
    """The integral of the clip from zero; even."""
    size = x.abs()
    inside = size.clamp(max=1 + corner)
    excess = (inside - (1 - corner)).clamp_min(0)
    return inside**2 / 2 - excess**3 / (12 * corner) + size - inside
