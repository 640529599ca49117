r"""A denoiser of one size made into one of any size, without losing the proximal map.

For patches P_p of an image and weights w_p > 0,

    h(x) = sum_p w_p Psi(P_p x),    D(x) = grad h(x) = sum_p w_p P_p^T grad Psi(P_p x)

is a sum of convex functions and its gradient: the overlap-add of the patch outputs. D denoises (is
close to the identity on clean images) and stays alpha-strongly convex if sum_p w_p P_p^T P_p = Id.
Overlapping tilings of the image do that exactly: each tiling covers every pixel once. Where an
image is no multiple of the patch size, a strip narrower than a patch is reflected back and forth
until it fills one. A strip whose width divides the patch size s shows each of its pixels s / width
times, so that w_p = width / s makes up for it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

#: Number of shifted tilings in each direction: neighbouring patches overlap by half.
TILINGS = 2


def _strips(width: int, size: int) -> list[int]:
    """Widths that divide ``size`` and add up to ``width`` < ``size``, largest first."""
    widths = []
    while width > 0:
        widest = next(w for w in range(min(width, size), 0, -1) if size % w == 0)
        widths.append(widest)
        width -= widest
    return widths


def _reflected(start: int, width: int, size: int) -> list[int]:
    """Indices of ``size`` pixels that run back and forth over ``width`` pixels from ``start``."""
    wave = [*range(width), *range(width - 1, -1, -1)]
    return [start + wave[k % len(wave)] for k in range(size)]


def tilings(length: int, size: int) -> tuple[list[list[int]], list[float]]:
    """Every patch of every tiling along one axis: its pixels, and its weight.

    Args:
        length: pixels along the axis.
        size: pixels along a patch.

    Returns:
        The ``size`` indices of each patch, and weights w with sum_p w_p P_p^T P_p = Id.
    """
    if length == size:
        return [list(range(size))], [1.0]
    indices, weights = [], []
    for k in range(TILINGS):
        shift = min(k * size // TILINGS, length)
        whole = (length - shift) // size
        widths = [
            *reversed(_strips(shift, size)),
            *[size] * whole,
            *_strips(length - shift - whole * size, size),
        ]
        start = 0
        for width in widths:
            indices.append(_reflected(start, width, size))
            weights.append(width / size / TILINGS)
            start += width
    return indices, weights


@lru_cache(maxsize=16)
def _layout(height: int, width: int, size: int) -> tuple[Tensor, Tensor]:
    """Flat pixel indices ``(P, size, size)`` and weights ``(P,)`` of all patches of an image."""
    rows, row_weights = (torch.tensor(t) for t in tilings(height, size))
    cols, col_weights = (torch.tensor(t) for t in tilings(width, size))
    index = rows[:, None, :, None] * width + cols[None, :, None, :]
    weight = row_weights.double()[:, None] * col_weights.double()[None, :]
    return index.reshape(-1, size, size), weight.reshape(-1)


def _batches(x: Tensor, size: int, most: int) -> list[tuple[Tensor, Tensor]]:
    index, weight = _layout(*x.shape[-2:], size)
    step = max(1, most // x.shape[0])
    index, weight = index.to(x.device), weight.to(x)
    return list(zip(torch.split(index, step), torch.split(weight, step), strict=True))


def _gather(x: Tensor, index: Tensor) -> Tensor:
    """P x: ``(B, C, H, W)`` -> ``(B * P, C, size, size)``."""
    patches = x.flatten(2)[:, :, index]
    return patches.transpose(1, 2).flatten(0, 1)


def patch_gradient(
    x: Tensor, size: int, gradient: Callable[..., Tensor], most: int, *more: Tensor
) -> Tensor:
    """sum_p w_p P_p^T gradient(P_p x), the shape of x.

    Args:
        x: images, ``(B, C, H, W)``.
        size: height and width of a patch.
        gradient: map of patches ``(N, C, size, size)``, given those of x and of each of ``more``.
        most: patches handled at once (at least one of every image of the batch).
        more: further tensors of the shape of x to be cut alike.
    """
    out = torch.zeros_like(x).flatten(2)
    for index, weight in _batches(x, size, most):
        patches = gradient(*(_gather(t, index) for t in (x, *more)))
        patches = patches.view(x.shape[0], len(weight), *patches.shape[1:]).transpose(1, 2)
        weighted = patches * weight.view(-1, 1, 1)
        out = out.index_add(2, index.flatten(), weighted.flatten(2))
    return out.view_as(x)


def patch_potential(
    x: Tensor, size: int, potential: Callable[[Tensor], Tensor], most: int
) -> Tensor:
    """h(x) = sum_p w_p Psi(P_p x), ``(B,)``; arguments as in :func:`patch_gradient`."""
    total = x.new_zeros(x.shape[0])
    for index, weight in _batches(x, size, most):
        total = total + potential(_gather(x, index)).view(x.shape[0], -1) @ weight
    return total
