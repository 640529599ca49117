r"""Has a run ruined the picture? What the run itself shows of its error, without the truth.

x_0 is the start, x the result, y the measurements of N pixels in all channels. If x were right,
|x - x_0|^2 would be the error of the start. Beside it stand three parts of the error of x that need
no truth, each a mean square over the pixels:

- **misfit**: what x leaves unexplained, (|Ax - y|^2 - E|noise|^2)_+ / (kappa N), with kappa the
  mean of |Av|^2 / |v|^2 over random images v of a natural spectrum: what a mean square of pixels
  becomes in the measurements. The energy of the noise is that of one simulated measurement of x, so
  that any noise model will do.
- **noise**: the detail in x where it is flattest, less that in x_0: the mean square of x minus its
  3 x 3 mean, over that fifth of the blocks of 8 x 8 pixels where it is smallest. There is no
  texture to speak of, so what the run has added there is noise.
- **range**: the squared distance of x from [0, 1], where the truth is, less that of x_0.

A part is a *sign* when its share of |x - x_0|^2 / N exceeds its limit: the run has added more error
than it can have removed. A misfit must also exceed that of the start. There are two more signs:

- **far**: x is farther from the truth than x_0, by more than the limit, if the truth lies a little
  beyond x_G as seen from x_0, at x_G - c (x_0 - x_G) with c = :data:`BEYOND`. Here x_G is the best
  linear reconstruction of y for images with the colors of x_0 and a natural spectrum: the posterior
  mean under that Gaussian, by the Wiener filter. The share is |x - truth|^2 / |x_0 - truth|^2 - 1;
- **unsettled**: ||x_k - x_{k-1}|| / ||x_k|| at the last step.

The limits were set on faces and photographs (:mod:`proxmatch.experiments.studies.detector`). Below
a change of :data:`UNSEEN` nothing is said: the result is the start.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from enum import StrEnum

import torch
import torch.nn.functional as F
from deepinv.optim import L2
from deepinv.physics import GaussianNoise, ZeroNoise
from torch import Tensor

from proxmatch.baselines.wiener import Wiener, WienerOfEach
from proxmatch.errors import MismatchedPhysicsWarning
from proxmatch.pnp import PnPResult, pnp_pgd
from proxmatch.problems import Problem
from proxmatch.problems.measuring import measured
from proxmatch.transforms.colors import color_statistics
from proxmatch.transforms.measured_colors import textures

#: Smallest change of a run that counts, a mean square over pixels: half a step of 8 bits.
UNSEEN = (0.5 / 255) ** 2
#: Blocks in which the detail of an image is measured, and the share of them that is flat.
BLOCK, FLAT = 8, 0.2
#: A noise level that is so many times another one is another one, where it is more than texture.
APART, TEXTURE = 3.0, 0.05
#: Pixels of a picture from which on its noise can be told.
ENOUGH = 32 * 32
#: Share of measurements that are exactly zero from which on a picture has holes.
HOLES = 0.05
#: Random images that kappa is the mean over.
TEXTURES = 2
#: The median of |g| for a standard Gaussian g.
MEDIAN = 0.6745


class Sign(StrEnum):
    """What makes a result suspicious."""

    MISFIT = "misfit"
    NOISE = "noise"
    RANGE = "range"
    FAR = "far"
    UNSETTLED = "unsettled"


#: From which share of |x - x_0|^2 / N on a part of the error is a sign. That of ``far`` is of the
#: error of x_0, that of ``unsettled`` a residual.
LIMITS = {
    Sign.MISFIT: 0.5,
    Sign.NOISE: 0.45,
    Sign.RANGE: 0.05,
    Sign.FAR: 0.05,
    Sign.UNSETTLED: 0.01,
}
#: How far beyond x_G the truth is, as a share of |x_0 - x_G|.
BEYOND = 0.3
#: Steps to x_G, all with momentum; the smallest noise that is assumed; the largest picture.
LINEAR_STEPS, LEAST_NOISE, LARGE = 40, 0.01, 1 << 20
#: Steps from which on a run should have settled.
SETTLING = 20
#: How much larger than that of the start a misfit must be.
WORSE = 1.5

#: What each sign says, and what to try.
ADVICE = {
    Sign.MISFIT: "it does not explain the measurements: the prior is too strong or of another "
    "domain",
    Sign.NOISE: "it is full of noise: the prior is too weak, or of another domain",
    Sign.RANGE: "it leaves the range of images, [0, 1]: the prior is of another domain, or the "
    "measurements are in other units",
    Sign.FAR: "it is farther from a plain linear reconstruction than its start is: the strength is "
    "wrong, or the prior of another domain",
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
        residual: of the last step; zero if it was not recorded.
    """

    change: Tensor
    misfit: Tensor
    start_misfit: Tensor
    noise: Tensor
    range: Tensor
    far: Tensor
    start_far: Tensor
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
        """|x - truth|^2 / |x_0 - truth|^2 - 1 for truth = x_G - c (x_0 - x_G)."""
        toward = self.start_far + self.change - self.far  # -2 <x - x_0, x_0 - x_G>
        more = self.far - self.start_far - BEYOND * toward
        loss = more / ((1 + BEYOND) ** 2 * self.start_far.clamp_min(UNSEEN))
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


