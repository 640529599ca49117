"""PnP-PGD: proximal gradient descent with a denoiser in place of the proximal map.

    z_k = x_{k-1} - eta grad f(x_{k-1}),        x_k = D(z_k),        k = 1 ... K.

Each image of a batch has its own curves, its own end and its own failure.

**Warm start.** The first ``warm`` steps may use momentum: the gradient step is taken from
v = x_{k-1} + beta_k (x_{k-1} - x_{k-2}), with Nesterov's beta_k, restarted for an image whenever
its momentum points uphill (O'Donoghue and Candes, 2015). A denoiser that has a noise level begins
at one :data:`FALL` times as high, which falls to its own during the warm start: a strong prior
soon fills in and sharpens what would take a weak one hundreds of steps. The theory of PnP-PGD
holds from any x_0 for the denoiser as it is, so it covers the plain steps that follow.

An image **diverges** at the first k for which x_k is not finite or max |x_k| exceeds
100 max(1, max |x_0|). It is then left at x_{k-1}, and neither denoiser sees it after this step.
"""

from __future__ import annotations

import inspect
import math
import operator
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

import torch
from torch import Tensor, nn

from proxmatch.denoisers.levels import NONE, as_level, told_once
from proxmatch.errors import DivergenceWarning, InputError, ProxmatchError
from proxmatch.metrics import decibels, distance, norm, relative_gap, ssim
from proxmatch.plots.shown import ShownRun
from proxmatch.problems import Problem

EXPLOSION = 100.0
#: How many times its own noise level a denoiser begins a warm start with.
FALL = 4.0
#: Steps between two checks of which images still run, where a check waits for the device.
LOOK = 10
QUALITY = ("psnr", "ssim")
RECORDS = (*QUALITY, "residual", "iterates")

Denoise = Callable[[Tensor, Any], Tensor]
OnDivergence = Literal["warn", "ignore"]


class Status(StrEnum):
    """How the iteration of an image ended; ``suspicious`` is what ``reconstruct`` may find."""

    COMPLETED = "completed"
    CONVERGED = "converged"
    DIVERGED = "diverged"
    SUSPICIOUS = "suspicious"


@dataclass(frozen=True, repr=False)
class PnPResult(ShownRun):
    """Reconstructions of B images and what was recorded on the way, over K iterations.

    Curves are None when they were not recorded, and NaN after an image has stopped.

    Attributes:
        images: last iterate of each image, ``(B, C, H, W)``.
        status: how each image ended.
        iterations: number of steps each image made, ``(B,)``.
        warm: number of steps of the warm start; x_warm is where the plain steps begin.
        psnr: PSNR of x_0 ... x_K, ``(B, K + 1)``.
        ssim: SSIM of x_0 ... x_K, ``(B, K + 1)``.
        residual: ||x_k - x_{k-1}|| / ||x_k||, ``(B, K)``.
        mismatch: d_k = ||D(z_k) - D*(z_k)|| to the reference denoiser D*, ``(B, K)``.
        gap: d_k / ||D*(z_k)||, ``(B, K)``.
        best: the iterate of highest PSNR of each image, ``(B, C, H, W)``, with ``psnr``.
        best_iteration: its number, ``(B,)``, with ``psnr``.
        iterates: x_0 ... x_K on the CPU, ``(B, K + 1, C, H, W)``.
        queries: z_1 ... z_K on the CPU, ``(B, K, C, H, W)``.
    """

    images: Tensor
    status: tuple[Status, ...]
    iterations: Tensor
    warm: int
    psnr: Tensor | None
    ssim: Tensor | None
    residual: Tensor | None
    mismatch: Tensor | None
    gap: Tensor | None
    best: Tensor | None
    best_iteration: Tensor | None
    iterates: Tensor | None
    queries: Tensor | None


