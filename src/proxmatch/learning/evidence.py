r"""What an adaptation returns: the denoiser, what was tried, and whether it helped.

**The interval of the evidence** is meant to hold the mean gain on other images of the domain nine
times in ten. With gains g_1 ... g_k on k held-out images of mean g, it is

    g +- q sqrt(s^2 / k),    s^2 = (nu s_0^2 + sum_i (g_i - g)^2) / (nu + k - 1),

q the 95 % quantile of Student's t with nu + k - 1 degrees of freedom: with few images, the scatter
s of the gain from image to image is drawn toward s_0 = 0.25 + 0.25 |g| dB, which counts as nu = 4
images. Where only parts of the images that were adapted to could be held out, the
interval is twice as wide: such parts say less about other images. With 0.2 in place of 0.25 it held
in 15 of 18 adaptations to five images, and just missed the others (``results/adaptation``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from proxmatch.denoisers import ProximalDenoiser
from proxmatch.learning.assess import Assessment
from proxmatch.learning.engine import RunStatus
from proxmatch.plots.shown import ShownAdaptation
from proxmatch.plots.text_tables import Rows
from proxmatch.pnp import Denoise

#: What ``select="best"`` may lose on one problem for the sake of another, in dB.
LEEWAY = 0.05
#: nu, and s_0 in dB: a constant and a multiple of the gain.
USUAL, SCATTER = 4, (0.25, 0.25)
#: How much wider the interval is where the held-out pixels are of the images adapted to.
SAME = 2.0


def interval_of(gains: Sequence[float], *, wider: float = 1.0) -> tuple[float, float]:
    """A range of the mean gain on other images of the domain, in dB; see the module docstring.

    Args:
        gains: on k images, in dB.
        wider: factor of its width.

    Example:
        >>> [round(end, 2) for end in interval_of([1.0, 1.0, 1.0, 1.0])]
        [0.64, 1.36]
    """
    from scipy.stats import t

    k, freedom = len(gains), USUAL + len(gains) - 1
    mean = sum(gains) / k
    usual = SCATTER[0] + SCATTER[1] * abs(mean)
    square = (USUAL * usual**2 + sum((g - mean) ** 2 for g in gains)) / freedom
    half = float(t.ppf(0.95, freedom)) * math.sqrt(square / k) * wider
    return mean - half, mean + half


@dataclass(frozen=True)
class Evidence:
    """What an adaptation did, on held-out pixels; ``auto`` makes its choice on them, too.

    Attributes:
        before: figures of the given denoiser; if it takes a noise level, at its best strength, so
            that a gain is never one of strength alone.
        after: figures of the one that is returned.
        owners: which image each of the held-out crops was cut from.
        whole: whether whole images were held out, and not parts of those adapted to.
    """

    before: Assessment
    after: Assessment
    owners: tuple[int, ...]
    whole: bool

    @property
    def gains(self) -> dict[str, float]:
        """Mean gain in reconstruction PSNR, in dB, by problem."""
        after, before = self.after.reconstruction, self.before.reconstruction
        return {name: float((after[name] - before[name]).mean()) for name in after}

    @property
    def gain(self) -> float:
        """The mean of these."""
        return sum(self.gains.values()) / len(self.gains)

    @property
    def interval(self) -> tuple[float, float]:
        """A range of the mean gain on other images of the domain, in dB, meant to hold in 90 %."""
        after, before = self.after.reconstruction, self.before.reconstruction
        each = torch.stack([after[name] - before[name] for name in after]).double().mean(0)
        owners = torch.tensor(self.owners)
        gains = [float(each[owners == owner].mean()) for owner in sorted(set(self.owners))]
        return interval_of(gains, wider=1.0 if self.whole else SAME)

    @property
    def worse(self) -> bool:
        """Whether it lost: in the mean, or more than :data:`LEEWAY` on a problem."""
        return self.gain < 0 or min(self.gains.values()) < -LEEWAY

    def __str__(self) -> str:
        parts = [
            f"{name} {float(b.mean()):.2f} -> {float(self.after.reconstruction[name].mean()):.2f}"
            for name, b in self.before.reconstruction.items()
        ]
        parts += [
            f"denoising at {level:g} {float(b.mean()):.2f} -> "
            f"{float(self.after.denoising[level].mean()):.2f}"
            for level, b in self.before.denoising.items()
        ]
        if not math.isnan(self.before.lipschitz + self.after.lipschitz):
            parts.append(f"L {self.before.lipschitz:.2f} -> {self.after.lipschitz:.2f}")
        low, high = self.interval
        where = f"on other images {low:+.1f} to {high:+.1f} dB (a range meant to hold in 90 %)"
        return f"held-out PSNR in dB: {', '.join(parts)}; {where}"


@dataclass(frozen=True)
class Candidate:
    """One of the denoisers that were tried.

    Attributes:
        name: how it was made.
        scores: PSNR of its reconstructions in dB, by problem.
        strength: what its strength was set to: t, sigma of a filter, weight of total variation or
            of the filter in a blend.
        seconds: how long it took to make and to try.
        chosen: whether it is the one that was returned.
        sigma: noise level passed to it, if it takes one.
        margin: t L along its runs, if it was measured: below 1 it is a proximal map there.
        kind: how it was made, whatever it was made from.
        source: name of the denoiser that it was made from; empty for a filter or total variation.
    """

    name: str
    scores: dict[str, float]
    strength: float
    seconds: float
    chosen: bool = False
    sigma: float | None = None
    margin: float | None = None
    kind: str = ""
    source: str = ""

    @property
    def score(self) -> float:
        """The mean of the scores."""
        return sum(self.scores.values()) / len(self.scores)

    def cells(self) -> dict[str, str]:
        """A line of a table."""
        scores = {f"{name}, dB": f"{score:.2f}" for name, score in self.scores.items()}
        strength = f"{self.strength:.3g}"
        level = "-" if self.sigma is None else f"{self.sigma:.3g}"
        name = f"{self.name} (chosen)" if self.chosen else self.name
        rest = {"level": level, "strength": strength, "seconds": f"{self.seconds:.1f}"}
        return {"candidate": name, **scores, **rest}


@dataclass(frozen=True, repr=False)
class AdaptationResult(ShownAdaptation):
    """An adapted denoiser.

    Attributes:
        denoiser: the adapted denoiser; the one that was given is as it was.
        status: how the run ended.
        step: number of training steps behind its weights.
        history: the log: loss, gamma, gradient norm, saturation, checks.
        evidence: that it helped, or that it did not; None when nothing was held out.
        saturated: share of the logged steps at which proximal matching had lost more than 95 % of
            its gradient; None for other losses.
        table: what was tried, if there was a choice.
        source: name of the denoiser that it was made from, if there were several.
        nearness: denoising PSNR in dB of each of them on the images, the best one first.
        untried: what a budget left no time for.
        tried: the denoisers of the table, by name.
    """

    denoiser: ProximalDenoiser
    status: RunStatus
    step: int
    history: list[dict[str, Any]]
    evidence: Evidence | None
    saturated: float | None = None
    table: tuple[Candidate, ...] = ()
    source: str | None = None
    nearness: dict[str, float] = field(default_factory=dict)
    untried: tuple[str, ...] = ()
    tried: dict[str, Denoise] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "table", Rows(self.table))  # prints as a table
