"""Solving D(z) = u for a batch of images: accelerated fixed point, quasi-Newton, Newton-CG."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from proxmatch._internal.hardware import finest
from proxmatch.metrics import norm


@dataclass(frozen=True)
class Inverse:
    """The solution of D(z) = u, image by image.

    Attributes:
        z: ``(B, C, H, W)``.
        residual: |D(z) - u| / max(|u|, 0.1 sqrt(n)), ``(B,)``: relative to the n pixels of u, or
            to those of a dark gray image where u is darker still.
        iterations: evaluations of D spent on each image, in any precision, ``(B,)``.
        converged: whether the residual is within the tolerance asked for, ``(B,)``.
    """

    z: Tensor
    residual: Tensor
    iterations: Tensor
    converged: Tensor


def default_tolerance(dtype: torch.dtype) -> float:
    """A tolerance that is easily reached: 1e-10 in float64, 1e-5 in float32."""
    return 1e-10 if dtype == torch.float64 else 1e-5


#: Iterations between two checks of which images are solved, where a check waits for the device.
LOOK = 5
#: Evaluations of D after which the fixed-point iteration ends, if h is convex.
FIRST = 60
#: Relative residual down to which float32 is as good as float64.
SINGLE = 1e-6


def residual_scale(u: Tensor) -> Tensor:
    """What residuals are measured against, ``(B,)``: see :class:`Inverse`."""
    return norm(u).clamp_min(0.1 * math.sqrt(u[0].numel()))


def by_formula(z: Tensor, value: Tensor, u: Tensor, tolerance: float) -> Inverse:
    """An inverse that a formula gave, with its residual measured."""
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
    """Solve A x = b with A symmetric positive definite, one system per image.

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
    for k in range(max_iterations):
        active = rr > target
        seen = b.device.type == "cpu" or k % LOOK == 0  # elsewhere a check waits for the device
        if seen and not bool(active.any()):
            break
        ap = matvec(p)
        curvature = _dot(p, ap)
        # Negative curvature (D is not a proximal map here): keep what has been found so far.
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
    is a descent direction of |D(z) - u|^2. The steps are solved for in float32: the next step
    corrects the error of that, and D(z) - u is in the precision of u.
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
        step = conjugate_gradient(jacobian, rhs.float(), forcing.float(), max_cg)
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
    step: Callable[[Tensor, Tensor], Tensor],
    u: Tensor,
    start: Tensor,
    tolerance: float,
    max_iterations: int,
    memory: int = 20,
) -> Inverse:
    """Anderson-accelerated iteration of z <- u + z - D(z), whose fixed point solves D(z) = u.

    For a gradient-step denoiser z - D(z) = grad g(z), so the map contracts where L < 1. Each image
    has its own least-squares problem over its last ``memory`` residuals, and keeps its best point.
    An image is left out of further evaluations once it is solved, or when twice ``memory`` of them
    have not improved it.

    Args:
        step: z and the places of its images in the batch -> D(z).
        u: right-hand sides, ``(B, ...)``.
        start: where to start.
        tolerance: on the residual.
        max_iterations: bound on the evaluations of D.
        memory: how many earlier residuals are combined.
    """
    scale, goal, z = residual_scale(u), u.flatten(1), start.flatten(1)
    best, residual = z.clone(), torch.full_like(scale, torch.inf)
    iterations = torch.zeros_like(scale, dtype=torch.long)
    improved = torch.zeros_like(iterations)  # at which iteration
    # Differences of successive residuals f = u - D(z) and plain steps z + f, oldest overwritten.
    df, dx = (z.new_empty(len(z), memory, z.shape[1]) for _ in range(2))
    gram = z.new_empty(len(z), memory, memory)
    f, x = torch.zeros_like(z), z
    going = torch.ones_like(scale, dtype=torch.bool)
    live = torch.arange(len(z), device=z.device)  # those that were running at the last check
    for k in range(max_iterations):
        f, f_before, x_before = torch.zeros_like(f), f, x
        f[live] = goal[live] - step(z[live].view(-1, *u.shape[1:]), live).flatten(1)
        iterations += going
        now = f.norm(dim=1) / scale
        better = going & (now < residual)
        best = torch.where(better[:, None], z, best)
        residual = torch.where(better, now, residual)
        improved = torch.where(better, k, improved)
        going = (residual > tolerance) & (k - improved < 2 * memory)
        if z.device.type == "cpu" or k % LOOK == LOOK - 1:  # elsewhere a check waits for the device
            live = going.nonzero().flatten()
            if not len(live):
                break
        x = z = z + f
        if k > 0:
            new, used = (k - 1) % memory, min(k, memory)
            df[:, new], dx[:, new] = f - f_before, x - x_before
            window = df[:, :used]
            products = torch.stack([df[:, new], f], 1) @ window.transpose(1, 2)
            gram[:, new, :used] = gram[:, :used, new] = products[:, 0]
            weights = _least_squares(gram[:, :used, :used], products[:, 1])
            z = x - (weights[:, None] @ dx[:, :used])[:, 0]
            z = torch.where(z.sum(1, keepdim=True).isfinite(), z, best)
    return Inverse(best.view_as(u), residual, iterations, residual <= tolerance)


