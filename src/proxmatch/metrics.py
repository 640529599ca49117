"""Image quality and the distance between denoisers, one number per image.

The rule, stated once: before PSNR and SSIM **both images are clipped to [0, 1]**, because PnP
iterates leave that range and the picture that is saved does not; the peak is 1. SSIM is that of
torchmetrics through deepinv: an 11 x 11 Gaussian window of standard deviation 1.5, images mirrored
at their borders (the edge pixel is not repeated), K1 = 0.01, K2 = 0.03, mean over all pixels and
channels. PSNR is that of deepinv, written out because it is taken at every PnP step: 1e-8 is added
to the mean squared error, so that it stops at 80 dB and is 0.0004 dB low at 40 dB.

Distances and gaps are taken on the images as they are.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from proxmatch.data.any_form import check_brightness, image_batch
from proxmatch.errors import InputError

SSIM_WINDOW = 11
GAP_FLOOR = 1e-12
PSNR_FLOOR = 1e-8


@cache
def _ssim() -> Any:
    from deepinv.loss.metric import SSIM  # with torchmetrics, as slow to import as torch itself

    return SSIM(max_pixel=1.0, norm_inputs="clip")


def psnr(x: Any, truth: Any) -> Tensor:
    """Peak signal-to-noise ratio in dB, ``(B,)``.

    Args:
        x: images, ``(B, C, H, W)``, or in another form of :mod:`proxmatch.data.any_form`.
        truth: what they should be, the same shape.

    Raises:
        InputError: the shapes differ, a tensor is not floating point, or white is not 1.

    Example:
        >>> truth = torch.zeros(2, 3, 8, 8)
        >>> psnr(truth + 0.1, truth).round()  # -10 log10(0.1^2)
        tensor([20., 20.])
    """
    x, truth = _pair(x, truth)
    return decibels(x.clamp(0, 1).sub_(truth.clamp(0, 1)))


def decibels(error: Tensor) -> Tensor:
    """PSNR of images whose clipped difference is ``error``, ``(B,)``.

    Example:
        >>> decibels(torch.full((1, 3, 8, 8), 0.01)).round()
        tensor([40.])
    """
    return -10 * torch.log10(norm(error).square() / error[0].numel() + PSNR_FLOOR)


def ssim(x: Any, truth: Any) -> Tensor:
    """Structural similarity, ``(B,)``; 1 for equal images.

    Args:
        x: images, as in :func:`psnr`, at least 11 pixels high and wide.
        truth: what they should be, the same shape.

    Raises:
        InputError: the shapes differ, a tensor is not floating point, or smaller than the window.

    Example:
        >>> x = torch.rand(2, 3, 16, 16)
        >>> ssim(x, x).round(decimals=3)
        tensor([1., 1.])
    """
    x, truth = _pair(x, truth)
    if min(x.shape[-2:]) < SSIM_WINDOW:
        raise InputError(
            f"SSIM needs images of at least {SSIM_WINDOW} x {SSIM_WINDOW} pixels, got "
            f"{x.shape[-2]} x {x.shape[-1]}; use PSNR for smaller ones"
        )
    value: Tensor = _ssim()(x, truth)
    return value


def distance(a: Tensor, b: Tensor) -> Tensor:
    """Euclidean distance ||a - b|| of each image, ``(B,)``.

    Example:
        >>> distance(torch.ones(2, 1, 2, 2), torch.zeros(2, 1, 2, 2))
        tensor([2., 2.])
    """
    return norm(a - b)


def norm(x: Tensor) -> Tensor:
    """Euclidean norm of each image, ``(B,)``.

    Example:
        >>> norm(torch.ones(2, 1, 3, 3))
        tensor([3., 3.])
    """
    value: Tensor = torch.linalg.vector_norm(x, dim=tuple(range(1, x.ndim)))
    return value


def relative_gap(output: Tensor, reference: Tensor) -> Tensor:
    """||D(z) - D*(z)|| / max(||D*(z)||, 1e-12), ``(B,)``: the gap of two denoisers at a query z.

    Args:
        output: D(z), ``(B, C, H, W)``.
        reference: D*(z), the same shape.

    Example:
        >>> relative_gap(torch.full((1, 1, 2, 2), 1.5), torch.ones(1, 1, 2, 2))
        tensor([0.5000])
    """
    return distance(output, reference) / norm(reference).clamp_min(GAP_FLOOR)


def _pair(x: Any, truth: Any) -> tuple[Tensor, Tensor]:
    """Two batches of images that can be compared; tensors are taken as they are."""
    if not (isinstance(x, Tensor) and isinstance(truth, Tensor)):
        x, truth = image_batch(x), image_batch(truth)
    if x.ndim != 4 or x.shape != truth.shape:
        raise InputError(
            f"expected two batches of images of one shape (B, C, H, W), got {tuple(x.shape)} "
            f"and {tuple(truth.shape)}"
        )
    if not (x.is_floating_point() and truth.is_floating_point()):
        raise InputError(
            f"images must be floating point in [0, 1], got {x.dtype} and {truth.dtype}; "
            "divide 8-bit images by 255"
        )
    check_brightness(truth)
    return x, truth