@torch.no_grad()
def examine(
    images: Tensor,
    measurements: Tensor,
    problem: Problem,
    *,
    start: Tensor | None = None,
    residual: Tensor | None = None,
) -> Examination:
    """Look for signs that reconstructions are worse than what they were made from.

    Args:
        images: x, the results of a run, ``(B, C, H, W)``.
        measurements: y.
        problem: what they were measured by.
        start: x_0, if not that of the problem.
        residual: ||x_K - x_{K-1}|| / ||x_K|| of the last step, ``(B,)``, if it is known.

    Example:
        >>> from proxmatch.problems import denoising
        >>> problem, x = denoising(16), torch.full((1, 3, 16, 16), 0.5)
        >>> y = problem.measure(x)
        >>> examine(x, y, problem).signs(), len(examine(x + 3, y, problem).signs()[0])
        (((),), 3)
    """
    problem.check_image(images, "the reconstruction")
    start = problem.initial(measurements) if start is None else start
    pixels = images[0].numel()

    v = textures(problem, TEXTURES)
    kappa = float(_energy(problem.physics.A(v)).sum() / _energy(v).sum())

    def misfit(x: Tensor, noise: Tensor) -> Tensor:
        left = _energy(problem.physics.A(x) - measurements)
        return (left - noise).clamp_min(0) / (kappa * pixels)

    inside = images.clamp(0, 1)
    noise = _energy(
        measured(problem.physics, inside, range(len(inside)), 0) - problem.physics.A(inside)
    )
    linear = _linear(measurements, problem, start, noise / measurements[0].numel())
    linear = images if linear is None else linear
    return Examination(
        change=_energy(images - start) / pixels,
        misfit=misfit(images, noise),
        start_misfit=misfit(start, noise),
        noise=(flattest(images) - flattest(start)).clamp_min(0),
        range=(_outside(images) - _outside(start)).clamp_min(0) / pixels,
        far=_energy(images - linear) / pixels,
        start_far=_energy(start - linear) / pixels,
        residual=torch.zeros_like(noise) if residual is None else residual.to(noise),
    )