#: The slope along a quasi-Newton step must fall to this fraction, within this many trials.
FALLEN, TRIALS = 0.9, 5
#: It gives up when this many evaluations have not halved the residual.
PATIENCE = 200
#: Numbers that its memory may hold.
MEMORY = 1 << 26


@torch.no_grad()
def quasi_newton(
    step: Callable[[Tensor, Tensor], Tensor],
    u: Tensor,
    start: Tensor,
    tolerance: float,
    max_iterations: int,
    memory: int = 100,
) -> Inverse:
    r"""L-BFGS for D(z) = u, where D = grad h: it minimizes the convex h(z) - <u, z>.

    Where J_D is badly conditioned and changes fast, as for an LPN with a small alpha, neither a
    fixed point nor Newton's method gets far. Each image has its own memory of pairs s = z' - z and
    y = D(z') - D(z), scaled such that <s, y> = 1, and keeps its best point. A step is taken where
    the slope along it has fallen to :data:`FALLEN`; otherwise its length is corrected by a secant,
    at the next evaluation. With the pairs as columns of S and Y, R the upper triangle of S^T Y by
    age and g = D(z) - u, the direction is -H g (Byrd, Nocedal and Schnabel, 1994):

        H g = c g + S R^{-T} ((I + c Y^T Y) R^{-1} S^T g - c Y^T g) - c Y R^{-1} S^T g.
    """
    scale, goal, z = residual_scale(u), u.flatten(1), start.flatten(1)
    memory = max(2, min(memory, MEMORY // (2 * z.numel())))
    best, residual = z.clone(), torch.full_like(scale, torch.inf)
    iterations = torch.zeros_like(scale, dtype=torch.long)
    improved = torch.zeros_like(iterations)  # at which iteration the residual was halved
    halved = residual.clone()
    s, y = (z.new_zeros(len(z), memory, z.shape[1]) for _ in range(2))
    exact = finest(z.device)
    sy, yy = (torch.zeros(len(z), memory, memory, dtype=exact, device=z.device) for _ in range(2))
    g = direction = torch.zeros_like(z)
    slope, length, trials = (torch.zeros_like(scale) for _ in range(3))
    size = torch.ones_like(scale)  # c
    going = torch.ones_like(scale, dtype=torch.bool)
    live = torch.arange(len(z), device=z.device)
    for k in range(max_iterations):
        trial = z + length[:, None] * direction
        there = torch.zeros_like(g)
        there[live] = step(trial[live].view(-1, *u.shape[1:]), live).flatten(1) - goal[live]
        iterations += going
        now = there.norm(dim=1) / scale
        better = going & (now < residual)
        best = torch.where(better[:, None], trial, best)
        residual = torch.where(better, now, residual)
        progress = residual < 0.5 * halved
        halved = torch.where(progress, residual, halved)
        improved = torch.where(progress, k, improved)
        going = (residual > tolerance) & (k - improved < PATIENCE)
        if z.device.type == "cpu" or k % LOOK == LOOK - 1:  # elsewhere a check waits for the device
            live = going.nonzero().flatten()
            if not len(live):
                break

        after = _dot(there, direction)
        taken = (after.abs() <= FALLEN * slope.abs()) | (trials >= TRIALS)
        ds, dy = (torch.where(taken[:, None], v, 0) for v in (trial - z, there - g))
        product, square = _dot(ds, dy), _dot(dy, dy)
        sound = product > torch.finfo(z.dtype).eps * square
        root = torch.where(sound, product, 1).rsqrt()
        new, used = k % memory, min(k + 1, memory)
        s[:, new], y[:, new] = (torch.where(sound, root, 0)[:, None] * v for v in (ds, dy))
        size = torch.where(sound, product / square.clamp_min(torch.finfo(z.dtype).tiny), size)
        z, g = (torch.where(taken[:, None], a, b) for a, b in ((trial, z), (there, g)))
        held = s[:, :used], y[:, :used], sy[:, :used, :used], yy[:, :used, :used]
        found = -_preconditioned(*held, g, size, new)
        falls = _dot(g, found)
        bad = ~(falls < 0)  # rounding, or not finite
        found = torch.where(bad[:, None], -g, found)
        falls = torch.where(bad, -_dot(g, g), falls)
        shorter = (slope / (slope - after)).clamp(0.1, 10).nan_to_num(0.1)
        direction = torch.where(taken[:, None], found, direction)
        slope = torch.where(taken, falls, slope)
        length = torch.where(taken, 1, shorter * length)
        trials = torch.where(taken, 0, trials + 1)
    return Inverse(best.view_as(u), residual, iterations, residual <= tolerance)


def _preconditioned(
    s: Tensor, y: Tensor, sy: Tensor, yy: Tensor, g: Tensor, size: Tensor, new: int
) -> Tensor:
    """H g, ``(B, n)``; see :func:`quasi_newton`.

    Args:
        s: pairs, ``(B, m, n)``.
        y: the same.
        sy: S^T Y, ``(B, m, m)``, in which the newest pair is filled in.
        yy: Y^T Y, likewise.
        g: ``(B, n)``.
        size: c, ``(B,)``.
        new: place of the newest pair.
    """
    m = s.shape[1]
    with_s = torch.stack([y[:, new], g], 1) @ s.transpose(1, 2)
    with_y = torch.stack([s[:, new], y[:, new], g], 1) @ y.transpose(1, 2)
    sy[:, :, new], sy[:, new] = with_s[:, 0], with_y[:, 0]
    yy[:, :, new] = yy[:, new] = with_y[:, 1]
    age = (new - torch.arange(m, device=s.device)) % m
    upper = sy * (age[:, None] >= age)
    empty = upper.diagonal(dim1=1, dim2=2) == 0
    upper = upper + torch.diag_embed(empty.to(upper))
    c = size.to(upper)[:, None]
    solved: Tensor = torch.linalg.solve_ex(upper, with_s[:, 1].to(upper)).result
    inner = solved + c * (yy @ solved[..., None])[..., 0] - c * with_y[:, 2]
    outer: Tensor = torch.linalg.solve_ex(upper.transpose(1, 2), inner).result
    weights = torch.stack([outer, -c * solved], 1).to(g)
    return size[:, None] * g + (weights[:, :1] @ s + weights[:, 1:] @ y)[:, 0]


def _least_squares(gram: Tensor, b: Tensor) -> Tensor:
    """Solve G w = b, ``(B, m)``, with a ridge that keeps nearly dependent columns harmless.

    Columns are normalized first: their sizes fall with the residual, by orders of magnitude.
    """
    g, eps = gram.to(finest(gram.device)), torch.finfo(gram.dtype).eps
    size = g.diagonal(dim1=1, dim2=2).clamp_min(torch.finfo(g.dtype).tiny).rsqrt()
    unit = g * size[:, :, None] * size[:, None]
    unit = unit + 10 * eps * torch.eye(unit.shape[1], dtype=unit.dtype, device=unit.device)
    solved: Tensor = torch.linalg.solve_ex(unit, size * b.to(g)).result  # which does not wait
    weights = size * solved
    return weights.to(b)
