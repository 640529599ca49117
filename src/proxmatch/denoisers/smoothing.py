r"""Kinks of a network: where they are, and smooth activations in their place.

A gradient-step denoiser D = Id - r + J_N^T r, r = x - N(x), contains the Jacobian of its network.
Where an activation has a kink, like ReLU at zero, J_N jumps, and so does D: it is not a proximal
map, and the L that is measured between two kinks says nothing about the jump.

ReLU is replaced by a softplus,

    S(a) = log(1 + exp(beta a)) / beta,    0 <= S(a) - max(a, 0) <= log(2) / beta,

and so is ReLU inside other activations. Measured on FFDNet and DnCNN (color, noise 25/255): at
the same change of the output, softplus gives a smaller L than GELU and SiLU of any sharpness, which
overshoot. L grows with beta, the change of the output falls with it:

    beta                        50      100     200     500
    change, of the noise        0.22    0.09    0.03    0.01
    L of FFDNet, up to          6.3     11      20
    L of DnCNN, up to           2.9     4.9     7.1
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from proxmatch.errors import InputError

#: beta of the softplus that stands for ReLU: the output changes by a tenth of the noise.
SHARPNESS = 100.0

#: Operations of PyTorch that have a kink wherever they are applied.
KINKED = {
    "abs",
    "adaptive_max_pool2d",
    "amax",
    "amin",
    "clamp",
    "clamp_max",
    "clamp_min",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "leaky_relu",
    "max_pool2d_with_indices",
    "maximum",
    "median",
    "minimum",
    "_prelu_kernel",
    "relu",
    "rrelu_with_noise",
    "softshrink",
    "threshold",
}


class SmoothActivation(nn.Module):
    """A piecewise linear activation with S in place of ReLU.

    Args:
        like: a ReLU, LeakyReLU, PReLU, ReLU6 or Hardtanh, whose parameters it shares.
        beta: sharpness of S.
    """

    weight: nn.Parameter | None

    def __init__(self, like: nn.Module, beta: float) -> None:
        super().__init__()
        self.beta = beta
        self.slope = like.negative_slope if isinstance(like, nn.LeakyReLU) else 0.0
        self.ends = (like.min_val, like.max_val) if isinstance(like, nn.Hardtanh) else None
        self.register_parameter("weight", like.weight if isinstance(like, nn.PReLU) else None)

    def forward(self, a: Tensor) -> Tensor:
        """The activation of a, the shape of a."""
        if self.ends is not None:
            low, high = self.ends
            return low + self._relu(a - low) - self._relu(a - high)
        slope: float | Tensor = self.slope
        if self.weight is not None:
            slope = self.weight.view(-1, *[1] * (a.dim() - 2))
        return self._relu(a) + slope * (a - self._relu(a))

    def extra_repr(self) -> str:
        """The sharpness."""
        return f"beta={self.beta:g}"

    def _relu(self, a: Tensor) -> Tensor:
        return F.softplus(a, beta=self.beta)


def smooth(module: nn.Module, beta: float = SHARPNESS) -> nn.Module:
    """A copy of a network with smooth activations in place of those that have kinks.

    ReLU, LeakyReLU, PReLU, ReLU6 and Hardtanh modules are replaced. The names of the weights stay.
    Functions called inside a ``forward`` (``F.relu``, ``torch.clamp``) and max pooling cannot be
    replaced from outside: :func:`kinks` names them.

    Args:
        module: any network.
        beta: sharpness of the softplus.

    Raises:
        InputError: beta is not positive.

    Example:
        >>> smooth(nn.Sequential(nn.Conv2d(1, 1, 3), nn.ReLU()))[1]
        SmoothActivation(beta=100)
    """
    if not 0 < beta < float("inf"):
        raise InputError(f"the sharpness beta must be positive and finite, got {beta}")
    return _exchanged(copy.deepcopy(module), beta)


def _exchanged(module: nn.Module, beta: float) -> nn.Module:
    if isinstance(module, nn.ReLU | nn.LeakyReLU | nn.PReLU | nn.Hardtanh):  # ReLU6 is a Hardtanh
        return SmoothActivation(module, beta)
    for name, child in module._modules.items():
        if child is not None:
            module._modules[name] = _exchanged(child, beta)
    return module


def kinks(module: nn.Module, run: Callable[[], object]) -> tuple[str, ...]:
    """The layers of a network that have kinks, each with the operation, in order.

    Args:
        module: the network.
        run: calls it once; the operations are watched, functions inside its layers included.

    Example:
        >>> network = nn.Sequential(nn.Conv2d(1, 1, 3), nn.ReLU())
        >>> kinks(network, lambda: network(torch.zeros(1, 1, 4, 4)))
        ('1 (relu)',)
    """
    watch = _Watch()
    hooks = []
    for name, part in module.named_modules():
        inside = name or type(module).__name__
        hooks.append(part.register_forward_pre_hook(lambda *_, n=inside: watch.inside.append(n)))
        hooks.append(part.register_forward_hook(lambda *_: _left(watch.inside)))
    try:
        with torch.no_grad(), watch:
            run()
    finally:
        for hook in hooks:
            hook.remove()
    return tuple(watch.found)


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the operations with a kink on images or features, and in which module they are."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.inside: list[str] = []  # modules that are running, the outermost first
        self.found: dict[str, None] = {}  # in order, each once

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = func.overloadpacket.__name__.rstrip("_")
        # Of noise levels, (B,) or (B, 1), a minimum or an absolute value does no harm.
        if args and isinstance(args[0], Tensor) and args[0].dim() > 2 and _has_kink(name, args):
            operation = name.removeprefix("_").removesuffix("_kernel").split("_with_")[0]
            self.found[f"{self.inside[-1] if self.inside else 'forward'} ({operation})"] = None
        return func(*args, **(kwargs or {}))


def _left(inside: list[str]) -> None:
    inside.pop()


def _has_kink(name: str, args: tuple[Any, ...]) -> bool:
    if name == "elu":  # alpha, scale, input scale: ELU and CELU are smooth at zero, SELU is not
        alpha, _, stretch = args[1:] + (1, 1, 1)[len(args) - 1 :]
        return bool(alpha * stretch != 1)
    return name in KINKED
