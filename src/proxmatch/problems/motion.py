"""Deblurring of motion: a straight stroke, a random path, or a kernel of your own."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import torch
from deepinv.physics import BlurFFT
from deepinv.physics.generator import MotionBlurGenerator
from torch import Tensor

from proxmatch.errors import InputError
from proxmatch.problems.kernels import check_dtype, gaussian_noise, image_size
from proxmatch.problems.problem import Problem

SAMPLES = 32  # of a stroke, for each of its pixels


def motion_deblurring(
    size: int | tuple[int, int],
    *,
    kernel: Tensor | None = None,
    length: int = 9,
    angle: float | None = None,
    seed: int = 0,
    channels: int = 3,
    noise: float = 0.02,
    eta: float | None = None,
    iterations: int = 40,
    allow_large_step: bool = False,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Problem:
    """Images convolved with a motion kernel, circular borders, and noise added; x_0 = A^T y.

    Args:
        size: side length of the images, or (H, W).
        kernel: ``(h, w)``, used as it is; made from the three arguments below unless given.
        length: of the stroke in pixels, or the side of the square that a random path stays in.
        angle: of a straight stroke, in degrees anticlockwise from the horizontal; None for a
            random path (deepinv's ``MotionBlurGenerator``).
        seed: of the random path.
        channels: number of channels.
        noise: standard deviation of the noise; 0 for none.
        eta: step size; 0.95 / L_f unless given.
        iterations: number of PnP steps.
        allow_large_step: accept eta L_f >= 1, with a warning.
        device: where to put the operator.
        dtype: its precision.

    Raises:
        InputError: a size, kernel, length or noise that makes no sense.
        StepSizeError: eta L_f >= 1.

    Example:
        >>> problem = motion_deblurring(8, length=3, angle=0.0, noise=0.0, channels=1)
        >>> point = torch.zeros(1, 1, 8, 8)
        >>> point[..., 4, 4] = 1.0
        >>> int((problem.measure(point) > 0.1).sum())  # pixels of the stroke
        3
    """
    img_size = image_size(size, channels)
    check_dtype(dtype)
    if kernel is None:
        if length < 1:
            raise InputError(f"the length of a motion is at least 1 pixel, got {length}")
        kernel = random_path(length, seed) if angle is None else stroke(length, angle)
    kernel = torch.as_tensor(kernel).detach().cpu().double().clone()
    if kernel.ndim != 2 or not bool(kernel.isfinite().all()):
        raise InputError(
            f"a kernel is one array (h, w) of finite numbers, got the shape {tuple(kernel.shape)}"
        )
    if any(k > n for k, n in zip(kernel.shape, img_size[1:], strict=True)):
        raise InputError(
            f"a kernel of {kernel.shape[0]} x {kernel.shape[1]} does not fit images of "
            f"{img_size[1]} x {img_size[2]}; take larger images or a shorter motion"
        )
    build = partial(_build, kernel, img_size, noise)
    problem = Problem.from_physics(
        build(torch.device(device), dtype),
        img_size,
        eta=eta,
        iterations=iterations,
        allow_large_step=allow_large_step,
        name="motion-deblurring",
    )
    return replace(problem, build=build)


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


def _build(
    kernel: Tensor,
    img_size: tuple[int, int, int],
    noise: float,
    device: torch.device,
    dtype: torch.dtype,
) -> BlurFFT:
    return BlurFFT(
        img_size=img_size,
        filter=kernel[None, None].to(device, dtype),
        noise_model=gaussian_noise(noise, device, dtype),
        device=device,
    )
