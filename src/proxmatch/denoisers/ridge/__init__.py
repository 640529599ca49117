"""Denoisers with an explicit regularizer: weakly convex, and exact whatever the weights are."""

from proxmatch.denoisers.ridge.family import Ridge, RidgeConfig

__all__ = ["Ridge", "RidgeConfig"]
