"""How gamma goes down during training, in units of one pixel (gamma = rms sqrt(n)).

A schedule is a pure function of the progress, in [0, 1], and of the current residuals. ``None``
stands for the L1 loss that the official recipe begins with.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Schedule(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Constant(_Schedule):
    """The same gamma all the time."""

    kind: Literal["constant"] = "constant"
    gamma: Positive = 0.1

    def __call__(self, progress: float, residual: Tensor) -> float | None:
        """Gamma per pixel."""
        return self.gamma


class Geometric(_Schedule):
    """From ``start`` to ``end``, by a constant factor per step."""

    kind: Literal["geometric"] = "geometric"
    start: Positive = 0.4525
    end: Positive = 0.0566

    def __call__(self, progress: float, residual: Tensor) -> float | None:
        """Gamma per pixel."""
        return float(self.start * (self.end / self.start) ** progress)


class Staged(_Schedule):
    """The official recipe: L1 first, then ``stages`` equal stages, gamma halved at each.

    The published code ends at 0.08 in the form 1 - exp(-(d / gamma)^2), which is 0.08 / sqrt(2) in
    the paper's form.
    """

    kind: Literal["staged"] = "staged"
    pretraining: float = Field(0.5, ge=0, lt=1)
    stages: int = Field(4, ge=1)
    end: Positive = 0.0566

    def __call__(self, progress: float, residual: Tensor) -> float | None:
        """Gamma per pixel; None during the L1 stage."""
        if progress < self.pretraining:
            return None
        done = (progress - self.pretraining) / (1 - self.pretraining)
        left = self.stages - 1 - min(int(done * self.stages), self.stages - 1)
        return float(self.end * 2**left)


class FromData(_Schedule):
    """A multiple of the median residual of the current batch, annealed from ``start`` to ``end``.

    It cannot saturate: half of the images always have a gradient, however far the domain is.
    """

    kind: Literal["from-data"] = "from-data"
    start: Positive = 2.0
    end: Positive = 0.7
    floor: Positive = 1e-4

    def __call__(self, progress: float, residual: Tensor) -> float | None:
        """Gamma per pixel; ``residual`` holds d / sqrt(n) of the images of the batch, ``(B,)``."""
        multiple = self.start * (self.end / self.start) ** progress
        return max(float(multiple * residual.detach().median()), self.floor)


GammaSchedule = Annotated[Constant | Geometric | Staged | FromData, Field(discriminator="kind")]
