"""The problems by name, with their options as text, for a command line or a table of experiments.

make_problem("super-resolution", 64, ["factor=2", "noise=0.01"])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from proxmatch.errors import InputError
from proxmatch.problems.image_sizes import Size
from proxmatch.problems.problem import Problem
from proxmatch.problems.registration import PROBLEMS, RegisteredProblem, check_options, unknown


def entry(name: str) -> RegisteredProblem:
    """A problem of the catalog.

    Raises:
        InputError: there is none of that name; the message lists the names.
    """
    if name not in PROBLEMS:
        raise InputError(f"no problem {name!r}; there are {', '.join(sorted(PROBLEMS))}")
    return PROBLEMS[name]


def options(name: str, given: Iterable[str]) -> dict[str, Any]:
    """All options of a problem, such as ``factor=2``, as arguments of the builder.

    Args:
        name: of the problem.
        given: ``key=value`` each.

    Raises:
        InputError: an option that the problem does not have, one that it needs and that is not
            given, or a value that cannot be read.
    """
    found = _read(name, given)
    check_options(name, found)
    return found


def make_problem(
    name: str, size: Size, given: Iterable[str] | Mapping[str, Any] = (), **common: Any
) -> Problem:
    """A problem by name.

    Args:
        name: one of ``PROBLEMS``.
        size: side length of the images, or (H, W).
        given: options, as texts such as ``factor=2`` or as a mapping.
        common: further arguments of the builder: options, ``channels``, ``device``, ``dtype``,
            ``iterations``.

    Example:
        >>> import torch
        >>> problem = make_problem("super-resolution", 32, ["factor=2"])
        >>> problem.measure(torch.rand(1, 3, 32, 32)).shape
        torch.Size([1, 3, 16, 16])
    """
    read = dict(given) if isinstance(given, Mapping) else _read(name, given)
    return entry(name).build(size, **read, **common)


def image_side(name: str, measured: tuple[int, int], given: Mapping[str, Any]) -> tuple[int, int]:
    """(H, W) of the images whose measurements are ``measured`` pixels high and wide."""
    side = entry(name).side
    if side is not None:
        return side(measured)
    factor = reduction(name, given)
    return measured[0] * factor, measured[1] * factor


def reduction(name: str, given: Mapping[str, Any]) -> int:
    """How many pixels of an image become one measured pixel, along each side."""
    known = entry(name)
    if known.factor is None:
        return 1
    factor = int(given.get(known.factor, known.options[known.factor].default))
    if factor < 1:
        raise InputError(f"{known.factor} of {name} is at least 1, got {factor}")
    return factor


def _read(name: str, given: Iterable[str]) -> dict[str, Any]:
    known = entry(name).options
    found: dict[str, Any] = {}
    for text in given:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or key not in known:
            raise unknown(name, text)
        if key in found:
            raise InputError(f"{key} is given twice")
        try:
            found[key] = known[key].read(value)
        except InputError:
            raise
        except (ValueError, OSError) as error:
            raise InputError(f"{key}={value!r} cannot be read: {error}") from error
    return found
