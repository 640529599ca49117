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

**Read noise.** A camera adds Gaussian noise of level s when it reads the counts (Poisson-Gaussian
noise). Then y + s^2 / g has the mean and the variance of g Poisson((Ax + b + s^2 / g) / g), so that
it is treated as such (Snyder et al., 1993): y is replaced by max(y + s^2 / g, 0), and b by
b + s^2 / g, which may be positive without any background.

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
ReadNoise = Annotated[float, "standard deviation of Gaussian noise that the camera adds"]


class PhotonNoise(PoissonNoise):  # type: ignore[misc]
    """y = g Poisson((u + b) / g) + s n; below -b, u counts as -b.

    Args:
        gain: g.
        background: b.
        read_noise: s.
    """

    def __init__(self, gain: float, background: float, read_noise: float = 0.0) -> None:
        super().__init__(torch.tensor(gain, dtype=torch.float64), clip_positive=True)
        self.register_buffer("background", torch.tensor(background, dtype=torch.float64))
        self.register_buffer("read_noise", torch.tensor(read_noise, dtype=torch.float64))

    def forward(self, x: Tensor, **kwargs: Any) -> Tensor:
        """Counts of photons, scaled to the brightness of the image."""
        y: Tensor = super().forward(x + self.background, **kwargs)
        return y + self.read_noise * self.randn_like(y) if self.read_noise > 0 else y


class PhotonDistance(Distance):  # type: ignore[misc]
    """d(u, y) of the module docstring, and its gradient in u.

    Args:
        gain: g.
        background: b + s^2 / g, with the read noise s.
        shift: s^2 / g.
    """

    def __init__(self, gain: float, background: float, shift: float = 0.0) -> None:
        super().__init__()
        self.gain, self.background, self.shift = gain, background, shift

    def fn(self, x: Tensor, y: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The divergence of each image, ``(B,)``; 0 where u + b = y."""
        y = self._counts(y)
        t, low, below = self._split(x, y)
        exact = t - y + torch.xlogy(y, y) - torch.xlogy(y, t)
        slope, bend = 1 - y / low, y / low.square()
        value: Tensor = exact + slope * below + bend * below.square() / 2
        return value.flatten(1).sum(1) / self.gain

    def grad(self, x: Tensor, y: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Its gradient in u, the shape of u."""
        y = self._counts(y)
        t, low, below = self._split(x, y)
        gradient: Tensor = 1 - y / t + y / low.square() * below
        return gradient / self.gain

    def _counts(self, y: Tensor) -> Tensor:
        return (y + self.shift).clamp_min(0) if self.shift else y

    def _split(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """max(t, tau), tau, and min(t - tau, 0)."""
        t, low = x + self.background, y.clamp_min(self.background) / 2
        above = t > low
        return torch.where(above, t, low), low, torch.where(above, 0, t - low)


class PhotonFidelity(DataFidelity):  # type: ignore[misc]
    """The negative log-likelihood of counted photons, smooth; see the module docstring.

    Args:
        gain: g, positive: the brightness that one photon stands for.
        background: b, in units of brightness; positive unless there is read noise.
        read_noise: s, in units of brightness.

    Attributes:
        curvature: 4 / (g b + s^2), the Lipschitz constant of the gradient of d(., y) for every y.

    Raises:
        InputError: a gain that is not positive, or neither background nor read noise.
    """

    def __init__(self, gain: float, background: float, read_noise: float = 0.0) -> None:
        super().__init__()
        if not 0 < gain < math.inf or min(background, read_noise) < 0:
            raise InputError(
                f"photons need a positive gain, and neither background nor read noise is "
                f"negative; got gain={gain}, background={background}, read_noise={read_noise}"
            )
        if not 0 < gain * background + read_noise**2 < math.inf:
            raise InputError(
                f"photons need a positive background or read noise, got background={background}, "
                f"read_noise={read_noise}: without them the gradient is not Lipschitz"
            )
        self.gain, self.background = float(gain), float(background)
        self.read_noise = float(read_noise)
        shift = self.read_noise**2 / self.gain
        self.curvature = 4 / (self.gain * (self.background + shift))
        self.d = PhotonDistance(self.gain, self.background + shift, shift)

    def check(self, y: Tensor) -> None:
        """Raise an InputError if y has negative counts, for which the likelihood is not defined.

        With read noise they may be negative.
        """
        if not self.read_noise and bool((y < 0).any()):
            raise InputError(
                f"y goes down to {float(y.min()):.3g}: counts of photons are not negative. Do not "
                f"subtract the background (here {self.background:g}), or clip y at 0"
            )


def photons(
    peak: float, background: float, read_noise: float
) -> tuple[PhotonNoise, PhotonFidelity]:
    """Noise and data term of a detector.

    Args:
        peak: number of photons at white, 1 / g.
        background: b.
        read_noise: s.

    Example:
        >>> noise, fidelity = photons(50.0, 0.1, 0.0)
        >>> round(fidelity.curvature)  # 4 peak / background
        2000
    """
    if not 0 < peak < math.inf:
        raise InputError(f"peak is a positive number of photons, got {peak}")
    fidelity = PhotonFidelity(1 / peak, background, read_noise)
    return PhotonNoise(1 / peak, background, read_noise), fidelity


def without_background(y: Tensor, physics: LinearPhysics) -> Tensor:
    """x_0 = A^T (y - b).

    Example:
        >>> from proxmatch.problems import poisson_denoising
        >>> problem = poisson_denoising(8, background=0.1)
        >>> y = torch.full((1, 3, 8, 8), 0.6)
        >>> round(float(without_background(y, problem.physics).mean()), 3)
        0.5
    """
    x: Tensor = physics.A_adjoint(y - physics.noise_model.background)
    return x
