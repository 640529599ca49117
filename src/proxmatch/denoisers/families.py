"""The families of denoisers, each named once.

A family is a :class:`~proxmatch.denoisers.base.ProximalDenoiser` that is made from a ``config``.
To add one, write its module and name it here: saving, loading, training, adapting and reporting
ask the denoiser itself for the rest. Families are imported when they are first needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, get_type_hints

from pydantic import BaseModel

from proxmatch.errors import InputError

if TYPE_CHECKING:
    from proxmatch.denoisers.base import ProximalDenoiser

#: What a checkpoint calls a family, where it lives, and its class there.
FAMILIES = {
    "lpn": ("proxmatch.denoisers.lpn", "LPN"),
    "scaled-lpn": ("proxmatch.denoisers.scaled_lpn", "ScaledLPN"),
    "gradient-step": ("proxmatch.denoisers.gradient_step", "GradientStep"),
    "ridge": ("proxmatch.denoisers.ridge.family", "Ridge"),
    "wiener": ("proxmatch.baselines.wiener", "Wiener"),
}


def family(name: str) -> type[ProximalDenoiser]:
    """The class of a family.

    Raises:
        InputError: there is no such family.
    """
    if name not in FAMILIES:
        raise InputError(f"no family {name!r}; there are {', '.join(FAMILIES)}")
    module, kind = FAMILIES[name]
    found: type[ProximalDenoiser] = getattr(import_module(module), kind)
    return found


def name_of(denoiser: ProximalDenoiser) -> str | None:
    """What a checkpoint calls the family of a denoiser; None if it belongs to none."""
    place = (type(denoiser).__module__, type(denoiser).__qualname__)
    return next((name for name, home in FAMILIES.items() if home == place), None)


def config_of(name: str) -> type[BaseModel]:
    """The class of the configuration that a family is made from."""
    found: type[BaseModel] = get_type_hints(family(name))["config"]
    return found


def new(config: BaseModel, **parts: object) -> ProximalDenoiser:
    """A denoiser of the family that a configuration is for, with weights drawn at random.

    Args:
        config: its layout.
        parts: what a configuration cannot hold: the ``network`` of a user's own class.

    Example:
        >>> from proxmatch.denoisers import LPNConfig
        >>> type(new(LPNConfig())).__name__
        'LPN'
    """
    for name in FAMILIES:
        if type(config) is config_of(name):
            kind: Any = family(name)
            made: ProximalDenoiser = kind(config, **parts)
            return made
    raise InputError(f"{type(config).__name__} is not the configuration of any family")
