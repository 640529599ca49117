"""Inpainting: some pixels are missing, the same ones in every channel."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from deepinv.physics import Inpainting, LinearPhysics
from torch import Tensor

from proxmatch.errors import InputError
from proxmatch.problems.kernels import check_dtype, gaussian_noise, image_size
from proxmatch.problems.problem import Problem


def inpainting(
    size: int | tuple[int, int],
    *,
    keep: float = 0.5,
    seed: int = 0,
    mask: Tensor | None = None,
    channels: int = 3,
    noise: float = 0.0,
    eta: float = 0.95,
    iterations: int = 40,
    allow_large_step: bool = False,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Problem:
    """Images of which only some pixels are measured; L_f = 1, x_0 by :func:`filled`.

    Measurements are images too, zero where nothing was measured.

    Args:
        size: side length of the images, or (H, W).
        keep: share of the pixels that are measured, each with this probability.
        seed: decides which.
        mask: which pixels are measured, ``(H, W)``, in place of ``keep`` and ``seed``.
        channels: number of channels.
        noise: standard deviation of the noise on what is measured; 0 for none.
        eta: step size.
        iterations: number of PnP steps.
        allow_large_step: accept eta L_f >= 1, with a warning.
        device: where to put the operator.
        dtype: its precision.

    Raises:
        InputError: a size, share, mask or noise that makes no sense.
        StepSizeError: eta L_f >= 1.

    Example:
        >>> problem = inpainting(4, mask=torch.eye(4), channels=1)
        >>> problem.measure(torch.ones(1, 1, 4, 4))[0, 0]
        tensor([[1., 0., 0., 0.],
                [0., 1., 0., 0.],
                [0., 0., 1., 0.],
                [0., 0., 0., 1.]])
    """
    img_size = image_size(size, channels)
    check_dtype(dtype)
    if mask is None:
        if not 0 < keep <= 1:
            raise InputError(f"keep is the share of the pixels that are measured, not {keep}")
        draw = torch.rand(img_size[1:], generator=torch.Generator().manual_seed(seed))
        mask = draw < keep
    mask = torch.as_tensor(mask).detach().cpu() != 0
    if mask.shape != img_size[1:]:
        raise InputError(
            f"the mask is {' x '.join(map(str, mask.shape))}, the images are "
            f"{img_size[1]} x {img_size[2]}"
        )
    if not bool(mask.any()):
        raise InputError("no pixel is measured; take a larger keep or another mask")
    build = partial(_build, mask, img_size, noise)
    problem = Problem.from_physics(
        build(torch.device(device), dtype),
        img_size,
        eta=eta,
        iterations=iterations,
        initialisation=filled,
        allow_large_step=allow_large_step,
        name="inpainting",
    )
    return replace(problem, build=build)


def filled(y: Tensor, physics: LinearPhysics) -> Tensor:
    """Missing pixels as the mean of the measured ones around them, ``(B, C, H, W)``.

    Around: the smallest of the squares of side 3, 5, 9, 17 ... that holds a measured pixel.
    """
    known: Tensor = physics.mask.to(y).expand(1, 1, *y.shape[-2:])
    x, done, radius = y * known, known > 0, 1
    while not bool(done.all()):
        share = _mean(known, radius)
        here = ~done & (share > 0)
        x = torch.where(here, _mean(y * known, radius) / share.clamp_min(1e-12), x)
        done, radius = done | here, 2 * radius
    return x


def _mean(x: Tensor, radius: int) -> Tensor:
    """The mean over squares of side 2 radius + 1, zeros outside, one axis after the other."""
    for axis in (0, 1):
        reach = min(radius, x.shape[-2 + axis] - 1)
        kernel = (2 * reach + 1, 1) if axis == 0 else (1, 2 * reach + 1)
        padding = (0, 0, reach, reach) if axis == 0 else (reach, reach)
        x = F.avg_pool2d(F.pad(x, padding), kernel, stride=1)
    return x


def _build(
    mask: Tensor,
    img_size: tuple[int, int, int],
    noise: float,
    device: torch.device,
    dtype: torch.dtype,
) -> Inpainting:
    measured = mask[None].to(device, dtype)
    return Inpainting(
        img_size=img_size,
        mask=measured,
        noise_model=gaussian_noise(noise, device, dtype),
        sensor_model=partial(torch.mul, measured),  # no noise where nothing is measured
        device=device,
    )