@dataclass(frozen=True)
class Watched:
    """A denoiser that reports every call, for progress bars and films.

    Attributes:
        denoiser: D.
        on_call: called with z, D(z) and ``factor``.
        factor: how many times its own noise level D has.
    """

    denoiser: Denoise
    on_call: Callable[[Tensor, Tensor, float], None]
    factor: float = 1.0

    def __call__(self, z: Tensor, sigma: Any = None) -> Tensor:
        """D(z)."""
        x = stronger(self.denoiser, self.factor)(z, sigma)
        self.on_call(z, x, self.factor)
        return x

    @property
    def conditional(self) -> bool:
        """Whether D makes use of a noise level, as far as it says so."""
        return _reads(self.denoiser)

    def stronger(self, factor: float) -> Watched:
        """D at a multiple of its noise level, if it has one."""
        return Watched(self.denoiser, self.on_call, factor)


@torch.no_grad()
@told_once()
def pnp_pgd(
    denoiser: Denoise,
    measurements: Any,
    problem: Problem,
    *,
    reference: Denoise | None = None,
    truth: Any = None,
    record: Collection[str] | None = None,
    sigma: Any = None,
    iterations: int | None = None,
    warm: int | None = None,
    initial: Tensor | None = None,
    stop: float | None = None,
    on_divergence: OnDivergence = "warn",
) -> PnPResult:
    """Reconstruct images from their measurements.

    Args:
        denoiser: D, called as ``denoiser(z, sigma)``, or as ``denoiser(z)`` if it takes no level.
        measurements: y, as ``problem.measure`` makes them; or arrays, or pictures of them.
        problem: the operator, step size, start and number of steps.
        reference: D*, called the same way at the same points to record ``mismatch`` and ``gap``.
        truth: the true images, ``(B, C, H, W)``, or in any form of
            :mod:`proxmatch.data.any_form`.
        record: any of "psnr" and "ssim" (which need ``truth``), "residual" and "iterates" (with
            queries). Unless given, the residual, and the PSNR when there is a truth.
        sigma: noise level for the denoisers, a number or one for each image, if not their own.
        iterations: number of steps, if not that of the problem; with 0, x_0 is the result.
        warm: how many of these steps use momentum and falling noise levels (a denoiser that has
            them is asked for ``denoiser.stronger(factor)``); the rest are plain. As many as the
            problem says unless given.
        initial: x_0, if not that of the problem.
        stop: an image has converged, and stops, once its residual is below this in a plain step.
        on_divergence: ``warn``, or ``ignore`` if the caller looks at the status.

    Raises:
        InputError: an argument that does not fit, a level for a denoiser that has none, or a
            denoiser that does not return images.

    Warns:
        DivergenceWarning: some images diverged; it names them.

    Example:
        >>> from proxmatch.problems import denoising
        >>> x = torch.full((1, 1, 8, 8), 0.5)
        >>> problem = denoising(8, channels=1, iterations=3)
        >>> result = pnp_pgd(lambda z, sigma: z, problem.measure(x), problem, truth=x)
        >>> result.images.shape, result.psnr.shape, result.status[0].value
        (torch.Size([1, 1, 8, 8]), torch.Size([1, 4]), 'completed')
    """
    names = _checked_names(record, truth, reference)
    steps = problem.iterations if iterations is None else checked_count(iterations, 0)
    if stop is not None and not stop > 0:
        raise InputError(f"stop must be positive, got {stop}")
    if sigma is not None and not (_reads(denoiser) or _reads(reference)):
        raise InputError(NONE)
    denoiser = _told(denoiser)
    reference = None if reference is None else _told(reference)
    y = problem.measurements(measurements)
    truth = None if truth is None else problem.batch(truth)
    problem.check_measurement(y)
    x = problem.initialization(y, problem.physics) if initial is None else initial
    for name, images in (("initial", x), ("truth", truth)):
        if images is not None:
            problem.check_image(images, name)
            if len(images) != len(y):
                raise InputError(
                    f"{name} holds {len(images)} images, there are measurements of {len(y)}"
                )

    sigma = as_level(sigma, x)
    warm = problem.warm_steps(steps) if warm is None else checked_count(warm, 0, "warm")
    warm = min(warm, steps)
    gradient = problem.gradient_at(y)
    progress = _Progress(x, stop)
    momentum = _Momentum(x)
    curves = _blank(names, steps, x)
    if "iterates" in names:
        curves["iterates"][:, 0] = x
    quality = _quality(names, truth)
    for name, measure in quality.items():
        curves[name][:, 0] = measure(x)
    best = x if "psnr" in names else None
    for k in range(1, steps + 1):
        v = momentum.point(x) if k <= warm else x
        z = torch.sub(v, gradient(v), alpha=problem.eta)
        factor = _factor(k, warm)
        new = _denoised("denoiser", stronger(denoiser, factor), z, sigma, progress.rows, x)
        previous, x = x, progress.sound(new, x)
        for name, measure in quality.items():
            curves[name][:, k] = measure(x)
        if best is not None:
            better = curves["psnr"][:, k] > curves["psnr"][:, :k].amax(1)
            best = torch.where(_per_image(better), x, best)
        if reference is not None:
            same = stronger(reference, factor)
            target = _denoised("reference", same, z, sigma, progress.rows, x)
            curves["mismatch"][:, k] = distance(x, target)
            curves["gap"][:, k] = relative_gap(x, target)
        if "iterates" in names:
            curves["iterates"][:, k] = x
            curves["queries"][:, k] = z
        change = x - previous
        if "residual" in names or stop is not None:
            residual = norm(change) / norm(x).clamp_min(torch.finfo(x.dtype).tiny)
            if "residual" in names:
                curves["residual"][:, k] = residual
            if k > warm:
                progress.retire(residual)
        if k < warm:
            momentum.moved(v, x, change)
        del v, z, new, previous, change  # every copy of a large picture counts
        if x.device.type == "cpu" or k % LOOK == 0:
            progress.look()
        if progress.finished:
            break

    if on_divergence == "warn":
        progress.warn()
    stopped = torch.arange(steps + 1, device=x.device) > progress.steps[:, None]
    for curve in curves.values():
        curve[stopped.to(curve.device)] = math.nan
    by_psnr = curves["psnr"].nan_to_num(-math.inf).argmax(1) if "psnr" in names else None
    return PnPResult(
        images=x if steps else x.clone(),
        status=progress.status(),
        iterations=progress.steps,
        warm=warm,
        psnr=curves.get("psnr"),
        ssim=curves.get("ssim"),
        residual=_from_first(curves.get("residual")),
        mismatch=_from_first(curves.get("mismatch")),
        gap=_from_first(curves.get("gap")),
        best=None if best is None else best.clone(),
        best_iteration=by_psnr,
        iterates=curves.get("iterates"),
        queries=_from_first(curves.get("queries")),
    )


