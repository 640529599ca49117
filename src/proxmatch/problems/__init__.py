"""Inverse problems: the paper's two, a few more, and any linear deepinv physics.

Every module of this package is imported, so that a problem is in :data:`PROBLEMS` as soon as its
module registers it (:mod:`proxmatch.problems.registration`).
"""

from importlib import import_module
from pkgutil import iter_modules

from proxmatch.problems.box_inpainting import box_inpainting
from proxmatch.problems.catalog import make_problem
from proxmatch.problems.compressed_sensing import compressed_sensing
from proxmatch.problems.deblurring import gaussian_deblurring
from proxmatch.problems.demosaicing import demosaicing
from proxmatch.problems.denoising import denoising
from proxmatch.problems.inpainting import inpainting
from proxmatch.problems.kernel_deblurring import kernel_deblurring
from proxmatch.problems.motion import motion_deblurring
from proxmatch.problems.mri import mri
from proxmatch.problems.multicoil_mri import multicoil_mri
from proxmatch.problems.norms import SquaredNorm, squared_norm
from proxmatch.problems.photons import PhotonFidelity, PhotonNoise
from proxmatch.problems.poisson_deblurring import poisson_deblurring
from proxmatch.problems.poisson_denoising import poisson_denoising
from proxmatch.problems.problem import Problem, by_name
from proxmatch.problems.registration import PROBLEMS, Design, RegisteredProblem, register
from proxmatch.problems.super_resolution import super_resolution
from proxmatch.problems.tomography import tomography

__all__ = [
    "PROBLEMS",
    "Design",
    "PhotonFidelity",
    "PhotonNoise",
    "Problem",
    "RegisteredProblem",
    "SquaredNorm",
    "box_inpainting",
    "by_name",
    "compressed_sensing",
    "demosaicing",
    "denoising",
    "discover",
    "gaussian_deblurring",
    "inpainting",
    "kernel_deblurring",
    "make_problem",
    "motion_deblurring",
    "mri",
    "multicoil_mri",
    "poisson_deblurring",
    "poisson_denoising",
    "register",
    "squared_norm",
    "super_resolution",
    "tomography",
]


def discover() -> None:
    """Import every module of this package, so that each problem is registered.

    Example:
        >>> discover()
        >>> "tomography" in PROBLEMS
        True
    """
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")


discover()
