"""What a learned prior has to beat: no denoiser, a linear filter, total variation."""

from proxmatch.baselines.identity import Identity, no_denoiser
from proxmatch.baselines.total_variation import TotalVariation, total_variation
from proxmatch.baselines.wiener import Wiener, WienerConfig, wiener_filter

__all__ = [
    "Identity",
    "TotalVariation",
    "Wiener",
    "WienerConfig",
    "no_denoiser",
    "total_variation",
    "wiener_filter",
]
