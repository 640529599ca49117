r"""A denoiser of one size made into one of any size, without losing the proximal map.

For patches P_p x = A_p x + b_p of an image and weights w_p > 0,

    h(x) = sum_p w_p (Psi(P_p x) - <b_p, A_p x>)
    D(x) = grad h(x) = sum_p w_p A_p^T (grad Psi(P_p x) - b_p)

is a sum of convex functions and its gradient: the overlap-add of the patch outputs. D denoises (is
close to the identity on clean images) and stays alpha-strongly convex if sum_p w_p A_p^T A_p = Id.
Overlapping tilings of the image do that exactly: each tiling covers every pixel once. Where an
image is no multiple of the patch size, a strip narrower than a patch is reflected back and forth
until it fills one. That shows some of its pixels m times and others m + 1 times: w_p = 1 / m makes
up for it, and the contrast (the distance to gray) of the others is multiplied by sqrt(m / (m + 1)),
which leaves their noise below the level that the network knows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

#: Number of shifted tilings in each direction: neighboring patches overlap by half, or nearly.
TILINGS = 2
#: The gray value that a change of contrast leaves as it is.
GRAY = 0.5


def _widths(length: int, size: int) -> list[list[int]]:
    """The widths of the patches of every tiling along one axis, from left to right."""
    rest = length % size
    found = [[size] * (length // size) + [rest]]
    if size / 4 <= rest <= 3 * size / 4:  # from the other end, whose cuts are far from those
        return [*found, found[0][::-1]]
    for k in range(1, TILINGS):
        shift = min(k * size // TILINGS, length)
        found.append([shift, *[size] * ((length - shift) // size), (length - shift) % size])
    return found


def _reflected(start: int, width: int, size: int) -> list[int]:
    """Indices of ``size`` pixels that run back and forth over ``width`` pixels from ``start``."""
    wave = [*range(width), *range(width - 1, -1, -1)]
    return [start + wave[k % len(wave)] for k in range(size)]


def tilings(length: int, size: int) -> tuple[list[list[int]], list[list[float]], list[float]]:
    """Every patch of every tiling along one axis: its pixels, their contrast, and its weight.

    Returns:
        The ``size`` indices of each patch, as many factors of contrast, and weights w with
        sum_p w_p A_p^T A_p = Id.
    """
    if length == size:
        return [list(range(size))], [[1.0] * size], [1.0]
    indices, contrasts, weights = [], [], []
    for widths in _widths(length, size):
        start = 0
        for width in filter(None, widths):
            shown = _reflected(start, width, size)
            times = Counter(shown)
            fewest = min(times.values())
            indices.append(shown)
            contrasts.append([math.sqrt(fewest / times[i]) for i in shown])
            weights.append(1 / fewest / TILINGS)
            start += width
    return indices, contrasts, weights


@lru_cache(maxsize=16)
def _axis(length: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """:func:`tilings` as tensors: indices and contrasts ``(P, size)``, weights ``(P,)``."""
    indices, contrasts, weights = tilings(length, size)
    exact = torch.float64
    return (
        torch.tensor(indices),
        torch.tensor(contrasts, dtype=exact),
        torch.tensor(weights, dtype=exact),
    )


@dataclass(frozen=True)
class _Tiles:
    """Some patches of some images."""

    images: slice  # which images
    index: Tensor  # flat pixel indices, (P, size, size)
    contrast: Tensor  # of these pixels, the same shape
    weight: Tensor  # of the patches, (P,)

    def linear(self, x: Tensor) -> Tensor:
        """A x: ``(B, C, H, W)`` -> ``(B * P, C, size, size)``."""
        patches = x[self.images].flatten(2)[:, :, self.index] * self.contrast
        return patches.transpose(1, 2).flatten(0, 1)

    def offset(self, patches: Tensor) -> Tensor:
        """B, as many as there are patches."""
        number = len(patches) // len(self.weight)
        return (GRAY * (1 - self.contrast)).repeat(number, 1, 1)[:, None]


def _tiles(x: Tensor, size: int, most: int) -> Iterator[_Tiles]:
    """Images and patches, at most ``most`` at once."""
    height, width = x.shape[-2:]
    rows, row_contrasts, row_weights = _axis(height, size)
    cols, col_contrasts, col_weights = _axis(width, size)
    images = min(len(x), most)
    pairs = torch.cartesian_prod(torch.arange(len(rows)), torch.arange(len(cols)))
    for start in range(0, len(x), images):
        for i, j in (pair.T for pair in torch.split(pairs, max(1, most // images))):
            index = rows[i][:, :, None] * width + cols[j][:, None, :]
            contrast = row_contrasts[i][:, :, None] * col_contrasts[j][:, None, :]
            weight = row_weights[i] * col_weights[j]
            part = slice(start, start + images)
            yield _Tiles(part, index.to(x.device), contrast.to(x), weight.to(x))


def patch_gradient(
    x: Tensor, size: int, gradient: Callable[..., Tensor], most: int, *more: Tensor
) -> Tensor:
    """sum_p w_p A_p^T (gradient(P_p x) - b_p), the shape of x.

    Args:
        x: images, ``(B, C, H, W)``.
        size: height and width of a patch.
        gradient: map of patches ``(N, C, size, size)``, given those of x and of each of ``more``.
        most: patches handled at once.
        more: directions, of the shape of x. What is found is then a derivative along them, from
            which no b_p is subtracted.
    """
    out = torch.zeros_like(x, memory_format=torch.contiguous_format).flatten(2)
    for tiles in _tiles(x, size, most):
        patches = tiles.linear(x)
        offset = tiles.offset(patches)
        patches = gradient(patches + offset, *map(tiles.linear, more))
        patches = patches if more else patches - offset
        patches = patches.view(-1, len(tiles.weight), *patches.shape[1:]).transpose(1, 2)
        weighted = patches * (tiles.weight.view(-1, 1, 1) * tiles.contrast)
        out[tiles.images].index_add_(2, tiles.index.flatten(), weighted.flatten(2))
    return out.view(x.shape)


def patch_potential(
    x: Tensor, size: int, potential: Callable[[Tensor], Tensor], most: int
) -> Tensor:
    """h(x) = sum_p w_p (Psi(P_p x) - <b_p, A_p x>), ``(B,)``; see :func:`patch_gradient`."""
    total = x.new_zeros(x.shape[0])
    for tiles in _tiles(x, size, most):
        patches = tiles.linear(x)
        offset = tiles.offset(patches)
        values = potential(patches + offset) - (offset * patches).flatten(1).sum(1)
        total[tiles.images] += values.view(-1, len(tiles.weight)) @ tiles.weight
    return total
