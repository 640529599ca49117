"""Inverse problems: deblurring, super-resolution, and any linear deepinv physics."""

from proxmatch.problems.deblurring import gaussian_deblurring
from proxmatch.problems.norms import SquaredNorm, squared_norm
from proxmatch.problems.problem import Problem
from proxmatch.problems.super_resolution import super_resolution

__all__ = [
    "Problem",
    "SquaredNorm",
    "gaussian_deblurring",
    "squared_norm",
    "super_resolution",
]
