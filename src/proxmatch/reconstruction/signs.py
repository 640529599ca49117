r"""Signs that a run has ruined the picture, from the parts of its error that it shows.

x_0 is the start, x the result. If x were right, |x - x_0|^2 would be the error of the start. A part
of the error of x (:mod:`proxmatch.reconstruction.soundness`) is a *sign* when its share of
|x - x_0|^2 / N exceeds its limit: the run has added more error than it can have removed. A misfit
must also exceed that of the start. There are two more signs:

- **far**: x is farther from the truth than x_0, as far as a linear reconstruction x_G tells. With
  d = x - x_0 this is so if |d|^2 / 2 > <d, truth - x_0>. Of truth - x_0, x_G - x_0 is known, and of
  the rest, e = truth - x_G, the energy |e_b|^2 that is expected in each band of frequencies b. In
  each band d and e may have the correlation :data:`SKILL`: so much a prior may know beyond x_G. The
  run is worse than its start, by this account, if

      |d|^2 / 2 > <d, x_G - x_0> + SKILL sum_b |d_b| |e_b|;

  the share is twice the difference, over |x_0 - x_G|^2 + |e|^2, the expected error of x_0;
- **unsettled**: ||x_k - x_{k-1}|| / ||x_k|| at the last step.

The limits were set on faces and photographs (:mod:`proxmatch.experiments.studies.detector`). Below
a change of :data:`UNSEEN` nothing is said: the result is the start.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

#: Smallest change of a run that counts, a mean square over pixels: half a step of 8 bits.
UNSEEN = (0.5 / 255) ** 2


class Sign(StrEnum):
    """What makes a result suspicious."""

    MISFIT = "misfit"
    NOISE = "noise"
    RANGE = "range"
    FAR = "far"
    UNSETTLED = "unsettled"


#: Shares of |x - x_0|^2 / N above which a part of the error is a sign; of the error of x_0 for
#: ``far``, and a residual for ``unsettled``.
LIMITS = {Sign.MISFIT: 0.5, Sign.NOISE: 0.6, Sign.RANGE: 0.05, Sign.FAR: 0.01, Sign.UNSETTLED: 0.01}
#: Correlation that a prior may have with what a linear reconstruction misses: the smallest of 0.05,
#: 0.1, ... with fewer than 5 % false alarms on faces and photographs.
SKILL = 0.05
#: How much larger than that of the start a misfit must be.
WORSE = 1.5

#: What each sign says, and what to try.
ADVICE = {
    Sign.MISFIT: "it does not explain the measurements: the prior is too strong or of another "
    "domain",
    Sign.NOISE: "it is full of noise: the prior is too weak, or of another domain",
    Sign.RANGE: "it leaves the range of images, [0, 1]: the prior is of another domain, or the "
    "measurements are in other units",
    Sign.FAR: "judged by a plain linear reconstruction, it is worse than its start: the strength "
    "is wrong, or the prior is of another domain",
    Sign.UNSETTLED: "it was still changing at the last step: the prior is too strong, or there "
    "were too few steps",
}
TRY = (
    "choose the strength on images like these (choose_strength), adapt the denoiser, or take "
    "another model"
)


@dataclass(frozen=True)
class Examination:
    """Parts of the error that a run shows, ``(B,)`` each, mean squares over the pixels.

    Attributes:
        change: |x - x_0|^2 / N.
        misfit: of x.
        start_misfit: of x_0.
        noise: that the run has added.
        range: squared distance from [0, 1] that the run has added.
        far: |x - x_G|^2 / N; zero if it is not known.
        start_far: |x_0 - x_G|^2 / N.
        missed: |e|^2 / N, what x_G is expected to miss.
        reach: the sum over bands of |d_b| |e_b| / N.
        residual: of the last step; zero if it was not recorded.
    """

    change: Tensor
    misfit: Tensor
    start_misfit: Tensor
    noise: Tensor
    range: Tensor
    far: Tensor
    start_far: Tensor
    missed: Tensor
    reach: Tensor
    residual: Tensor

    def shares(self) -> dict[Sign, Tensor]:
        """What is compared with :data:`LIMITS`, ``(B,)`` each."""
        change = self.change.clamp_min(UNSEEN)
        worse = self.misfit > WORSE * self.start_misfit
        return {
            Sign.MISFIT: torch.where(worse, self.misfit / change, 0),
            Sign.NOISE: self.noise / change,
            Sign.RANGE: self.range / change,
            Sign.FAR: self._loss(),
            Sign.UNSETTLED: self.residual,
        }

    def _loss(self) -> Tensor:
        """How much worse x is expected to be than x_0, as a share of the error of x_0."""
        toward = (self.start_far + self.change - self.far) / 2  # <d, x_G - x_0>
        worse = self.change / 2 - toward - SKILL * self.reach
        loss = 2 * worse / (self.start_far + self.missed).clamp_min(UNSEEN)
        return torch.where(self.change > UNSEEN, loss, 0)

    def signs(self) -> tuple[tuple[Sign, ...], ...]:
        """The signs of each image, the strongest first; none for a sound one."""
        shares = {sign: (share / LIMITS[sign]).tolist() for sign, share in self.shares().items()}
        return tuple(
            tuple(
                sorted(
                    (sign for sign in Sign if not shares[sign][i] < 1),
                    key=lambda sign: -shares[sign][i],
                )
            )
            for i in range(len(self.change))
        )
