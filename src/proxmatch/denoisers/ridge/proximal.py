r"""The proximal map of a ridge regularizer, and its derivatives.

    R(u) = sum_k <1, psi_k(w_k * u)>,    grad R(u) = W^T psi'(W u),    Hess R(u) = W^T psi''(W u) W.

With |W| <= 1 and -rho <= psi'' <= m the eigenvalues of Hess R lie in [-rho, m]. So

    F(u) = R(u) + |u - z|^2 / 2

is (1 - rho)-strongly convex, and D(z) is the one u with u + grad R(u) = z. Differentiating that,
J_D(z) = (Id + Hess R(u))^{-1}, which is how D is trained: nothing is unrolled.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from proxmatch.denoisers.inverse import conjugate_gradient, residual_scale
from proxmatch.denoisers.ridge.filters import analyze, spectrum, synthesize
from proxmatch.denoisers.ridge.profile import Profile
from proxmatch.metrics import norm

#: When the minimization stops: |u + grad R(u) - z| relative to max(|z|, 0.1 sqrt(n)).
TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-13}
#: The same while a denoiser is trained: an error of 2e-5 in a pixel, half the iterations.
ROUGH = {torch.float32: 1e-4, torch.float64: 1e-13}
#: When the solution of Id + Hess R that a training needs is accurate enough, relatively.
GRADIENT = {torch.float32: 1e-3, torch.float64: 1e-13}
#: Responses of filters that a CPU handles at a time, so that they stay in its cache.
AT_ONCE = 1 << 17
MAX_ITERATIONS, MAX_PRODUCTS = 200, 2000
#: Relative |grad F| down to which single precision is as good as double.
SINGLE = 1e-5
#: How accurately a step is solved for, at best and at worst.
FORCING = (1e-4, 0.1)
#: Only rounding is left after this many iterations that did not reduce |grad F| by this factor.
PATIENCE, PROGRESS = 6, 0.9
#: A step is taken where the slope along it is down to this fraction, or after this many trials.
EXACTNESS, TRIALS = 0.3, 8


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


@dataclass(frozen=True)
class System:
    r"""A = Id + W^T B W with B = diag(psi''(W u)): the Hessian of F at u.

    Equations with it are solved by conjugate gradients, preconditioned by

        M = S^{1/2} C S^{1/2},    C = mean(1 / s) Id + sum_k mean(b_k / s) W_k^T W_k

    where S = diag(s), s about the diagonal of A, and C is a periodic convolution: where an image is
    flat and where it is not differs by s, high and low frequencies by C. As B >= -rho and
    |W| <= 1, M is positive definite. It saves a quarter to a third of the products.

    Attributes:
        kernel: of W.
        bend: b, ``(B, K, H, W)``.
    """

    kernel: Tensor
    bend: Tensor

    def __call__(self, v: Tensor) -> Tensor:
        """A v, the shape of v."""
        return v + synthesize(self.bend * analyze(v, self.kernel), self.kernel)

    def solve(self, v: Tensor, tolerance: Tensor, most: int) -> Tensor:
        """A^{-1} v, to a relative residual for each image, ``(B,)``."""
        return conjugate_gradient(self, v, tolerance, most, self._preconditioner())

    def _preconditioner(self) -> Callable[[Tensor], Tensor]:
        """V -> M^{-1} v."""
        kernel = self.kernel
        diagonal = synthesize(self.bend, kernel.square().mean(1, keepdim=True))
        root = (1 + diagonal).rsqrt()
        share = root.square()
        height, width = (max(n, 2 * kernel.shape[-1] - 1) for n in share.shape[-2:])
        weights = (self.bend * share).mean((2, 3))
        symbol = spectrum(kernel, weights, (height, width))
        symbol.diagonal(dim1=3, dim2=4).add_(share.mean((2, 3))[:, None, None])
        inverse = torch.linalg.inv(symbol).permute(0, 3, 4, 1, 2)

        def apply(v: Tensor) -> Tensor:
            waves = torch.fft.rfft2(root * v, s=(height, width))
            back: Tensor = torch.fft.irfft2((inverse * waves[:, None]).sum(2), s=(height, width))
            return root * back[..., : v.shape[-2], : v.shape[-1]]

        return apply


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
    bend = regularizer.profile.bend(analyze(u, regularizer.kernel))
    system = System(regularizer.kernel, bend)
    return system.solve(v, v.new_full((len(v),), tolerance), MAX_PRODUCTS)


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
def minimize(
    regularizer: Regularizer, z: Tensor, tolerance: float, start: Tensor | None = None
) -> Tensor:
    """D(z) by Newton's method, each image on its own.

    Steps are solved for by preconditioned conjugate gradients in single precision, to an accuracy
    that tightens with |grad F|. Along a step d, W (u + t d) = W u + t W d: trying a t costs no
    convolution, so that t nearly minimizes F. Since F is strongly convex, this converges for all
    weights, from any start.

    Args:
        regularizer: R.
        z: ``(B, C, H, W)``.
        tolerance: on |u + grad R(u) - z| / max(|z|, 0.1 sqrt(n)). An image on which rounding allows
            no more keeps the best u found.
        start: where to start, if a point near D(z) is known; z itself by default.
    """
    u = z if start is None else start
    if z.dtype == torch.float64:
        off = norm(u + regularizer.gradient(u) - z) > SINGLE * residual_scale(z)
        if bool(off.any()):  # single precision first, as far as that goes
            single = regularizer.rows(off).each(Tensor.float)
            u = u.clone()
            u[off] = _newton(single, z[off].float(), max(tolerance, SINGLE), u[off].float()).to(z)
    return _newton(regularizer, z, tolerance, u)


def _newton(regularizer: Regularizer, z: Tensor, tolerance: float, u: Tensor) -> Tensor:
    """D(z) in the precision of z, from u."""
    scale = residual_scale(z)
    kernel, psi = regularizer.kernel, regularizer.profile
    y = analyze(u, kernel)
    slope, bend = psi.slope_and_bend(y)
    g = u - z + synthesize(slope, kernel)
    out, lowest = u.clone(), torch.full_like(scale, torch.inf)
    mark = lowest.clone()  # where |grad F| was when it last made progress
    marked = torch.zeros_like(scale, dtype=torch.long)  # at which iteration
    live = torch.arange(len(z), device=z.device)
    coarse = kernel.float()
    for k in range(MAX_ITERATIONS):
        size = norm(g) / scale[live]
        better = size < lowest[live]
        out[live[better]], lowest[live[better]] = u[better], size[better]
        ahead = live[size < PROGRESS * mark[live]]
        mark[ahead], marked[ahead] = lowest[ahead], k
        going = (lowest[live] > tolerance) & (k - marked[live] < PATIENCE)
        if not bool(going.all()):
            left = going.nonzero().flatten()
            if not len(left):
                break
            u, g, z, y, bend = u[left], g[left], z[left], y[left], bend[left]
            size, live, psi = size[left], live[left], psi.rows(left)
        forcing = size.sqrt().clamp(FORCING[0], FORCING[1])
        forcing = torch.maximum(forcing, 0.3 * tolerance / size).float()
        unit = _over(size * scale[live])
        system = System(coarse, bend.float())
        d = unit * system.solve((-g / unit).float(), forcing, MAX_PRODUCTS).to(g)
        t, y, slope, bend = _line_search(psi, y, bend, analyze(d, kernel), d, g, u - z)
        u = u + t * d
        g = u - z + synthesize(slope, kernel)
    return out


def _at_once(z: Tensor, filters: int) -> int:
    """How many images to handle at a time."""
    if z.device.type != "cpu":
        return sys.maxsize
    return max(1, AT_ONCE // (filters * z.shape[-2] * z.shape[-1]))


def _line_search(
    psi: Profile, y: Tensor, bend: Tensor, step: Tensor, d: Tensor, g: Tensor, offset: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A zero of t -> F'(t), the slope of F along d, to :data:`EXACTNESS`: it increases with t.

    A Newton step first, then secants within what is known to hold the zero.

    Args:
        psi: of every filter.
        y: W u.
        bend: psi''(y).
        step: W d.
        d: the direction.
        g: grad F(u).
        offset: u - z.

    Returns:
        t, ``(B, 1, 1, 1)``; y + t step, psi' and psi'' there.
    """
    start, square, fixed = _dot(g, d), _dot(d, d), _dot(offset, d)
    t = -start / (square + _dot(bend * step, step))
    low, at_low = torch.zeros_like(t), start
    high, at_high = torch.full_like(t, torch.inf), torch.full_like(t, torch.inf)
    for trial in range(TRIALS + 1):
        moved = torch.addcmul(y, t, step)
        slope, bend = psi.slope_and_bend(moved)
        now = fixed + t * square + _dot(slope, step)
        todo = now.abs() > -EXACTNESS * start
        if trial == TRIALS or not bool(todo.any()):
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
    return t, moved, slope, bend


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """The inner products of images, ``(B, 1, 1, 1)``."""
    return _over(torch.linalg.vecdot(a.flatten(1), b.flatten(1)))


def _over(c: Tensor) -> Tensor:
    """``(B,)`` made to multiply images."""
    return c.view(-1, 1, 1, 1)
