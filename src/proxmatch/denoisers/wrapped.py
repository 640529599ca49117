"""What a denoiser takes over from the one it wraps."""

from __future__ import annotations

from proxmatch.denoisers.base import ProximalDenoiser


class Wrapped(ProximalDenoiser):
    """A proximal denoiser around another one, which it holds and does not copy.

    Args:
        inner: D.

    Attributes:
        inner: D.
    """

    def __init__(self, inner: ProximalDenoiser) -> None:
        super().__init__(inner.channels)
        self.inner = inner
        self.proximal, self.always_convex = inner.proximal, inner.always_convex
        self.train(inner.training)

    @property
    def gain(self) -> float:
        """The noise level that D gets for noise of level one."""
        return 1.0

    # The noise level is D's own, so that a change of it reaches the network that reads it.
    @property
    def sigma(self) -> float | None:
        """Noise level the denoiser is made for, in units of the image: that of D over the gain."""
        return None if self.inner.sigma is None else self.inner.sigma / self.gain

    @sigma.setter
    def sigma(self, sigma: float | None) -> None:
        if "inner" in self._modules:  # the base class sets None before it is there
            self.inner.sigma = None if sigma is None else sigma * self.gain

    @property
    def levels(self) -> tuple[float, float] | None:
        """Smallest and largest noise level D was trained for, over the gain."""
        found = self.inner.levels
        return None if found is None else (found[0] / self.gain, found[1] / self.gain)

    def convexity(self, sigma: float | None = None) -> float:
        """A lower bound mu of the eigenvalues of J: that of D at the level that D gets."""
        return self.inner.convexity(None if sigma is None else self.gain * sigma)

    @property
    def conditional(self) -> bool:
        """Whether D takes the noise level."""
        return self.inner.conditional

    @property
    def maps(self) -> bool:
        """Whether D takes maps of noise levels."""
        return self.inner.maps

    @property
    def native_size(self) -> int | None:
        """That of D."""
        return self.inner.native_size
