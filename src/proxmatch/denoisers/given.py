"""Networks of the user's own class as the N of a gradient-step denoiser.

How a network has to be called is found out by calling it: with a noise level for each image, with a
map of levels, with a further channel, or without a level.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from proxmatch.denoisers.networks import Network, is_map
from proxmatch.errors import InputError

Told = Literal["nothing", "vector", "column", "map", "channel"]

#: Side of the image on which a network is tried, and the two noise levels it is given.
TRIED, LEVELS = 64, (0.05, 0.2)


class GivenConfig(BaseModel):
    """How a network of the user's own class is called.

    Attributes:
        name: its class, with the module that defines it.
        told: how it is told the noise level: ``nothing`` for N(x); ``vector`` for N(x, s) with s of
            shape ``(B,)``, as in deepinv; ``column`` with ``(B, 1, 1, 1)``, as FFDNet in KAIR;
            ``map`` with ``(B, 1, H, W)``; ``channel`` for N([x, s]), as DRUNet in KAIR.
        residual: whether it returns the noise, so that N(x) is x minus its output.
        multiple: image sides it takes are multiples of this.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    told: Told = "nothing"
    residual: bool = False
    multiple: int = Field(1, ge=1)


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
            sigma: noise level, ``(B, 1, 1, 1)`` or ``(B, 1, H, W)``, if it is told any.
            kwargs: not used.
        """
        with sdpa_kernel(SDPBackend.MATH):  # the other kernels cannot be differentiated twice
            out: Tensor = self.module(*self._arguments(x, sigma))
        return x - out if self.config.residual else out

    def train(self, mode: bool = True) -> Given:
        """Training or evaluation mode, except for layers that depend on the batch or on chance."""
        super().train(mode)
        for part in self.modules():
            if isinstance(part, _BatchNorm | _DropoutNd):
                part.eval()
        return self

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
    multiple: int = 1,
    differentiable: bool = True,
) -> GivenConfig:
    """Find out how a network is called, where the arguments do not say it, by calling it.

    Args:
        module: the network.
        channels: image channels.
        told: how it is told the noise level; found out if None.
        residual: whether it returns the noise.
        multiple: image sides it takes are multiples of this.
        differentiable: refuse a network whose output carries no gradient.

    Raises:
        InputError: it cannot be called in this way, or it does not return an image that can be
            differentiated.
    """
    name = f"{type(module).__module__}.{type(module).__qualname__}"

    def config(told: Told) -> GivenConfig:
        return GivenConfig(name=name, told=told, residual=residual, multiple=multiple)

    if told is not None:
        outputs(module, config(told), channels, differentiable)
        return config(told)
    found: dict[Told, tuple[Tensor, Tensor]] = {}
    wrong: list[InputError] = []
    for way in get_args(Told):
        try:
            found[way] = outputs(module, config(way), channels, differentiable)
        except InputError as error:
            wrong.append(error)
    for way in ("vector", "column", "map"):
        if way in found and not torch.equal(*found[way]):  # it does read the level
            if "map" in found and torch.allclose(found["map"][0], found[way][0], atol=1e-5):
                return config("map")
            return config(way)
    for way in ("nothing", "channel", "vector"):
        if way in found:
            return config(way)
    raise wrong[0]


def outputs(
    module: nn.Module, config: GivenConfig, channels: int, differentiable: bool
) -> tuple[Tensor, Tensor]:
    """What a network makes of two images at two noise levels, outside autograd.

    Raises:
        InputError: it cannot be called in this way, or does not return images.
    """
    side = -(-TRIED // config.multiple) * config.multiple
    like = next(module.parameters(), torch.zeros(()))
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(2, channels, side, side, generator=generator).to(like).requires_grad_()
    modes = [(part, part.training) for part in module.modules()]
    network = Given(module, config).eval()
    way = f"{type(module).__name__} called with images of shape {tuple(x.shape)}" + (
        "" if config.told == "nothing" else f" and the noise level as {config.told}"
    )
    hint = "say how it is called with channels=, told= or multiple="
    try:
        with torch.inference_mode(False), torch.enable_grad():
            first, second = (network(x, x.new_full((2, 1, 1, 1), level)) for level in LEVELS)
    except Exception as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(f"{way} fails: {reason}; {hint}") from error
    finally:
        for part, mode in modes:
            part.training = mode
    if not isinstance(first, Tensor) or first.shape != x.shape:
        returned = tuple(first.shape) if isinstance(first, Tensor) else type(first).__name__
        raise InputError(f"{way} returns {returned}, not images of that shape; {hint}")
    if differentiable and not first.requires_grad:
        raise InputError(
            f"{way} returns what carries no gradient, so there is no grad g; its forward must not "
            "run under torch.no_grad or leave PyTorch"
        )
    return first.detach(), second.detach()
