"""Inverse problems: the paper's two, a few more, and any linear deepinv physics."""

from proxmatch.problems.catalogue import PROBLEMS, make_problem
from proxmatch.problems.compressed_sensing import compressed_sensing
from proxmatch.problems.deblurring import gaussian_deblurring
from proxmatch.problems.denoising import denoising
from proxmatch.problems.inpainting import inpainting
from proxmatch.problems.motion import motion_deblurring
from proxmatch.problems.norms import SquaredNorm, squared_norm
from proxmatch.problems.problem import Problem, by_name
from proxmatch.problems.super_resolution import super_resolution

__all__ = [
    "PROBLEMS",
    "Problem",
    "SquaredNorm",
    "by_name",
    "compressed_sensing",
    "denoising",
    "gaussian_deblurring",
    "inpainting",
    "make_problem",
    "motion_deblurring",
    "squared_norm",
    "super_resolution",
]
