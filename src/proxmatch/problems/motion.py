"""Deblurring of motion: a straight stroke or a random path."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from deepinv.physics.generator import MotionBlurGenerator
from torch import Tensor

from proxmatch.errors import InputError
from proxmatch.problems.image_sizes import ImageSize
from proxmatch.problems.kernels import blur
from proxmatch.problems.registration import Design, Noise, Seed, gaussian_noise, register

SAMPLES = 32  # of a stroke, for each of its pixels


@register("motion-deblurring", "a straight stroke or a random path")
def motion_deblurring(
    img_size: ImageSize,
    *,
    length: Annotated[
        int, "length of the stroke in pixels, or side of the square that a random path stays in"
    ] = 9,
    angle: Annotated[
        float | None,
        "angle of a straight stroke, in degrees counterclockwise from the horizontal; without it, "
        "the path is random (deepinv's MotionBlurGenerator)",
    ] = None,
    seed: Seed = 0,
    noise: Noise = 0.02,
) -> Design:
    """Images convolved with a motion kernel, circular borders, and noise added; x_0 = A^T y.

    Example:
        >>> problem = motion_deblurring(8, length=3, angle=0.0, noise=0.0, channels=1)
        >>> point = torch.zeros(1, 1, 8, 8)
        >>> point[..., 4, 4] = 1.0
        >>> int((problem.measure(point) > 0.1).sum())  # pixels of the stroke
        3
    """
    if length < 1:
        raise InputError(f"the length of a motion is at least 1 pixel, got {length}")
    kernel = random_path(length, seed) if angle is None else stroke(length, angle)
    return Design(blur(kernel, img_size), gaussian_noise(noise))


def stroke(length: int, angle: float) -> Tensor:
    """A straight line of one pixel's width, ``(n, n)`` in float64 with n odd; it sums to one.

    Points spread evenly over the line share their weight among the four pixels around them.
    """
    half = (length - 1) / 2
    along = torch.linspace(-half, half, SAMPLES * length + 1, dtype=torch.float64)
    side = 2 * math.ceil(half) + 1
    turn = math.radians(angle)
    rows, cols = side // 2 - along * math.sin(turn), side // 2 + along * math.cos(turn)
    top, left = rows.floor(), cols.floor()
    kernel = torch.zeros(side, side, dtype=torch.float64)
    for i, in_rows in ((top, 1 - (rows - top)), (top + 1, rows - top)):
        for j, in_cols in ((left, 1 - (cols - left)), (left + 1, cols - left)):
            place = (i.long().clamp(0, side - 1), j.long().clamp(0, side - 1))
            kernel.index_put_(place, in_rows * in_cols, accumulate=True)
    return kernel / kernel.sum()


def random_path(side: int, seed: int) -> Tensor:
    """A random motion in a square, by deepinv: ``(side, side)`` in float64, of sum one."""
    generator = MotionBlurGenerator((side, side), rng=torch.Generator().manual_seed(seed))
    kernel: Tensor = generator.step()["filter"][0, 0].double()
    return kernel / kernel.sum()
