"""The colors of a set of images: their mean and covariance over pixels.

For three channels these are 12 numbers (the covariance is symmetric, so 9 of them count), for gray
images two. They are all that :func:`proxmatch.transforms.align` needs to know about a domain, and
few enough to be estimated from one image, or from measurements alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from proxmatch.data.any_form import check_brightness, image_batch
from proxmatch.denoisers.base import ProximalDenoiser
from proxmatch.errors import InputError
from proxmatch.transforms.aligned import Aligned
from proxmatch.transforms.lifted import Lifted
from proxmatch.transforms.transformed import Transformed

#: Where a record keeps the colors of the training images.
RECORD = "colors"


@dataclass(frozen=True, eq=False)
class ColorStatistics:
    """Mean and covariance of the colors of a domain, in units of the image.

    Attributes:
        mean: ``(C,)``, float64.
        covariance: ``(C, C)``, float64, symmetric and positive semidefinite.

    Raises:
        InputError: the two do not fit each other, are not finite, or the second is not a
            covariance.
    """

    mean: Tensor
    covariance: Tensor

    def __post_init__(self) -> None:
        c, covariance = len(self.mean), self.covariance
        if self.mean.ndim != 1 or covariance.shape != (c, c):
            raise InputError(
                f"color statistics need a mean (C,) and a covariance (C, C), got "
                f"{tuple(self.mean.shape)} and {tuple(covariance.shape)}"
            )
        if not bool(self.mean.isfinite().all() and covariance.isfinite().all()):
            raise InputError("the color statistics hold NaN or infinity")
        size = float(covariance.abs().max())
        if float((covariance - covariance.T).abs().max()) > 1e-6 * size:
            raise InputError("the covariance of the colors is not symmetric")
        if float(torch.linalg.eigvalsh(covariance)[0]) < -1e-6 * size:
            raise InputError("the covariance of the colors has a negative eigenvalue")

    @property
    def channels(self) -> int:
        """C."""
        return len(self.mean)

    def to_json(self) -> dict[str, Any]:
        """Lists of numbers, for a record."""
        return {"mean": self.mean.tolist(), "covariance": self.covariance.tolist()}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> ColorStatistics:
        """The opposite of :meth:`to_json`.

        Raises:
            InputError: the content is not what ``to_json`` makes.
        """
        try:
            mean, covariance = (
                torch.tensor(content[key], dtype=torch.float64) for key in ("mean", "covariance")
            )
            return cls(mean, covariance)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"these are not color statistics: {error}") from error


def color_statistics(images: Any) -> ColorStatistics:
    """Mean and covariance of the colors of all pixels of all images.

    Args:
        images: ``(N, C, H, W)``, N >= 1, or in any form of :mod:`proxmatch.data.any_form`.

    Example:
        >>> color_statistics(torch.full((1, 3, 4, 4), 0.5)).mean
        tensor([0.5000, 0.5000, 0.5000], dtype=torch.float64)
    """
    pixels = _pixels(images if isinstance(images, Tensor) else image_batch(images))
    covariance = torch.cov(pixels, correction=0).reshape(len(pixels), len(pixels))
    return ColorStatistics(pixels.mean(1), covariance)


def colors_of(denoiser: ProximalDenoiser) -> ColorStatistics | None:
    """The colors of the images a denoiser is for, or None if they are not known.

    A network has them in its record, under ``colors``, from its training. For an :class:`Aligned`
    denoiser they are the colors that A x = s U (x - m) + c maps to those of the inner denoiser:
    mean A^{-1} c', covariance U^T C U / s^2. For one lifted to gray images they are those of the
    mean over the channels; how the channels of a stack vary together is not known.

    Example:
        >>> from proxmatch.denoisers import load
        >>> colors_of(load("lpn-faces")).channels
        3
    """
    if isinstance(denoiser, Aligned):
        inner = colors_of(denoiser.inner)
        if inner is None:
            return None
        back = denoiser.rotation.T / denoiser.scale
        mean = back @ (inner.mean - denoiser.center) + denoiser.mean
        return ColorStatistics(mean, back @ inner.covariance @ back.T)
    if isinstance(denoiser, Lifted):
        inner = colors_of(denoiser.inner)
        if inner is None or denoiser.channels > 1:
            return None
        gray = torch.full_like(inner.mean, 1 / (inner.channels * denoiser.scale))[None]
        return ColorStatistics(gray @ inner.mean + denoiser.low, gray @ inner.covariance @ gray.T)
    if isinstance(denoiser, Transformed):
        return colors_of(denoiser.inner)
    content = denoiser.record.get(RECORD)
    return None if content is None else ColorStatistics.from_json(content)


def _pixels(images: Tensor) -> Tensor:
    """``(C, N H W)``, float64, on the CPU."""
    if images.ndim != 4 or images.numel() == 0:
        raise InputError(f"expected images of shape (N, C, H, W), got {tuple(images.shape)}")
    if not images.is_floating_point() or not bool(images.isfinite().all()):
        raise InputError(
            f"the images must be finite and floating point, got {images.dtype}; divide 8-bit "
            "images by 255"
        )
    check_brightness(images)
    return images.detach().to("cpu", torch.float64).transpose(0, 1).flatten(1)
