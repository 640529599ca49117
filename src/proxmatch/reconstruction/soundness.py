r"""Has a run ruined the picture? What the run itself shows of its error, without the truth.

x_0 is the start, x the result, y the measurements of N pixels in all channels. Three parts of the
error of x need no truth, each a mean square over the pixels:

- **misfit**: what x leaves unexplained, (|Ax - y|^2 - E|noise|^2)_+ / (kappa N), with kappa the
  mean of |Av|^2 / |v|^2 over random images v of a natural spectrum: what a mean square of pixels
  becomes in the measurements. The energy of the noise is that of one simulated measurement of x, so
  that any noise model will do.
- **noise**: the detail in x where it is flattest, less that in x_0: the mean square of x minus its
  3 x 3 mean, over that fifth of the blocks of 8 x 8 pixels where it is smallest. There is no
  texture to speak of, so what the run has added there is noise.
- **range**: the squared distance of x from [0, 1], where the truth is, less that of x_0.

And x is compared with x_G, a linear reconstruction that knows the colors and the spectrum of the
picture (:mod:`proxmatch.reconstruction.linear`). :mod:`proxmatch.reconstruction.signs` judges.
"""

from __future__ import annotations

import warnings

import torch
import torch.nn.functional as F
from deepinv.optim import L2
from deepinv.physics import GaussianNoise, ZeroNoise
from torch import Tensor

from proxmatch.errors import MismatchedPhysicsWarning
from proxmatch.pnp import PnPResult
from proxmatch.problems import Problem
from proxmatch.problems.measuring import with_noise
from proxmatch.reconstruction.linear import reconstruct_linearly
from proxmatch.reconstruction.signs import Examination
from proxmatch.transforms.measured_colors import textures

#: Blocks in which the detail of an image is measured, and the share of them that is flat.
BLOCK, FLAT = 8, 0.2
#: By what factor two noise levels must differ to count as different, beyond what texture explains.
APART, TEXTURE = 3.0, 0.05
#: Smallest number of pixels for which noise is estimated.
ENOUGH = 32 * 32
#: Share of exact zeros from which a picture counts as having holes.
HOLES = 0.05
#: Random images that kappa is the mean over.
TEXTURES = 2
#: The median of |g| for a standard Gaussian g.
MEDIAN = 0.6745
#: Pixels of the largest picture that is reconstructed linearly.
LARGE = 1 << 20
#: Steps after which a run should have settled.
SETTLING = 20


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
    pixels = images[0].numel()
    # First what needs the most memory, before anything else is held.
    clean = problem.physics.A(images.clamp(0, 1))
    noise = _energy(with_noise(problem.physics, clean, range(len(clean)), 0) - clean)
    del clean
    kappa = _passed(problem)
    start = problem.initial(measurements) if start is None else start

    def misfit(x: Tensor, noise: Tensor) -> Tensor:
        left = _energy(problem.physics.A(x) - measurements)
        return (left - noise).clamp_min(0) / (kappa * pixels)

    compared = _compared(images, start, measurements, problem, noise / measurements[0].numel())
    return Examination(
        change=_energy(images - start) / pixels,
        misfit=misfit(images, noise),
        start_misfit=misfit(start, noise),
        noise=(flattest(images) - flattest(start)).clamp_min(0),
        range=(_outside(images) - _outside(start)).clamp_min(0) / pixels,
        far=compared[0],
        start_far=compared[1],
        missed=compared[2],
        reach=compared[3],
        residual=torch.zeros_like(noise) if residual is None else residual.to(noise),
    )


def _passed(problem: Problem) -> float:
    """The share kappa of the energy of random images that the operator lets pass."""
    images = torch.split(textures(problem, TEXTURES), 1)
    energies = torch.cat([_energy(problem.physics.A(v)) for v in images])
    return float(energies.sum() / torch.cat([_energy(v) for v in images]).sum())


def _compared(x: Tensor, start: Tensor, y: Tensor, problem: Problem, variance: Tensor) -> Tensor:
    """|x - x_G|^2, |x_0 - x_G|^2, |e|^2 and sum |d_b| |e_b|, over N: ``(4, B)``.

    As if x were x_G where a linear reconstruction is not worth its time.
    """
    change = _energy(x - start)
    zero = torch.zeros_like(change)
    size = problem.img_size[1:]
    if not isinstance(problem.data_fidelity, L2) or size[0] * size[1] > LARGE:
        return torch.stack([zero, change, zero, zero]) / x[0].numel()
    linear = reconstruct_linearly(y, problem, start, variance)
    bands = [p.bands((x - start)[i : i + 1]) for i, p in enumerate(linear.priors)]
    far, start_far = (_energy(v - linear.images) for v in (x, start))
    reach = (torch.cat(bands) * linear.missed).sqrt().sum(1)
    return torch.stack([far, start_far, linear.missed.sum(1), reach]) / x[0].numel()


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

    None for a run of fewer than :data:`SETTLING` steps, which is not expected to settle.
    """
    if run.residual is None or run.residual.shape[1] < SETTLING:
        return None
    last = (run.iterations - 1).clamp_min(0)[:, None]
    return run.residual.gather(1, last)[:, 0].nan_to_num(0.0)


def flattest(images: Tensor) -> Tensor:
    """Mean square of the detail in the flattest blocks of images, ``(B,)``."""
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
