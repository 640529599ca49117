"""Plug-and-play reconstruction with proximal denoisers, in and out of their domain.

The names below are loaded when they are first used, so that ``import proxmatch`` is cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "LPN": "denoisers",
    "LPNConfig": "denoisers",
    "GradientStep": "denoisers",
    "GradientStepConfig": "denoisers",
    "ProximalDenoiser": "denoisers",
    "import_checkpoint": "denoisers",
    "import_network": "denoisers",
    "lipschitz": "denoisers",
    "load": "denoisers",
    "save": "denoisers",
    "shipped": "denoisers",
    "smooth": "denoisers",
    "Problem": "problems",
    "gaussian_deblurring": "problems",
    "super_resolution": "problems",
    "compressed_sensing": "problems",
    "denoising": "problems",
    "inpainting": "problems",
    "make_problem": "problems",
    "motion_deblurring": "problems",
    "PnPResult": "pnp",
    "pnp_pgd": "pnp",
    "Reconstruction": "reconstruction",
    "reconstruct": "reconstruction",
    "Diagnosis": "diagnosis",
    "diagnose": "diagnosis",
    "ImageDomain": "data",
    "embedded": "data",
    "few_shot": "data",
    "AdaptationResult": "learning",
    "TrainingSettings": "learning",
    "adapt": "learning",
    "adaptation_settings": "learning",
    "train": "learning",
    "Aligned": "transforms",
    "Lifted": "transforms",
    "Relaxed": "transforms",
    "Symmetrized": "transforms",
    "align": "transforms",
    "choose_strength": "transforms",
    "colour_statistics": "transforms",
    "choose_strength_from_measurements": "transforms",
    "statistics_from_measurements": "transforms",
    "Wiener": "baselines",
    "no_denoiser": "baselines",
    "total_variation": "baselines",
    "wiener": "baselines",
    "Certificate": "theory",
    "certify": "theory",
    "Reproduction": "experiments.reproduce",
    "reproduce": "experiments.reproduce",
}

if TYPE_CHECKING:
    from proxmatch.baselines import Wiener, no_denoiser, total_variation, wiener
    from proxmatch.data import ImageDomain, embedded, few_shot
    from proxmatch.denoisers import (
        LPN,
        GradientStep,
        GradientStepConfig,
        LPNConfig,
        ProximalDenoiser,
        import_checkpoint,
        import_network,
        lipschitz,
        load,
        save,
        shipped,
        smooth,
    )
    from proxmatch.diagnosis import Diagnosis, diagnose
    from proxmatch.experiments.reproduce import Reproduction, reproduce
    from proxmatch.learning import (
        AdaptationResult,
        TrainingSettings,
        adapt,
        adaptation_settings,
        train,
    )
    from proxmatch.pnp import PnPResult, pnp_pgd
    from proxmatch.problems import (
        Problem,
        compressed_sensing,
        denoising,
        gaussian_deblurring,
        inpainting,
        make_problem,
        motion_deblurring,
        super_resolution,
    )
    from proxmatch.reconstruction import Reconstruction, reconstruct
    from proxmatch.theory import Certificate, certify
    from proxmatch.transforms import (
        Aligned,
        Lifted,
        Relaxed,
        Symmetrized,
        align,
        choose_strength,
        choose_strength_from_measurements,
        colour_statistics,
        statistics_from_measurements,
    )

__all__ = [
    "LPN",
    "AdaptationResult",
    "Aligned",
    "Certificate",
    "Diagnosis",
    "GradientStep",
    "GradientStepConfig",
    "ImageDomain",
    "LPNConfig",
    "Lifted",
    "PnPResult",
    "Problem",
    "ProximalDenoiser",
    "Reconstruction",
    "Relaxed",
    "Reproduction",
    "Symmetrized",
    "TrainingSettings",
    "Wiener",
    "adapt",
    "adaptation_settings",
    "align",
    "certify",
    "choose_strength",
    "choose_strength_from_measurements",
    "colour_statistics",
    "compressed_sensing",
    "denoising",
    "diagnose",
    "embedded",
    "few_shot",
    "gaussian_deblurring",
    "import_checkpoint",
    "import_network",
    "inpainting",
    "lipschitz",
    "load",
    "make_problem",
    "motion_deblurring",
    "no_denoiser",
    "pnp_pgd",
    "reconstruct",
    "reproduce",
    "save",
    "shipped",
    "smooth",
    "statistics_from_measurements",
    "super_resolution",
    "total_variation",
    "train",
    "wiener",
]


if not TYPE_CHECKING:  # a type checker would take any name for granted

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module 'proxmatch' has no attribute {name!r}")
        return getattr(import_module(f"proxmatch.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
