r"""Convolutions whose vector-Jacobian products are differentiated quickly.

A gradient-step denoiser is trained through grad g = r - J_N^T r, so that the weights of N get a
gradient through the products J_N^T r as well. PyTorch writes that gradient as a convolution whose
kernels are whole images, for which few libraries have a fast path. It is the same weight gradient
as that of a convolution: with y = w * x bilinear in w and x, both it and the transposed convolution
J^T g have their derivatives among three operations, for each of which there is a fast kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

_backward = torch.ops.aten.convolution_backward
#: Arguments of the two functions, after input, weight and bias.
_NAMES: dict[Callable[..., Tensor], tuple[str, ...]] = {
    F.conv2d: ("stride", "padding", "dilation", "groups"),
    F.conv_transpose2d: ("stride", "padding", "output_padding", "groups", "dilation"),
}


class QuickPullback(TorchFunctionMode):
    """Within it, a network is called so that J_N^T r can be differentiated quickly.

    Example:
        >>> x = torch.rand(1, 3, 8, 8, requires_grad=True)
        >>> network = torch.nn.Conv2d(3, 3, 3, padding=1)
        >>> with QuickPullback() as quick:
        ...     n = network(x)
        >>> quick.pullback(n, x, x - n).shape
        torch.Size([1, 3, 8, 8])
    """

    def __init__(self) -> None:
        super().__init__()
        self._of_input_alone = False

    def pullback(self, n: Tensor, x: Tensor, r: Tensor) -> Tensor:
        """J_N(x)^T r, differentiable; gradients of the weights are left to a later pass."""
        self._of_input_alone = True
        try:
            (out,) = torch.autograd.grad(n, x, r, create_graph=True)
        finally:
            self._of_input_alone = False
        return out

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """A convolution of four dimensions goes its own way, everything else as ever."""
        kwargs = kwargs or {}
        if func not in _NAMES:
            return func(*args, **kwargs)
        given = dict(zip(("input", "weight", "bias", *_NAMES[func]), args, strict=False)) | kwargs
        x, weight, bias = given["input"], given["weight"], given.get("bias")
        if x.ndim != 4 or isinstance(given.get("padding"), str):
            return func(*args, **kwargs)
        if torch.is_autocast_enabled(x.device.type):
            low = torch.get_autocast_dtype(x.device.type)
            x, weight = x.to(low), weight.to(low)
        shape = _Shape(
            _two(given.get("stride", 1)),
            _two(given.get("padding", 0)),
            _two(given.get("dilation", 1)),
            func is F.conv_transpose2d,
            _two(given.get("output_padding", 0)),
            given.get("groups", 1),
        )
        y: Tensor = _Convolution.apply(x, weight, shape, self)
        return y if bias is None else y + bias.to(y.dtype).view(-1, 1, 1)


class _Shape(NamedTuple):
    """What both passes of a convolution need to know, in the order of ``aten``."""

    stride: list[int]
    padding: list[int]
    dilation: list[int]
    transposed: bool
    output_padding: list[int]
    groups: int


def _two(value: int | tuple[int, ...]) -> list[int]:
    return [value, value] if isinstance(value, int) else list(value)


class _Convolution(torch.autograd.Function):
    """w * x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, shape: _Shape, mode: QuickPullback) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.shape, ctx.mode = shape, mode
        return torch.ops.aten.convolution(x, weight, None, *shape)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g,), (x, weight) = gradients, ctx.saved_tensors
        of_x = of_weight = None
        if ctx.needs_input_grad[0]:
            of_x = _Transposed.apply(g, weight, x, ctx.shape, ctx.mode)
        if ctx.needs_input_grad[1] and not ctx.mode._of_input_alone:
            of_weight = _OfWeight.apply(g, x, weight, ctx.shape, ctx.mode)
        return of_x, of_weight, None, None


class _Transposed(torch.autograd.Function):
    """J^T g for J = w *; x gives the size of the result."""

    @staticmethod
    def forward(
        ctx: Any, g: Tensor, weight: Tensor, x: Tensor, shape: _Shape, mode: QuickPullback
    ) -> Tensor:
        ctx.save_for_backward(g, weight)
        ctx.shape, ctx.mode = shape, mode
        out: Tensor = _backward(g, x, weight, None, *shape, [True, False, False])[0]
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (v,), (g, weight) = gradients, ctx.saved_tensors
        of_g = of_weight = None
        if ctx.needs_input_grad[0]:
            of_g = _Convolution.apply(v, weight, ctx.shape, ctx.mode)
        if ctx.needs_input_grad[1] and not ctx.mode._of_input_alone:
            of_weight = _OfWeight.apply(g, v, weight, ctx.shape, ctx.mode)
        return of_g, of_weight, None, None, None


class _OfWeight(torch.autograd.Function):
    """The gradient of the weight of <g, w * x>; w gives the size of the result."""

    @staticmethod
    def forward(
        ctx: Any, g: Tensor, x: Tensor, weight: Tensor, shape: _Shape, mode: QuickPullback
    ) -> Tensor:
        ctx.save_for_backward(g, x)
        ctx.shape, ctx.mode = shape, mode
        out: Tensor = _backward(g, x, weight, None, *shape, [False, True, False])[1]
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (v,), (g, x) = gradients, ctx.saved_tensors
        of_g = of_x = None
        if ctx.needs_input_grad[0]:
            of_g = _Convolution.apply(x, v, ctx.shape, ctx.mode)
        if ctx.needs_input_grad[1]:
            of_x = _Transposed.apply(g, v, x, ctx.shape, ctx.mode)
        return of_g, of_x, None, None, None