def checked_count(count: int, lowest: int = 1, name: str = "iterations") -> int:
    """A number of steps, NumPy's integers included.

    Raises:
        InputError: it is not an integer, or below ``lowest``.

    Example:
        >>> checked_count(3)
        3
    """
    try:
        steps = operator.index(count)
    except TypeError:
        steps = lowest - 1
    if steps < lowest:
        raise InputError(f"{name} must be an integer, {lowest} or more, got {count}")
    return steps


def _factor(k: int, warm: int) -> float:
    """How many times its own the noise level is at step k: from FALL to 1, evenly in its log."""
    return float(FALL ** (1 - (k - 1) / warm)) if k <= warm else 1.0


def stronger(denoiser: Denoise, factor: float) -> Denoise:
    """The denoiser at a multiple of its noise level, if it has one.

    Args:
        denoiser: D; ``denoiser.stronger(factor)`` is asked for, where there is such a method.
        factor: how many times its own level.

    Example:
        >>> stronger(len, 4.0) is len
        True
    """
    find = getattr(denoiser, "stronger", None)
    found: Denoise = denoiser if find is None or factor == 1 else find(factor)
    return found


class _Momentum:
    """Nesterov's momentum, image by image, with restarts.

    theta_1 = 1, theta_{k+1} = (1 + sqrt(1 + 4 theta_k^2)) / 2, and beta_k is
    (theta_k - 1) / theta_{k+1}.
    """

    def __init__(self, x: Tensor) -> None:
        self.theta = x.new_ones(len(x), 1, 1, 1)
        self.step: Tensor | None = None

    def point(self, x: Tensor) -> Tensor:
        """The point v = x + beta (x - the previous iterate); the step is then forgotten."""
        after = (1 + (1 + 4 * self.theta.square()).sqrt()) / 2
        beta, self.theta = (self.theta - 1) / after, after
        step, self.step = self.step, None
        return x if step is None else torch.addcmul(x, beta, step)

    def moved(self, v: Tensor, x: Tensor, step: Tensor) -> None:
        """Take note of a step from v to x: restart images where (v - x) and the step agree."""
        uphill = torch.linalg.vecdot((v - x).flatten(1), step.flatten(1)) > 0
        self.theta = torch.where(_per_image(uphill), 1.0, self.theta)
        self.step = step


