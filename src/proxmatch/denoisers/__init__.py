"""Denoisers that are proximal maps: families of them, their inverse and spectrum, save and load."""

from proxmatch.denoisers.base import ProximalDenoiser
from proxmatch.denoisers.checkpoint import load, save, shipped
from proxmatch.denoisers.families import new
from proxmatch.denoisers.gradient_step import GradientStep, GradientStepConfig
from proxmatch.denoisers.inverse import Inverse
from proxmatch.denoisers.lpn import LPN, LPNConfig
from proxmatch.denoisers.plain import AnyDenoiser, PlainDenoiser, as_denoiser
from proxmatch.denoisers.published import import_checkpoint, import_network
from proxmatch.denoisers.scaled_lpn import ScaledLPN, ScaledLPNConfig
from proxmatch.denoisers.smoothing import kinks, smooth
from proxmatch.denoisers.spectrum import Spectrum, jacobian_spectrum

__all__ = [
    "LPN",
    "AnyDenoiser",
    "GradientStep",
    "GradientStepConfig",
    "Inverse",
    "LPNConfig",
    "PlainDenoiser",
    "ProximalDenoiser",
    "ScaledLPN",
    "ScaledLPNConfig",
    "Spectrum",
    "as_denoiser",
    "import_checkpoint",
    "import_network",
    "jacobian_spectrum",
    "kinks",
    "load",
    "new",
    "save",
    "shipped",
    "smooth",
]
