"""An inverse problem: the operator, its step size and the start of the iteration.

f(x) = 1/2 ||Ax - y||^2 with A a linear deepinv physics; grad f is L_f-Lipschitz, L_f = ||A||_2^2.
The theory of PnP-PGD asks for eta L_f < 1, and a :class:`Problem` refuses any other eta unless told
not to.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from deepinv.optim import L2
from deepinv.physics import LinearPhysics, StackedPhysics
from torch import Tensor

from proxmatch.errors import InputError, StepSizeError, StepSizeWarning
from proxmatch.problems.kernels import check_dtype
from proxmatch.problems.norms import SquaredNorm, squared_norm
from proxmatch.problems.placement import moved, placement

SAFETY = 0.95  # eta L_f where eta is not given
#: Plain steps after a warm start: what the theory covers.
TAIL = 10

_f = L2()


def adjoint(y: Tensor, physics: LinearPhysics) -> Tensor:
    """x_0 = A^T y."""
    x: Tensor = physics.A_adjoint(y)
    return x


@dataclass(frozen=True)
class Problem:
    """An inverse problem y = Ax + noise and how PnP-PGD is run on it.

    Attributes:
        name: what to call it in tables.
        physics: A and the noise.
        img_size: (C, H, W) of the images.
        eta: step size.
        iterations: number of steps.
        lipschitz: L_f = ||A||_2^2.
        initialisation: (y, physics) -> x_0.
        device: where the operator lives.
        dtype: its precision, that of all images and measurements.
        build: makes the same physics for another device and dtype; without it a copy is cast.
        allow_large_step: accept eta L_f >= 1, with a :class:`StepSizeWarning`.
        warm: number of steps, of ``iterations``, of the warm start (:mod:`proxmatch.pnp`); None
            for all but the last :data:`TAIL`. 0 for plain PnP-PGD, as in the paper.

    Raises:
        StepSizeError: eta L_f >= 1.
        InputError: eta or the number of iterations is not positive.
    """

    name: str
    physics: LinearPhysics
    img_size: tuple[int, int, int]
    eta: float
    iterations: int
    lipschitz: SquaredNorm
    initialisation: Callable[[Tensor, LinearPhysics], Tensor]
    device: torch.device
    dtype: torch.dtype
    build: Callable[[torch.device, torch.dtype], LinearPhysics] | None = None
    allow_large_step: bool = False
    warm: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.eta < math.inf:
            raise InputError(f"eta must be positive and finite, got {self.eta}")
        if self.iterations < 1:
            raise InputError(f"iterations must be at least 1, got {self.iterations}")
        if self.warm is not None and self.warm < 0:
            raise InputError(f"warm must be 0 or more, got {self.warm}")
        product = self.eta * self.lipschitz.value
        if product < 1:
            return
        kind = "is" if self.lipschitz.exact else "is bounded by"
        message = (
            f"eta * L_f = {product:.6g} is not below 1 (eta = {self.eta:.6g}; L_f {kind} "
            f"{self.lipschitz.value:.6g}): the convergence theory does not hold"
        )
        if not self.allow_large_step:
            raise StepSizeError(
                f"{message}. Take eta below {1 / self.lipschitz.value:.6g}, or pass "
                "allow_large_step=True"
            )
        warnings.warn(message, StepSizeWarning, stacklevel=3)

    @classmethod
    def from_physics(
        cls,
        physics: LinearPhysics,
        img_size: tuple[int, int, int],
        *,
        eta: float | None = None,
        iterations: int = 40,
        initialisation: Callable[[Tensor, LinearPhysics], Tensor] | None = None,
        allow_large_step: bool = False,
        name: str | None = None,
    ) -> Problem:
        """A problem around any linear deepinv physics, which is kept, not copied.

        Args:
            physics: A and the noise.
            img_size: (C, H, W) of the images.
            eta: step size; 0.95 / L_f unless given.
            iterations: number of steps.
            initialisation: (y, physics) -> x_0; A^T y unless given.
            allow_large_step: accept eta L_f >= 1, with a warning.
            name: the class of the physics unless given.

        Raises:
            InputError: the physics is not linear, or measures lists of tensors.
            StepSizeError: eta L_f >= 1.

        Example:
            >>> from deepinv.physics import Denoising
            >>> problem = Problem.from_physics(Denoising(), (3, 8, 8))
            >>> problem.eta, problem.iterations
            (0.95, 40)
        """
        if not isinstance(physics, LinearPhysics):
            raise InputError(
                f"{type(physics).__name__} is not a deepinv LinearPhysics; the step size rule and "
                "the theory need a linear operator"
            )
        if isinstance(physics, StackedPhysics):
            raise InputError(
                "a stacked physics measures a list of tensors; write it as one LinearPhysics whose "
                "A concatenates them"
            )
        device, dtype = placement(physics)
        _try(physics, torch.zeros(1, *img_size, device=device, dtype=dtype))
        lipschitz = squared_norm(physics, img_size)
        return cls(
            name=name or type(physics).__name__,
            physics=physics,
            img_size=img_size,
            eta=SAFETY / lipschitz.value if eta is None else eta,
            iterations=iterations,
            lipschitz=lipschitz,
            initialisation=initialisation or adjoint,
            device=device,
            dtype=dtype,
            allow_large_step=allow_large_step,
        )

    def to(self, target: str | torch.device | torch.dtype) -> Problem:
        """The same problem on another device or in another precision; this one is untouched.

        With :attr:`build` the operator is made anew in that precision; otherwise the tensors that
        the physics holds as parameters and buffers are copied and cast.
        """
        device, dtype = self.device, self.dtype
        if isinstance(target, torch.dtype):
            check_dtype(target)
            dtype = target
        else:
            device = torch.device(target)
        if self.build is not None:
            physics = self.build(device, dtype)
        else:
            physics = moved(self.physics, device, dtype)
        exact = self.lipschitz.exact
        lipschitz = squared_norm(physics, self.img_size) if exact else self.lipschitz
        return replace(self, physics=physics, lipschitz=lipschitz, device=device, dtype=dtype)

    def plain(self) -> Problem:
        """The same problem, solved by plain PnP-PGD without a warm start."""
        return replace(self, warm=0)

    def warm_steps(self, iterations: int) -> int:
        """How many of so many steps belong to the warm start."""
        return max(0, iterations - TAIL) if self.warm is None else min(self.warm, iterations)

    @torch.no_grad()
    def measure(
        self, x: Tensor, *, ids: Sequence[str | int] | None = None, seed: int = 0
    ) -> Tensor:
        """Measurements y = Ax + noise, with noise that depends on the image and the seed alone.

        The generator is seeded for every image from (seed, id), so that an image gets the same
        noise in any batch and at any place in it. The noise is drawn in float64 and is the same
        for both precisions. No random state outside is changed.

        Args:
            x: images, ``(B, C, H, W)``.
            ids: one name per image; a hash of its float32 pixels unless given, so that equal
                images get equal noise.
            seed: another seed, another draw.

        Raises:
            InputError: x does not fit the problem, or not one id per image.

        Example:
            >>> from proxmatch.problems import denoising
            >>> problem, x = denoising(8), torch.rand(4, 3, 8, 8)
            >>> torch.equal(problem.measure(x)[2:3], problem.measure(x[2:3]))
            True
        """
        self.check_image(x)
        if ids is None:
            ids = _content(x)
        elif len(ids) != len(x):
            raise InputError(f"got {len(ids)} ids for {len(x)} images; give one for each")
        clean: Tensor = self.physics.A(x)
        wide = clean.to(torch.promote_types(clean.dtype, torch.float64))
        noise = self.physics.noise_model
        noisy = []
        with _borrowed_randomness(noise):
            for i, name in enumerate(ids):
                torch.manual_seed(_seed(seed, name))
                noisy.append(noise(wide[i : i + 1]))
        y: Tensor = self.physics.sensor(torch.cat(noisy).to(clean.dtype))
        if len(y) != len(x):
            raise InputError(
                f"{type(noise).__name__} made {len(y)} measurements of {len(x)} images; its "
                "parameters must be the same for all images"
            )
        return y

    def initial(self, y: Tensor) -> Tensor:
        """x_0, ``(B, C, H, W)``, from measurements y.

        Raises:
            InputError: y does not fit the problem, or the initialisation does not make images.
        """
        self.check_measurement(y)
        x = self.initialisation(y, self.physics)
        self.check_image(x, "the initialisation")
        return x

    def gradient(self, x: Tensor, y: Tensor) -> Tensor:
        """The gradient of f, A^T (Ax - y), the shape of x."""
        grad: Tensor = _f.grad(x, y, self.physics)
        return grad

    def gradient_of(self, y: Tensor) -> Callable[[Tensor], Tensor]:
        """The gradient of f for one y, A^T A x - A^T y, with A^T y computed once."""
        back = self.physics.A_adjoint(y)

        def gradient(x: Tensor) -> Tensor:
            found: Tensor = self.physics.A_adjoint_A(x) - back
            return found

        return gradient

    def fidelity(self, x: Tensor, y: Tensor) -> Tensor:
        """The data fidelity f(x) = 1/2 ||Ax - y||^2, ``(B,)``."""
        value: Tensor = _f.fn(x, y, self.physics)
        return value

    @torch.no_grad()
    def describe(self) -> dict[str, Any]:
        """What it is, as JSON, to tell whether two are the same.

        The operator is known by the size of what it makes of one random image.
        """
        draw = torch.rand(self.img_size, generator=torch.Generator().manual_seed(0))[None]
        seen = self.physics.A(draw.to(self.device, self.dtype))
        noise = self.physics.noise_model
        levels: dict[str, Any] = {}
        if isinstance(noise, torch.nn.Module):
            levels = {name: level.tolist() for name, level in noise.state_dict().items()}
        return {
            "name": self.name,
            "size": list(self.img_size),
            "eta": float(f"{self.eta:.5g}"),
            "iterations": self.iterations,
            "warm": self.warm_steps(self.iterations),
            "noise": type(noise).__name__,
            "levels": levels,
            "response": float(f"{float(seen.norm()):.5g}"),
        }

    def check_image(self, x: object, name: str = "x") -> None:
        """Raise an InputError unless x is a batch of finite images of this problem."""
        tensor = self._check_tensor(x, name)
        if tensor.ndim != 4 or tuple(tensor.shape[1:]) != self.img_size:
            c, h, w = self.img_size
            hint = "; add a batch dimension with x[None]" if tensor.ndim == 3 else ""
            raise InputError(
                f"{name} must have the shape (B, {c}, {h}, {w}) of this problem's images, got "
                f"{tuple(tensor.shape)}{hint}"
            )
        _check_finite(tensor, name)

    def check_measurement(self, y: object) -> None:
        """Raise an InputError unless y is a batch of finite measurements of this problem."""
        tensor = self._check_tensor(y, "y")
        if tensor.ndim < 2:
            raise InputError(f"y must have a batch dimension, got the shape {tuple(tensor.shape)}")
        with torch.no_grad():
            expected = self.physics.A(tensor.new_zeros(len(tensor), *self.img_size)).shape
        if tensor.shape != expected:
            raise InputError(
                f"y must have the shape {tuple(expected)} of this problem's measurements, got "
                f"{tuple(tensor.shape)}"
            )
        _check_finite(tensor, "y")

    def _check_tensor(self, x: object, name: str) -> Tensor:
        if not isinstance(x, Tensor):
            raise InputError(f"{name} must be a torch.Tensor, got {type(x).__name__}")
        if x.numel() == 0:
            raise InputError(f"{name} is empty: its shape is {tuple(x.shape)}")
        if not x.is_floating_point():
            raise InputError(
                f"{name} must be floating point, got {x.dtype}; scale 8-bit images to [0, 1] by "
                "dividing by 255"
            )
        if x.dtype != self.dtype or x.device.type != self.device.type:
            raise InputError(
                f"{name} is {x.dtype} on {x.device}, the problem {self.dtype} on {self.device}; "
                "convert one of them, e.g. with problem.to(dtype) and problem.to(device)"
            )
        return x


@torch.no_grad()
def _try(physics: LinearPhysics, zeros: Tensor) -> None:
    """Refuse a physics that does not take the images it is meant for."""
    try:
        back = physics.A_adjoint(physics.A(zeros))
    except Exception as error:
        raise InputError(
            f"{type(physics).__name__} cannot be applied to images of {tuple(zeros.shape[1:])}, "
            f"{zeros.dtype}: {error}"
        ) from error
    if back.shape[1:] != zeros.shape[1:]:
        raise InputError(
            f"the adjoint of {type(physics).__name__} makes {tuple(back.shape[1:])} of images of "
            f"{tuple(zeros.shape[1:])}; give the img_size it was built for"
        )


def _check_finite(x: Tensor, name: str) -> None:
    bad = (~x.isfinite()).flatten(1).any(1).nonzero().flatten().tolist()
    if bad:
        raise InputError(f"{name} holds NaN or infinity in the images {bad}; remove them")


@contextmanager
def _borrowed_randomness(noise: Any) -> Iterator[None]:
    """Make a noise model draw from torch's generators; all random states are restored on leaving.

    A generator of its own is set aside: deepinv replaces it by a copy when the model moves.
    """
    rng = getattr(noise, "rng", None)
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        if rng is not None:
            noise.rng = None
        try:
            yield
        finally:
            if rng is not None:
                noise.rng = rng


def _content(x: Tensor) -> list[str]:
    pixels = x.detach().to("cpu", torch.float32).contiguous().numpy()
    return [hashlib.blake2b(image.tobytes(), digest_size=16).hexdigest() for image in pixels]


def _seed(seed: int, name: str | int) -> int:
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def by_name(problems: Sequence[Problem]) -> dict[str, Problem]:
    """Problems by their names, numbered from the second of one name on.

    Example:
        >>> from proxmatch.problems import denoising
        >>> list(by_name([denoising(8), denoising(8, noise=0.1)]))
        ['denoising', 'denoising 2']
    """
    found: dict[str, Problem] = {}
    for problem in problems:
        before = sum(problem.name == other.name for other in found.values())
        found[f"{problem.name} {before + 1}" if before else problem.name] = problem
    return found
