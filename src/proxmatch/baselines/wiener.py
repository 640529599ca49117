r"""The Wiener filter of a domain: the best linear denoiser, and a proximal map.

Images are taken as Gaussian: independent along the principal axes of their colors (the rows of
Q) and the frequencies of the cosine transform C, with the variance S. The best estimate of x from
x + sigma n is then

    D(x) = m + Q^T C^T G C Q (x - m),    G = S / (S + sigma^2) = sigmoid(log(S / sigma^2)),

the gradient of h(x) = <x - m, D(x) - m> / 2 + <m, x>. J_D is symmetric with the eigenvalues G in
(0, 1), so that D is the proximal map of

    R(u) = 1/2 |(1 / G - 1)^{1/2} C Q (u - m)|^2 = sigma^2 / 2 |S^{-1/2} C Q (u - m)|^2.

With PnP-PGD it minimizes eta |A x - y|^2 / 2 + R: the exact posterior mean under that Gaussian
where sigma^2 is eta times the variance of the noise in y.

S is a function of the distance from frequency zero, given on a few knots, so that one image is
enough to fit it and any size of images will do. The logarithm of S / sigma^2 is the parameter: G is
in (0, 1) whatever it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn

from proxmatch._internal.constants import constant
from proxmatch.denoisers.base import Linearization, ProximalDenoiser
from proxmatch.denoisers.levels import Level
from proxmatch.errors import InputError
from proxmatch.problems import Problem
from proxmatch.transforms.align import ROUNDING
from proxmatch.transforms.colors import ColorStatistics, color_statistics
from proxmatch.transforms.measured_colors import EXPONENT
from proxmatch.transforms.strength import Tuned, tune

#: Cycles per pixel at the first and the last knot; the frequencies of an image end at sqrt(1/2).
LOWEST, HIGHEST = 2.0**-8, math.sqrt(0.5)
#: What :func:`wiener_filter` tries, from strong to weak.
SIGMAS = (0.3, 0.2, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01, 0.005)


class WienerConfig(BaseModel):
    """The fixed numbers of a Wiener filter; its parameters are ``log_snr``.

    Attributes:
        mean: m, the mean color, C numbers.
        axes: Q, orthogonal, C rows of C numbers.
        knots: number of frequencies the variances are given at, evenly spaced in log f.
        sigma: noise level it was fitted for.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    mean: tuple[float, ...] = Field(min_length=1)
    axes: tuple[tuple[float, ...], ...]
    knots: int = Field(16, ge=2)
    sigma: Level | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        c = len(self.mean)
        if len(self.axes) != c or any(len(row) != c for row in self.axes):
            raise ValueError(f"axes must be {c} rows of {c} numbers, as many as the mean has")
        axes = torch.tensor(self.axes, dtype=torch.float64)
        if not bool(((axes @ axes.T - torch.eye(c)).abs() <= 1e-12).all()):
            raise ValueError("axes must be orthogonal")
        return self


