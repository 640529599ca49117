"""What a learned prior has to beat: no denoiser, a linear filter, total variation."""

from typing import Any

from proxmatch.baselines.identity import Identity, no_denoiser
from proxmatch.baselines.total_variation import TotalVariation, total_variation
from proxmatch.baselines.wiener import Wiener, WienerConfig, wiener_filter

#: Functions that choose each baseline for a problem on given images, by its name in tables.
BASELINES: dict[str, Any] = {"none": no_denoiser, "wiener": wiener_filter, "tv": total_variation}

__all__ = [
    "BASELINES",
    "Identity",
    "TotalVariation",
    "Wiener",
    "WienerConfig",
    "no_denoiser",
    "total_variation",
    "wiener_filter",
]
