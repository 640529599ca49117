"""Networks of the user's own class as the N of a gradient-step denoiser.

How a network has to be called is found out by calling it: with a noise level for each image, with a
map of levels, with a further channel, with a number, or without a level; and on sides of which
multiples.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Literal, get_args

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from proxmatch.denoisers.networks import Network, is_map
from proxmatch.errors import InputError, ProxmatchError

Told = Literal["nothing", "vector", "column", "map", "channel", "number"]

#: Side of the image on which a network is tried, and the two noise levels it is given.
TRIED, LEVELS = 64, (0.05, 0.2)
#: How often it is called to check that it always returns the same.
CALLS = 4
#: Multiples that image sides are tried with, beside ``TRIED``; others the user must give.
MULTIPLES = (1, 2, 4, 8, 16, 32)


class GivenConfig(BaseModel):
    """How a network of the user's own class is called.

    Attributes:
        name: its class, with the module that defines it.
        told: how it gets the noise level: ``nothing`` for N(x); ``vector`` for N(x, s) with s of
            shape ``(B,)``, as in deepinv; ``column`` with ``(B, 1, 1, 1)``, as FFDNet in KAIR;
            ``map`` with ``(B, 1, H, W)``; ``channel`` for N([x, s]), as DRUNet in KAIR; ``number``
            with a float.
        residual: whether it returns the noise, so that N(x) is x minus its output.
        multiple: image sides it takes are multiples of this.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    told: Told = "nothing"
    residual: bool = False
    multiple: int = Field(1, ge=1)


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, call: Callable[..., Tensor]) -> None:
        super().__init__()
        self.call = call

    def forward(self, *arguments: Any) -> Tensor:
        """What the function makes of them."""
        return self.call(*arguments)


def name_of(module: nn.Module) -> str:
    """What a user calls it: the name of a function, or that of the class."""
    own = module.call if isinstance(module, Function) else module
    return str(getattr(own, "__name__", type(own).__name__))