class _Progress:
    """Which images of a batch are still running, and how the others ended."""

    def __init__(self, x: Tensor, stop: float | None) -> None:
        self.stop = stop
        self.limit = EXPLOSION * _peak(x).clamp_min(1.0)
        self.running = torch.ones(len(x), dtype=torch.bool, device=x.device)
        self.rows: Tensor | None = None  # those that ran when last looked; None for all of them
        self.steps = torch.zeros(len(x), dtype=torch.int64, device=x.device)
        self.diverged = torch.zeros_like(self.running)
        self.converged = torch.zeros_like(self.running)

    @property
    def finished(self) -> bool:
        """No image is running."""
        return self.rows is not None and len(self.rows) == 0

    def sound(self, x: Tensor, previous: Tensor) -> Tensor:
        """The iterate after one more step; images that no longer run are put back."""
        sound = _peak(x) <= self.limit  # false for NaN
        self.diverged |= self.running & ~sound
        self.running = self.running & sound
        self.steps += self.running
        return torch.where(_per_image(self.running), x, previous)

    def retire(self, residual: Tensor) -> None:
        """Stop the images that have converged."""
        if self.stop is not None:
            done = self.running & (residual < self.stop)
            self.converged |= done
            self.running = self.running & ~done

    def look(self) -> None:
        """Find out which images still run, which waits for the device."""
        self.rows = None if bool(self.running.all()) else self.running.nonzero().flatten()

    def warn(self) -> None:
        """Name the images that diverged, in one warning."""
        images = self.diverged.nonzero().flatten()
        if len(images):
            warnings.warn(
                f"the images {images.tolist()} diverged after {self.steps[images].tolist()} sound "
                "steps and were left there; the denoiser expands at this step size",
                DivergenceWarning,
                stacklevel=5,
            )

    def status(self) -> tuple[Status, ...]:
        """How each image ended."""
        names = {(True, False): Status.DIVERGED, (False, True): Status.CONVERGED}
        ends = zip(self.diverged.tolist(), self.converged.tolist(), strict=True)
        return tuple(names.get(end, Status.COMPLETED) for end in ends)


def _told(denoiser: Denoise) -> Denoise:
    """A denoiser that is called with a noise level, even if the given one takes none."""
    call: Any = denoiser.forward if isinstance(denoiser, nn.Module) else denoiser
    try:
        arguments = inspect.signature(call)
    except (TypeError, ValueError):  # not callable, or built in
        return denoiser
    if _takes(arguments, 2) or not _takes(arguments, 1):
        return denoiser
    plain: Callable[[Tensor], Tensor] = denoiser  # type: ignore[assignment]
    return lambda z, sigma: plain(z)


def _reads(denoiser: Denoise | None) -> bool:
    """Whether it makes use of a noise level, as far as it says so."""
    known = getattr(denoiser, "conditional", None)
    if known is None:
        return denoiser is not None and _told(denoiser) is denoiser
    return bool(known)


def _takes(arguments: inspect.Signature, number: int) -> bool:
    try:
        arguments.bind(*[None] * number)
    except TypeError:
        return False
    return True


