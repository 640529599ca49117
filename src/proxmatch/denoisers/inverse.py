"""Solving D(z) = u for a batch of images: Newton-CG and accelerated fixed-point iteration."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from proxmatch.metrics import norm


@dataclass(frozen=True)
class Inverse:
    """The solution of D(z) = u, image by image.

    Attributes:
        z: ``(B, C, H, W)``.
        residual: |D(z) - u| / max(|u|, 0.1 sqrt(n)), ``(B,)``: relative to the n pixels of u, or
            to those of a dark grey image where u is darker still.
        iterations: evaluations of D spent on each image, ``(B,)``.
        converged: whether the residual is within the tolerance asked for, ``(B,)``.
    """

    z: Tensor
    residual: Tensor
    iterations: Tensor
    converged: Tensor


def default_tolerance(dtype: torch.dtype) -> float:
    """What can be reached comfortably: 1e-10 in float64, 1e-5 in float32."""
    return 1e-10 if dtype == torch.float64 else 1e-5


def residual_scale(u: Tensor) -> Tensor:
    """What residuals are measured against, ``(B,)``: see :class:`Inverse`."""
    return norm(u).clamp_min(0.1 * math.sqrt(u[0].numel()))


def by_formula(z: Tensor, value: Tensor, u: Tensor, tolerance: float) -> Inverse:
    """An inverse that a formula gave, with its residual measured.

    Args:
        z: what the formula says, ``(B, C, H, W)``.
        value: D(z).
        u: what D(z) should be.
        tolerance: on the relative residual.
    """
    residual = norm(value - u) / residual_scale(u)
    return Inverse(z, residual, torch.ones_like(residual).long(), residual <= tolerance)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).flatten(1).sum(1)


def _over(c: Tensor, x: Tensor) -> Tensor:
    """``(B,)`` made to multiply ``(B, ...)``."""
    return c.view(-1, *[1] * (x.dim() - 1))


@torch.no_grad()
def conjugate_gradient(
    matvec: Callable[[Tensor], Tensor], b: Tensor, tolerance: Tensor, max_iterations: int
) -> Tensor:
    """Solve A x = b with A symmetric positive definite, one system an image.

    Images that have reached their own tolerance stand still while the others go on, which
    ``deepinv.optim.linear.conjugate_gradient`` cannot do.

    Args:
        matvec: x -> A x.
        b: right-hand sides, ``(B, ...)``.
        tolerance: on |b - A x| / |b|, ``(B,)``.
        max_iterations: bound on the number of products.
    """
    x = torch.zeros_like(b)
    r = b.clone()
    p = r
    rr = _dot(r, r)
    target = rr * tolerance**2
    for _ in range(max_iterations):
        active = rr > target
        if not bool(active.any()):
            break
        ap = matvec(p)
        curvature = _dot(p, ap)
        # Negative curvature (D is no proximal map here): keep what has been found so far.
        active &= curvature > 0
        step = torch.where(active, rr / curvature.where(active, torch.ones_like(rr)), 0)
        x = x + _over(step, p) * p
        r = r - _over(step, p) * ap
        new = torch.where(active, _dot(r, r), torch.zeros_like(rr))
        p = r + _over(new / rr.where(active, torch.ones_like(rr)), p) * p
        rr = new
    return x


@torch.no_grad()
def newton_cg(
    linearize: Callable[[Tensor], tuple[Tensor, Callable[[Tensor], Tensor]]],
    u: Tensor,
    start: Tensor,
    tolerance: float,
    max_iterations: int,
    max_cg: int = 200,
) -> Inverse:
    """Newton's method for D(z) = u with inexact steps and backtracking on |D(z) - u|.

    The step solves J_D(z) s = u - D(z) by conjugate gradients, to a relative accuracy that
    tightens with the residual (superlinear convergence). J_D is symmetric positive definite, so s
    is a descent direction of |D(z) - u|^2.

    Args:
        linearize: z -> D(z) and v -> J_D(z) v.
        u: right-hand sides, ``(B, ...)``.
        start: where to start.
        tolerance: on the residual.
        max_iterations: bound on the number of Newton steps.
        max_cg: bound on the products in one step.
    """
    scale = residual_scale(u)
    z = start.clone()
    dz, jacobian = linearize(z)
    residual = norm(dz - u) / scale
    iterations = torch.ones_like(residual, dtype=torch.long)
    stuck = torch.zeros_like(residual, dtype=torch.bool)
    for _ in range(max_iterations):
        active = (residual > tolerance) & ~stuck
        if not bool(active.any()):
            break
        forcing = residual.sqrt().clamp(max=0.1)
        # No need to solve far beyond the tolerance, nor anything for images that are done.
        forcing = torch.maximum(forcing, 0.3 * tolerance / residual.clamp_min(tolerance))
        rhs = torch.where(_over(active, u), u - dz, 0)
        step = conjugate_gradient(jacobian, rhs, forcing, max_cg)
        length = torch.where(active, 1.0, 0.0).to(u.dtype)
        todo = active
        for _ in range(12):
            trial = z + _over(length, z) * step
            d_trial, j_trial = linearize(trial)
            r_trial = norm(d_trial - u) / scale
            iterations = iterations + todo
            todo = todo & ~(r_trial <= (1 - 1e-4 * length) * residual)
            if not bool(todo.any()):
                break
            length = torch.where(todo, length / 2, length)
        # What found no descent stays where it is (its length has become negligible anyway).
        stuck = stuck | todo
        if bool(todo.any()):
            trial = torch.where(_over(todo, z), z, trial)
            d_trial, j_trial = linearize(trial)
            r_trial = norm(d_trial - u) / scale
        z, dz, jacobian, residual = trial, d_trial, j_trial, r_trial
    return Inverse(z, residual, iterations, residual <= tolerance)


@torch.no_grad()
def anderson(
    step: Callable[[Tensor], Tensor],
    u: Tensor,
    start: Tensor,
    tolerance: float,
    max_iterations: int,
    memory: int = 20,
) -> Inverse:
    """Anderson-accelerated iteration of z <- u + z - D(z), whose fixed point solves D(z) = u.

    For a gradient-step denoiser z - D(z) = grad g(z), so the map contracts where L < 1. Each image
    has its own least-squares problem over its last ``memory`` residuals, and keeps its best point.

    Args:
        step: z -> D(z).
        u: right-hand sides, ``(B, ...)``.
        start: where to start.
        tolerance: on the residual.
        max_iterations: bound on the evaluations of D.
        memory: how many earlier residuals are combined.
    """
    scale = residual_scale(u)
    z = start.clone()
    best, best_residual = z, torch.full_like(scale, torch.inf)
    iterations = torch.zeros_like(scale, dtype=torch.long)
    zs: list[Tensor] = []
    fs: list[Tensor] = []
    for _ in range(max_iterations):
        active = ~(best_residual <= tolerance)
        if not bool(active.any()):
            break
        f = u - step(z)
        residual = norm(f) / scale
        iterations = iterations + active
        better = residual < best_residual
        best = torch.where(_over(better, z), z, best)
        best_residual = torch.where(better, residual, best_residual)
        zs, fs = [*zs[-memory:], z], [*fs[-memory:], f]
        z = z + f
        if len(fs) > 1:
            df = torch.stack([b - a for a, b in pairwise(fs)], 1).flatten(2)
            dz = torch.stack([b - a for a, b in pairwise(zs)], 1).flatten(2)
            gram = df @ df.transpose(1, 2)
            # A slight ridge, relative to the scale of each system, keeps stale residuals harmless.
            ridge = torch.finfo(u.dtype).eps * 10 * gram.diagonal(dim1=1, dim2=2).amax(1)
            eye = torch.eye(gram.shape[1], dtype=u.dtype, device=u.device)
            gram = gram + ridge.clamp_min(torch.finfo(u.dtype).tiny).view(-1, 1, 1) * eye
            weights = torch.linalg.solve(gram, df @ f.flatten(1)[:, :, None])
            correction = ((df + dz).transpose(1, 2) @ weights).view_as(z)
            z = z - correction
        z = torch.where(torch.isfinite(z), z, best)
    return Inverse(best, best_residual, iterations, best_residual <= tolerance)