def _linear(y: Tensor, problem: Problem, start: Tensor, variance: Tensor) -> Tensor | None:
    """x_G of each image, with the colors of its start; None where it is not worth its time.

    Args:
        y: measurements.
        problem: what they were measured by.
        start: x_0, ``(B, C, H, W)``.
        variance: of the noise in y, ``(B,)``.
    """
    size = problem.img_size[1:]
    if not isinstance(problem.data_fidelity, L2) or size[0] * size[1] > LARGE:
        return None
    levels = (problem.eta * variance).sqrt().clamp_min(math.sqrt(problem.eta) * LEAST_NOISE)
    filters = [
        Wiener.natural(color_statistics(start[i : i + 1]), level, size)
        for i, level in enumerate(levels.tolist())
    ]
    return pnp_pgd(
        WienerOfEach(filters, start),
        y,
        problem,
        record=(),
        sigma=torch.arange(len(start), device=start.device),  # the filter's number as its level
        iterations=LINEAR_STEPS,
        warm=LINEAR_STEPS,
        initial=start,
        on_divergence="ignore",
    ).images


def check_measured_noise(problem: Problem, measurements: Tensor) -> None:
    """Warn about pictures whose noise is far from what the problem says.

    The noise of a picture is estimated from its finest details, among which there is texture too,
    so that only a factor of :data:`APART` counts. Measurements that are no pictures, or that have
    holes, say nothing.

    Warns:
        MismatchedPhysicsWarning: naming both levels.
    """
    noise = problem.physics.noise_model
    channels = problem.img_size[0]
    if (
        not isinstance(noise, GaussianNoise | ZeroNoise)
        or measurements.ndim != 4
        or measurements.shape[1] != channels
        or channels not in (1, 3)
        or measurements[0, 0].numel() < ENOUGH
        or float((measurements == 0).float().mean()) > HOLES
    ):
        return
    said = float(noise.sigma) if isinstance(noise, GaussianNoise) else 0.0
    found = float(noise_level(measurements).median())
    if APART * found < said or found > APART * said + TEXTURE:
        warnings.warn(
            f"the measurements seem to have noise of level {found:.2g}, the problem is for "
            f"{said:.2g}: what is taken for signal is noise, or the other way round; set its noise "
            "to that of the measurements",
            MismatchedPhysicsWarning,
            stacklevel=3,
        )


def last_residual(run: PnPResult) -> Tensor | None:
    """||x_K - x_{K-1}|| / ||x_K|| of the last step that each image made, if it was recorded.

    None for a run of fewer than :data:`SETTLING` steps: whoever asks for a few steps does not
    expect them to settle.
    """
    if run.residual is None or run.residual.shape[1] < SETTLING:
        return None
    last = (run.iterations - 1).clamp_min(0)[:, None]
    return run.residual.gather(1, last)[:, 0].nan_to_num(0.0)


def flattest(images: Tensor) -> Tensor:
    """Mean square of the detail in the flattest blocks of images, ``(B,)``.

    Args:
        images: ``(B, C, H, W)``.
    """
    detail = images - F.avg_pool2d(F.pad(images, (1, 1, 1, 1), mode="replicate"), 3, 1)
    side = min(BLOCK, *images.shape[-2:])
    blocks = F.avg_pool2d(detail.square().mean(1, keepdim=True), side).flatten(1)
    rank = max(1, round(FLAT * blocks.shape[1]))
    return blocks.kthvalue(rank, dim=1).values


def noise_level(images: Tensor) -> Tensor:
    """Standard deviation of white noise in images, ``(B,)``.

    From the median of their finest diagonal Haar coefficients (Donoho and Johnstone, 1994).

    Args:
        images: ``(B, C, H, W)``; a last odd row or column is left out.
    """
    height, width = (n // 2 * 2 for n in images.shape[-2:])
    if not height or not width:
        return images.new_zeros(len(images))
    x = images[..., :height, :width]
    rows = x[..., ::2, :] - x[..., 1::2, :]
    diagonal = (rows[..., ::2] - rows[..., 1::2]) / 2
    level: Tensor = diagonal.flatten(1).abs().median(1).values / MEDIAN
    return level


def _outside(x: Tensor) -> Tensor:
    return _energy(x - x.clamp(0, 1))


def _energy(x: Tensor) -> Tensor:
    return (
        x.flatten(1).square().sum(1) if not x.is_complex() else x.abs().flatten(1).square().sum(1)
    )
