"""A problem is described once, where it is defined.

    @register("deblurring", "a Gaussian blur")
    def gaussian_deblurring(
        img_size: ImageSize,
        *,
        kernel_size: Annotated[int, "side length of the kernel in pixels, odd"] = 5,
        noise: Noise = 0.02,
    ) -> Design: ...

The function says what is particular to the problem, for images of (C, H, W). The names of its
options, their types, meanings and defaults are read from its signature. The decorator returns the
public function: it takes a side length or (H, W) in place of ``img_size``, adds what all problems
share (channels, step size, iterations, device, precision) and makes the :class:`Problem`.

:data:`PROBLEMS` has every problem by name. The command line, the error messages and the tables of
the documentation are made from it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from types import NoneType
from typing import Annotated, Any, Protocol, get_args, get_type_hints

import torch
from deepinv.optim import L2
from deepinv.optim.data_fidelity import DataFidelity
from deepinv.physics import GaussianNoise, LinearPhysics, NoiseModel, ZeroNoise

from proxmatch.errors import InputError
from proxmatch.problems.fidelity import gradient_bound
from proxmatch.problems.image_sizes import Size, check_dtype, image_size
from proxmatch.problems.problem import ITERATIONS, SAFETY, Problem, Start, adjoint

#: Makes A, without noise, on a device and in a precision.
Operator = Callable[[torch.device, torch.dtype], LinearPhysics]

#: Options that several problems have.
Noise = Annotated[float, "standard deviation of the noise; 0 for none"]
Seed = Annotated[int, "seed of what is drawn at random"]

#: What all problems share.
COMMON = {
    "channels": "number of channels",
    "eta": "step size; 0.95 / L_f unless the problem has its own",
    "iterations": "number of PnP steps",
    "allow_large_step": "accept eta L_f >= 1, with a warning",
    "device": "where to put the operator",
    "dtype": "its precision",
}

PROBLEMS: dict[str, RegisteredProblem] = {}


@dataclass(frozen=True)
class Design:
    """What is particular to a problem.

    Attributes:
        operator: makes A.
        noise: of the measurements.
        start: (y, physics) -> x_0.
        eta: step size unless another is asked for; None for 0.95 / L_f.
        data_fidelity: f.
    """

    operator: Operator
    noise: NoiseModel
    start: Start = adjoint
    eta: float | None = None
    data_fidelity: DataFidelity = field(default_factory=L2)

    def physics(self, device: torch.device, dtype: torch.dtype) -> LinearPhysics:
        """A with its noise, on a device and in a precision."""
        physics = self.operator(device, dtype)
        physics.set_noise_model(deepcopy(self.noise).to(device, dtype))
        return physics


@dataclass(frozen=True)
class Option:
    """An option of a problem.

    Attributes:
        name: what it is called.
        help: what it means.
        default: what it is unless given; ``Parameter.empty`` if it must be given.
        read: makes it from text.
    """

    name: str
    help: str
    default: Any
    read: Callable[[str], Any]

    @property
    def required(self) -> bool:
        """Whether it must be given."""
        return self.default is inspect.Parameter.empty


class ProblemBuilder(Protocol):
    """The public function of a problem."""

    __name__: str

    def __call__(
        self,
        size: Size,
        *,
        channels: int = ...,
        eta: float | None = ...,
        iterations: int = ...,
        allow_large_step: bool = ...,
        device: str | torch.device = ...,
        dtype: torch.dtype = ...,
        **options: Any,
    ) -> Problem:
        """The problem for images of a size."""


@dataclass(frozen=True)
class RegisteredProblem:
    """A problem that can be asked for by name.

    Attributes:
        name: what it is called.
        title: what it is, in a few words.
        build: its public function.
        options: what can be set by text, by name.
        channels: how many channels its images have; None for any number.
        pictures: whether its measurements are pictures, which can come from files.
        factor: the option that says how many pixels of an image, along each side, become one of
            the measurements; None if both have the same size.
        side: from the last two sizes of measurements to (H, W) of the images; None if they are the
            same but for ``factor``.
    """

    name: str
    title: str
    build: ProblemBuilder
    options: Mapping[str, Option]
    channels: int | None
    pictures: bool
    factor: str | None
    side: Callable[[tuple[int, int]], tuple[int, int]] | None


def register(
    name: str,
    title: str,
    *,
    channels: int | None = None,
    pictures: bool = True,
    factor: str | None = None,
    side: Callable[[tuple[int, int]], tuple[int, int]] | None = None,
) -> Callable[[Callable[..., Design]], ProblemBuilder]:
    """Make a problem of the function that designs it; see the module docstring.

    The arguments are those of :class:`RegisteredProblem`.

    Example:
        >>> PROBLEMS["super-resolution"].factor
        'factor'
    """
    fixed, usual = channels, channels or 3

    def decorate(design: Callable[..., Design]) -> ProblemBuilder:
        own = _options(design)

        def build(
            size: Size,
            *,
            channels: int = usual,
            eta: float | None = None,
            iterations: int = ITERATIONS,
            allow_large_step: bool = False,
            device: str | torch.device = "cpu",
            dtype: torch.dtype = torch.float32,
            **options: Any,
        ) -> Problem:
            check_options(name, options)
            if fixed is not None and channels != fixed:
                raise InputError(f"{name} takes images of {fixed} channels, got {channels}")
            img_size = image_size(size, channels)
            check_dtype(dtype)
            made, place = design(img_size, **options), torch.device(device)
            physics = made.physics(place, dtype)
            bound = gradient_bound(made.data_fidelity, physics, img_size)
            eta = made.eta if eta is None else eta
            return Problem(
                name=name,
                physics=physics,
                img_size=img_size,
                eta=SAFETY / bound.value if eta is None else eta,
                iterations=iterations,
                gradient_bound=bound,
                initialization=made.start,
                device=place,
                dtype=dtype,
                data_fidelity=made.data_fidelity,
                build=made.physics,
                allow_large_step=allow_large_step,
            )

        _dress(build, design, own)
        before = PROBLEMS.get(name)
        if before is not None and before.build.__module__ != design.__module__:
            raise InputError(f"{before.build.__module__} has a problem {name!r}; take another name")
        every = {**own, "eta": Option("eta", COMMON["eta"], None, float)}
        PROBLEMS[name] = RegisteredProblem(name, title, build, every, fixed, pictures, factor, side)
        return build

    return decorate


def check_options(name: str, given: Mapping[str, Any]) -> None:
    """Refuse options that a problem does not have, and ask for those that it needs.

    Raises:
        InputError: naming them.

    Example:
        >>> check_options("deblurring", {"noise": 0.1})
    """
    known = PROBLEMS[name].options
    for key in given:
        if key not in known:
            raise unknown(name, key)
    for option in known.values():
        if option.required and option.name not in given:
            raise InputError(f"{name} needs {option.name}=...: {option.help}")


def unknown(name: str, text: str) -> InputError:
    """The error for something that is not an option of a problem.

    Example:
        >>> print(unknown("denoising", "sigma"))
        'sigma' is not an option of denoising; there are noise=..., eta=...
    """
    known = ", ".join(f"{option}=..." for option in PROBLEMS[name].options)
    return InputError(f"{text!r} is not an option of {name}; there are {known}")


def gaussian_noise(sigma: float) -> NoiseModel:
    """White Gaussian noise, or none for ``sigma`` = 0.

    Example:
        >>> type(gaussian_noise(0.0)).__name__
        'ZeroNoise'
    """
    if not sigma >= 0:
        raise InputError(f"noise must be nonnegative, got {sigma}")
    return ZeroNoise() if sigma == 0 else GaussianNoise(torch.tensor(sigma, dtype=torch.float64))


def _options(design: Callable[..., Design]) -> dict[str, Option]:
    """The options of a design, from its signature: all but the size of the images."""
    hints = get_type_hints(design, include_extras=True)
    _, *parameters = inspect.signature(design).parameters.values()
    found = {}
    for parameter in parameters:
        kind, text, *reader = get_args(hints[parameter.name])
        read = reader[0] if reader else _reader(kind)
        found[parameter.name] = Option(parameter.name, text, parameter.default, read)
    return found


def _reader(kind: Any) -> Callable[[str], Any]:
    """A function that reads an int, a float or a str from text; optional types are read alike."""
    kinds = [one for one in get_args(kind) or (kind,) if one is not NoneType]
    read: Callable[[str], Any] = kinds[0]
    return read


def _dress(
    build: Callable[..., Problem], design: Callable[..., Design], own: Mapping[str, Option]
) -> None:
    """Give the public function the name, the signature and the text that a reader expects."""
    build.__module__, build.__name__ = design.__module__, design.__name__
    build.__qualname__ = design.__qualname__
    hints = get_type_hints(design)
    _, *options = inspect.signature(design).parameters.values()
    size, *common, _ = inspect.signature(build).parameters.values()
    typed = [option.replace(annotation=hints[option.name]) for option in options]
    build.__dict__["__signature__"] = inspect.Signature([size, *typed, *common])
    about = {
        "size": "side length of the images, or (H, W)",
        **{option.name: option.help for option in own.values()},
        **COMMON,
    }
    build.__doc__ = "\n".join(
        [
            inspect.cleandoc(design.__doc__ or ""),
            "",
            "Args:",
            *(f"    {name}: {text}." for name, text in about.items()),
            "",
            "Raises:",
            "    InputError: a size or an option that makes no sense.",
            "    StepSizeError: eta L_f >= 1.",
        ]
    )