class Wiener(ProximalDenoiser):
    """A Wiener filter, isotropic, for images of any size.

    Args:
        config: mean, color axes and number of knots.

    Attributes:
        log_snr: log(S / sigma^2) of each color axis at each knot, ``(C, knots)``.
    """

    config: WienerConfig

    def __init__(self, config: WienerConfig) -> None:
        super().__init__(len(config.mean), config.sigma)
        self.config = config
        self.log_snr = nn.Parameter(torch.zeros(self.channels, config.knots))

    @classmethod
    def fit(cls, images: Tensor, sigma: float, knots: int = 16) -> Wiener:
        """The filter of given images at a noise level.

        Args:
            images: ``(N, C, H, W)``, N >= 1.
            sigma: standard deviation of the noise to remove.
            knots: number of frequencies the variances are given at.
        """
        if not 0 < sigma < math.inf:
            raise InputError(f"sigma must be positive and finite, got {sigma}")
        colors = color_statistics(images)
        axes = torch.linalg.eigh(colors.covariance)[1].T
        denoiser: Wiener = cls(
            WienerConfig(mean=colors.mean.tolist(), axes=axes.tolist(), knots=knots, sigma=sigma)
        ).to(images)
        with torch.no_grad():
            power = denoiser._analyze(images.detach() - denoiser._mean(images)).square().mean(0)
            lower, part = _knots(*images.shape[-2:], knots, torch.float64, torch.device("cpu"))
            lower, part = lower.flatten()[1:], part.flatten()[1:]  # without the mean of an image
            power = power.cpu().double().flatten(1)[:, 1:]
            total = torch.zeros(len(power), knots, dtype=torch.float64)
            weight = torch.zeros(knots, dtype=torch.float64)
            for index, share in ((lower, 1 - part), (lower + 1, part)):
                total.index_add_(1, index, share * power)
                weight.index_add_(0, index, share)
            seen = (weight > 1e-6).nonzero().flatten()
            if not len(seen):
                raise InputError("an image of one pixel has no spectrum; give larger images")
            # Knots below the lowest frequency of the images take the variance of the first above.
            # Periodic images lack low frequencies too.
            mean = total / weight.clamp_min(1e-6)
            lit = (mean[:, seen].amax(0) > ROUNDING).nonzero().flatten()
            seen = seen[int(lit[0]) :] if len(lit) else seen
            nearest = seen[torch.searchsorted(seen, torch.arange(knots)).clamp_max(len(seen) - 1)]
            variance = mean[:, nearest].clamp_min(ROUNDING)
            denoiser.log_snr.copy_((variance / sigma**2).log())
        denoiser.eval()
        return denoiser

    @classmethod
    def natural(
        cls, colors: ColorStatistics, sigma: float, size: tuple[int, int], knots: int = 16
    ) -> Wiener:
        """The filter of images with known colors and an assumed spectrum of 1 / f^2.5.

        Args:
            colors: mean and covariance of the colors.
            sigma: standard deviation of the noise to remove.
            size: (H, W) of the images that have this covariance.
            knots: number of frequencies the variances are given at.
        """
        values, vectors = torch.linalg.eigh(colors.covariance)
        config = WienerConfig(
            mean=colors.mean.tolist(), axes=vectors.T.tolist(), knots=knots, sigma=sigma
        )
        denoiser: Wiener = cls(config)
        places = torch.linspace(0, 1, knots, dtype=torch.float64)
        spectrum = -EXPONENT * (math.log(LOWEST) + places * math.log(HIGHEST / LOWEST))  # its log
        lower, part = _knots(*size, knots, torch.float64, torch.device("cpu"))
        power = (spectrum[lower] * (1 - part) + spectrum[lower + 1] * part).exp()
        power[0, 0] = 0  # the mean of an image is no part of its contrast
        variance = values.clamp_min(ROUNDING)[:, None] * spectrum.exp() / power.mean()
        with torch.no_grad():
            denoiser.log_snr.copy_((variance / sigma**2).log())
        denoiser.eval()
        return denoiser

    def forward(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """D(x) = m + Q^T C^T G C Q (x - m), the shape of x; the noise level is not used."""
        mean = self._mean(self._check(x))
        return mean + self._filter(x - mean, self._gain(x))

    def potential(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """<x - m, D(x) - m> / 2 + <m, x>, ``(B,)``."""
        mean = self._mean(self._check(x))
        centered = x - mean
        half = self._filter(centered, self._gain(x)) / 2
        return (centered * half + mean * x).flatten(1).sum(1)

    def linearize(self, x: Tensor, sigma: float | Tensor | None = None) -> Linearization:
        """D(x) and v -> Q^T C^T G C Q v, the same at every x."""
        with torch.no_grad():
            gain = self._gain(self._check(x))
            return self.forward(x.detach()), lambda v: self._filter(v.detach(), gain)

    @torch.no_grad()
    def draw(self, count: int, size: tuple[int, int], seed: int = 0) -> Tensor:
        """Images of the Gaussian that the filter is for, ``(count, C, H, W)``, of its mean color.

        Args:
            count: how many.
            size: (H, W).
            seed: another seed, another draw.
        """
        if self.sigma is None:
            raise InputError("images can be drawn if the noise level of the filter is known")
        generator = torch.Generator().manual_seed(seed)
        white = torch.randn(count, self.channels, *size, generator=generator).to(self.log_snr)
        spectrum = self.sigma**2 * self._log_snr(white).exp()
        spectrum[:, 0, 0] = 0
        return self._mean(white) + _composed(spectrum.sqrt() * white, self._axes(white))

    @torch.no_grad()
    def bands(self, x: Tensor) -> Tensor:
        """Energy of images, without their mean color, near the frequency of each knot.

        Args:
            x: ``(B, C, H, W)``.

        Returns:
            ``(B, knots)``.
        """
        lower, part = _knots(*x.shape[-2:], self.config.knots, x.dtype, x.device)
        power = self._analyze(x).square().sum(1)
        power[:, 0, 0] = 0
        energy = x.new_zeros(len(x), self.config.knots)
        return energy.index_add_(1, (lower + (part > 0.5)).flatten(), power.flatten(1))

    @property
    def smoothness(self) -> float:
        """L_H = 1 / min G, with the minimum over all frequencies of images of any size."""
        return 1 / float(self.log_snr.detach().cpu().double().min().sigmoid())

    def _preimage(self, u: Tensor, sigma: float | Tensor | None) -> Tensor:
        """D^{-1}(u) = m + Q^T C^T G^{-1} C Q (u - m)."""
        mean = self._mean(u)
        return mean + self._filter(u - mean, 1 / self._gain(u))

    def _gain(self, x: Tensor) -> Tensor:
        """G, ``(C, H, W)``."""
        return self._log_snr(x).sigmoid()

    def _log_snr(self, x: Tensor) -> Tensor:
        """log(S / sigma^2), ``(C, H, W)``: interpolated between the knots."""
        lower, part = _knots(*x.shape[-2:], self.config.knots, x.dtype, x.device)
        return self.log_snr[:, lower] * (1 - part) + self.log_snr[:, lower + 1] * part

    def _filter(self, x: Tensor, gain: Tensor) -> Tensor:
        return _filtered(x, self._axes(x), gain)

    def _analyze(self, x: Tensor) -> Tensor:
        return _coefficients(x, self._axes(x))

    def _axes(self, x: Tensor) -> Tensor:
        return constant(torch.tensor(self.config.axes, dtype=torch.float64), x)

    def _mean(self, x: Tensor) -> Tensor:
        return constant(torch.tensor(self.config.mean, dtype=torch.float64), x)[:, None, None]


class WienerOfEach:
    """A Wiener filter for each image of a batch, all applied together.

    Args:
        filters: B of them.
        like: images they are for, ``(B, C, H, W)``.
    """

    def __init__(self, filters: Sequence[Wiener], like: Tensor) -> None:
        exact = torch.float64
        self.mean = torch.tensor([f.config.mean for f in filters], dtype=exact).to(like)
        self.axes = torch.tensor([f.config.axes for f in filters], dtype=exact).to(like)
        self.gain = torch.stack([f.to(like)._gain(like).detach() for f in filters])

    def __call__(self, x: Tensor, which: Tensor) -> Tensor:
        """D_i(x_i).

        Args:
            x: some of the images, ``(b, C, H, W)``.
            which: their numbers i, ``(b,)``.
        """
        mean, axes, gain = self.mean, self.axes, self.gain
        if len(which) < len(gain):
            mean, axes, gain = mean[which], axes[which], gain[which]
        mean = mean[..., None, None]
        return mean + _filtered(x - mean, axes, gain)


def _filtered(x: Tensor, axes: Tensor, gain: Tensor) -> Tensor:
    """Q^T C^T G C Q x, with one Q and G, or one for each image."""
    return _composed(gain * _coefficients(x, axes), axes)


def _composed(coefficients: Tensor, axes: Tensor) -> Tensor:
    """Q^T C^T: the opposite of :func:`_coefficients`."""
    rows, cols = (
        _cosines(n, coefficients.dtype, coefficients.device) for n in coefficients.shape[-2:]
    )
    return torch.einsum("...ji,...jhw->...ihw", axes, rows.T @ coefficients @ cols)


def _coefficients(x: Tensor, axes: Tensor) -> Tensor:
    """C Q x: coefficients along the color axes at the frequencies, the shape of x."""
    rows, cols = (_cosines(n, x.dtype, x.device) for n in x.shape[-2:])
    return rows @ torch.einsum("...ij,...jhw->...ihw", axes, x) @ cols.T


def wiener_filter(
    images: Any,
    problem: Problem,
    *,
    sigmas: Sequence[float] = SIGMAS,
    iterations: int | None = None,
    seed: int = 0,
) -> Tuned[Wiener]:
    """The Wiener filter of given images, with sigma chosen for a problem by simulating it on them.

    Args:
        images: of the problem's size, ``(N, C, H, W)``, or in any form of
            :mod:`proxmatch.data.any_form`.
        problem: what to reconstruct from.
        sigmas: values to try, in order.
        iterations: PnP steps, if not those of the problem.
        seed: of the simulated noise.

    Example:
        >>> from proxmatch.problems import denoising
        >>> flat = torch.full((1, 1, 8, 8), 0.5)
        >>> problem = denoising(8, noise=0.1, channels=1, iterations=4)
        >>> wiener_filter(flat, problem, sigmas=(0.2, 0.01)).chosen.strength
        0.2
    """
    images = problem.batch(images)
    fit = partial(Wiener.fit, images)
    return tune(fit, sigmas, images, problem, iterations=iterations, seed=seed)


@lru_cache(maxsize=8)
@torch.inference_mode(False)  # what is cached must serve any caller
def _cosines(n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The orthonormal cosine transform (DCT-II), ``(n, n)``, found in float64.

    deepinv's ``dct`` is normalized in float32, so its transpose is its inverse only to float32.
    """
    k, i = torch.arange(n, dtype=torch.float64)[:, None], torch.arange(n, dtype=torch.float64)
    matrix = (torch.pi / n * (i + 0.5) * k).cos() * math.sqrt(2 / n)
    matrix[0] /= math.sqrt(2)
    return matrix.to(device, dtype)


@lru_cache(maxsize=8)
@torch.inference_mode(False)
def _knots(
    height: int, width: int, knots: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Between which knots each frequency lies, and how far from the lower one: ``(H, W)`` each."""
    rows, cols = (torch.arange(n, dtype=torch.float64) / (2 * n) for n in (height, width))
    frequency = (rows[:, None].square() + cols.square()).sqrt().clamp_min(LOWEST)
    place = (frequency / LOWEST).log() / math.log(HIGHEST / LOWEST) * (knots - 1)
    lower = place.long().clamp(max=knots - 2)
    return lower.to(device), (place - lower).to(device, dtype)
