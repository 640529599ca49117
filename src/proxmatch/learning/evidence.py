"""What an adaptation returns: the denoiser, what was tried, and whether it helped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from proxmatch.denoisers import ProximalDenoiser
from proxmatch.learning.assess import Assessment
from proxmatch.learning.engine import RunStatus

#: What ``select="best"`` may lose on one problem for the sake of another, in dB.
LEEWAY = 0.05


@dataclass(frozen=True)
class Evidence:
    """What an adaptation did, on pixels that had no part in it.

    Attributes:
        before: figures of the denoiser that was given.
        after: figures of the one that is returned.
    """

    before: Assessment
    after: Assessment

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
        parts.append(f"L {self.before.lipschitz:.2f} -> {self.after.lipschitz:.2f}")
        return f"held-out PSNR in dB: {', '.join(parts)}"


@dataclass(frozen=True)
class Candidate:
    """One of the denoisers that were tried.

    Attributes:
        name: how it was made.
        scores: PSNR of its reconstructions in dB, by problem.
        strength: what its strength was set to: t, sigma of a filter, weight of total variation.
        seconds: how long it took to make and to try.
        chosen: whether it is the one that was returned.
        sigma: noise level it is told, if it takes one.
        margin: t L along its runs, if it was measured: below 1 it is a proximal map there.
    """

    name: str
    scores: dict[str, float]
    strength: float
    seconds: float
    chosen: bool = False
    sigma: float | None = None
    margin: float | None = None

    @property
    def score(self) -> float:
        """The mean of the scores."""
        return sum(self.scores.values()) / len(self.scores)


@dataclass(frozen=True)
class AdaptationResult:
    """An adapted denoiser.

    Attributes:
        denoiser: the adapted one; the one that was given is as it was.
        status: how the run ended.
        step: after how many steps its weights were taken.
        history: the log: loss, gamma, gradient norm, saturation, checks.
        evidence: that it helped, or that it did not; None when nothing was held out.
        saturated: share of the logged steps at which proximal matching had lost more than 95 % of
            its gradient; None for other losses.
        table: what was tried, if there was a choice.
    """

    denoiser: ProximalDenoiser
    status: RunStatus
    step: int
    history: list[dict[str, Any]]
    evidence: Evidence | None
    saturated: float | None = None
    table: tuple[Candidate, ...] = ()
