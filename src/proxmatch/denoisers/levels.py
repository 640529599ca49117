"""What may be given as a noise level: a positive number, or one for each image or pixel."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from numbers import Real
from typing import Annotated, Any, TypeVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from proxmatch.denoisers.networks import is_map
from proxmatch.errors import InputError, LevelWarning

NONE = (
    "this denoiser has no noise levels: it was made for one strength and cannot be told another; "
    "leave the level out, and choose its strength t instead (choose_strength)"
)

#: One noise level in a configuration.
Level = Annotated[float, Field(gt=0, allow_inf_nan=False)]

T = TypeVar("T")

#: Warnings that were given already, where they are given once.
_given: ContextVar[set[str] | None] = ContextVar("given", default=None)


def as_level(sigma: Any, x: Tensor) -> float | Tensor | None:
    """A noise level for images, as a number or a tensor; None stays None.

    Args:
        sigma: a number, or a sequence, an array or a tensor with one number, or one for each image,
            or a map, ``(B, 1, H, W)``. The values of a tensor on another device than the CPU are
            not looked at, which would wait for the device.
        x: the images, one along the first dimension.

    Raises:
        InputError: it is none of these, not positive, or not one for each image.

    Example:
        >>> as_level([0.1, 0.2], torch.zeros(2, 1, 8, 8))
        tensor([0.1000, 0.2000])
    """
    if sigma is None:
        return None
    if _is_number(sigma):
        return number(sigma)
    given = isinstance(sigma, Tensor)
    level = sigma if given else _listed(sigma)
    if level.dtype == torch.bool or level.is_complex():
        raise InputError(f"a noise level is a positive number, not one of {level.dtype}")
    if not is_map(level) and (level.numel() == 0 or level.numel() not in (1, len(x))):
        raise InputError(
            f"{level.numel()} noise levels for {len(x)} images; give one, or one for each"
        )
    if level.device.type == "cpu":
        lowest, highest = extremes(level)
        if not 0 < lowest <= highest < float("inf"):
            raise InputError(f"a noise level is a positive number, not {sigma}")
    return level if given else level.to(x.device, x.dtype)


def number(sigma: Any) -> float:
    """One noise level for all images.

    Raises:
        InputError: it is not a positive number.
    """
    if not _is_number(sigma) or not 0 < sigma < float("inf"):
        raise InputError(f"a noise level is a positive number, not {sigma!r}")
    return float(sigma)


def extremes(level: float | Tensor) -> tuple[float, float]:
    """The lowest and the highest of noise levels."""
    if not isinstance(level, Tensor):
        return level, level
    lowest, highest = level.detach().aminmax()
    return float(lowest), float(highest)


def checked_levels(method: Callable[..., T]) -> Callable[..., T]:
    """A method of a denoiser, ``(x, ..., sigma)``, that gets a noise level of :func:`as_level`."""
    names = list(inspect.signature(method).parameters)
    if "sigma" not in names:
        return method
    place = names.index("sigma")

    @wraps(method)
    def call(*args: Any, **named: Any) -> T:
        x = args[1] if len(args) > 1 else named.get(names[1])
        if isinstance(x, Tensor) and x.ndim == 4:  # other images are refused by the method
            if named.get("sigma") is not None:
                named["sigma"] = as_level(named["sigma"], x)
            elif len(args) > place and args[place] is not None:
                level = as_level(args[place], x)
                args = (*args[:place], level, *args[place + 1 :])
        return method(*args, **named)

    return call


@contextmanager
def told_once() -> Iterator[None]:
    """Within the block :func:`warn` gives each warning once, however often a denoiser is called."""
    known = _given.get()
    token = _given.set(set() if known is None else known)
    try:
        yield
    finally:
        _given.reset(token)


def warn(message: str) -> None:
    """Warn of a noise level."""
    known = _given.get()
    if known is not None:
        if message in known:
            return
        known.add(message)
    warnings.warn(message, LevelWarning, stacklevel=5)


def _is_number(sigma: Any) -> bool:
    return isinstance(sigma, Real) and not isinstance(sigma, bool)


def _listed(sigma: Any) -> Tensor:
    """Numbers of a sequence or an array, on the CPU."""
    try:
        values = np.asarray(sigma)
    except (TypeError, ValueError, RuntimeError):  # ragged, or tensors of another device
        values = np.asarray(None)
    if values.dtype.kind not in "fiu":
        raise InputError(
            f"a noise level is a positive number, or a sequence with one for each image, not "
            f"{sigma!r}"
        )
    return torch.from_numpy(values.astype(np.float64))
