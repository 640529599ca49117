"""Counting photons: Poisson noise with a background, and its likelihood as a smooth data term.

A detector counts photons with a gain g (its inverse is the number of photons at white) and a
background b > 0 (dark counts, scattered light):

    y = g Poisson((Ax + b) / g),        all in units of the image's brightness.

The negative log-likelihood of t = u + b, u = Ax, is the Kullback-Leibler divergence, up to a term
that depends on y alone:

    d(u, y) = (t - y + y log(y / t)) / g,    d' = (1 - y / t) / g,    d'' = y / (g t^2).

Its gradient is not Lipschitz, since t may come close to 0, and it is not defined for t <= 0, where
iterates may go. Below tau(y) = max(y, b) / 2 it is therefore continued by its second-order Taylor
polynomial at tau. That changes nothing where the prediction t is at least half of the count y, and
for y <= 2 b nothing at all for any u >= 0. The result is convex and twice continuously
differentiable, and d'' is at most its value at tau:

    d''(u, y) <= y / (g tau^2) = 4 y / (g max(y, b)^2) <= 4 / (g b),

with equality for y = b and t <= b / 2. So the curvature is 4 / (g b) for every y >= 0, and
L_f = 4 ||A||^2 / (g b).

That curvature is reached only at dark pixels: at white it is 40 times less for b = 0.1. So plain
PnP-PGD with eta < 1 / L_f is far from its limit after 40 steps, while a warm start comes close to
it. The strength that is best for plain steps is too strong with a warm start: choose the strength
with the solver that is used.

deepinv's ``PoissonLikelihood`` is no replacement (0.5.0): its value mixes the images of a batch,
its gradient is not that of its value unless g = 1, and it is not smooth below t = 0.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import torch
from deepinv.optim.data_fidelity import DataFidelity
from deepinv.optim.distance import Distance
from deepinv.physics import LinearPhysics, PoissonNoise
from torch import Tensor

from proxmatch.errors import InputError

#: Options of the problems with photons.
Peak = Annotated[float, "mean number of photons that a white pixel adds to the background"]
Background = Annotated[float, "what a black pixel measures, as a share of white; positive"]


class PhotonNoise(PoissonNoise):  # type: ignore[misc]
    """y = g Poisson((u + b) / g); below -b, u counts as -b.

    Args:
        gain: g.
        background: b.
    """

    def __init__(self, gain: float, background: float) -> None:
        super().__init__(torch.tensor(gain, dtype=torch.float64), clip_positive=True)
        self.register_buffer("background", torch.tensor(background, dtype=torch.float64))

    def forward(self, x: Tensor, **kwargs: Any) -> Tensor:
        """Counts of photons, scaled to the brightness of the image."""
        y: Tensor = super().forward(x + self.background, **kwargs)
        return y


class PhotonDistance(Distance):  # type: ignore[misc]
    """d(u, y) of the module's text, and its gradient in u.

    Args:
        gain: g.
        background: b.
    """

    def __init__(self, gain: float, background: float) -> None:
        super().__init__()
        self.gain, self.background = gain, background

    def fn(self, x: Tensor, y: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The divergence of each image, ``(B,)``; 0 where u + b = y."""
        t, low, below = self._split(x, y)
        exact = t - y + torch.xlogy(y, y) - torch.xlogy(y, t)
        slope, bend = 1 - y / low, y / low.square()
        value: Tensor = exact + slope * below + bend * below.square() / 2
        return value.flatten(1).sum(1) / self.gain

    def grad(self, x: Tensor, y: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Its gradient in u, the shape of u."""
        t, low, below = self._split(x, y)
        gradient: Tensor = 1 - y / t + y / low.square() * below
        return gradient / self.gain

    def _split(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """max(t, tau), tau, and min(t - tau, 0)."""
        t, low = x + self.background, y.clamp_min(self.background) / 2
        above = t > low
        return torch.where(above, t, low), low, torch.where(above, 0, t - low)


class PhotonFidelity(DataFidelity):  # type: ignore[misc]
    """The negative log-likelihood of counted photons, smooth; see the module's text.

    Args:
        gain: g, positive: the brightness that one photon stands for.
        background: b, positive, in units of brightness.

    Attributes:
        curvature: 4 / (g b), the Lipschitz constant of the gradient of d(., y) for every y >= 0.

    Raises:
        InputError: a gain or background that is not positive.
    """

    def __init__(self, gain: float, background: float) -> None:
        super().__init__()
        if not (0 < gain < math.inf and 0 < background < math.inf):
            raise InputError(
                f"photons need a positive gain and a positive background, got gain={gain}, "
                f"background={background}: without background the gradient is not Lipschitz"
            )
        self.gain, self.background = float(gain), float(background)
        self.curvature = 4 / (self.gain * self.background)
        self.d = PhotonDistance(self.gain, self.background)

    def check(self, y: Tensor) -> None:
        """Raise an InputError if y has negative counts, for which the likelihood is not defined."""
        if bool((y < 0).any()):
            raise InputError(
                f"y goes down to {float(y.min()):.3g}: counts of photons are not negative. Do not "
                f"subtract the background (here {self.background:g}), or clip y at 0"
            )


def photons(peak: float, background: float) -> tuple[PhotonNoise, PhotonFidelity]:
    """Noise and data term of a detector.

    Args:
        peak: number of photons at white, 1 / g.
        background: b.
    """
    if not 0 < peak < math.inf:
        raise InputError(f"peak is a positive number of photons, got {peak}")
    fidelity = PhotonFidelity(1 / peak, background)
    return PhotonNoise(1 / peak, background), fidelity


def without_background(y: Tensor, physics: LinearPhysics) -> Tensor:
    """x_0 = A^T (y - b)."""
    x: Tensor = physics.A_adjoint(y - physics.noise_model.background)
    return x