def _denoised(
    name: str, denoiser: Denoise, z: Tensor, sigma: Any, rows: Tensor | None, rest: Tensor
) -> Tensor:
    """D(z) in the given rows, and ``rest`` in the others, which the denoiser does not see.

    ``rest`` is near D(z): a denoiser that makes use of that has a method ``near``.
    """
    near, from_near = rest, getattr(denoiser, "near", None)
    if rows is not None:
        if isinstance(sigma, Tensor) and sigma.ndim > 0 and len(sigma) == len(z):
            sigma = sigma[rows]
        z, near = z[rows], rest[rows]
    version = None if z.is_inference() else z._version  # inference tensors keep no count
    try:
        if len(z):
            out = denoiser(z, sigma) if from_near is None else from_near(z, near, sigma)
        else:
            out = z
    except (ProxmatchError, torch.OutOfMemoryError):
        raise
    except (TypeError, AttributeError, ValueError, RuntimeError) as error:
        hint = "it may need a noise level, pass sigma" if sigma is None else "see how it is called"
        raise InputError(
            f"the {name} cannot be called as {name}(images, {sigma}): {error}; {hint}"
        ) from error
    if version is not None and z._version != version:
        raise InputError(f"the {name} changed its input in place; let it work on a copy")
    if not isinstance(out, Tensor) or out.shape != z.shape or out.dtype != z.dtype:
        got = f"{tuple(out.shape)}, {out.dtype}" if isinstance(out, Tensor) else type(out).__name__
        raise InputError(
            f"the {name} must return images like its input, {tuple(z.shape)}, {z.dtype}; got {got}"
        )
    out = out.detach().contiguous()  # channels last, as some networks return, is slower here
    return out if rows is None else rest.index_copy(0, rows, out)


def _checked_names(
    record: Collection[str] | None, truth: Tensor | None, reference: Denoise | None
) -> set[str]:
    """The curves to record, all under the names of the result."""
    if record is None:
        record = ("residual",) if truth is None else ("residual", "psnr")
    if isinstance(record, str) or not set(record) <= set(RECORDS):
        raise InputError(f"record must be a collection of names among {RECORDS}, got {record!r}")
    missing = set(record) & set(QUALITY) if truth is None else None
    if missing:
        raise InputError(f"recording {sorted(missing)} needs the true images: pass truth")
    names = set(record)
    if "iterates" in names:
        names.add("queries")
    if reference is not None:
        names |= {"mismatch", "gap"}
    return names


def _quality(names: Collection[str], truth: Tensor | None) -> dict[str, Callable[[Tensor], Tensor]]:
    """The metrics to record, as functions of the iterate."""
    found: dict[str, Callable[[Tensor], Tensor]] = {}
    if truth is None:
        return found
    clipped = truth.clamp(0, 1)
    if "psnr" in names:
        found["psnr"] = lambda x: decibels(x.clamp(0, 1).sub_(clipped))
    if "ssim" in names:
        found["ssim"] = lambda x: ssim(x, clipped)
    return found


def _blank(names: Collection[str], steps: int, x: Tensor) -> dict[str, Tensor]:
    """Curves of NaN over x_0 ... x_K: numbers where x is, images on the CPU."""
    images = {"iterates", "queries"}
    return {
        name: torch.full(
            (len(x), steps + 1, *(x.shape[1:] if name in images else ())),
            math.nan,
            dtype=x.dtype,
            device="cpu" if name in images else x.device,
        )
        for name in names
    }


def _peak(x: Tensor) -> Tensor:
    """Largest |value| of each image, or NaN; ``vector_norm`` takes twenty times as long."""
    return torch.maximum(x.amax((1, 2, 3)), -x.amin((1, 2, 3)))


def _per_image(flags: Tensor) -> Tensor:
    return flags.view(-1, 1, 1, 1)


def _from_first(curve: Tensor | None) -> Tensor | None:
    """Without the empty column of x_0."""
    return None if curve is None else curve[:, 1:]
