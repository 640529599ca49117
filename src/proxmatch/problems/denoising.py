"""Denoising as an inverse problem: A is the identity, the prior is weighed against the data."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from deepinv.physics import Denoising

from proxmatch.problems.kernels import check_dtype, gaussian_noise, image_size
from proxmatch.problems.problem import Problem


def denoising(
    size: int | tuple[int, int],
    *,
    channels: int = 3,
    noise: float = 0.05,
    eta: float = 0.95,
    iterations: int = 40,
    allow_large_step: bool = False,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Problem:
    """Images with white noise; L_f = 1, x_0 = y.

    PnP-PGD looks for a minimum of eta |x - y|^2 / 2 + R(x): the smaller eta, the more prior.

    Args:
        size: side length of the images, or (H, W).
        channels: number of channels.
        noise: its standard deviation; 0 for none.
        eta: step size, here also the weight of the data.
        iterations: number of PnP steps.
        allow_large_step: accept eta L_f >= 1, with a warning.
        device: where to put the operator.
        dtype: its precision.

    Raises:
        InputError: a size or noise that makes no sense.
        StepSizeError: eta L_f >= 1.

    Example:
        >>> x = torch.full((1, 3, 64, 64), 0.5)
        >>> y = denoising(64, noise=0.1).measure(x)
        >>> (y - x).std().round(decimals=2)
        tensor(0.1000)
    """
    img_size = image_size(size, channels)
    check_dtype(dtype)
    build = partial(_build, noise)
    problem = Problem.from_physics(
        build(torch.device(device), dtype),
        img_size,
        eta=eta,
        iterations=iterations,
        allow_large_step=allow_large_step,
        name="denoising",
    )
    return replace(problem, build=build)


def _build(noise: float, device: torch.device, dtype: torch.dtype) -> Denoising:
    physics: Denoising = Denoising(gaussian_noise(noise, device, dtype), device=device)
    return physics.to(device, dtype)
