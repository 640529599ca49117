"""Kernels and masks that are given as pictures of them, or as arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from proxmatch.data import decoding
from proxmatch.errors import DataError, InputError


def kernel_picture(file: str | Path) -> Tensor:
    """A kernel from a picture of it: its brightness, summing to one, ``(h, w)``.

    Raises:
        InputError: a file that is not a picture, or black everywhere.
    """
    pixels = _gray(file)
    if not bool(pixels.sum() > 0):
        raise InputError(f"the kernel in {file} is black everywhere")
    return pixels / pixels.sum()


def mask_picture(file: str | Path) -> Tensor:
    """A mask from a picture of it: measured where it is brighter than mid-gray, ``(H, W)``.

    Raises:
        InputError: a file that is not a picture.
    """
    return _gray(file) > 0.5


def as_tensor(array: np.ndarray[Any, Any]) -> Tensor:
    """An array of NumPy as a tensor: numbers in float32, truth values as they are."""
    found = torch.from_numpy(array)
    return found if found.dtype == torch.bool else found.float()


def _gray(file: str | Path) -> Tensor:
    try:
        pixels, _ = decoding.load(Path(file))
    except DataError as error:
        raise InputError(f"{file}: {error}") from error
    white = torch.iinfo(torch.uint8).max if pixels.dtype.itemsize == 1 else 65535
    gray = torch.from_numpy(pixels.astype("float64")) / white
    return gray.mean(2) if gray.ndim == 3 else gray
