r"""Lifting: gray images, and stacks of channels, for a denoiser of color images.

With E x = (x, ..., x), the gray image x as an image of the C channels of D = grad h,

    D_1(x) = 1/C E^T D(E x) = grad h_1(x),    h_1(x) = h(E x) / C,    J_1 = 1/C E^T J(E x) E:

the mean over the channels of D(x, ..., x).

**Constants.** Q = E / sqrt(C) is an isometry, Q^T Q = Id, and J_1 = Q^T J Q. The eigenvalues of J_1
lie between the smallest and the largest of J: D_1 is a proximal map if D is one, mu-strongly convex
if h is, and Id - D_1 has no larger a Lipschitz constant than Id - D.

**Noise.** Noise of level sigma in x is the same in all channels of E x. Along Q, the direction of
gray, it has the size sqrt(C) sigma, where noise of level s, independent in every channel, has the
size s. So D_1 asks D for the level sqrt(C) sigma, and a D made for the level s is lifted to one for
s / sqrt(C): 0.1 becomes 0.058 for a color denoiser.

**Stacks of channels** are denoised channel by channel: h_1 is the sum over them. Each channel has a
range [a, b], shown to D as [0, 1]: an alignment (:mod:`proxmatch.transforms.aligned`) of scale
1 / (b - a), which changes neither eigenvalues nor exactness. The widths b - a of all channels are
the same, because one noise level for all of them means that they have the same units.

For **complex images** of MRI, two channels with the real and the imaginary part: coil-combined
images scaled to a magnitude of at most 1 have both parts in [-1, 1], which is
``Lifted(D, 2, low=-1, high=1)``. Zero, the background, is shown to D as mid-gray, and noise of
level sigma as half of it. If the phase was removed, the real part is in [0, 1] and the imaginary
part around zero: ``Lifted(D, 2, low=(0, -0.5), high=(1, 0.5))``, where noise keeps its size. Raw
reconstructions are in units of the scanner, 1e-4 and less: give their range, or divide them by
their largest magnitude first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from proxmatch.denoisers.base import Linearization, ProximalDenoiser, each
from proxmatch.errors import InputError
from proxmatch.transforms.transformed import Transformed

WIDTHS = 1e-6  # how far the widths of the ranges may differ, relatively


class Lifted(Transformed):
    """A denoiser of gray images, or stacks of them, from one of color images.

    Args:
        inner: D, of any number of channels.
        channels: of the images; each is denoised by itself.
        low: value that is shown to D as 0, a number or one for each channel.
        high: value that is shown to D as 1, a number or one for each channel.

    Raises:
        InputError: no channel, or ranges that are empty or of different widths.
    """

    kind = "lifted"

    def __init__(
        self,
        inner: ProximalDenoiser,
        channels: int = 1,
        low: float | Sequence[float] = 0.0,
        high: float | Sequence[float] = 1.0,
    ) -> None:
        super().__init__(inner)
        if channels < 1:
            raise InputError(f"images have at least one channel, not {channels}")
        self.channels = channels
        self.low, self.high = (_numbers(v, channels) for v in (low, high))
        widths = self.high - self.low
        if not bool((widths > 0).all()) or not bool(widths.isfinite().all()):
            raise InputError(f"low must be less than high in every channel, got {low} and {high}")
        if float(widths.max() - widths.min()) > WIDTHS * float(widths.max()):
            raise InputError(
                f"the ranges of the channels have different widths, {widths.tolist()}: one noise "
                "level does not fit them; scale the channels to the same unit first"
            )
        self.scale = 1 / float(widths.mean())

    @property
    def settings(self) -> dict[str, Any]:
        """Channels and ranges."""
        return {"channels": self.channels, "low": self.low.tolist(), "high": self.high.tolist()}

    @property
    def gain(self) -> float:
        """The noise level that D gets for noise of level one: s sqrt(C)."""
        gain: float = self.scale * self.inner.channels**0.5
        return gain

    def enter(self, x: Tensor) -> Tensor:
        """Every channel of x as an image of C channels for D, ``(B C', C, H, W)``."""
        shown = self.scale * (x - self._low(x))
        return self._spread(shown)

    def leave(self, w: Tensor) -> Tensor:
        """The means over the channels, gathered into images and put back into their ranges."""
        return self._gather(w) / self.scale + self._low(w)

    def forward(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """The mean over the channels of D(x, ..., x), the shape of x."""
        return self.leave(self.inner(self.enter(self._check(x)), self._level(sigma)))

    def potential(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """The sum over the channels of h(s (x - a), ...) / (C s^2) + a x, ``(B,)``."""
        h = self.inner.potential(self.enter(self._check(x)), self._level(sigma))
        lifted = h.view(-1, self.channels).sum(1) / (self.inner.channels * self.scale**2)
        return lifted + (x * self._low(x)).flatten(1).sum(1)

    def linearize(self, x: Tensor, sigma: float | Tensor | None = None) -> Linearization:
        """D_1(x) and v -> E^T J(E x) E v / C."""
        x = self._check(x).detach()
        value, product = self.inner.linearize(self.enter(x), self._level(sigma))
        return self.leave(value), lambda v: self._gather(product(self._spread(v.detach())))

    def _level(self, sigma: float | Tensor | None) -> float | Tensor | None:
        if sigma is None:
            return None
        levels = each(sigma)
        return self.gain * (sigma if levels is None else levels.repeat_interleave(self.channels, 0))

    def _spread(self, x: Tensor) -> Tensor:
        """E x of every channel, ``(B C', C, H, W)``."""
        one = x.reshape(-1, 1, *x.shape[2:])
        return one.expand(-1, self.inner.channels, -1, -1).contiguous()

    def _gather(self, w: Tensor) -> Tensor:
        """E^T w / C, the channels of an image put together again, ``(B, C', H, W)``."""
        return w.mean(1).view(-1, self.channels, *w.shape[2:])

    def _low(self, x: Tensor) -> Tensor:
        return self.low.to(x)[:, None, None]


def _numbers(value: float | Sequence[float], channels: int) -> Tensor:
    numbers = torch.as_tensor(value, dtype=torch.float64).detach().flatten()
    if numbers.numel() not in (1, channels):
        raise InputError(
            f"{numbers.numel()} ends of ranges for {channels} channel(s); give one, or one for each"
        )
    return numbers.expand(channels).clone()
