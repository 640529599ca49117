r"""What every proximal denoiser has: a potential, an inverse, and the regularizer they induce.

A denoiser D = grad h with h strongly convex is the proximal map of a function R:

    D = prox_R,    R(u) = h*(u) - |u|^2 / 2,    grad R(u) = D^{-1}(u) - u,

where h* is the convex conjugate (Propositions B.1 for LPN and B.2 for gradient-step denoisers).
With z = D^{-1}(u), h*(u) = <u, z> - h(z), so R costs one inversion and one potential.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache, wraps
from typing import Any, ClassVar

import torch
from deepinv.models import Denoiser
from pydantic import BaseModel
from torch import Tensor, nn

from proxmatch._internal.hardware import full_precision, without_autocast
from proxmatch.denoisers.inverse import (
    FIRST,
    SINGLE,
    Inverse,
    anderson,
    by_formula,
    default_tolerance,
    newton_cg,
    quasi_newton,
)
from proxmatch.denoisers.levels import as_level, checked_levels, extremes, warn
from proxmatch.denoisers.networks import is_map
from proxmatch.errors import InputError, NotConvergedWarning


@dataclass(frozen=True)
class Reach:
    """How far a denoiser sees."""

    radius: int  # D(x) at a pixel depends on x within this many pixels, along each axis
    multiple: int  # its strides: shifts of x by multiples of it are shifts of D(x)

    @property
    def margin(self) -> int:
        """The radius, rounded up to a multiple of the strides."""
        return -(-self.radius // self.multiple) * self.multiple


@dataclass(frozen=True)
class Recipe:
    """How the weights of a family are adapted to a few images."""

    epochs: int = 20  # of the paper's methods, over all inputs
    #: Of proximal matching, per pixel; None for one that decreases (Geometric).
    gamma: float | None = 0.025
    clip: float | None = 0.02  # bound on the gradient; None for none, or 0.02 in a gentle training
    #: How often the model is assessed during a run, which for some families takes long.
    looks: int = 10
    rate: float = 3e-4  # learning rate of a gentle training
    batch: int = 4  # images per step of it
    #: Number of its steps, with fewer than five images and with more.
    steps: tuple[int, int] = (100, 100)


#: Fields of a configuration that may be set on a denoiser after it was made.
SET = ("sigma", "lipschitz")

#: By what relative distance a noise level may exceed the trained ones before there is a warning.
LEEWAY = 1e-3

#: Methods that autocast does not reach: in half precision D is not grad h.
EXACT = (
    "forward", "near", "potential", "potential_at", "regularizer", "regularizer_grad", "_preimage",
)  # fmt: skip

Linearization = tuple[Tensor, Callable[[Tensor], Tensor]]
#: Reads published weights: from a state dict, the name of its file for messages, and settings, to
#: the fields of a configuration and the weights by parameter name.
Reader = Callable[
    [dict[str, Tensor], str, dict[str, Any]], tuple[dict[str, Any], dict[str, Tensor]]
]


class ProximalDenoiser(Denoiser, ABC):  # type: ignore[misc]
    """A denoiser that is the gradient of a convex potential, D = grad h.

    Subclasses implement :meth:`forward`, :meth:`potential`, :meth:`linearize` and
    :attr:`smoothness`; the inverse and the regularizer follow. Images are ``(B, C, H, W)``, in
    [0, 1] up to noise, in the dtype and on the device of the denoiser. No method changes its
    arguments, their ``requires_grad`` or the grad mode.

    Args:
        channels: number of image channels C.
        sigma: noise level the denoiser was trained at, in units of the image; None if unknown.

    Attributes:
        lipschitz: the current estimate of L, the Lipschitz constant of Id - D, or None.
        record: how the denoiser came about (JSON values only); saved with it.
    """

    #: Whether there is a potential at all; see :mod:`proxmatch.denoisers.plain`.
    proximal: bool = True
    #: Whether h is convex whatever the weights are.
    always_convex = True
    #: Whether it has weights that a training may change.
    trainable: ClassVar[bool] = False
    #: Whether L < 1 has to be trained for, and the contractivity penalty applies.
    penalized: ClassVar[bool] = False
    #: Whether D is found by an iteration, which takes far longer than one pass of a network: nobody
    #: gets such a denoiser without asking for it.
    solved: ClassVar[bool] = False
    #: Whether it has a cheaper, less exact evaluation for training (:attr:`mixed`).
    mixable: ClassVar[bool] = False
    #: Whether that evaluation is in use: in a training or a comparison of strengths, never in a
    #: result.
    mixed: bool = False
    #: How its weights are adapted.
    recipe: ClassVar[Recipe] = Recipe()
    #: How it is trained from scratch, by name: ``model``, ``size`` and ``settings`` of a preset.
    presets: ClassVar[dict[str, dict[str, Any]]] = {}
    #: Published files that hold its weights, by kind, for :func:`.published.import_checkpoint`.
    published: ClassVar[dict[str, Reader]] = {}
    #: How its convolutions lie in memory: channels last where that is faster on a CPU.
    memory_format: ClassVar[torch.memory_format] = torch.preserve_format
    #: What it is made from, if it belongs to one of :mod:`proxmatch.denoisers.families`.
    config: BaseModel

    def __init__(self, channels: int, sigma: float | None = None) -> None:
        super().__init__()
        self.channels = channels
        self.sigma = sigma
        self.lipschitz: float | None = None
        self.record: dict[str, Any] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Keep autocast and bad noise levels away from what a family computes."""
        super().__init_subclass__(**kwargs)
        for name in vars(cls).keys() & EXACT:
            setattr(cls, name, without_autocast(checked_levels(vars(cls)[name])))
        if "linearize" in vars(cls):
            cls.linearize = _exact_linearization(checked_levels(cls.linearize))  # type: ignore[method-assign]

    def __repr__(self) -> str:
        number = sum(p.numel() for p in self.parameters())
        return f"{type(self).__name__}({self.channels} channel(s), {number:,} weights)"

    @abstractmethod
    def forward(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """D(x) = grad h(x).

        Args:
            x: noisy images, ``(B, C, H, W)``.
            sigma: noise level, a number or one for each image, ``(B,)``, or ``(B, 1, H, W)`` where
                the denoiser takes :attr:`maps`; None means the denoiser's own. Families that are
                not conditioned on the noise level make no use of a valid one.
        """

    def __call__(self, x: Tensor, sigma: float | Tensor | None = None, **kwargs: Any) -> Tensor:
        """D(x), as :meth:`forward`.

        Args:
            x: noisy images, ``(B, C, H, W)``.
            sigma: noise level, as in :meth:`forward`.
            kwargs: what deepinv hands to any of its denoisers; not used.
        """
        out: Tensor = super().__call__(x, sigma)
        return out

    @abstractmethod
    def potential(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """h(x), ``(B,)``, differentiable in x and in the parameters."""

    @abstractmethod
    def linearize(self, x: Tensor, sigma: float | Tensor | None = None) -> Linearization:
        """D(x) and the map v -> J_D(x) v, both outside autograd.

        J_D is the Hessian of h: symmetric, and positive definite where D is a proximal map.
        """

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """L_H: a Lipschitz constant of D^{-1}, so H_k is L_H-smooth (Lemma 3.1)."""

    def convexity(self, sigma: float | None = None) -> float:
        """A lower bound mu of the eigenvalues of J_D, so that h is mu-strongly convex if mu > 0.

        Args:
            sigma: noise level; None means the denoiser's own.
        """
        return 1 / self.smoothness

    @property
    def conditional(self) -> bool:
        """Whether D depends on the noise level."""
        return False

    @property
    def maps(self) -> bool:
        """Whether the noise level may differ between pixels, ``(B, 1, H, W)``."""
        return False

    @property
    def levels(self) -> tuple[float, float] | None:
        """Smallest and largest noise level it was trained for, if there were several."""
        found: tuple[float, float] | None = getattr(getattr(self, "config", None), "levels", None)
        return found

    @property
    def native_size(self) -> int | None:
        """Side of the images it was made for, if it was made for one size."""
        return None

    @property
    def reach(self) -> Reach | None:
        """How far it sees; None where there is no bound, or nothing is gained by tiles."""
        return None

    # A transformed denoiser holds another one; everything else is its own core.
    @property
    def core(self) -> ProximalDenoiser:
        """The denoiser at the heart of a chain of transforms."""
        return self

    @property
    def chain(self) -> tuple[ProximalDenoiser, ...]:
        """The transforms around the core, from the inside out."""
        return ()

    def with_core(self, core: ProximalDenoiser) -> ProximalDenoiser:
        """The same transforms around another core."""
        return core

    def configuration(self) -> BaseModel:
        """The configuration that makes this denoiser again, with later changes included."""
        now = {name: getattr(self, name) for name in type(self.config).model_fields if name in SET}
        return type(self.config).model_validate({**dict(self.config), **now})

    def inherit_(self, other: ProximalDenoiser) -> None:
        """Start from the weights of another denoiser of the same layout.

        Raises:
            InputError: it has another layout.
        """
        try:
            self.load_state_dict(other.state_dict())
        except RuntimeError as error:
            raise InputError(
                f"a {type(self).__name__} cannot start from this {type(other).__name__}: its "
                "layout is another one"
            ) from error

    def constrained(self) -> dict[str, nn.Parameter]:
        """The parameters that must be nonnegative for h to be convex, by name; none by default.

        They are used as max(w, 0), whatever an optimizer makes of them.
        """
        return {}

    @torch.no_grad()
    def project_(self) -> None:
        """Move the constrained parameters to the nonnegative values that are in use already."""
        for p in self.constrained().values():
            p.clamp_(min=0)

    def inverse(
        self,
        u: Tensor,
        sigma: float | Tensor | None = None,
        *,
        initial: Tensor | None = None,
        tolerance: float | None = None,
        max_iterations: int = 200,
        near: bool = False,
    ) -> Inverse:
        """Solve D(z) = u, image by image within one batch.

        First comes an accelerated fixed-point iteration z <- u + z - D(z), in float32 as far as
        that goes. If h is convex by construction, it is short, and what is not solved then is
        minimized, z -> h(z) - <u, z>: by a quasi-Newton method, and by Newton-CG where that gives
        up or the precision is double. Otherwise the iteration continues in the precision of u, and
        an image may not converge (u outside the range of D, or L >= 1).

        Args:
            u: ``(B, C, H, W)``.
            sigma: noise level, as in :meth:`forward`.
            initial: where to start; u itself by default.
            tolerance: on the relative residual of :class:`Inverse`; by default 1e-5 in float32 and
                1e-10 in float64.
            max_iterations: bound on the evaluations of D in the first phase and on the Newton steps
                in the last; the phase between them has five times as many evaluations.
            near: what a formula gives is verified by :meth:`near` from u, not by a call of D.
        """
        u, start = self._inverse_arguments(u, initial)
        sigma = as_level(sigma, u)
        tolerance = default_tolerance(u.dtype) if tolerance is None else tolerance
        with full_precision(), torch.no_grad():
            known = self._preimage(u, sigma) if near else None
            if known is not None:
                return by_formula(known, self.near(known, u, sigma), u, tolerance)
            return without_autocast(self._solve)(u, sigma, start, tolerance, max_iterations)

    def near(self, x: Tensor, guess: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """D(x), where a point near it is known; families that solve for D start there.

        Args:
            x: ``(B, C, H, W)``.
            guess: the same shape.
            sigma: noise level, as in :meth:`forward`.
        """
        found: Tensor = self(x, sigma)
        return found

    def _preimage(self, u: Tensor, sigma: float | Tensor | None) -> Tensor | None:
        """D^{-1}(u) where there is a formula for it."""
        return None

    def potential_at(self, x: Tensor, value: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """h(x), ``(B,)``, where D(x) is known already; some families compute h from it.

        Args:
            x: ``(B, C, H, W)``.
            value: D(x).
            sigma: noise level, as in :meth:`forward`.
        """
        return self.potential(x, sigma)

    @torch.no_grad()
    def _solve(
        self,
        u: Tensor,
        sigma: float | Tensor | None,
        start: Tensor,
        tolerance: float,
        max_iterations: int,
    ) -> Inverse:
        """D(z) = u for arguments that have been checked."""
        known = self._preimage(u, sigma)
        if known is not None:
            return by_formula(known, self.forward(known, sigma), u, tolerance)
        double, warm = u.dtype == torch.float64, start is not u
        if warm:  # it may be the solution already
            given = by_formula(start, self.forward(start, sigma), u, tolerance)
            if bool(given.converged.all()):
                return given
        with torch.inference_mode(False):
            rough = deepcopy(self).float() if double else self
        levels = each(sigma)

        def apply(of: ProximalDenoiser) -> Callable[[Tensor, Tensor], Tensor]:
            return lambda z, places: of.forward(z, sigma if levels is None else levels[places])

        def linearize(z: Tensor) -> Linearization:
            if rough is self:
                return self.linearize(z, sigma)
            at = cache(lambda: rough.linearize(z.float(), sigma)[1])  # only if a step is taken
            return self.forward(z, sigma), lambda v: at()(v)

        enough = 0.9 * max(tolerance, SINGLE) if double else tolerance
        most = min(FIRST, max_iterations) if self.always_convex else max_iterations
        single = u.float()
        found = anderson(apply(rough), single, start.float(), enough, most)
        spent = found.iterations + int(warm)
        if self.always_convex and not bool(found.converged.all()):
            found = quasi_newton(apply(rough), single, found.z, enough, 5 * max_iterations)
            spent = spent + found.iterations
        if self.always_convex and (double or not bool(found.converged.all())):
            found = newton_cg(linearize, u, found.z.to(u), tolerance, max_iterations)
            spent = spent + found.iterations
        elif double:
            found = anderson(apply(self), u, found.z.to(u), tolerance, max_iterations)
            spent = spent + found.iterations
        return replace(found, iterations=spent)

    def regularizer(
        self, u: Tensor, sigma: float | Tensor | None = None, *, inverse: Inverse | None = None
    ) -> Tensor:
        """R(u) = h*(u) - |u|^2 / 2, ``(B,)``, up to the constant that D does not determine.

        An error e in the inverse is an error of order e^2 here. The result carries no graph: its
        gradient is :meth:`regularizer_grad`.

        Args:
            u: ``(B, C, H, W)``.
            sigma: noise level, as in :meth:`forward`.
            inverse: D^{-1}(u), when it is known already.
        """
        inverse = inverse or self.inverse(u, sigma)
        if inverse.z.shape != self._check(u).shape:
            raise InputError(
                f"the inverse has shape {tuple(inverse.z.shape)}, u has {tuple(u.shape)}"
            )
        z = self._converged(inverse).z
        with torch.no_grad():
            u = u.detach()
            return ((z - u / 2) * u).flatten(1).sum(1) - self.potential(z, sigma)

    def regularizer_grad(self, u: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """Grad R(u) = D^{-1}(u) - u, the shape of u."""
        return self._converged(self.inverse(u, sigma)).z - u.detach()

    def _levels(self, x: Tensor, sigma: float | Tensor | None) -> Tensor:
        """The noise level of each image, ``(B,)``, its own where none is given.

        Or of each pixel, ``(B, 1, H, W)``, for a denoiser that takes :attr:`maps`.

        Raises:
            InputError: no level is known, or it is not positive, or not one for each image.
        """
        given = as_level(self.sigma if sigma is None else sigma, x)
        if given is None:
            raise InputError(
                "this denoiser is conditioned on the noise level; pass sigma, or set denoiser.sigma"
            )
        with torch.inference_mode(False):  # it becomes part of graphs
            if isinstance(given, Tensor):
                level = given.detach().to(x.device, x.dtype, copy=True)
            else:  # filled in on the device, not sent to it
                level = torch.full((), given, dtype=x.dtype, device=x.device)
        if is_map(level):
            self._check_map(x, level)
        else:
            level = level.flatten()
        on_device = isinstance(given, Tensor) and given.device.type != "cpu"
        if self.levels is not None and not on_device:  # looking there would wait for the device
            (low, high), (lowest, highest) = self.levels, extremes(given)
            if lowest < low * (1 - LEEWAY) or highest > high * (1 + LEEWAY):
                units = "; divide levels of 8-bit images by 255" if highest > 1 else ""
                warn(
                    f"the noise level {lowest if lowest < low else highest:.4g} is outside "
                    f"[{low:g}, {high:g}], which this denoiser was trained for{units}"
                )
        with torch.inference_mode(False):
            return level.expand(len(x), *level.shape[1:])

    def _check_map(self, x: Tensor, level: Tensor) -> None:
        """Refuse a map of noise levels that does not fit."""
        if not self.maps:
            raise InputError(
                f"{type(self).__name__} takes one noise level an image, not one for each pixel; "
                f"give a number, or ({len(x)},)"
            )
        if level.shape[0] not in (1, len(x)) or level.shape[1:] != (1, *x.shape[2:]):
            raise InputError(
                f"a map of noise levels has the shape ({len(x)}, 1, {x.shape[2]}, {x.shape[3]}) of "
                f"these images, not {tuple(level.shape)}"
            )

    def _check(self, x: Tensor) -> Tensor:
        """Refuse what is not a batch of images for this denoiser."""
        if not isinstance(x, Tensor):
            raise InputError(f"a denoiser takes a torch tensor, got {type(x).__name__}")
        if x.dim() != 4:
            raise InputError(
                f"expected images of shape (batch, channels, height, width), got {tuple(x.shape)}; "
                "add the missing dimension with x[None]"
            )
        if x.shape[1] != self.channels:
            raise InputError(
                f"this denoiser takes {self.channels} channel(s), the images have {x.shape[1]}; "
                "lift it with proxmatch.transforms.Lifted, convert them, or load one made for them"
            )
        if min(x.shape) == 0:
            raise InputError(f"the batch is empty: shape {tuple(x.shape)}")
        if x.dtype not in (torch.float32, torch.float64):
            raise InputError(f"images are float32 or float64, not {x.dtype}; convert them first")
        own = next(self.parameters(), x)
        if x.dtype != own.dtype or x.device != own.device:
            raise InputError(
                f"the images are {x.dtype} on {x.device}, the denoiser is {own.dtype} on "
                f"{own.device}; move one with .to(...)"
            )
        return x

    def _inverse_arguments(self, u: Tensor, initial: Tensor | None) -> tuple[Tensor, Tensor]:
        u = self._check(u).detach()
        bad = (~u.isfinite()).flatten(1).any(1).nonzero().flatten().tolist()
        if bad:
            raise InputError(
                f"u holds NaN or infinity in the images {bad}; D(z) = u has no z there"
            )
        start = u if initial is None else self._check(initial).detach()
        if start.shape != u.shape:
            raise InputError(
                f"the starting point has shape {tuple(start.shape)}, u has {tuple(u.shape)}"
            )
        return u, start

    def _why(self) -> str:
        """The likely reason why a solve failed."""
        return "allow more iterations or a larger tolerance"

    def _converged(self, inverse: Inverse) -> Inverse:
        if not bool(inverse.converged.all()):
            failed = (~inverse.converged).nonzero().flatten().tolist()
            warnings.warn(
                f"D(z) = u was not solved for image(s) {failed}: relative residual up to "
                f"{float(inverse.residual.max()):.1e}; {self._why()}",
                NotConvergedWarning,
                stacklevel=3,
            )
        return inverse


def _exact_linearization(linearize: Callable[..., Linearization]) -> Callable[..., Linearization]:
    """D(x) and J_D(x) v without autocast, wherever the products are computed."""

    @wraps(linearize)
    def call(*args: Any, **kwargs: Any) -> Linearization:
        value, product = without_autocast(linearize)(*args, **kwargs)
        return value, without_autocast(product)

    return call


def each(sigma: float | Tensor | None) -> Tensor | None:
    """Noise levels that differ between images, an image along the first dimension; else None."""
    if not isinstance(sigma, Tensor) or sigma.numel() == 1:
        return None
    levels = sigma if is_map(sigma) else sigma.flatten()
    return levels if len(levels) > 1 else None


def leaf(x: Tensor) -> Tensor:
    """A tensor of our own to differentiate in, whatever mode x was made in."""
    return x.detach().clone().requires_grad_()
