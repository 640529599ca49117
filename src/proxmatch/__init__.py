"""Plug-and-play reconstruction with proximal denoisers, in and out of their domain.

The names below are the ones most work needs. Everything else is in the package of its topic, such
as ``proxmatch.transforms`` or ``proxmatch.problems``. Names and packages are loaded when they are
first used, so that ``import proxmatch`` is cheap.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

#: Silent unless a program asks for it: logging.basicConfig(level="INFO").
logging.getLogger("proxmatch").addHandler(logging.NullHandler())

_HOME = {
    "GradientStep": "denoisers",
    "ImageDomain": "data",
    "Problem": "problems",
    "ProximalDenoiser": "denoisers",
    "adapt": "learning",
    "align": "transforms",
    "certify": "theory",
    "choose_strength": "transforms",
    "diagnose": "diagnosis",
    "embedded": "data",
    "few_shot": "data",
    "gaussian_deblurring": "problems",
    "jacobian_spectrum": "denoisers",
    "load": "denoisers",
    "make_problem": "problems",
    "pnp_pgd": "pnp",
    "read_image": "data",
    "reconstruct": "reconstruction",
    "reproduce": "experiments.reproduction",
    "save": "denoisers",
    "save_image": "data",
    "train": "learning",
}
__all__ = list(_HOME)
_ROOMS = (
    "baselines",
    "data",
    "denoisers",
    "diagnosis",
    "errors",
    "learning",
    "losses",
    "metrics",
    "pnp",
    "problems",
    "reconstruction",
    "theory",
    "transforms",
)

if TYPE_CHECKING:
    from proxmatch import (
        baselines as baselines,
        data as data,
        denoisers as denoisers,
        diagnosis as diagnosis,
        errors as errors,
        learning as learning,
        losses as losses,
        metrics as metrics,
        pnp as pnp,
        problems as problems,
        reconstruction as reconstruction,
        theory as theory,
        transforms as transforms,
    )
    from proxmatch.data import (
        ImageDomain as ImageDomain,
        embedded as embedded,
        few_shot as few_shot,
        read_image as read_image,
        save_image as save_image,
    )
    from proxmatch.denoisers import (
        GradientStep as GradientStep,
        ProximalDenoiser as ProximalDenoiser,
        jacobian_spectrum as jacobian_spectrum,
        load as load,
        save as save,
    )
    from proxmatch.diagnosis import diagnose as diagnose
    from proxmatch.experiments.reproduction import reproduce as reproduce
    from proxmatch.learning import adapt as adapt, train as train
    from proxmatch.pnp import pnp_pgd as pnp_pgd
    from proxmatch.problems import (
        Problem as Problem,
        gaussian_deblurring as gaussian_deblurring,
        make_problem as make_problem,
    )
    from proxmatch.reconstruction import reconstruct as reconstruct
    from proxmatch.theory import certify as certify
    from proxmatch.transforms import align as align, choose_strength as choose_strength

if not TYPE_CHECKING:  # a type checker would take any name for granted

    def __getattr__(name: str) -> Any:
        if name in _ROOMS:
            return import_module(f"proxmatch.{name}")
        if name not in _HOME:
            raise AttributeError(f"module 'proxmatch' has no attribute {name!r}")
        return getattr(import_module(f"proxmatch.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, *_ROOMS, "__version__"]
