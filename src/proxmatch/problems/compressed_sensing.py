"""Compressed sensing by a single-pixel camera: a part of the Walsh-Hadamard coefficients."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from deepinv.physics import SinglePixelCamera

from proxmatch.errors import InputError
from proxmatch.problems.kernels import check_dtype, gaussian_noise, image_size
from proxmatch.problems.problem import Problem


def compressed_sensing(
    size: int | tuple[int, int],
    *,
    share: float = 0.25,
    channels: int = 3,
    noise: float = 0.0,
    eta: float = 0.95,
    iterations: int = 40,
    allow_large_step: bool = False,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Problem:
    """The first coefficients of each channel, along deepinv's zig-zag; L_f = 1, x_0 = A^T y.

    Measurements have the shape of the images, with zeros for the coefficients not measured.

    Args:
        size: side length of the images, or (H, W): powers of two.
        share: measurements for each pixel, in (0, 1].
        channels: number of channels.
        noise: standard deviation of the noise; 0 for none.
        eta: step size.
        iterations: number of PnP steps.
        allow_large_step: accept eta L_f >= 1, with a warning.
        device: where to put the operator.
        dtype: its precision.

    Raises:
        InputError: a size, share or noise that makes no sense.
        StepSizeError: eta L_f >= 1.

    Example:
        >>> problem = compressed_sensing(16, share=0.25)
        >>> y = problem.measure(torch.rand(1, 3, 16, 16))
        >>> int((y[0, 0] != 0).sum())  # of 256 pixels
        64
    """
    img_size = image_size(size, channels)
    check_dtype(dtype)
    if any(n & (n - 1) for n in img_size[1:]):
        raise InputError(
            f"a single-pixel camera shows patterns of 2, 4, 8 ... pixels: images of "
            f"{img_size[1]} x {img_size[2]} must be cut to powers of two"
        )
    if not 0 < share <= 1:
        raise InputError(f"share must be in (0, 1], got {share}")
    number = max(1, round(share * img_size[1] * img_size[2]))
    build = partial(_build, number, img_size, noise)
    problem = Problem.from_physics(
        build(torch.device(device), dtype),
        img_size,
        eta=eta,
        iterations=iterations,
        allow_large_step=allow_large_step,
        name="compressed-sensing",
    )
    return replace(problem, build=build)


def _build(
    number: int,
    img_size: tuple[int, int, int],
    noise: float,
    device: torch.device,
    dtype: torch.dtype,
) -> SinglePixelCamera:
    physics: SinglePixelCamera = SinglePixelCamera(
        number,
        img_size,
        fast=True,
        ordering="zig_zag",
        device=device,
        dtype=dtype,
        noise_model=gaussian_noise(noise, device, dtype),
    )
    physics.sensor_model = partial(torch.mul, physics.mask)  # no noise on what is not measured
    return physics
