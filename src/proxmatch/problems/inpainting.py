"""Inpainting: some pixels are missing, the same ones in every channel."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import torch.nn.functional as F
from deepinv.physics import Inpainting, LinearPhysics
from torch import Tensor

from proxmatch.errors import InputError
from proxmatch.problems.from_pictures import as_tensor, mask_picture
from proxmatch.problems.image_sizes import ImageSize
from proxmatch.problems.registration import Design, Noise, Seed, gaussian_noise, register


@register("inpainting", "missing pixels, at random or by the picture of a mask")
def inpainting(
    img_size: ImageSize,
    *,
    keep: Annotated[float, "share of the pixels that are measured, each with this probability"] = (
        0.5
    ),
    seed: Seed = 0,
    mask: Annotated[
        Tensor | np.ndarray[Any, Any] | str | Path | None,
        "which pixels are measured, in place of keep and seed: a tensor or array (H, W), or a "
        "picture that is bright there",
        mask_picture,
    ] = None,
    noise: Noise = 0.0,
) -> Design:
    """Images of which only some pixels are measured; L_f = 1, x_0 by :func:`filled`.

    Measurements are images too, zero where nothing was measured.

    Example:
        >>> problem = inpainting(4, mask=torch.eye(4), channels=1)
        >>> problem.measure(torch.ones(1, 1, 4, 4))[0, 0]
        tensor([[1., 0., 0., 0.],
                [0., 1., 0., 0.],
                [0., 0., 1., 0.],
                [0., 0., 0., 1.]])
    """
    if mask is None:
        if not 0 < keep <= 1:
            raise InputError(f"keep is the share of the pixels that are measured, not {keep}")
        draw = torch.rand(img_size[1:], generator=torch.Generator().manual_seed(seed))
        mask = draw < keep
    elif isinstance(mask, np.ndarray):
        mask = as_tensor(mask)
    elif not isinstance(mask, Tensor):
        mask = mask_picture(mask)
    if mask.shape != img_size[1:]:
        raise InputError(
            f"the mask is {' x '.join(map(str, mask.shape))}, the images are "
            f"{img_size[1]} x {img_size[2]}"
        )
    return masked(mask[None], img_size, noise)


def masked(mask: Tensor, img_size: ImageSize, noise: float) -> Design:
    """The design of a problem that measures the pixels of a mask, ``(1 or C, H, W)``."""
    mask = mask.detach().cpu() != 0
    if not bool(mask.flatten(1).any(1).all()):
        raise InputError("no pixel is measured; measure some, with a larger keep or another mask")
    return Design(partial(_build, mask, img_size), gaussian_noise(noise), filled)


def filled(y: Tensor, physics: LinearPhysics) -> Tensor:
    """Missing pixels as the mean of the measured ones around them, ``(B, C, H, W)``.

    Around: the smallest of the squares of side 3, 5, 9, 17 ... that holds a measured pixel.
    """
    known: Tensor = physics.mask.to(y).expand(1, -1, *y.shape[-2:])
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
    mask: Tensor, img_size: ImageSize, device: torch.device, dtype: torch.dtype
) -> Inpainting:
    measured = mask.to(device, dtype)
    return Inpainting(
        img_size=img_size,
        mask=measured,
        sensor_model=partial(torch.mul, measured),  # no noise where nothing is measured
        device=device,
    )
