r"""Denoisers applied in tiles, so that an image of any size needs the memory of one tile.

A convolutional denoiser sees only so far: D(x) at a pixel depends on x within its *reach*. A tile
with that much of the image around it gives, in its middle, what the whole image would give. So
tiling is **exact**, to rounding, for

- gradient-step denoisers: with r the reach of the network N, grad g = r - J_N^T r reaches 2 r;
- learned proximal networks of any size: one pass up and one down, 2 r as well.

Tiles begin at multiples of the strides, and end there or at the border of the image, so that each
is cut, padded and strided as it would be within the whole.

Nothing needs tiling where memory is bounded already: an LPN of fixed size works patch by patch
(:mod:`proxmatch.denoisers.patches`). A map without a reach cannot be tiled. A Wiener filter, for
example, transforms the image as a whole; it is left as it is, at the cost of a few copies of the
image. So is a network of unknown reach.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from proxmatch.denoisers.base import Linearization, ProximalDenoiser
from proxmatch.denoisers.networks import is_map
from proxmatch.denoisers.wrapped import Wrapped
from proxmatch.errors import InputError, ProxmatchWarning, TooLargeError

TILE = 512
SMALLEST = 32


class Tiled(Wrapped):
    """The same denoiser, applied tile by tile and image by image where images are large.

    Only :meth:`forward` is tiled, and it carries no graph: for reconstructing, not for training.

    Args:
        inner: D.
        tile: side of a tile without the margin around it, in pixels. If there is not enough memory,
            it is halved, with a warning, as often as necessary.

    Raises:
        InputError: a denoiser that cannot be tiled, or a tile that is too small.
    """

    def __init__(self, inner: ProximalDenoiser, tile: int = TILE) -> None:
        super().__init__(inner)
        found = inner.reach
        if found is None:
            raise InputError(f"{type(inner).__name__} cannot be applied in tiles")
        if tile < SMALLEST:
            raise InputError(f"a tile has at least {SMALLEST} pixels along a side, not {tile}")
        self.tile, self.seen, self.record = tile, found, inner.record

    @torch.no_grad()
    def forward(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """D(x), the shape of x."""
        self._check(x)
        while True:
            try:
                return self._tile_by_tile(x, sigma)
            except (RuntimeError, MemoryError) as error:
                if not _out_of_memory(error):
                    raise
                self._smaller(error)

    def potential(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """h(x), ``(B,)``, of whole images."""
        return self.inner.potential(x, sigma)

    def linearize(self, x: Tensor, sigma: float | Tensor | None = None) -> Linearization:
        """D(x) and v -> J_D(x) v, of whole images."""
        return self.inner.linearize(x, sigma)

    @property
    def smoothness(self) -> float:
        """L_H of D."""
        return self.inner.smoothness

    def _tile_by_tile(self, x: Tensor, sigma: float | Tensor | None) -> Tensor:
        height, width = x.shape[-2:]
        if max(height, width) <= self.tile + self.seen.margin:
            out: Tensor = self.inner(x, sigma)
            return out
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        levels = sigma if isinstance(sigma, Tensor) and sigma.ndim else None
        for b in range(len(x)):
            level = sigma if levels is None else levels[b % len(levels)][None]
            for rows, inside_rows, kept_rows in self._cuts(height):
                for cols, inside_cols, kept_cols in self._cuts(width):
                    here = level
                    if isinstance(level, Tensor) and is_map(level):
                        here = level[..., rows, cols]
                    piece = self.inner(x[b : b + 1, :, rows, cols], here)
                    out[b, :, kept_rows, kept_cols] = piece[0, :, inside_rows, inside_cols]
        return out

    def _cuts(self, length: int) -> list[tuple[slice, slice, slice]]:
        """Along one axis: what a tile reads, what of its output is kept, and where that goes."""
        multiple, margin = self.seen.multiple, self.seen.margin
        side = max(1, self.tile // multiple) * multiple
        cuts = []
        for start in range(0, length, side):
            end = min(start + side, length)
            first, last = max(0, start - margin), min(end + margin, length)
            cuts.append((slice(first, last), slice(start - first, end - first), slice(start, end)))
        return cuts

    def _smaller(self, error: Exception) -> None:
        if self.tile // 2 < SMALLEST:
            raise TooLargeError(
                f"not enough memory, even in tiles of {self.tile} pixels; free some memory, or "
                "cut the image"
            ) from error
        self.tile //= 2
        warnings.warn(
            f"not enough memory; going on with tiles of {self.tile} pixels",
            ProxmatchWarning,
            stacklevel=4,
        )


def tiled(denoiser: ProximalDenoiser, tile: int = TILE) -> ProximalDenoiser:
    """A denoiser for images of any size in bounded memory, where that is possible.

    Transforms stay as they are, around a :class:`Tiled` core.
    """
    if denoiser.core.reach is None:
        return denoiser
    whole = denoiser.with_core(Tiled(denoiser.core, tile))
    whole.train(denoiser.training)
    return whole


def _out_of_memory(error: Exception) -> bool:
    known = (MemoryError, torch.OutOfMemoryError)
    return isinstance(error, known) or "allocate memory" in str(error)
