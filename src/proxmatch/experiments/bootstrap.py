r"""How certain a mean over adaptation sets and images is.

The values form a matrix d_{si}: adaptation set s, test image i, the same images for every set. Both
are samples, of the sets one might have adapted to and of the images one might have tested on. The
bootstrap draws sets with replacement and then images with replacement, independently, and takes the
mean of the crossings. For d_{si} = a_s + b_i its variance is var(a) / S + var(b) / I, as it should
be; resampling the S I values as if they were independent would hide the share of the sets.

With one set nothing is known of the sets: the interval is one over images for that set. With three
it is a rough one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """An estimate with its percentile interval of 95 %."""

    effect: float  # the estimate
    low: float  # lower end
    high: float  # upper end


@dataclass(frozen=True)
class Resampling:
    """How often each set and each image is drawn, resample by resample."""

    sets: Array  # shares, (R, S), each line sums to 1
    images: Array  # shares, (R, I)

    @classmethod
    def draw(cls, sets: int, images: int, resamples: int, name: str) -> Resampling:
        """Resamples that depend on the numbers and the name alone."""
        seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
        generator = np.random.default_rng(seed)

        def shares(count: int) -> Array:
            drawn = generator.multinomial(count, np.full(count, 1 / count), size=resamples)
            return drawn / count

        return cls(shares(sets), shares(images))

    def means(self, values: Array) -> Array:
        """Means of the resamples of ``(S, I, ...)``: ``(R, ...)``."""
        over_images = np.einsum("ri,si...->rs...", self.images, values)
        found: Array = np.einsum("rs,rs...->r...", self.sets, over_images)
        return found


def interval(effect: float, resampled: Array) -> Interval:
    """The percentile interval of a statistic."""
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(effect), float(low), float(high))
