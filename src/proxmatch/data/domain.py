"""A folder of images as square crops: fixed ones to measure on, random ones to train on."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from proxmatch.data import decoding, layouts
from proxmatch.data.decoding import Pixels
from proxmatch.data.layouts import Split
from proxmatch.errors import DataError, InputError, SkippedFilesWarning

Crop = Literal["auto", "center", "grid"]

#: Weights of red, green and blue in gray (ITU-R BT.601).
LUMA = torch.tensor([0.299, 0.587, 0.114])


@dataclass(frozen=True)
class _Picture:
    name: str
    digest: str
    height: int  # after downscaling
    width: int


class ImageDomain:
    """The images of a folder as crops ``(channels, size, size)``, float32 in [0, 1].

    How files are found, ordered and split: :mod:`proxmatch.data.layouts`. How they become pixels:
    :mod:`proxmatch.data.decoding`. Gray pictures are repeated for three channels; colors are
    weighted by ``LUMA`` for one.

    Opening decodes every picture once, the only way to know that a file is complete. Incomplete
    files, and pictures that are too small or too large, are left out with one
    ``SkippedFilesWarning`` that names them. Decoded pictures are kept, in their own 8 or 16 bits,
    up to ``cache_bytes``; the least recently used go first and are decoded again when needed.

    Args:
        root: the folder.
        size: side of a crop, in pixels after downscaling.
        split: ``train``, ``validation`` or ``test``; None for all pictures.
        crop: where crops lie. ``center``: at the center of every picture, in training too, for
            pictures that are aligned. ``grid``: on the largest centered grid of crops that do not
            overlap; anywhere in training. ``auto``: ``center`` for CelebA's layout, else ``grid``.
        downscale: factor of an area filter (the mean of square blocks, as scikit-image's
            ``downscale_local_mean``) applied before cropping; what is left over at the right and
            bottom is dropped.
        channels: 3 or 1.
        cache_bytes: memory for decoded pictures.

    Attributes:
        fingerprint: number of pictures, and hash of their names and contents. Where and when the
            files were stored does not matter.
        skipped: why each file was left out, by name.

    Raises:
        DataError: if there is no such folder, or no readable picture in it.

    Example:
        >>> from proxmatch.data import encode_image
        >>> Path("pictures").mkdir()
        >>> _ = Path("pictures", "wide.png").write_bytes(encode_image(torch.rand(3, 40, 70)))
        >>> domain = ImageDomain("pictures", 32)
        >>> domain
        ImageDomain(pictures: 2 crops of 32 x 32)
        >>> domain[0].shape
        torch.Size([3, 32, 32])
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        size: int,
        *,
        split: Split | None = None,
        crop: Crop = "auto",
        downscale: int = 1,
        channels: int = 3,
        cache_bytes: int = 2 * 2**30,
    ) -> None:
        if size < 1 or downscale < 1 or cache_bytes < 0:
            raise InputError(
                "size and downscale must be at least 1 and cache_bytes at least 0, not "
                f"{size}, {downscale} and {cache_bytes}"
            )
        if channels not in (1, 3):
            raise InputError(f"an image has 1 or 3 channels, not {channels}")
        if crop not in get_args(Crop):
            raise InputError(f"no crop {crop!r}; there are {', '.join(get_args(Crop))}")
        if split is not None and split not in get_args(Split):
            raise InputError(f"no split {split!r}; there are {', '.join(get_args(Split))}")
        layout = layouts.find(Path(root).expanduser(), split)
        self.size, self.split, self.downscale, self.channels = size, split, downscale, channels
        self.crop = ("center" if layout.aligned else "grid") if crop == "auto" else crop
        self.skipped: dict[str, str] = {}
        self._label = os.path.basename(os.path.abspath(root))
        self._folder = layout.folder
        self._cache = _Cache(cache_bytes)
        self._pictures: list[_Picture] = []
        for name in layout.names:
            try:
                self._pictures.append(self._opened(name))
            except DataError as error:
                self.skipped[name] = str(error)
        if not self._pictures:
            name, reason = next(iter(self.skipped.items()))
            raise DataError(
                f"none of the {len(self.skipped)} image(s) of {self._folder} can be used; "
                f"{name}: {reason}"
            )
        if self.skipped:
            warnings.warn(SkippedFilesWarning(self.skipped), stacklevel=2)
        self.fingerprint = _fingerprint(self._pictures)
        self._crops = [
            (index, top, left)
            for index, picture in enumerate(self._pictures)
            for top, left in self._places(picture)
        ]

    def __len__(self) -> int:
        return len(self._crops)

    def __getitem__(self, index: int) -> Tensor:
        """Crop ``index``: ``(channels, size, size)``. Crops follow the order of the pictures."""
        return self._cut(*self._crops[index])

    def __repr__(self) -> str:
        split = f", {self.split}" if self.split else ""
        return f"ImageDomain({self._label}{split}: {len(self)} crops of {self.size} x {self.size})"

    def name(self, index: int) -> str:
        """The file of crop ``index``; on a grid also its top and left, as ``file@top,left``."""
        picture, top, left = self._crops[index]
        place = f"@{top},{left}" if self.crop == "grid" else ""
        return self._pictures[picture].name + place

    def tensor(self, indices: Iterable[int] | None = None) -> Tensor:
        """Crops, ``(N, channels, size, size)``; all of them if ``indices`` is None."""
        chosen = range(len(self)) if indices is None else indices
        crops = [self[index] for index in chosen]
        return torch.stack(crops) if crops else torch.empty(0, self.channels, self.size, self.size)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Crops for training, ``(count, channels, size, size)``, decided by the generator alone.

        All pictures are equally likely, and so are all places in a picture (see ``crop``); half of
        the crops are mirrored left to right.
        """
        if count < 1:
            raise InputError(f"a sample has at least 1 crop, not {count}")
        draws = torch.rand(count, 4, generator=generator, dtype=torch.float64)
        crops = []
        for which, down, right, mirror in draws.tolist():
            index = int(which * len(self._pictures))
            picture = self._pictures[index]
            if self.crop == "center":
                [(top, left)] = self._places(picture)
            else:
                top = int(down * (picture.height - self.size + 1))
                left = int(right * (picture.width - self.size + 1))
            cut = self._cut(index, top, left)
            crops.append(cut.flip(-1) if mirror < 0.5 else cut)
        return torch.stack(crops)

    def describe(self) -> dict[str, Any]:
        """What a record of an experiment needs, ready for JSON. No path but the folder's name."""
        return {
            "folder": self._label,
            "split": self.split,
            "pictures": len(self._pictures),
            "crops": len(self),
            "fingerprint": self.fingerprint,
            "size": self.size,
            "crop": self.crop,
            "downscale": self.downscale,
            "channels": self.channels,
            "skipped": dict(self.skipped),
        }

    def _opened(self, name: str) -> _Picture:
        pixels, digest = decoding.load(self._folder / name)
        height, width = (side // self.downscale for side in pixels.shape[:2])
        if min(height, width) < self.size:
            side = self.size * self.downscale
            raise DataError(
                f"{pixels.shape[1]} x {pixels.shape[0]} pixels; a crop needs {side} x {side}"
            )
        self._cache.put(name, pixels)
        return _Picture(name, digest, height, width)

    def _places(self, picture: _Picture) -> list[tuple[int, int]]:
        """Top and left of the fixed crops of a picture."""
        single = self.crop == "center"
        rows = 1 if single else picture.height // self.size
        columns = 1 if single else picture.width // self.size
        top = (picture.height - rows * self.size) // 2
        left = (picture.width - columns * self.size) // 2
        return [
            (top + row * self.size, left + column * self.size)
            for row in range(rows)
            for column in range(columns)
        ]

    def _cut(self, index: int, top: int, left: int) -> Tensor:
        pixels = self._pixels(self._pictures[index])
        size, factor = self.size, self.downscale
        rows = slice(top * factor, (top + size) * factor)
        columns = slice(left * factor, (left + size) * factor)
        block = pixels[rows, columns].reshape(size * factor, size * factor, -1)
        image = torch.from_numpy(block.transpose(2, 0, 1).astype(np.float32, order="C"))
        if factor > 1:
            image = torch.nn.functional.avg_pool2d(image, factor)
        if len(image) == 3 and self.channels == 1:
            image = torch.tensordot(LUMA, image, 1)[None]
        image = (image / np.iinfo(pixels.dtype).max).clamp_(max=1)  # rounding may pass 1
        return image.expand(self.channels, -1, -1).contiguous()

    def _pixels(self, picture: _Picture) -> Pixels:
        pixels = self._cache.get(picture.name)
        if pixels is None:
            try:
                pixels, digest = decoding.load(self._folder / picture.name)
            except DataError as error:
                raise DataError(f"{picture.name} can no longer be read: {error}") from error
            if digest != picture.digest:
                raise DataError(
                    f"{picture.name} changed since the domain was opened: open it again"
                )
            self._cache.put(picture.name, pixels)
        return pixels


class _Cache:
    """Arrays by name, at most ``limit`` bytes of them: the least recently used go first."""

    def __init__(self, limit: int) -> None:
        self._limit, self._used = limit, 0
        self._arrays: OrderedDict[str, Pixels] = OrderedDict()

    def get(self, name: str) -> Pixels | None:
        if name in self._arrays:
            self._arrays.move_to_end(name)
        return self._arrays.get(name)

    def put(self, name: str, array: Pixels) -> None:
        if array.nbytes > self._limit:
            return
        self._arrays[name] = array
        self._used += array.nbytes
        while self._used > self._limit:
            self._used -= self._arrays.popitem(last=False)[1].nbytes


def _fingerprint(chosen: list[_Picture]) -> str:
    digest = hashlib.sha256()
    for picture in chosen:
        digest.update(os.fsencode(picture.name) + b"\0" + picture.digest.encode())
    return f"{len(chosen)}-{digest.hexdigest()[:16]}"
