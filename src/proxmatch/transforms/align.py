r"""Alignment chosen from a few images: D'(x) = U^T (D(s U (x - m) + c) - c) / s + m.

- m is the mean color of the images, c that of the images D was trained on.
- U is the orthogonal factor of the polar decomposition of C_source^{1/2} C_target^{1/2}. It
  maximizes tr(U^T C_source^{1/2} C_target^{1/2}): among all rotations of the colors of the target
  it brings their standard deviations nearest to those of the source (orthogonal Procrustes).
- s is 0.5 unless given. No statistics give it: images of the same contrast as in the training would
  ask for sqrt(tr C_source / tr C_target), but an LPN out of its domain does better on flatter
  images, on which it is closer to linear. On 12 validation faces, one face to align to, deblurring
  and super-resolution at t = 1, an LPN trained on histology reaches

      s      0.2           0.3           0.5           0.7           1
      dB     24.1 / 21.5   24.6 / 21.9   23.8 / 21.2   23.7 / 21.2   11.9 / 8.6

  and a gradient-step denoiser the same within 0.3 dB for all of these.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from proxmatch.denoisers import AnyDenoiser
from proxmatch.errors import DegenerateStatisticsWarning, InputError
from proxmatch.transforms.aligned import Aligned, polar
from proxmatch.transforms.colors import ColorStatistics, color_statistics, colors_of
from proxmatch.transforms.fitting import fitted, fitting

SCALE = 0.5
#: Variance of rounding to 8 bits: less of it along some color says nothing.
ROUNDING = 1 / (12 * 255**2)


def align(
    denoiser: AnyDenoiser,
    images: Any,
    *,
    scale: float = SCALE,
    source: Tensor | ColorStatistics | None = None,
) -> Aligned:
    """Show a denoiser the images of another domain in the colors it knows; nothing is trained.

    Where the images do not vary along some color (they are flat, or gray in three channels), the
    rotation is not determined there, and the one nearest to the identity is taken.

    Args:
        denoiser: D, which is held and not changed; of any kind.
        images: of the new domain, ``(N, C, H, W)`` or in any form of
            :mod:`proxmatch.data.any_form`;
            or their statistics, such as
            :func:`~proxmatch.transforms.statistics_from_measurements` finds.
        scale: s.
        source: images D was trained on, or their statistics; from the record of D unless given.

    Raises:
        InputError: the channels do not fit, or the training colors of D are not known.

    Warns:
        DegenerateStatisticsWarning: the images, or those of the training, do not vary along every
            color.

    Example:
        >>> from proxmatch.denoisers import load
        >>> aligned = align(load("lpn-histology"), torch.rand(1, 3, 64, 64))
        >>> type(aligned).__name__
        'Aligned'
    """
    if isinstance(images, ColorStatistics):
        target, denoiser = images, fitting(denoiser, None)
    else:
        denoiser, images = fitted(denoiser, images)
        target = color_statistics(images)
    origin = colors_of(denoiser) if source is None else _statistics(source)
    if origin is None:
        raise InputError(
            "the record of this denoiser does not say which colors it was trained on, and they "
            "cannot be read off its weights; pass some of its training images, or their "
            "color_statistics, as source"
        )
    for name, colors in (("images", target), ("source", origin)):
        if colors.channels != denoiser.channels:
            hint = "; repeat gray images with .expand" if colors.channels == 1 else ""
            raise InputError(
                f"the colors of the {name} have {colors.channels} channel(s), the denoiser takes "
                f"{denoiser.channels}{hint}"
            )
        flat = _flat(colors)
        if flat:
            what = "any color" if flat == colors.channels else f"{flat} of their colors"
            warnings.warn(
                f"the {name} do not vary along {what}: only their mean is aligned there; give "
                "images of more variety",
                DegenerateStatisticsWarning,
                stacklevel=2,
            )
    aligned = Aligned(denoiser, scale, rotation(origin, target), target.mean, origin.mean)
    aligned.record = {"source": origin.to_json(), "target": target.to_json()}
    return aligned


def rotation(source: ColorStatistics, target: ColorStatistics) -> Tensor:
    """U, ``(C, C)``: the orthogonal polar factor of C_source^{1/2} C_target^{1/2}.

    Its determinant is 1, as that of a product of two positive matrices is positive. On a kernel of
    the product, U is the rotation nearest to the identity: the limit of adding e Id, e -> 0.
    """
    product: Tensor = _root(source.covariance) @ _root(target.covariance)
    return polar(product + 1e-3 * ROUNDING * torch.eye(len(product), dtype=product.dtype))


def _root(covariance: Tensor) -> Tensor:
    """The symmetric square root, of what exceeds rounding."""
    values, vectors = torch.linalg.eigh(covariance)
    root: Tensor = (vectors * values.where(values > ROUNDING, 0).sqrt()) @ vectors.T
    return root


def _flat(colors: ColorStatistics) -> int:
    """Along how many colors the images do not vary by more than rounding."""
    return int((torch.linalg.eigvalsh(colors.covariance) <= ROUNDING).sum())


def _statistics(images: Tensor | ColorStatistics) -> ColorStatistics:
    return images if isinstance(images, ColorStatistics) else color_statistics(images)
