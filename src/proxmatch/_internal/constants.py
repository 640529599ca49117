"""Small constants on the device of the images, sent there once and not at every call."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor


def constant(numbers: Tensor, like: Tensor) -> Tensor:
    """A few numbers in the precision and on the device of a tensor."""
    shape = tuple(numbers.shape)
    return _placed(tuple(numbers.flatten().tolist()), shape, numbers.dtype, like.dtype, like.device)


@lru_cache(maxsize=256)
@torch.inference_mode(False)  # what is kept must serve any caller
def _placed(
    numbers: tuple[float, ...],
    shape: tuple[int, ...],
    exact: torch.dtype,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    return torch.tensor(numbers, dtype=exact).view(shape).to(device, dtype)
