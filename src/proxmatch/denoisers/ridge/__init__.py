"""Denoisers with an explicit regularizer: weakly convex, and exact whatever the weights are."""

from proxmatch.denoisers.ridge.family import Ridge, RidgeConfig
from proxmatch.denoisers.ridge.published_weights import import_wcrr

__all__ = ["Ridge", "RidgeConfig", "import_wcrr"]
