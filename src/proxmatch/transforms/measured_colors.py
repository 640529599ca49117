"""The colors of unknown images, from their measurements.

Let the operator act on each channel separately, and on all in the same way. Then measurements
y = A x + noise of images with mean color m and color covariance C have

- the mean A (m 1), where 1 is a white image: m_c is the least-squares fit of y_c by A 1;
- around it the color covariance kappa C + rho sigma^2 Id, if color and place are independent. The
  share rho of pixels that are measured is 1, or less with a mask, since masked pixels have no noise
  either. The attenuation kappa is what A leaves of the variance of an image. It depends on the
  images only through their spectrum, which is **assumed** to fall like 1 / f^2.5; kappa is then a
  mean over random images of that spectrum. (Natural images have exponents of about 2; that of crops
  is larger, because their means differ.)

So C = (cov(y) - rho sigma^2 Id) / kappa, without the negative part that noise may leave. An error
in kappa only changes the size of C: 5 to 20 % on photographs and faces, up to 50 % on
histology, whose spectrum is flatter. Alignment does not notice it: its rotation is the same for C
and for any multiple of it.
"""

from __future__ import annotations

from typing import Any

import torch
from deepinv.physics import GaussianNoise, ZeroNoise
from torch import Tensor

from proxmatch.errors import InputError
from proxmatch.problems import Problem
from proxmatch.transforms.colors import ColorStatistics

EXPONENT = 2.5  # of the power spectrum
TEXTURES = 32  # random images that kappa is the mean of


@torch.no_grad()
def statistics_from_measurements(
    measurements: Any, problem: Problem, *, noise: float | None = None
) -> ColorStatistics:
    """Mean and covariance of the colors of the images that were measured.

    Args:
        measurements: ``(N, C, ...)``, as ``problem.measure`` makes them, or pictures
            (:meth:`~proxmatch.problems.Problem.measurements`).
        problem: the operator and the noise.
        noise: standard deviation of the noise; that of the problem unless given.

    Raises:
        InputError: the operator mixes channels or measures them at different pixels, does not see
            the mean of an image, or its noise is not Gaussian and not given.

    Example:
        >>> from proxmatch.problems import denoising
        >>> problem = denoising(8, noise=0)
        >>> y = problem.measure(torch.full((1, 3, 8, 8), 0.5))
        >>> [round(v, 3) for v in statistics_from_measurements(y, problem).mean.tolist()]
        [0.5, 0.5, 0.5]
    """
    measurements = problem.measurements(measurements)
    problem.check_measurement(measurements)
    sigma = noise_level(problem) if noise is None else noise
    white = problem.physics.A(torch.ones(1, *problem.img_size).to(measurements))
    share = float(problem.physics.sensor(torch.ones_like(white)).square().mean())
    c = problem.img_size[0]
    apart = measurements.ndim < 3 or measurements.shape[1] != c
    if not apart and not _alike(white):
        raise InputError(
            f"{problem.name} measures the colors at different pixels, so that measurements do not "
            "say how they vary together; give the statistics of some images instead"
        )
    if apart or not _channelwise(problem, white):
        raise InputError(
            f"{problem.name} does not measure channel by channel, so that the colors of its "
            "measurements are not those of the images; give the statistics of some images instead"
        )
    white = white.double().transpose(0, 1).flatten(1)  # (C, pixels)
    power = white.square().sum(1)
    if bool((power <= 1e-12 * white.shape[1]).any()):
        raise InputError(f"{problem.name} does not see the mean of an image; give its colors")
    dark = getattr(problem.physics.noise_model, "background", 0.0)  # of a detector of photons
    measured = (measurements - dark).double().flatten(2)  # (N, C, pixels)
    mean = (measured * white).sum(2).mean(0) / power
    rest = (measured - mean[:, None] * white).transpose(0, 1).flatten(1)
    noisy = rest @ rest.T / rest.shape[1]
    values, vectors = torch.linalg.eigh(noisy - share * sigma**2 * torch.eye(c).to(noisy))
    covariance = (vectors * values.clamp_min(0)) @ vectors.T / attenuation(problem)
    return ColorStatistics(mean.cpu(), covariance.cpu())


@torch.no_grad()
def attenuation(problem: Problem) -> float:
    """Kappa: mean square of A x over images of unit variance and spectrum 1 / f^2.5."""
    fields = textures(problem, TEXTURES)
    return float(problem.physics.A(fields).square().mean())


def textures(problem: Problem, count: int) -> Tensor:
    """Random gray images of unit variance and spectrum 1 / f^2.5, ``(count, C, H, W)``."""
    _, h, w = problem.img_size
    rows, cols = torch.fft.fftfreq(h)[:, None], torch.fft.rfftfreq(w)
    # The mean of an image varies too, about like the frequency with half a period in the image.
    frequency = (rows.square() + cols.square()).sqrt().clamp_min(0.5 / max(h, w))
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(count, 1, h, w, generator=generator)
    fields = torch.fft.irfft2(torch.fft.rfft2(draws) / frequency ** (EXPONENT / 2), s=(h, w))
    fields = fields / fields.square().mean().sqrt()
    like: Tensor = fields.to(problem.device, problem.dtype)
    return like.expand(-1, *problem.img_size).contiguous()


def noise_level(problem: Problem) -> float:
    """Standard deviation of the noise of a problem.

    Raises:
        InputError: the noise is neither Gaussian nor absent.
    """
    denoiser = problem.physics.noise_model
    if isinstance(denoiser, ZeroNoise):
        return 0.0
    if isinstance(denoiser, GaussianNoise):
        return float(denoiser.sigma)
    raise InputError(
        f"the standard deviation of {type(denoiser).__name__} is not known; pass it as noise"
    )


def _alike(white: Tensor) -> bool:
    """Whether a white image is measured the same in every channel."""
    return bool((white - white[:, :1]).abs().max() <= 1e-5 * white.abs().max())


def _channelwise(problem: Problem, white: Tensor) -> bool:
    """Whether a white image of one channel is measured in that channel alone, and as in white."""
    c = problem.img_size[0]
    single = torch.eye(c).to(white)[:, :, None, None].expand(-1, -1, *problem.img_size[1:])
    seen = problem.physics.A(single.contiguous())
    expected = white.expand_as(seen) * torch.eye(c).to(white).view(c, c, *[1] * (seen.ndim - 2))
    return bool((seen - expected).abs().max() <= 1e-5 * white.abs().max())
