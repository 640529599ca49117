"""An inverse problem: the operator, its data term, its step size and the start of the iteration.

f(x) = d(Ax, y) with A a linear deepinv physics, 1/2 ||Ax - y||^2 unless another data term is given;
grad f is L_f-Lipschitz (:mod:`proxmatch.problems.fidelity`). The theory of PnP-PGD needs
eta L_f < 1, and a :class:`Problem` refuses any other eta unless told not to.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from deepinv.optim import L2
from deepinv.optim.data_fidelity import DataFidelity
from deepinv.physics import LinearPhysics
from torch import Tensor

from proxmatch.data.any_form import check_brightness, image_batch
from proxmatch.errors import InputError, StepSizeError, StepSizeWarning
from proxmatch.problems import checks
from proxmatch.problems.fidelity import curvature, gradient_bound, parameters
from proxmatch.problems.image_sizes import ImageSize, check_dtype, check_image_size
from proxmatch.problems.measuring import measured
from proxmatch.problems.norms import SquaredNorm
from proxmatch.problems.placement import moved, placement
from proxmatch.problems.response import ANYWHERE, digest

SAFETY = 0.95  # eta L_f where eta is not given
ITERATIONS = 40
#: Plain steps after a warm start: what the theory covers.
TAIL = 10

#: (y, physics) -> x_0.
Start = Callable[[Tensor, LinearPhysics], Tensor]


def adjoint(y: Tensor, physics: LinearPhysics) -> Tensor:
    """x_0 = A^T y."""
    x: Tensor = physics.A_adjoint(y)
    return x


@dataclass(frozen=True, repr=False)
class Problem:
    """An inverse problem y = Ax + noise and how PnP-PGD is run on it.

    Attributes:
        name: what to call it in tables.
        physics: A and the noise.
        img_size: (C, H, W) of the images.
        eta: step size.
        iterations: number of steps.
        gradient_bound: L_f, the Lipschitz constant of grad f; ||A||_2^2 for f = 1/2 ||Ax - y||^2.
        initialization: (y, physics) -> x_0.
        device: where the operator lives.
        dtype: its precision, that of all images and measurements.
        data_fidelity: f.
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
    img_size: ImageSize
    eta: float
    iterations: int
    gradient_bound: SquaredNorm
    initialization: Start
    device: torch.device
    dtype: torch.dtype
    data_fidelity: DataFidelity = field(default_factory=L2)
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
        product = self.eta * self.gradient_bound.value
        if product < 1:
            return
        kind = "is" if self.gradient_bound.exact else "is bounded by"
        message = (
            f"eta * L_f = {product:.6g} is not below 1 (eta = {self.eta:.6g}; L_f {kind} "
            f"{self.gradient_bound.value:.6g}): the convergence theory does not hold"
        )
        if not self.allow_large_step:
            raise StepSizeError(
                f"{message}. Take eta below {1 / self.gradient_bound.value:.6g}, or pass "
                "allow_large_step=True"
            )
        warnings.warn(message, StepSizeWarning, stacklevel=3)

    def __repr__(self) -> str:
        size = " x ".join(map(str, self.img_size))
        return f"Problem({self.name}, {size}, eta {self.eta:.3g}, {self.iterations} steps)"

    @classmethod
    def from_physics(
        cls,
        physics: LinearPhysics,
        img_size: ImageSize,
        *,
        data_fidelity: DataFidelity | None = None,
        eta: float | None = None,
        iterations: int = ITERATIONS,
        initialization: Start | None = None,
        allow_large_step: bool = False,
        name: str | None = None,
    ) -> Problem:
        """Make a problem of any linear deepinv physics, which is kept, not copied.

        Args:
            physics: A and the noise.
            img_size: (C, H, W) of the images.
            data_fidelity: f, any deepinv ``DataFidelity`` whose gradient has a known Lipschitz
                constant (:func:`proxmatch.problems.fidelity.curvature`); 1/2 ||Ax - y||^2 unless
                given.
            eta: step size; 0.95 / L_f unless given.
            iterations: number of steps.
            initialization: (y, physics) -> x_0; A^T y unless given.
            allow_large_step: accept eta L_f >= 1, with a warning.
            name: the class of the physics unless given.

        Raises:
            InputError: the physics is not linear, measures lists of tensors, or does not take
                images of that size; or the data term has no known Lipschitz constant.
            StepSizeError: eta L_f >= 1.

        Warns:
            MismatchedPhysicsWarning: A_adjoint is not the adjoint of A, or the noise is Poisson
                and the data term Gaussian.

        Example:
            >>> from deepinv.physics import Denoising
            >>> problem = Problem.from_physics(Denoising(), (3, 8, 8))
            >>> problem.eta, problem.iterations
            (0.95, 40)
        """
        img_size = check_image_size(img_size)
        fidelity = L2() if data_fidelity is None else data_fidelity
        checks.check_linear(physics)
        device, dtype = placement(physics)
        checks.check_physics(physics, torch.zeros(1, *img_size, device=device, dtype=dtype))
        checks.check_noise(physics, fidelity)
        bound = gradient_bound(fidelity, physics, img_size)
        return cls(
            name=name or type(physics).__name__,
            physics=physics,
            img_size=img_size,
            eta=SAFETY / bound.value if eta is None else eta,
            iterations=iterations,
            gradient_bound=bound,
            initialization=initialization or adjoint,
            device=device,
            dtype=dtype,
            data_fidelity=fidelity,
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
        fidelity = deepcopy(self.data_fidelity).to(device, dtype)
        bound = self.gradient_bound
        if bound.exact:
            bound = gradient_bound(fidelity, physics, self.img_size)
        return replace(
            self,
            physics=physics,
            gradient_bound=bound,
            data_fidelity=fidelity,
            device=device,
            dtype=dtype,
        )

    def plain(self) -> Problem:
        """The same problem, solved by plain PnP-PGD without a warm start."""
        return replace(self, warm=0)

    def warm_steps(self, iterations: int) -> int:
        """How many of ``iterations`` steps belong to the warm start."""
        return max(0, iterations - TAIL) if self.warm is None else min(self.warm, iterations)

    @torch.no_grad()
    def measure(self, x: Any, *, ids: Sequence[str | int] | None = None, seed: int = 0) -> Tensor:
        """Measurements y = Ax + noise, with noise that depends on the image and the seed alone.

        The generator is seeded for every image from (seed, id), so that an image gets the same
        noise in any batch and at any position in it. The noise is drawn in float64 and is the same
        for both precisions. No random state outside is changed.

        Args:
            x: images in [0, 1], ``(B, C, H, W)``, or in any other form
                (:mod:`proxmatch.data.any_form`).
            ids: one name per image; a hash of its float32 pixels unless given, so that equal
                images get equal noise.
            seed: another seed, another draw.

        Raises:
            InputError: x does not fit the problem or is far outside [0, 1], or not one id per
                image.

        Example:
            >>> from proxmatch.problems import denoising
            >>> problem, x = denoising(8), torch.rand(4, 3, 8, 8)
            >>> torch.equal(problem.measure(x)[2:3], problem.measure(x[2:3]))
            True
        """
        x = self.batch(x)
        self.check_image(x)
        check_brightness(x)
        return measured(self.physics, x, ids, seed)

    def batch(self, images: Any) -> Tensor:
        """Images in any form (:mod:`proxmatch.data.any_form`) as a batch where the problem is.

        A tensor is returned as it is.
        """
        if isinstance(images, Tensor):
            return images
        like = torch.zeros((), device=self.device, dtype=self.dtype)
        return image_batch(images, self.img_size[0], like)

    def measurements(self, y: Any) -> Tensor:
        """Measurements as a batch where the problem is: tensors as they are, arrays, or pictures.

        A tensor is a batch ``(B, ...)`` of measurements, or a single one. An array may be a picture
        as well.
        """
        if isinstance(y, Tensor) or (isinstance(y, np.ndarray) and y.dtype.kind == "f"):
            one = self.physics.A(torch.zeros(1, *self.img_size, device=self.device).to(self.dtype))
            found = y if isinstance(y, Tensor) else torch.from_numpy(y).to(one)
            if found.shape == one.shape[1:]:
                return found[None]
            if found.shape[1:] == one.shape[1:]:
                return found
        return self.batch(y)

    def initial(self, y: Any) -> Tensor:
        """x_0, ``(B, C, H, W)``, from measurements y.

        Raises:
            InputError: y does not fit the problem, or the initialization does not make images.
        """
        y = self.measurements(y)
        self.check_measurement(y)
        x = self.initialization(y, self.physics)
        self.check_image(x, "the initialization")
        return x

    def gradient(self, x: Tensor, y: Tensor) -> Tensor:
        """The gradient of f, A^T grad d(Ax, y), the shape of x."""
        grad: Tensor = self.data_fidelity.grad(x, y, self.physics)
        return grad

    def gradient_at(self, y: Tensor) -> Callable[[Tensor], Tensor]:
        """The map x -> grad f(x) for one y; what depends on y alone is computed once."""
        if type(self.data_fidelity) is not L2 or curvature(self.data_fidelity) != 1:
            return lambda x: self.gradient(x, y)
        fixed: Tensor = self.physics.A_adjoint(y)

        def gradient(x: Tensor) -> Tensor:
            grad: Tensor = self.physics.A_adjoint_A(x) - fixed
            return grad

        return gradient

    def fidelity(self, x: Tensor, y: Tensor) -> Tensor:
        """The data term f(x) = d(Ax, y), ``(B,)``; 1/2 ||Ax - y||^2 unless another was given."""
        value: Tensor = self.data_fidelity.fn(x, y, self.physics)
        return value

    def describe(self) -> dict[str, Any]:
        """The problem as JSON, to tell whether two problems are the same.

        The operator is identified by what it makes of a few random images
        (:func:`proxmatch.problems.response.digest`). Device and precision do not count.
        """
        physics = self.physics if self.build is None else self.build(*ANYWHERE)
        noise = self.physics.noise_model
        levels = noise.state_dict() if isinstance(noise, torch.nn.Module) else {}
        return {
            "name": self.name,
            "size": list(self.img_size),
            "eta": float(f"{self.eta:.5g}"),
            "iterations": self.iterations,
            "warm": self.warm_steps(self.iterations),
            "operator": digest(physics, self.img_size),
            "noise": type(noise).__name__,
            "levels": {
                name: [float(f"{float(value):.6g}") for value in level.flatten()]
                for name, level in levels.items()
                if name != "initial_random_state"
            },
            "data": type(self.data_fidelity).__name__,
            "parameters": parameters(self.data_fidelity),
        }

    def check_image(self, x: object, name: str = "x") -> None:
        """Raise an InputError unless x is a batch of finite images of this problem."""
        tensor = checks.check_tensor(x, name, self.dtype, self.device)
        if tensor.ndim != 4 or tuple(tensor.shape[1:]) != self.img_size:
            c, h, w = self.img_size
            hint = "; add a batch dimension with x[None]" if tensor.ndim == 3 else ""
            raise InputError(
                f"{name} must have the shape (B, {c}, {h}, {w}) of this problem's images, got "
                f"{tuple(tensor.shape)}{hint}"
            )
        checks.check_finite(tensor, name)

    @torch.no_grad()
    def check_measurement(self, y: object) -> None:
        """Raise an InputError unless y is a batch of finite measurements of this problem.

        They are also refused if they are far larger than those of any image in [0, 1], or if the
        data term is not defined for them.
        """
        tensor = checks.check_tensor(y, "y", self.dtype, self.device)
        if tensor.ndim < 2:
            raise InputError(f"y must have a batch dimension, got the shape {tuple(tensor.shape)}")
        one = self.physics.A(tensor.new_zeros(1, *self.img_size)).shape[1:]
        if tensor.shape[1:] != one:
            raise InputError(
                f"y must have the shape {(len(tensor), *one)} of this problem's measurements, got "
                f"{tuple(tensor.shape)}"
            )
        checks.check_finite(tensor, "y")
        norm = self.gradient_bound.value / curvature(self.data_fidelity)
        checks.check_range(tensor, norm, math.prod(self.img_size))
        if hasattr(self.data_fidelity, "check"):
            self.data_fidelity.check(tensor)


def by_name(problems: Sequence[Problem]) -> dict[str, Problem]:
    """Problems by name; a repeated name gets a number.

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
