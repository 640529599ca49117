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

from collections.abc import Callable, Iterator
from functools import lru_cache

import torch
from torch import Tensor

#: Number of shifted tilings in each direction: neighboring patches overlap by half.
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
def _axis(length: int, size: int) -> tuple[Tensor, Tensor]:
    """:func:`tilings` as tensors: indices ``(P, size)`` and weights ``(P,)``."""
    indices, weights = tilings(length, size)
    return torch.tensor(indices), torch.tensor(weights, dtype=torch.float64)


def _tiles(x: Tensor, size: int, most: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Images and patches, at most ``most`` at once.

    Yields:
        The images, flat pixel indices ``(P, size, size)`` of some patches, their weights ``(P,)``.
    """
    height, width = x.shape[-2:]
    (rows, row_weights), (cols, col_weights) = _axis(height, size), _axis(width, size)
    images = min(len(x), most)
    pairs = torch.cartesian_prod(torch.arange(len(rows)), torch.arange(len(cols)))
    for start in range(0, len(x), images):
        for i, j in (pair.T for pair in torch.split(pairs, max(1, most // images))):
            index = rows[i][:, :, None] * width + cols[j][:, None, :]
            weight = row_weights[i] * col_weights[j]
            yield slice(start, start + images), index.to(x.device), weight.to(x)


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
        most: patches handled at once.
        more: further tensors of the shape of x to be cut alike.
    """
    out = torch.zeros_like(x, memory_format=torch.contiguous_format).flatten(2)
    for images, index, weight in _tiles(x, size, most):
        patches = gradient(*(_gather(t[images], index) for t in (x, *more)))
        patches = patches.view(-1, len(weight), *patches.shape[1:]).transpose(1, 2)
        weighted = patches * weight.view(-1, 1, 1)
        out[images].index_add_(2, index.flatten(), weighted.flatten(2))
    return out.view(x.shape)


def patch_potential(
    x: Tensor, size: int, potential: Callable[[Tensor], Tensor], most: int
) -> Tensor:
    """h(x) = sum_p w_p Psi(P_p x), ``(B,)``; arguments as in :func:`patch_gradient`."""
    total = x.new_zeros(x.shape[0])
    for images, index, weight in _tiles(x, size, most):
        values = potential(_gather(x[images], index)).view(-1, len(weight))
        total[images] += values @ weight
    return total
