r"""The extreme eigenvalues of J_D, and with them L: estimates that say how good they are.

J_D is symmetric, so Lanczos iteration finds both ends of its spectrum from products J_D v alone. A
Ritz pair (theta, v) has the residual |J_D v - theta v|, and some eigenvalue lies within that
distance of theta. That is all an iteration can prove: the largest eigenvalue may still be larger,
and with few iterations it is, because the top modes of a denoiser are localized in the image and
random starting vectors barely see them. Hence the default of 40 iterations, per image, from a
random start, and the residual beside every estimate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from proxmatch._internal.hardware import full_precision
from proxmatch.data import image_batch
from proxmatch.denoisers.plain import as_denoiser
from proxmatch.errors import InputError
from proxmatch.plots.shown import ShownSpectrum


@dataclass(frozen=True, repr=False)
class Spectrum(ShownSpectrum):
    """Estimated extreme eigenvalues of the Jacobian of D at each image. They are estimates.

    Attributes:
        largest: largest eigenvalue of J_D found, ``(B,)``: a lower bound of the true one.
        smallest: smallest eigenvalue found, ``(B,)``: an upper bound of the true one.
        largest_residual: |J_D v - theta v| of the largest Ritz pair, ``(B,)``.
        smallest_residual: the same of the smallest.
        iterations: Lanczos iterations spent.
        direction: the smallest Ritz vector, of norm one, ``(B, ...)``.
    """

    largest: Tensor
    smallest: Tensor
    largest_residual: Tensor
    smallest_residual: Tensor
    iterations: int
    direction: Tensor

    @property
    def constant(self) -> Tensor:
        """L = largest |eigenvalue| of Id - J_D, the Hessian of g, ``(B,)``."""
        return torch.maximum((1 - self.largest).abs(), (1 - self.smallest).abs())

    def converged(self, tolerance: float = 1e-2) -> Tensor:
        """Whether both residuals are within ``tolerance``, ``(B,)``."""
        return torch.maximum(self.largest_residual, self.smallest_residual) <= tolerance


def jacobian_spectrum(
    denoiser: Any,
    x: Any,
    sigma: float | Tensor | None = None,
    *,
    iterations: int = 40,
    start: Tensor | None = None,
    seed: int = 0,
) -> Spectrum:
    """Estimate the extreme eigenvalues of J_D at the given images.

    For a gradient-step denoiser ``jacobian_spectrum(...).constant`` is the L of
    grad g = Id - D; for an LPN ``smallest`` cannot be below alpha.

    Args:
        denoiser: D, a :class:`ProximalDenoiser`.
        x: where, ``(B, C, H, W)``, or images in any form of :mod:`proxmatch.data.any_form`.
        sigma: noise level, as in the denoiser's ``forward``.
        iterations: Lanczos iterations.
        start: first vectors, the shape of x; random unless given. From the ``direction`` at a
            nearby point its eigenvalue is soon found again, but another may be the smallest now.
        seed: of the random start, the same vector for every image.

    Raises:
        NotProximalError: the denoiser has no potential, so that J_D need not be symmetric.
        InputError: the Jacobian is not finite.

    Example:
        >>> from proxmatch.denoisers import LPN, LPNConfig
        >>> denoiser = LPN(LPNConfig(channels=1, size=8, hidden=4, features=3, strides=(2,)))
        >>> found = jacobian_spectrum(denoiser, torch.rand(2, 1, 8, 8))
        >>> bool((found.smallest > 0).all())
        True
    """
    if iterations < 1:
        raise InputError(f"Lanczos needs at least one iteration, got {iterations}")
    if not isinstance(x, Tensor):
        like = next(denoiser.parameters(), None) if isinstance(denoiser, nn.Module) else None
        x = image_batch(x, getattr(denoiser, "channels", None), like)
    if start is None:
        generator = torch.Generator().manual_seed(seed)
        start = torch.randn(x.shape[1:], generator=generator, dtype=torch.float64).to(x)
    with full_precision():
        _, jacobian = as_denoiser(denoiser, x.shape[1]).linearize(x, sigma)
        return lanczos(jacobian, start.expand_as(x), iterations)


@torch.no_grad()
def lanczos(matvec: Callable[[Tensor], Tensor], start: Tensor, iterations: int) -> Spectrum:
    """Lanczos iteration with full reorthogonalization, one symmetric matrix per image."""
    shape, n = start.shape, start[0].numel()
    iterations = min(iterations, n)
    generator = torch.Generator().manual_seed(20_210)  # unrelated to the seeds of a start
    basis = F.normalize(start.flatten(1), dim=1)[:, None]
    diagonal: list[Tensor] = []
    off: list[Tensor] = []
    for _ in range(iterations):
        w = matvec(basis[:, -1].view(shape)).flatten(1)
        diagonal.append((w * basis[:, -1]).sum(1))
        w = _orthogonal(w, basis)
        size = torch.linalg.vector_norm(w, dim=1)
        # The Krylov space is exhausted (an invariant subspace): go on in a fresh direction.
        ended = size <= torch.finfo(w.dtype).eps ** 0.6 * diagonal[-1].abs().clamp_min(1)
        if bool(ended.any()):
            fresh = torch.randn(n, generator=generator, dtype=torch.float64).to(w)
            w = torch.where(ended[:, None], fresh, w)
            size = torch.where(ended, 0, size)
        off.append(size)
        w = F.normalize(_orthogonal(F.normalize(w, dim=1), basis), dim=1)
        basis = torch.cat([basis, w[:, None]], 1)
    alpha, beta = torch.stack(diagonal, 1), torch.stack(off, 1)
    tridiagonal = torch.diag_embed(alpha)
    if iterations > 1:
        tridiagonal = tridiagonal + torch.diag_embed(beta[:, :-1], 1)
        tridiagonal = tridiagonal + torch.diag_embed(beta[:, :-1], -1)
    if not bool(tridiagonal.isfinite().all()):
        raise InputError("the Jacobian is not finite at these images, so that there is no L")
    theta, s = torch.linalg.eigh(tridiagonal.cpu().double())
    # The residual of the Ritz pair of column j is beta_m |last entry of column j|.
    residual = beta[:, -1:].cpu().double() * s[:, -1].abs()
    theta, residual = theta.to(start), residual.to(start)
    direction = torch.einsum("bmn,bm->bn", basis[:, :-1], s[:, :, 0].to(start))
    ends = (theta[:, -1], theta[:, 0], residual[:, -1], residual[:, 0])
    return Spectrum(*ends, iterations, direction.view(shape))


def _orthogonal(w: Tensor, basis: Tensor) -> Tensor:
    """The vector w without its components along the rows of ``basis``; done twice for accuracy."""
    for _ in range(2):
        w = w - (basis.transpose(1, 2) @ (basis @ w[:, :, None]))[:, :, 0]
    return w
