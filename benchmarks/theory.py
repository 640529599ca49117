"""The inverse of an LPN against scipy's conjugate gradients, image by image, to the same residual.

The published LPN code inverts D = grad Psi by minimising Psi(z) - <u, z> with ``fmin_cg``.
"""

from __future__ import annotations

import time
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import fmin_cg
from torch import Tensor

from proxmatch.data import embedded
from proxmatch.denoisers import ProximalDenoiser, load
from proxmatch.theory.trajectory import invert_from

BATCH, RESIDUAL = 16, 1e-6


@dataclass(frozen=True)
class Inversion:
    """What it took to invert D.

    Attributes:
        ours: seconds of the processor an image, over a batch of 16.
        ours_residual: largest |D(z) - u| / |u| of the batch.
        along: the same as it is done along trajectories, in float32 first.
        scipy: seconds an image, one by one.
        scipy_residual: largest of those it was tried on.
    """

    ours: float
    ours_residual: float
    along: float
    scipy: float
    scipy_residual: float

    @property
    def ratios(self) -> tuple[float, float]:
        """How many times faster an image is in the batch, both ways."""
        return self.scipy / self.ours, self.scipy / self.along


def inversion(model: str = "lpn-photographs", tried: int = 2) -> Inversion:
    """Invert 16 photographs, 64 x 64, in float64, and the first ``tried`` of them with scipy.

    Args:
        model: a shipped LPN.
        tried: images for scipy, which is slow.
    """
    denoiser = load(model).double().requires_grad_(False)
    truth = embedded("photographs").test
    u = truth[torch.linspace(0, len(truth) - 1, BATCH).long()].double()
    started = time.process_time()
    z = denoiser.inverse(u, tolerance=RESIDUAL).z
    ours = (time.process_time() - started) / BATCH
    rough = deepcopy(denoiser).float()
    started = time.process_time()
    invert_from(denoiser, rough, u, u, denoiser(u), None, RESIDUAL)
    along = (time.process_time() - started) / BATCH
    started = time.process_time()
    theirs = torch.cat([by_scipy(denoiser, u[i : i + 1]) for i in range(tried)])
    scipy = (time.process_time() - started) / tried
    return Inversion(
        ours, _worst(denoiser, z, u), along, scipy, _worst(denoiser, theirs, u[:tried])
    )


def by_scipy(denoiser: ProximalDenoiser, u: Tensor) -> Tensor:
    """D^{-1}(u) of one image, ``(1, C, H, W)``, by ``fmin_cg`` from u."""

    def image(z: Any) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(z)).view(u.shape)

    def value(z: Any) -> float:
        return float(denoiser.potential(image(z)) - (u * image(z)).sum())

    def slope(z: Any) -> Any:
        return (denoiser(image(z)) - u).flatten().numpy()

    start = u.flatten().numpy()
    limit = RESIDUAL * float(u.norm())
    found = fmin_cg(value, start, slope, gtol=limit, norm=2, maxiter=5000, disp=False)
    return image(found)


def _worst(denoiser: ProximalDenoiser, z: Tensor, u: Tensor) -> float:
    error = (denoiser(z) - u).flatten(1).norm(dim=1) / u.flatten(1).norm(dim=1)
    return float(error.max())