class Given(Network):
    """A network of the user's own, called as a :class:`Network`.

    Batch normalization and dropout stay in evaluation mode, also in training: otherwise N(x) would
    depend on the other images of the batch, or on chance, and D would have no potential.

    Args:
        module: the network; it is held, not copied.
        config: how it is called.
    """

    def __init__(self, module: nn.Module, config: GivenConfig) -> None:
        super().__init__()
        self.module, self.config = module, config
        self.conditional = config.told != "nothing"
        self.maps = config.told in ("map", "channel")
        self.multiple = self.smallest = config.multiple
        self.train(module.training)

    def forward(self, x: Tensor, sigma: Tensor | None = None, **kwargs: Any) -> Tensor:
        """N(x), the shape of x.

        Args:
            x: images, ``(B, C, H, W)``.
            sigma: noise level, ``(B, 1, 1, 1)`` or ``(B, 1, H, W)``, if it takes one.
            kwargs: not used.

        Raises:
            InputError: it fails on such images, or returns others.
        """
        try:
            out = self.called(x, sigma)
        except (ProxmatchError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            name, shape = name_of(self.module), tuple(x.shape)
            raise InputError(f"{name} fails on images {shape}: {reason}") from error
        if out.shape != x.shape:
            name = name_of(self.module)
            raise InputError(f"{name} makes {tuple(out.shape)} of images {tuple(x.shape)}")
        return out

    def called(self, x: Tensor, sigma: Tensor | None) -> Tensor:
        """N(x), or whatever the module makes of x."""
        with sdpa_kernel(SDPBackend.MATH):  # the other kernels cannot be differentiated twice
            if self.config.told == "number" and sigma is not None:
                out = self._of_numbers(x, sigma.flatten().tolist())
            else:
                out = self.module(*self._arguments(x, sigma))
        return x - out if self.config.residual else out

    def train(self, mode: bool = True) -> Given:
        """Training or evaluation mode, except for layers that depend on the batch or on chance."""
        super().train(mode)
        for part in self.modules():
            if isinstance(part, _BatchNorm | _DropoutNd):
                part.eval()
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Given:
        """A copy, also where layers hold on to what they computed, as those of spectral_norm do."""
        for part in self.module.modules():
            for value in vars(part).values():
                if isinstance(value, Tensor) and not value.is_leaf:
                    memo[id(value)] = value.detach().clone()
        again = type(self).__new__(type(self))
        memo[id(self)] = again
        again.__dict__.update(deepcopy(self.__dict__, memo))
        return again

    def _of_numbers(self, x: Tensor, levels: list[float]) -> Tensor:
        """N of images of one level at once, otherwise of one image after the other."""
        if len(set(levels)) == 1:
            out: Tensor = self.module(x, levels[0])
            return out
        return torch.cat([self.module(x[i : i + 1], level) for i, level in enumerate(levels)])

    def _arguments(self, x: Tensor, sigma: Tensor | None) -> tuple[Tensor, ...]:
        told = self.config.told
        if told == "nothing" or sigma is None:
            return (x,)
        if told == "vector":
            return x, sigma.flatten()
        if told == "column":
            return x, sigma
        level = sigma if is_map(sigma) else sigma.expand(-1, 1, *x.shape[2:])
        return (x, level) if told == "map" else (torch.cat([x, level], 1),)


def describe(
    module: nn.Module,
    channels: int,
    *,
    told: Told | None = None,
    residual: bool = False,
    multiple: int | None = None,
    differentiable: bool = True,
) -> GivenConfig:
    """Find out how a network is called, by calling it, where the arguments do not say.

    They are those of :meth:`GradientStep.of`, and ``differentiable``: whether to refuse a network
    for which grad g does not exist.

    Raises:
        InputError: it cannot be called in this way, or it does not return an image that can be
            differentiated.
    """
    name = f"{type(module).__module__}.{type(module).__qualname__}"
    found: dict[Told, tuple[Tensor, Tensor]] = {}
    wrong: list[InputError] = []

    def config(told: Told, multiple: int | None = multiple) -> GivenConfig:
        return GivenConfig(name=name, told=told, residual=residual, multiple=multiple or 1)

    for way in get_args(Told) if told is None else (told,):
        try:
            found[way] = outputs(module, config(way), channels)
        except InputError as error:
            wrong.append(error)
    if not found:  # an argument too few or too many says less than any other failure
        raise next((e for e in wrong if not isinstance(e.__cause__, TypeError)), wrong[0])
    way = _chosen(found)
    if multiple is None:
        multiple = next(m for m in (*MULTIPLES, TRIED) if _takes(module, config(way, m), channels))
    if differentiable:
        _check_potential(module, config(way, multiple), channels)
    return config(way, multiple)


def _chosen(found: dict[Told, tuple[Tensor, Tensor]]) -> Told:
    """The way to call a network: one in which it reads the level, if there is any."""
    ways: tuple[Told, ...] = ("vector", "column", "map", "number")
    for way in ways:
        if way in found and not torch.equal(*found[way]):  # it does read the level
            if "map" in found and torch.allclose(found["map"][0], found[way][0], atol=1e-5):
                return "map"
            return way
    ways = ("nothing", "channel", "vector")
    return next((way for way in ways if way in found), next(iter(found)))


def _takes(module: nn.Module, config: GivenConfig, channels: int) -> bool:
    """Whether it takes sides that are odd multiples of its ``multiple``."""
    if config.multiple == TRIED:
        return True
    try:
        outputs(module, config, channels, TRIED + config.multiple)
    except InputError:
        return False
    return True


def _check_potential(module: nn.Module, config: GivenConfig, channels: int) -> None:
    """Refuse a network for which g or its second derivative does not exist."""
    way, x, call = _trial(module, config, channels)
    try:
        with torch.inference_mode(False), torch.enable_grad():
            z = x.requires_grad_()
            first, *others = (call(z, LEVELS[0]) for _ in range(CALLS))
            if first.requires_grad:
                (once,) = torch.autograd.grad(first, z, z - first, create_graph=True)
                if once.requires_grad:
                    torch.autograd.grad(once, z, x.detach(), allow_unused=True)
    except Exception as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(f"{way} cannot be differentiated twice: {reason}") from error
    if not first.requires_grad:
        raise InputError(
            f"{way} returns what carries no gradient, so there is no grad g; its forward must not "
            "run under torch.no_grad or leave PyTorch"
        )
    if not all(torch.allclose(first, again, rtol=1e-4, atol=1e-5) for again in others):
        raise InputError(
            f"{way} returns another image each time, by chance or from what it did before, so that "
            "it has no potential"
        )


@torch.no_grad()
def outputs(
    module: nn.Module, config: GivenConfig, channels: int, side: int | None = None
) -> tuple[Tensor, Tensor]:
    """What a network makes of two images at two noise levels.

    Raises:
        InputError: it cannot be called in this way, or does not return images.
    """
    way, x, call = _trial(module, config, channels, side)
    hint = "say how it is called with channels=, told= or multiple="
    try:
        first, second = (call(x, level) for level in LEVELS)
    except Exception as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(f"{way} fails: {reason}; {hint}") from error
    if not isinstance(first, Tensor) or first.shape != x.shape:
        returned = tuple(first.shape) if isinstance(first, Tensor) else type(first).__name__
        raise InputError(f"{way} returns {returned}, not images of that shape; {hint}")
    return first.detach(), second.detach()


def _trial(
    module: nn.Module, config: GivenConfig, channels: int, side: int | None = None
) -> tuple[str, Tensor, Callable[[Tensor, float], Tensor]]:
    """Words for a call, small random images, and the call, which leaves no mode changed."""
    side = side or -(-TRIED // config.multiple) * config.multiple
    like = next(module.parameters(), torch.zeros(()))
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(2, channels, side, side, generator=generator).to(like)
    told = "" if config.told == "nothing" else f" and the noise level as {config.told}"

    def call(x: Tensor, level: float) -> Tensor:
        modes = [(part, part.training) for part in module.modules()]
        try:
            network = Given(module, config)
            network.eval()
            return network.called(x, x.new_full((2, 1, 1, 1), level))
        finally:
            for part, mode in modes:
                part.training = mode

    return f"{name_of(module)} called with images of shape {tuple(x.shape)}{told}", x, call
