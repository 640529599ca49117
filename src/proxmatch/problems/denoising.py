"""Denoising as an inverse problem: A is the identity, the prior is weighed against the data."""

from __future__ import annotations

import torch
from deepinv.physics import Denoising

from proxmatch.problems.image_sizes import ImageSize
from proxmatch.problems.registration import Design, Noise, gaussian_noise, register


@register("denoising", "white noise")
def denoising(img_size: ImageSize, *, noise: Noise = 0.05) -> Design:
    """Images with white noise; L_f = 1, x_0 = y.

    PnP-PGD looks for a minimum of eta |x - y|^2 / 2 + R(x): the smaller eta, the more prior.

    Example:
        >>> x = torch.full((1, 3, 64, 64), 0.5)
        >>> y = denoising(64, noise=0.1).measure(x)
        >>> (y - x).std().round(decimals=2)
        tensor(0.1000)
    """
    return Design(identity, gaussian_noise(noise))


def identity(device: torch.device, dtype: torch.dtype) -> Denoising:
    """A = Id."""
    physics: Denoising = Denoising(device=device)
    return physics.to(device, dtype)
