"""The same losses for deepinv's own Trainer, beside its ``SupLoss``.

Denoisers are trained there as ``ArtifactRemoval(denoiser, mode="direct")`` on
``Denoising(GaussianNoise(sigma))``.
"""

from __future__ import annotations

from typing import Any

import torch
from deepinv.loss import Loss
from torch import Tensor

from proxmatch.denoisers import GradientStep
from proxmatch.losses.contractivity import contractivity_penalty, top_direction
from proxmatch.losses.matching import proximal_matching, squared_error
from proxmatch.losses.schedules import GammaSchedule


class ProximalMatchingLoss(Loss):  # type: ignore[misc]
    """Proximal matching as a deepinv loss; gamma follows the epochs.

    Args:
        schedule: of gamma per pixel; its L1 stage, if it has one, is L1 per pixel.
        epochs: number of epochs of the training, which the schedule is spread over.
    """

    def __init__(self, schedule: GammaSchedule, epochs: int = 1) -> None:
        super().__init__()
        self.schedule, self.epochs = schedule, epochs

    def forward(
        self, x_net: Tensor, x: Tensor, *args: Any, epoch: int = 0, **kwargs: Any
    ) -> Tensor:
        """The loss of each image, ``(B,)``."""
        residual = (squared_error(x_net.detach(), x) / x[0].numel()).sqrt()
        rms = self.schedule(min(epoch / max(self.epochs - 1, 1), 1.0), residual)
        if rms is None:
            return (x_net - x).abs().flatten(1).mean(1)
        return proximal_matching(x_net, x, rms)


class ContractivityLoss(Loss):  # type: ignore[misc]
    """The contractivity penalty as a deepinv loss, on the noisy inputs y.

    The Trainer does not say which image is which, so directions start from scratch in every batch.

    Args:
        denoiser: the one being trained.
        limit: L_max.
        weight: lambda_con.
        iterations: power iterations.
    """

    def __init__(
        self, denoiser: GradientStep, limit: float = 0.9, weight: float = 1.0, iterations: int = 20
    ) -> None:
        super().__init__()
        self.denoiser, self.limit, self.weight = denoiser, limit, weight
        self.iterations = iterations

    def forward(self, y: Tensor, **kwargs: Any) -> Tensor:
        """The penalty of each image, ``(B,)``."""
        start = torch.randn_like(y)
        v = top_direction(self.denoiser, y, start, iterations=self.iterations)
        return self.weight * contractivity_penalty(self.denoiser, y, v, self.limit)
