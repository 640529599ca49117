r"""The proximal map of a ridge regularizer, and its derivatives.

    R(u) = sum_k <1, psi_k(w_k * u)>,    grad R(u) = W^T psi'(W u),    Hess R(u) = W^T psi''(W u) W.

With |W| <= 1 and -rho <= psi'' <= m the eigenvalues of Hess R lie in [-rho, m]. So

    F(u) = R(u) + |u - z|^2 / 2

is (1 - rho)-strongly convex, and D(z) is the one u with u + grad R(u) = z. Differentiating that,
J_D(z) = (Id + Hess R(u))^{-1}, which is how D is trained: nothing is unrolled.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from proxmatch.denoisers.inverse import LOOK, conjugate_gradient, residual_scale
from proxmatch.denoisers.ridge.filters import analyze, synthesize
from proxmatch.denoisers.ridge.profile import Profile
from proxmatch.metrics import norm

#: Responses of some filters at a time.
Parts = list[Tensor]

#: When the minimization stops: |u + grad R(u) - z| relative to max(|z|, 0.1 sqrt(n)).
TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-13}
#: The same while a denoiser is trained: an error of 2e-5 in a pixel, half the iterations.
ROUGH = {torch.float32: 1e-4, torch.float64: 1e-13}
#: When the solution of Id + Hess R that a training needs is accurate enough, relatively.
GRADIENT = {torch.float32: 1e-3, torch.float64: 1e-13}
#: Responses of filters that a CPU handles at a time, so that they stay in its cache.
AT_ONCE = 1 << 17
MAX_ITERATIONS = 2000
#: Only rounding is left after this many iterations that did not reduce |grad F| by this factor.
PATIENCE, PROGRESS = 30, 0.9
#: How accurately a Newton step is solved for in single precision, and how many there are at most.
SINGLE, STEPS = 1e-4, 8
#: A step is taken where the slope along it is down to this fraction, or after this many trials.
EXACTNESS, TRIALS = 0.1, 8


@dataclass(frozen=True)
class Regularizer:
    """R, of every image of a batch.

    Attributes:
        kernel: the filters, ``(K, C, n, n)``, of norm at most one (:mod:`.filters`).
        profile: psi.
    """

    kernel: Tensor
    profile: Profile

    def value(self, u: Tensor) -> Tensor:
        """R(u), ``(B,)``."""
        return self.profile.value(analyze(u, self.kernel)).flatten(1).sum(1)

    def gradient(self, u: Tensor) -> Tensor:
        """Grad R(u), the shape of u."""
        return synthesize(self.profile.slope(analyze(u, self.kernel)), self.kernel)

    def hessian(self, u: Tensor, v: Tensor) -> Tensor:
        """Hess R(u) v, the shape of u."""
        bend = self.profile.bend(analyze(u, self.kernel))
        return synthesize(bend * analyze(v, self.kernel), self.kernel)

    def rows(self, which: Tensor) -> Regularizer:
        """The regularizer of some of the images."""
        return replace(self, profile=self.profile.rows(which))

    def each(self, change: Callable[[Tensor], Tensor]) -> Regularizer:
        """The same with changed tensors."""
        return Regularizer(change(self.kernel), self.profile.each(change))

    def detach(self) -> Regularizer:
        """The same without a graph; what is computed then is the same to the last bit."""
        return self.each(Tensor.detach)


def proximal(
    regularizer: Regularizer, z: Tensor, start: Tensor | None = None, *, rough: bool = False
) -> Tensor:
    """D(z), the shape of z, differentiable in z and in what the regularizer is made of.

    Args:
        regularizer: R.
        z: ``(B, C, H, W)``.
        start: a point near D(z), if one is known; z itself by default.
        rough: stop earlier, for a training.
    """
    fixed, tolerance = regularizer.detach(), (ROUGH if rough else TOLERANCE)[z.dtype]
    rows = torch.split(torch.arange(len(z), device=z.device), _at_once(z, len(fixed.kernel)))
    given, first = z.detach(), (z if start is None else start).detach()
    u = torch.cat([minimize(fixed.rows(r), given[r], tolerance, first[r]) for r in rows])
    if not torch.is_grad_enabled():
        return u
    out: Tensor = _Root.apply(z - u - regularizer.gradient(u), u, None, regularizer)
    return out


def derivative(
    regularizer: Regularizer, u: Tensor, v: Tensor, tolerance: float | None = None
) -> Tensor:
    """(Id + Hess R(u))^{-1} v, differentiable in v, in u and in the regularizer.

    Args:
        regularizer: R.
        u: where, ``(B, C, H, W)``.
        v: the same shape.
        tolerance: on the relative residual, image by image; :data:`TOLERANCE` by default.
    """
    tolerance = TOLERANCE[v.dtype] if tolerance is None else tolerance
    w = _solve(regularizer.detach(), u.detach(), v.detach(), tolerance)
    if not torch.is_grad_enabled():
        return w
    out: Tensor = _Root.apply(v - w - regularizer.hessian(u, w), w, u, regularizer)
    return out


@torch.no_grad()
def _solve(regularizer: Regularizer, u: Tensor, v: Tensor, tolerance: float) -> Tensor:
    """The w with w + Hess R(u) w = v."""
    kernel = regularizer.kernel
    bend = regularizer.profile.bend(analyze(u, kernel))

    def matvec(w: Tensor) -> Tensor:
        return w + synthesize(bend * analyze(w, kernel), kernel)

    return conjugate_gradient(matvec, v, v.new_full((len(v),), tolerance), MAX_ITERATIONS)


class _Root(torch.autograd.Function):
    """The root of an equation whose derivative in the root is -(Id + Hess R(u)).

    Args of ``apply``: the left-hand side of the equation, zero at the root; the root; u, or None
    where the root itself is u; R.
    """

    @staticmethod
    def forward(
        ctx: Any, equation: Tensor, root: Tensor, u: Tensor | None, regularizer: Regularizer
    ) -> Tensor:
        out = root.clone()
        ctx.regularizer = regularizer
        ctx.save_for_backward(out if u is None else u)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (u,) = ctx.saved_tensors
        g = grads[0]
        return derivative(ctx.regularizer, u, g, GRADIENT[g.dtype]), None, None, None


@torch.no_grad()
def minimize(regularizer: Regularizer, z: Tensor, tolerance: float, start: Tensor) -> Tensor:
    """D(z), each image on its own.

    Args:
        regularizer: R.
        z: ``(B, C, H, W)``.
        tolerance: on |u + grad R(u) - z| / max(|z|, 0.1 sqrt(n)). An image on which rounding allows
            no more keeps the best u found.
        start: where to start: z, or a point near D(z).
    """
    if z.dtype == torch.float64:
        start = _refined(regularizer, z, tolerance, start)
    return _descended(regularizer, z, tolerance, start)


def _refined(regularizer: Regularizer, z: Tensor, tolerance: float, start: Tensor) -> Tensor:
    """A point near D(z) in double precision, by work in single precision.

    D(z) in single precision first; then Newton steps (Id + Hess R(u)) d = -grad F(u), with the
    gradient in double precision and the rest in single, as long as each halves |grad F|.
    """
    scale, single = residual_scale(z), regularizer.each(Tensor.float)
    u, g = start, start + regularizer.gradient(start) - z
    if bool((norm(g) > SINGLE * scale).any()):
        u = _descended(single, z.float(), TOLERANCE[torch.float32], start.float()).to(z)
        g = u + regularizer.gradient(u) - z
    for _ in range(STEPS):
        size = norm(g)
        todo = (size > tolerance * scale).nonzero().flatten()
        if not len(todo):
            break
        unit = size[todo].view(-1, 1, 1, 1)
        d = _solve(single.rows(todo), u[todo].float(), (-g[todo] / unit).float(), SINGLE)
        moved = u[todo] + unit * d
        there = moved + regularizer.rows(todo).gradient(moved) - z[todo]
        halved = norm(there) < 0.5 * size[todo]
        if not bool(halved.any()):
            break
        u, g = u.clone(), g.clone()
        u[todo[halved]], g[todo[halved]] = moved[halved], there[halved]
    return u


def _descended(regularizer: Regularizer, z: Tensor, tolerance: float, start: Tensor) -> Tensor:
    """D(z) by nonlinear conjugate gradients (Hestenes and Stiefel); the arguments of `minimize`.

    Along a direction d, W (u + t d) = W u + t W d: trying a step costs no convolution, so steps are
    nearly exact. With restarts where a direction does not descend enough, the method converges on
    strongly convex functions (Gilbert and Nocedal, 1992), that is for all weights. It takes about
    half as many gradients here as FISTA does, and needs no bound on the curvature.
    """
    out, live = start.clone(), torch.arange(len(z), device=z.device)
    kernel, filters = regularizer.kernel, _at_once(z, len(z))
    psi = regularizer.profile.split(filters)
    u = best = start
    y = list(torch.split(analyze(u, kernel), filters, 1))
    slope, bend = _evaluated(psi, y)
    g = u - z + synthesize(torch.cat(slope, 1), kernel)
    d = -g
    goal = tolerance * residual_scale(z)
    lowest = mark = torch.full_like(goal, torch.inf)  # |grad F|: at best, at the last progress
    marked = torch.zeros_like(live)  # the iteration of the last progress
    for k in range(MAX_ITERATIONS):
        size = norm(g)
        best = torch.where((size < lowest).view(-1, 1, 1, 1), u, best)
        lowest = torch.where(size < lowest, size, lowest)
        ahead = size < PROGRESS * mark
        mark, marked = torch.where(ahead, lowest, mark), marked.masked_fill(ahead, k)
        seen = z.device.type == "cpu" or k % LOOK == 0  # elsewhere a check waits for the device
        going = (lowest > goal) & (k - marked < PATIENCE)
        if seen and not bool(going.all()):
            out[live] = best
            left = going.nonzero().flatten()
            if not len(left):
                return out
            u, g, d, z, best = u[left], g[left], d[left], z[left], best[left]
            live, goal, lowest = live[left], goal[left], lowest[left]
            mark, marked = mark[left], marked[left]
            y, bend = [part[left] for part in y], [part[left] for part in bend]
            psi = [one.rows(left) for one in psi]
        step = list(torch.split(analyze(d, kernel), filters, 1))
        t, y, slope, bend, change = _line_search(psi, y, bend, step, d, g, u - z)
        u = u + t * d
        old, g = g, u - z + synthesize(torch.cat(slope, 1), kernel)
        beta = (_dot(g, g - old) / change).clamp_min(0)
        d = beta * d - g
        d = torch.where(_dot(d, g) > -EXACTNESS * _dot(g, g), -g, d)
    out[live] = best
    return out


def _at_once(z: Tensor, others: int) -> int:
    """How many images, or filters, to handle at a time if there are so many of the others."""
    if z.device.type != "cpu":
        return sys.maxsize
    return max(1, AT_ONCE // (others * z.shape[-2] * z.shape[-1]))


def _line_search(
    psi: Sequence[Profile], y: Parts, bend: Parts, step: Parts, d: Tensor, g: Tensor, offset: Tensor
) -> tuple[Tensor, Parts, Parts, Parts, Tensor]:
    """A zero of t -> F'(t), the slope of F along d, to :data:`EXACTNESS`: it increases with t.

    A Newton step first, then secants within what is known to hold the zero.

    Args:
        psi: some filters at a time, as the next three.
        y: W u.
        bend: psi''(y).
        step: W d.
        d: the direction.
        g: grad F(u).
        offset: u - z.

    Returns:
        t, ``(B, 1, 1, 1)``; y + t step, psi' and psi'' there; and F'(t) - F'(0), ``(B, 1, 1, 1)``.
    """
    start, square, fixed = _dot(g, d), _dot(d, d), _dot(offset, d)
    bent = [a * b for a, b in zip(bend, step, strict=True)]
    t = -start / (square + sum(map(_dot, bent, step)))
    low, at_low = torch.zeros_like(t), start
    high, at_high = torch.full_like(t, torch.inf), torch.full_like(t, torch.inf)
    for trial in range(TRIALS + 1):
        moved = [torch.addcmul(a, t, b) for a, b in zip(y, step, strict=True)]
        slope, bend = _evaluated(psi, moved)
        now = fixed + t * square + sum(map(_dot, slope, step))
        todo = now.abs() > -EXACTNESS * start
        # A device goes through all trials, which cost no convolution: it is not waited for.
        if trial == TRIALS or (t.device.type == "cpu" and not bool(todo.any())):
            break
        below = now < 0
        secant = t - now * (t - low) / (now - at_low)  # beyond t where now < 0
        low, at_low = torch.where(below, t, low), torch.where(below, now, at_low)
        high, at_high = torch.where(below, high, t), torch.where(below, at_high, now)
        between = low - at_low * (high - low) / (at_high - at_low)
        # Secants may crawl along one side: kept away from the ends, they do not.
        between = between.clamp(low + 0.1 * (high - low), high - 0.1 * (high - low))
        following = torch.where(high.isfinite(), between, secant.clamp(1.1 * t, 4 * t))
        t = torch.where(todo, following, t)
    return t, moved, slope, bend, now - start


def _evaluated(psi: Sequence[Profile], y: Parts) -> tuple[Parts, Parts]:
    """psi'(y) and psi''(y), some filters at a time."""
    both = [one.slope_and_bend(part) for one, part in zip(psi, y, strict=True)]
    return [slope for slope, _ in both], [bend for _, bend in both]


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """The inner products of images, ``(B, 1, 1, 1)``."""
    return (a * b).flatten(1).sum(1).view(-1, 1, 1, 1)
