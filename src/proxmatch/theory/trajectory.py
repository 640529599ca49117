r"""The quantities of the theory, measured along a run of PnP-PGD, image by image in float64.

    z_k = x_{k-1} - eta grad f(x_{k-1}),   x_k = D(z_k),   xi_k = D(z_k) - D*(z_k),   d_k = |xi_k|

and, with F* = eta f + R* (equation 6), D* = grad h and w_k = D*^{-1}(x_k):

    R*(x_k)      = <w_k, x_k> - h(w_k) - |x_k|^2 / 2,        grad R*(x_k) = w_k - x_k
    grad H_k     = w_k - z_k = -r_k   at x_k
    eps_k        = H_k(x_k) - H_k(D*(z_k)) = h(z_k) - h(w_k) - <x_k, z_k - w_k>

so that eps_k needs one inverse: that of D*(z_k) is z_k itself, and constants cancel.

**Errors of the inverse.** Where D*(w) = x + e with |e| = rho and D*^{-1} is L_H-Lipschitz, w is off
by at most L_H rho, and R* (hence eps_k and F*) is too small by at most L_H rho^2 / 2. These bounds
are kept with the numbers, together with a bound for rounding. Where D*^{-1} has a formula, rho is
what :meth:`near` finds from x_k: for a ridge |w - x - grad R*(x)|, which is rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from proxmatch.denoisers import ProximalDenoiser, jacobian_spectrum
from proxmatch.denoisers.inverse import residual_scale
from proxmatch.errors import InputError, NotContractiveError, UnknownLipschitzError
from proxmatch.metrics import norm
from proxmatch.pnp import Denoise, Status, checked_count, pnp_pgd
from proxmatch.problems import Problem

T = TypeVar("T")
ROUNDING = 16 * torch.finfo(torch.float64).eps  # of a sum, relative to its largest parts


@dataclass(frozen=True)
class Trajectory:
    """K steps of PnP-PGD of B images against a reference D*; NaN where something is not known.

    Attributes:
        step: |x_k - x_{k-1}|, ``(B, K)``.
        mismatch: d_k, ``(B, K)``.
        error: eps_k, ``(B, K)``.
        error_bound: numerical error of eps_k, ``(B, K)``.
        residual: |r_k| = |grad H_k(x_k)|, ``(B, K)``.
        identity: |grad F*(x_k) - (x_{k-1} - x_k + eta (grad f(x_k) - grad f(x_{k-1})) - r_k)|,
            which is zero if the z_k and x_k are those of PnP-PGD, ``(B, K)``.
        stationarity: |grad F*(x_k)| for x_0 ... x_K, ``(B, K + 1)``.
        gradient_bound: numerical error of it and of r_k, ``(B, K + 1)``.
        objective: F*(x_k) - F*(x_0), ``(B, K + 1)``.
        objective_bound: numerical error of F*(x_k), ``(B, K + 1)``.
        inverted: whether D*(w) = x_k was solved, ``(B, K + 1)``.
        status: how each image ended.
        local_image: L_H on the segment from D*(z_k) to x_k: an estimate, ``(B, K)``.
        local_query: L_H on the segment from z_k to D*^{-1}(x_k): an estimate, ``(B, K)``.
        step_size: eta L_f.
        smoothness: L_H; NaN if there is none.
        proved: whether that L_H is a theorem about D*, and not an estimate on images.
        why: the reason if there is no L_H.
    """

    step: Tensor
    mismatch: Tensor
    error: Tensor
    error_bound: Tensor
    residual: Tensor
    identity: Tensor
    stationarity: Tensor
    gradient_bound: Tensor
    objective: Tensor
    objective_bound: Tensor
    inverted: Tensor
    status: tuple[Status, ...]
    local_image: Tensor
    local_query: Tensor
    step_size: float
    smoothness: float
    proved: bool
    why: str


def trace(
    denoiser: Denoise,
    measurements: Any,
    problem: Problem,
    *,
    reference: ProximalDenoiser,
    iterations: int | None = None,
    sigma: float | None = None,
    warm: int = 0,
    initial: Tensor | None = None,
    tolerance: float = 1e-7,
    chunk: int = 16,
    local: Iterable[int] = (),
) -> Trajectory:
    """Run PnP-PGD with ``denoiser`` and measure it against ``reference``, in float64.

    Args:
        denoiser: D, the deployed one; modules are copied and cast.
        measurements: y, as ``problem.measure`` makes them; or arrays, or pictures of them.
        problem: f, eta and the start.
        reference: D*.
        iterations: number of steps, if not that of the problem.
        sigma: passed on to both.
        warm: how many of these steps are a warm start; x_0 is then where it ends.
        initial: x_0, if not that of the problem.
        tolerance: on the relative residual of the inverse.
        chunk: images inverted at once, which bounds the memory.
        local: the k at which L_H is estimated on segments as well.

    Example:
        >>> from proxmatch.baselines import Wiener
        >>> from proxmatch.problems import denoising
        >>> x = torch.rand(2, 1, 8, 8, dtype=torch.float64)
        >>> exact = Wiener.fit(x, 0.1).double()
        >>> problem = denoising(8, channels=1, iterations=2, dtype=torch.float64)
        >>> trace(exact, problem.measure(x), problem, reference=exact).mismatch.max().item()
        0.0
    """
    steps = problem.iterations if iterations is None else checked_count(iterations)
    if checked_count(warm, 0, "warm") >= steps:
        raise InputError(f"a warm start of {warm} of {steps} steps leaves none to measure")
    problem = problem.to(torch.float64)
    y = problem.measurements(measurements).double()
    reference = in_float64(reference)
    initial = None if initial is None else initial.double()
    run = pnp_pgd(
        in_float64(denoiser),
        y,
        problem,
        record=["iterates"],
        sigma=sigma,
        iterations=steps,
        warm=warm,
        initial=initial,
    )
    assert run.iterates is not None  # noqa: S101
    assert run.queries is not None  # noqa: S101
    return measure(
        run.iterates[:, run.warm :],
        run.queries[:, run.warm :],
        y,
        problem,
        reference=reference,
        status=run.status,
        sigma=sigma,
        tolerance=tolerance,
        chunk=chunk,
        local=local,
    )


@torch.no_grad()
def measure(
    iterates: Tensor,
    queries: Tensor,
    measurements: Tensor,
    problem: Problem,
    *,
    reference: ProximalDenoiser,
    status: tuple[Status, ...] | None = None,
    sigma: float | None = None,
    tolerance: float = 1e-7,
    chunk: int = 16,
    local: Iterable[int] = (),
) -> Trajectory:
    """Measure given iterates; only eta, L_f, f and its gradient of ``problem`` are used.

    Args:
        iterates: x_0 ... x_K, ``(B, K + 1, C, H, W)`` in float64; NaN after an image has stopped.
        queries: z_1 ... z_K, ``(B, K, C, H, W)``.
        measurements: y.
        problem: f and eta.
        reference: D*, in float64.
        status: how each image ended.
        sigma: passed on to D*.
        tolerance: on the relative residual of the inverse.
        chunk: images handled at once.
        local: the k at which L_H is estimated on segments as well.

    Example:
        >>> from proxmatch.baselines import Wiener
        >>> from proxmatch.problems import denoising
        >>> x = torch.rand(2, 1, 8, 8, dtype=torch.float64)
        >>> exact = Wiener.fit(x, 0.1).double()
        >>> problem = denoising(8, channels=1, iterations=2, dtype=torch.float64)
        >>> y = problem.measure(x)
        >>> run = pnp_pgd(exact, y, problem, record=["iterates"], warm=0)
        >>> measure(run.iterates, run.queries, y, problem, reference=exact).mismatch.max().item()
        0.0
    """
    count, steps = queries.shape[:2]
    if iterates.dtype != torch.float64 or iterates.shape[:2] != (count, steps + 1):
        raise InputError(
            f"expected x_0 ... x_K in float64 and z_1 ... z_K, got {tuple(iterates.shape)} in "
            f"{iterates.dtype} and {tuple(queries.shape)}"
        )
    smoothness, why = _smoothness(reference)
    blank = torch.full((count, steps + 1), math.nan, dtype=torch.float64)
    found = {name: blank.clone() for name in _CURVES}
    inverted = torch.zeros(count, steps + 1, dtype=torch.bool)
    local_image, local_query = blank.clone(), blank.clone()
    chosen = sorted({k for k in local if 1 <= k <= steps})
    for b in range(count):
        sound = int(iterates[b].isfinite().flatten(1).all(1).sum())  # x_0 ... x_{sound - 1}
        x = iterates[b, :sound].to(measurements.device)
        z = torch.cat([x[:1], queries[b, : sound - 1].to(measurements.device)])  # x_0 has no query
        measured = measurements[b : b + 1]
        parts = []
        # x_0 by itself: it is not an output of a denoiser, and the hardest to invert when D is D*.
        sizes = [1, *(min(chunk, sound - i) for i in range(1, sound, chunk))]
        for xs, zs in zip(torch.split(x, sizes), torch.split(z, sizes), strict=True):
            target = reference.near(zs, xs, sigma)
            inverse = reference.inverse(xs, sigma, initial=zs, tolerance=tolerance, near=True)
            w, rho = inverse.z, inverse.residual * residual_scale(xs)
            hz = reference.potential_at(zs, target, sigma)
            hw = reference.potential_at(w, xs, sigma)
            ys = measured.expand(len(xs), *measured.shape[1:])
            f, df = problem.fidelity(xs, ys), problem.gradient(xs, ys)
            parts.append((w, target, rho, hz, hw, f, df, inverse.converged))
        w, target, rho, hz, hw, f, df, converged = map(torch.cat, zip(*parts, strict=True))
        inner, square = _dot(w, x), _dot(x, x) / 2
        gradient = problem.eta * df + w - x
        work = _dot(x, z - w)
        predicted = x[:-1] - x[1:] + problem.eta * (df[1:] - df[:-1]) - (z - w)[1:]
        shift = smoothness * rho
        value_scale = hw.abs() + inner.abs() + square + problem.eta * f
        curves = {
            "step": _after_first(norm(x[1:] - x[:-1])),
            "mismatch": norm(x - target),
            "error": hz - hw - work,
            "error_bound": shift * rho / 2 + ROUNDING * (hz.abs() + hw.abs() + work.abs()),
            "residual": norm(z - w),
            "identity": _after_first(norm(gradient[1:] - predicted)),
            "stationarity": norm(gradient),
            "gradient_bound": shift + ROUNDING * (norm(w) + norm(x)),
            "objective": problem.eta * f + inner - hw - square,
            "objective_bound": shift * rho / 2 + ROUNDING * value_scale,
        }
        for name, values in curves.items():
            keep = converged if name in _INVERSE else torch.ones_like(converged)
            found[name][b, :sound] = values.masked_fill(~keep, math.nan).cpu()
        found["objective"][b] -= found["objective"][b, 0].item()
        inverted[b, :sound] = converged.cpu()
        for k in (k for k in chosen if k < sound and bool(converged[k])):
            images, preimages = (target[k : k + 1], x[k : k + 1]), (z[k : k + 1], w[k : k + 1])
            both = local_smoothness(reference, images, preimages, sigma, tolerance=tolerance)
            local_image[b, k], local_query[b, k] = both
    later = {name: v if name in _FROM_START else v[:, 1:] for name, v in found.items()}
    return Trajectory(
        **later,
        inverted=inverted,
        status=status or (Status.COMPLETED,) * count,
        local_image=local_image[:, 1:],
        local_query=local_query[:, 1:],
        step_size=problem.eta * problem.gradient_bound.value,
        smoothness=smoothness,
        proved=reference.always_convex,
        why=why,
    )


def local_smoothness(
    reference: ProximalDenoiser,
    images: tuple[Tensor, Tensor],
    preimages: tuple[Tensor, Tensor],
    sigma: float | None = None,
    *,
    inside: int = 1,
    iterations: int = 30,
    tolerance: float = 1e-7,
) -> tuple[float, float]:
    """Estimate L_H on two segments of one image, as 1 / (smallest eigenvalue of J_{D*}) there.

    On the segment between the images D*(z) and x, H_k is L_H-smooth with the first number: that is
    what Lemma 3.1 needs. Gradient-suboptimality (Assumption 3.3) does not follow from it, since
    smoothness on a segment says nothing beyond its ends. On the segment between the pre-images, h
    is 1/L_H-strongly convex with the second number, and both follow from that:

        eps = h(z) - h(w) - <x, z - w> >= |z - w|^2 / (2 L_H)        and        <= L_H d^2 / 2.

    Both are estimates, from below: a few points, and Lanczos at each.

    Args:
        reference: D*.
        images: D*(z) and x, ``(1, C, H, W)``.
        preimages: z and D*^{-1}(x).
        sigma: passed on to D*.
        inside: points on each segment, besides its ends.
        iterations: of Lanczos.
        tolerance: of the inverses between the images.
    """
    (u, x), (z, w) = images, preimages
    share = (torch.arange(1, inside + 1, dtype=z.dtype) / (inside + 1)).to(z).view(-1, 1, 1, 1)
    between = z + share * (w - z)
    solved = reference.inverse(u + share * (x - u), sigma, initial=between, tolerance=tolerance)

    def largest(at: Tensor) -> float:
        smallest = jacobian_spectrum(reference, at, sigma, iterations=iterations).smallest
        return float(1 / smallest.min()) if bool((smallest > 0).all()) else math.inf

    first = largest(torch.cat([z, solved.z, w])) if bool(solved.converged.all()) else math.nan
    return first, largest(torch.cat([z, between, w]))


def in_float64(denoiser: T) -> T:
    """A copy in float64 of a module; anything else as it is."""
    return deepcopy(denoiser).double().eval() if isinstance(denoiser, nn.Module) else denoiser


def _smoothness(reference: ProximalDenoiser) -> tuple[float, str]:
    """L_H and, if there is none, NaN and why."""
    try:
        value = reference.smoothness
    except (NotContractiveError, UnknownLipschitzError) as error:
        return math.nan, str(error)
    if math.isinf(value):
        return math.nan, "R* has a kink: H_k is not smooth and L_H is infinite"
    return value, ""


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).flatten(1).sum(1)


def _after_first(values: Tensor) -> Tensor:
    """With a NaN for k = 0 in front."""
    return torch.cat([values.new_full((1,), math.nan), values])


_FROM_START = {"stationarity", "gradient_bound", "objective", "objective_bound"}
_INVERSE = _FROM_START | {"error", "error_bound", "residual", "identity"}
_CURVES = _INVERSE | {"step", "mismatch"}
