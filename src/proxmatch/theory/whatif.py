"""What a run can expect: how much mismatch it can afford, and how long it is worth running.

There are two answers. The bound of Theorem 3.1 is safe and far from tight. What was measured at the
end of the run is not a bound, but closer to what will be seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from proxmatch.errors import InputError
from proxmatch.theory.inequalities import Constants
from proxmatch.theory.trajectory import Trajectory


@dataclass(frozen=True)
class Outlook:
    """The two parts of the bound of one run, for B images.

    Attributes:
        optimization: C_0 = decrease (F*(x_0) - F_inf), ``(B,)``.
        mismatch: C_1.
        square: mean of d_k^2 over the run, ``(B,)``.
        measured: |grad F*|^2 / d^2 over the last quarter of the run, ``(B,)``: what C_1 turned out
            to be; infinite without mismatch.
        settled: first k with |grad F*(x_k)|^2 at most twice its mean over the last quarter,
            ``(B,)``; NaN where that mean is not known (the image diverged).
    """

    optimization: Tensor
    mismatch: float
    square: Tensor
    measured: Tensor
    settled: Tensor

    @classmethod
    def of(cls, path: Trajectory, constants: Constants, infimum: Tensor) -> Outlook:
        """The outlook of a measured run.

        Args:
            path: what was measured.
            constants: of the theorem.
            infimum: F_inf - F*(x_0) or an estimate of it, ``(B,)``.
        """
        g2, d2 = path.stationarity[:, 1:] ** 2, path.mismatch**2
        last = max(1, d2.shape[1] // 4)
        level = g2[:, -last:].mean(1)
        reached = (g2 <= 2 * level[:, None]).int().argmax(1)
        return cls(
            optimization=-constants.decrease * infimum,
            mismatch=constants.mismatch,
            square=d2.mean(1),
            measured=level / d2[:, -last:].mean(1),
            settled=torch.where(level.isfinite(), reached + 1.0, torch.nan),
        )

    def worthwhile(self) -> Tensor:
        """Iterations after which the floor is the larger part of the bound, ``(B,)``.

        C_0 / t = C_1 mean d^2: beyond this t, less mismatch helps and more iterations do not.
        """
        return self.optimization / (self.mismatch * self.square)

    def affordable(self, stationarity: float, iterations: int | None = None) -> Tensor:
        """The d at which the bound is ``stationarity``^2, ``(B,)``; NaN where no d is small enough.

        Args:
            stationarity: the |grad F*| that is wanted, as root mean square over the run.
            iterations: t; infinitely many unless given.
        """
        if not stationarity > 0:
            raise InputError(f"the wanted stationarity must be positive, got {stationarity}")
        left = stationarity**2 - (self.optimization / iterations if iterations else 0.0)
        return (torch.as_tensor(left) / self.mismatch).sqrt().expand_as(self.square)

    def affordable_measured(self, stationarity: float) -> Tensor:
        """The d at which this run's |grad F*| / d would give ``stationarity``, ``(B,)``."""
        return stationarity / self.measured.sqrt()
