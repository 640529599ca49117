"""What a device is fast at, and how precise it is."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
T = TypeVar("T")


def bfloat16_is_fast(device: torch.device) -> bool:
    """Whether a device has instructions for bfloat16; where it is emulated, it is slow."""
    if device.type == "cpu":  # older versions of PyTorch do not tell
        known: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
        return bool(known.get("avx512_bf16") or known.get("amx_bf16"))
    return device.type == "cuda" and bool(torch.cuda.is_bf16_supported(including_emulation=False))


def finest(device: torch.device) -> torch.dtype:
    """The most precise numbers of a device: Apple's GPUs have no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def peak_memory_mb() -> float:
    """The most memory that this process has had, in MiB; macOS tells bytes, others KiB."""
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


@contextmanager
def full_precision() -> Iterator[None]:
    """Within the block a GPU does not round what it multiplies to TF32.

    Recent GPUs do so in convolutions unless told otherwise: 11 bits, a relative error of 5e-4.
    Trainings and reconstructions leave that to PyTorch's own settings. Whatever has a tolerance
    below it (inverses, eigenvalues) runs in this block.
    """
    cudnn: Any = torch.backends.cudnn
    matmul: Any = torch.backends.cuda.matmul
    places: list[tuple[Any, str, Any]]
    places = [(cudnn, "allow_tf32", False), (matmul, "allow_tf32", False)]
    try:
        before = [getattr(place, name) for place, name, _ in places]
    except RuntimeError:  # it was set by PyTorch's newer names, which must not be mixed with these
        places = [(part, "fp32_precision", "ieee") for part in (cudnn.conv, cudnn.rnn, matmul)]
        before = [getattr(place, name) for place, name, _ in places]
    for place, name, full in places:
        setattr(place, name, full)
    try:
        yield
    finally:
        for (place, name, _), kept in zip(places, before, strict=True):
            setattr(place, name, kept)


def without_autocast(function: Callable[P, T]) -> Callable[P, T]:
    """The function in the precision of its arguments, even where autocast is on."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        given = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        with torch.autocast(given[0].device.type if given else "cpu", enabled=False):
            return function(*args, **kwargs)

    return call
