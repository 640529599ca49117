"""The problems by name, with their options as text, for a command line or a table of experiments.

make_problem("super-resolution", 64, ["factor=2", "noise=0.01"])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from proxmatch.errors import DataError, InputError
from proxmatch.problems.compressed_sensing import compressed_sensing
from proxmatch.problems.deblurring import gaussian_deblurring
from proxmatch.problems.denoising import denoising
from proxmatch.problems.inpainting import inpainting
from proxmatch.problems.motion import motion_deblurring
from proxmatch.problems.problem import Problem
from proxmatch.problems.super_resolution import super_resolution


@dataclass(frozen=True)
class Entry:
    """A problem that can be asked for by name.

    Attributes:
        build: ``(size, channels=..., device=..., dtype=..., **options) -> Problem``.
        options: what each option is read with.
        about: what it is, in a few words.
        pictures: whether its measurements are pictures, which can come from files.
    """

    build: Callable[..., Problem]
    options: Mapping[str, Callable[[str], Any]]
    about: str
    pictures: bool = True


def _kernel(file: str) -> Tensor:
    """A kernel from a picture of it: its brightness, summing to one, ``(h, w)``."""
    pixels = _grey(file)
    if not bool(pixels.sum() > 0):
        raise InputError(f"the kernel in {file} is black everywhere")
    return pixels / pixels.sum()


def _mask(file: str) -> Tensor:
    """A mask from a picture of it: measured where it is brighter than mid-grey, ``(H, W)``."""
    return _grey(file) > 0.5


def _grey(file: str) -> Tensor:
    from proxmatch.data import pictures

    try:
        pixels, _ = pictures.load(Path(file))
    except DataError as error:
        raise InputError(f"{file}: {error}") from error
    white = torch.iinfo(torch.uint8).max if pixels.dtype.itemsize == 1 else 65535
    grey = torch.from_numpy(pixels.astype("float64")) / white
    return grey.mean(2) if grey.ndim == 3 else grey


_STEPS: dict[str, Callable[[str], Any]] = {"noise": float, "eta": float}
_GAUSSIAN: dict[str, Callable[[str], Any]] = {**_STEPS, "kernel_size": int, "kernel_sigma": float}

PROBLEMS: dict[str, Entry] = {
    "deblurring": Entry(gaussian_deblurring, _GAUSSIAN, "a Gaussian blur"),
    "super-resolution": Entry(
        super_resolution, {**_GAUSSIAN, "factor": int}, "a Gaussian blur, then every 4th pixel"
    ),
    "motion-deblurring": Entry(
        motion_deblurring,
        {**_STEPS, "kernel": _kernel, "length": int, "angle": float, "seed": int},
        "a stroke, a random path or the picture of a kernel",
    ),
    "inpainting": Entry(
        inpainting,
        {**_STEPS, "keep": float, "seed": int, "mask": _mask},
        "missing pixels, at random or by the picture of a mask",
    ),
    "denoising": Entry(denoising, _STEPS, "white noise"),
    "compressed-sensing": Entry(
        compressed_sensing, {**_STEPS, "share": float}, "a single-pixel camera", pictures=False
    ),
}


def entry(name: str) -> Entry:
    """A problem of the catalogue.

    Raises:
        InputError: there is none of that name; it says which there are.
    """
    if name not in PROBLEMS:
        raise InputError(f"no problem {name!r}; there are {', '.join(PROBLEMS)}")
    return PROBLEMS[name]


def options(name: str, given: Iterable[str]) -> dict[str, Any]:
    """Options such as ``factor=2`` as arguments of the builder.

    Args:
        name: of the problem.
        given: ``key=value`` each.

    Raises:
        InputError: an option that the problem does not have, or a value that cannot be read.
    """
    known = entry(name).options
    found: dict[str, Any] = {}
    for text in given:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or key not in known:
            raise InputError(f"{text!r} is no option of {name}; there are {_listed(known)}")
        if key in found:
            raise InputError(f"{key} is given twice")
        try:
            found[key] = known[key](value)
        except InputError:
            raise
        except (ValueError, OSError) as error:
            raise InputError(f"{key}={value!r} cannot be read: {error}") from error
    return found


def make_problem(
    name: str,
    size: int | tuple[int, int],
    given: Iterable[str] | Mapping[str, Any] = (),
    **common: Any,
) -> Problem:
    """A problem by name.

    Args:
        name: one of ``PROBLEMS``.
        size: side length of the images, or (H, W).
        given: options as text, or already read.
        common: further arguments of the builder: ``channels``, ``device``, ``dtype``,
            ``iterations``.

    Example:
        >>> problem = make_problem("super-resolution", 32, ["factor=2"])
        >>> problem.measure(torch.rand(1, 3, 32, 32)).shape
        torch.Size([1, 3, 16, 16])
    """
    read = dict(given) if isinstance(given, Mapping) else options(name, given)
    return entry(name).build(size, **read, **common)


def image_side(name: str, measured: tuple[int, int], given: Mapping[str, Any]) -> tuple[int, int]:
    """(H, W) of the images whose measurements are pictures of ``measured`` pixels."""
    factor = reduction(name, given)
    return measured[0] * factor, measured[1] * factor


def reduction(name: str, given: Mapping[str, Any]) -> int:
    """How many pixels of an image become one of its measurements, along each side."""
    factor = int(given.get("factor", 4)) if name == "super-resolution" else 1
    if factor < 1:
        raise InputError(f"the factor of a super-resolution is at least 1, got {factor}")
    return factor


def _listed(known: Iterable[str]) -> str:
    return ", ".join(f"{key}=..." for key in known)
