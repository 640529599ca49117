"""The inverse of an LPN against scipy's conjugate gradients, image by image, to the same residual.

The published LPN code inverts D = grad Psi by minimizing Psi(z) - <u, z> with ``fmin_cg``. Here it
is given our own value and gradient, one image at a time. On faces, in one thread and in two:

    OMP_NUM_THREADS=1 python -m benchmarks.theory DATA/celeba
    OMP_NUM_THREADS=2 python -m benchmarks.theory DATA/celeba
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from scipy.optimize import fmin_cg
from torch import Tensor

from proxmatch.data import ImageDomain, embedded
from proxmatch.denoisers import ProximalDenoiser, load

BATCH, RESIDUAL = 16, 1e-6


@dataclass(frozen=True)
class Inversion:
    """What it took to invert D; seconds are of the clock, an image, medians.

    Attributes:
        ours: seconds, over a batch of 16.
        ours_evaluations: of D, mean over the batch.
        ours_residual: largest |D(z) - u| / |u| of the batch.
        scipy: seconds, one by one.
        scipy_evaluations: of Psi and of D, each.
        scipy_residual: largest of those it was tried on.
    """

    ours: float
    ours_evaluations: float
    ours_residual: float
    scipy: float
    scipy_evaluations: float
    scipy_residual: float

    def __str__(self) -> str:
        """One line."""
        return (
            f"inverse, {torch.get_num_threads()} thread(s): {1e3 * self.ours:.1f} ms an image, "
            f"{self.ours_evaluations:.1f} evaluations, "
            f"residual {self.ours_residual:.1e}; fmin_cg: {1e3 * self.scipy:.0f} ms, "
            f"{self.scipy_evaluations:.1f} evaluations, residual {self.scipy_residual:.1e}: "
            f"{self.scipy / self.ours:.1f} x faster (bound 10)"
        )


def inversion(model: str = "lpn-photographs", u: Tensor | None = None, tried: int = 4) -> Inversion:
    """Invert 16 images, 64 x 64, in float64, and ``tried`` of them with scipy, in turns.

    Args:
        model: a shipped LPN.
        u: the images, ``(16, 3, 64, 64)``; photographs unless given.
        tried: images for scipy, which is slow.
    """
    denoiser = load(model).double().requires_grad_(False)
    if u is None:
        truth = embedded("photographs").test
        u = truth[torch.linspace(0, len(truth) - 1, BATCH).long()]
    u = u.double()
    ours, theirs, calls, left = [], [], [], []
    for i in torch.linspace(0, BATCH - 1, tried).long().tolist():
        started = time.perf_counter()
        found = denoiser.inverse(u, tolerance=RESIDUAL)
        ours.append((time.perf_counter() - started) / BATCH)
        one = u[i : i + 1]
        started = time.perf_counter()
        z, count = by_scipy(denoiser, one)
        theirs.append(time.perf_counter() - started)
        calls.append(count)
        left.append(_worst(denoiser, z, one))
    return Inversion(
        statistics.median(ours),
        float(found.iterations.double().mean()),
        _worst(denoiser, found.z, u),
        statistics.median(theirs),
        statistics.mean(calls),
        max(left),
    )


def by_scipy(denoiser: ProximalDenoiser, u: Tensor) -> tuple[Tensor, int]:
    """D^{-1}(u) of one image, ``(1, C, H, W)``, by ``fmin_cg`` from u, and its evaluations of D."""

    def image(z: Any) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(z)).view(u.shape)

    def value(z: Any) -> float:
        return float(denoiser.potential(image(z)) - (u * image(z)).sum())

    def slope(z: Any) -> Any:
        return (denoiser(image(z)) - u).flatten().numpy()

    start = u.flatten().numpy()
    limit = RESIDUAL * float(u.norm())
    found, _, _, evaluations, *_ = fmin_cg(
        value, start, slope, gtol=limit, norm=2, maxiter=5000, disp=False, full_output=True
    )
    return image(found), int(evaluations)


def _worst(denoiser: ProximalDenoiser, z: Tensor, u: Tensor) -> float:
    error = (denoiser(z) - u).flatten(1).norm(dim=1) / u.flatten(1).norm(dim=1)
    return float(error.max())


if __name__ == "__main__":
    faces = ImageDomain(Path(sys.argv[1]), 64, split="test").tensor(range(BATCH))
    Console().print(str(inversion("lpn-faces", faces, tried=BATCH)))
