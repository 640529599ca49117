"""The losses by name: what settings, presets and methods may ask for.

A loss is a function of the output and the target, ``(B, C, H, W)`` each, that returns one number
per image, ``(B,)``. A loss that is ``scaled`` also takes gamma per pixel, and is used as it is; the
others are divided by the number of pixels. :func:`register_loss` makes a loss known everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor

from proxmatch.errors import InputError

F = TypeVar("F", bound=Callable[..., Tensor])


@dataclass(frozen=True)
class NamedLoss:
    """One loss.

    Attributes:
        name: in settings.
        help: what it is.
        value: the function.
        scaled: it takes gamma.
    """

    name: str
    help: str
    value: Callable[..., Tensor]
    scaled: bool


LOSSES: dict[str, NamedLoss] = {}


def register_loss(name: str, help: str, *, scaled: bool = False) -> Callable[[F], F]:
    """Make a loss known by a name.

    Example:
        >>> @register_loss("cubed", "cubed error")
        ... def cubed(output, target):
        ...     return (output - target).abs().pow(3).flatten(1).sum(1)
        >>> LOSSES["cubed"].help
        'cubed error'
        >>> del LOSSES["cubed"]
    """
    if name in LOSSES:
        raise InputError(f"there is a loss {name!r} already; choose another name")

    def decorate(value: F) -> F:
        LOSSES[name] = NamedLoss(name, help, value, scaled)
        return value

    return decorate


def loss_named(name: Any) -> NamedLoss:
    """A loss by its name.

    Raises:
        InputError: there is none of that name.

    Example:
        >>> import proxmatch.losses
        >>> loss_named("pm").help
        'proximal matching'
    """
    if name not in LOSSES:
        raise InputError(f"no loss {name!r}; there are {', '.join(LOSSES)}")
    return LOSSES[name]
