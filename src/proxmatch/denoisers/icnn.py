r"""The input-convex network psi of an LPN, its gradient written out, and derivatives of the latter.

With the softplus phi and y_i = phi(a_i), layer i of n computes

    a_0 = S_0 x + b_0,        a_i = W_i y_{i-1} + S_i R_i x + b_i,        W_i >= 0,
    psi(x) = sum_i <c_i, y_i>,                                            c_i >= 0,

where R_i resizes x bilinearly to the resolution of y_{i-1}, a 2^k-th of its own. Convexity in x
follows from W, c >= 0. One pass upward and one downward give the gradient, without autograd:

    g_n = c_n,    delta_i = g_i phi'(a_i),    g_{i-1} = c_{i-1} + W_i^T delta_i,
    grad psi(x) = sum_i R_i^T S_i^T delta_i.

:class:`ConvexGradient` wraps the two passes as one autograd node whose backward is written out too
(the derivative of <v, grad psi(x)> is that of the tangent of psi along v). Training then needs
three stored tensors per layer and one ordinary backward pass; differentiating twice with autograd
keeps about twice as many tensors.

All activations here are in base 2: phi(a) = log2(1 + 2^(kappa a)) / kappa with kappa = beta / ln 2
is softplus with parameter beta. The small input convolutions S, b contain the factor kappa, and
q = 1 + 2^(kappa a) = 2^(kappa y) gives phi' = 1 - 1/q and phi'' = beta phi' / q at no further cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.grad import conv2d_weight

LN2 = math.log(2.0)
# Outside these exponents 1 + 2^a is 1 or 2^a to the last bit of float64. Within them float32 meets
# neither infinity nor the slow arithmetic of subnormal numbers.
EXPONENTS = (-60.0, 100.0)


class _Nonnegative(torch.autograd.Function):
    """max(w, 0), with the derivative of a projected step.

    Where w <= 0, a derivative that would push w further down is dropped and one that would lift it
    passes: a weight at zero can come back, which the derivative of a plain clamp would forbid.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(w: Tensor) -> Tensor:
        return w.clamp(min=0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (w,) = ctx.saved_tensors
        return grad.masked_fill((w <= 0) & (grad > 0), 0)


def nonnegative(w: Tensor) -> Tensor:
    """max(w, 0), differentiated as a projected step is."""
    out: Tensor = _Nonnegative.apply(w)
    return out


@dataclass(frozen=True)
class Layer:
    """How one layer moves through space."""

    stride: int = 1  # stride of both convolutions
    padding: int = 1  # zeros around their inputs
    #: The kernel spans its whole input, so that the convolution is a matrix product.
    dense: bool = False


class Weights(NamedTuple):
    """The tensors of an input-convex network of n layers."""

    lin: Sequence[Tensor]  # W_1 ... W_{n-1}, each (h_i, h_{i-1}, k, k), nonnegative
    res: Sequence[Tensor]  # S_0 ... S_{n-1}, each (h_i, C, k, k)
    bias: Sequence[Tensor]  # b_0 ... b_{n-1}, each (h_i,)
    #: c_0 ... c_{n-1}, each (h_i,), nonnegative, or None where a layer has none.
    tap: Sequence[Tensor | None]


@dataclass
class Trace:
    """What the upward and downward passes leave behind, for every layer."""

    y: list[Tensor] = field(default_factory=list)  # kappa y_i
    q: list[Tensor] = field(default_factory=list)  # 1 + 2^(kappa a_i)
    delta: list[Tensor] = field(default_factory=list)  # delta_i


# --- one layer: the linear map, its adjoint, its derivative in the weights -----------------------


def _apply(layer: Layer, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if layer.dense:
        return F.linear(x.flatten(1), weight.flatten(1), bias)
    return F.conv2d(x, weight, bias, layer.stride, layer.padding)


def _adjoint(layer: Layer, y: Tensor, weight: Tensor, size: tuple[int, int]) -> Tensor:
    if layer.dense:
        return (y @ weight.flatten(1)).view(-1, *weight.shape[1:])
    s, p = layer.stride, layer.padding
    rest = [
        n - ((m - 1) * s - 2 * p + k)
        for n, m, k in zip(size, y.shape[-2:], weight.shape[-2:], strict=True)
    ]
    return F.conv_transpose2d(y, weight, None, s, p, rest)


def _weight_grad(layer: Layer, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """Derivative of <y, W x> in W."""
    if layer.dense:
        return (y.t() @ x.flatten(1)).view(weight.shape)
    s, p = layer.stride, layer.padding
    grad: Tensor = conv2d_weight(x, list(weight.shape), y, s, p)  # type: ignore[no-untyped-call]
    return grad


def _broadcast(tap: Tensor, like: Tensor) -> Tensor:
    return tap if like.dim() == 2 else tap.view(-1, 1, 1)


# --- resizing the input: R and its adjoint -------------------------------------------------------


def _resize(x: Tensor, size: tuple[int, int]) -> Tensor:
    """R x: bilinear (half-pixel centers, no antialiasing) from a multiple 2^k of ``size``.

    At such ratios the four neighbors of a sample have weight 1/4 each.
    """
    f = x.shape[-1] // size[-1]
    if f == 1:
        return x
    a, b = f // 2 - 1, f // 2
    rows = x[..., a::f, :] + x[..., b::f, :]
    return (rows[..., a::f] + rows[..., b::f]) / 4


def _resize_adjoint(x: Tensor, size: tuple[int, int]) -> Tensor:
    """R^T x, back to ``size``."""
    f = size[-1] // x.shape[-1]
    if f == 1:
        return x
    out = x.new_zeros(*x.shape[:2], *size)
    quarter = x / 4
    for i in (f // 2 - 1, f // 2):
        for j in (f // 2 - 1, f // 2):
            out[..., i::f, j::f] = quarter
    return out


# --- the passes ----------------------------------------------------------------------------------


def _softplus_(a: Tensor) -> tuple[Tensor, Tensor]:
    """Kappa phi(a / kappa) = log2(1 + 2^a), in place of a, and q = 1 + 2^a."""
    q = a.clamp(*EXPONENTS).exp2_().add_(1.0)
    return torch.maximum(a, q.log2(), out=a), q


def value(layers: Sequence[Layer], w: Weights, x: Tensor, beta: float) -> Tensor:
    """psi(x), ``(B,)``, in plain differentiable operations."""
    psi = x.new_zeros(x.shape[0])
    y = x
    for i, layer in enumerate(layers):
        a = _apply(layer, _resize(x, _resolution(y)), w.res[i], w.bias[i])
        if i > 0:
            a = a + _apply(layer, y, w.lin[i - 1])
        # The default threshold of 20 is an error of 2e-9: visible in float64.
        y = F.softplus(a, beta, threshold=40.0)
        tap = w.tap[i]
        if tap is not None:
            psi = psi + (y * _broadcast(tap, y)).flatten(1).sum(1)
    return psi


def gradient(
    layers: Sequence[Layer], w: Weights, x: Tensor, beta: float, trace: Trace | None = None
) -> Tensor:
    """Grad psi(x), the shape of x, outside autograd.

    Args:
        layers: the n layers.
        w: their weights.
        x: input, ``(B, C, H, W)``.
        beta: parameter of the softplus.
        trace: filled with what :func:`curvature` needs, when given.
    """
    kappa = beta / LN2
    inputs, qs = [x], []  # what each layer reads; its 1 + 2^a
    for i, layer in enumerate(layers):
        y = inputs[-1]
        a = _apply(layer, _resize(x, _resolution(y)), kappa * w.res[i], kappa * w.bias[i])
        if i > 0:
            a = _apply(layer, y, w.lin[i - 1]).add_(a)
        y, q = _softplus_(a)
        inputs.append(y)
        qs.append(q)
    if trace is not None:
        trace.y.extend(inputs[1:])
        trace.q.extend(qs)

    out = _Pyramid(x)
    g = torch.zeros_like(inputs[-1])
    for i in reversed(range(len(layers))):
        inputs.pop()
        q = qs.pop()
        tap = w.tap[i]
        if tap is not None:
            g += _broadcast(tap, g)
        delta = g.addcdiv_(g, q, value=-1.0)
        read = inputs[-1]
        out.add(_adjoint(layers[i], delta, w.res[i], _resolution(read)))
        if i > 0:
            g = _adjoint(layers[i], delta, w.lin[i - 1], _resolution(read))
        if trace is not None:
            trace.delta.append(delta)
    if trace is not None:
        trace.delta.reverse()
    return out.collapse()


def curvature(
    layers: Sequence[Layer],
    w: Weights,
    v: Tensor,
    beta: float,
    trace: Trace,
    x: Tensor | None = None,
) -> tuple[Tensor, Weights | None]:
    """The Hessian of psi times v; with x, also the derivative of <v, grad psi(x)> in the weights.

    With tangents da_i = W_i dy_{i-1} + S_i R_i v and dy_i = phi'(a_i) da_i, one pass downward
    p_i = phi'(a_i) W_{i+1}^T p_{i+1} + g_i phi''(a_i) da_i gives the product sum_i R_i^T S_i^T p_i
    and the derivatives dW_i = delta_i * dy_{i-1} + p_i * y_{i-1} (* the correlation), and likewise
    for S and b; dc_i sums dy_i. Below, p is kept divided by beta.

    Args:
        layers: the n layers.
        w: their weights.
        v: direction, the shape of x.
        beta: parameter of the softplus.
        trace: as filled by :func:`gradient` at the point x; it is not changed.
        x: that point, when the derivative in the weights is wanted.
    """
    n = len(layers)
    sizes = [_resolution(t) for t in (v, *trace.y[:-1])]
    d_lin: list[Tensor] = []
    d_res: list[Tensor] = []
    d_bias: list[Tensor] = []
    d_tap: list[Tensor | None] = []
    bends: list[Tensor] = []  # g phi'' da / beta
    dy = v
    for i, layer in enumerate(layers):
        delta = trace.delta[i]
        rv = _resize(v, sizes[i])
        da = _apply(layer, rv, w.res[i])
        if i > 0:
            if x is not None:
                d_lin.append(_weight_grad(layer, dy, delta, w.lin[i - 1]))
            da = _apply(layer, dy, w.lin[i - 1]).add_(da)
        if x is not None:
            d_res.append(_weight_grad(layer, rv, delta, w.res[i]))
        bend = da / trace.q[i]
        dy = da.sub_(bend)
        bends.append(bend.mul_(delta))
        if x is not None:
            tap = w.tap[i]
            d_tap.append(None if tap is None else dy.transpose(0, 1).flatten(1).sum(1))

    out = _Pyramid(v)
    p = bends.pop()
    for i in reversed(range(n)):
        layer = layers[i]
        if x is not None:
            if i > 0:
                d_lin[i - 1] += _weight_grad(layer, trace.y[i - 1], p, w.lin[i - 1]).mul_(LN2)
            rx = _resize(x, sizes[i])
            d_res[i] += _weight_grad(layer, rx, p, w.res[i]).mul_(beta)
            d_bias.append(p.transpose(0, 1).flatten(1).sum(1).mul_(beta))
        out.add(_adjoint(layer, p, w.res[i], sizes[i]))
        if i > 0:
            g = _adjoint(layer, p, w.lin[i - 1], sizes[i])
            p = bends.pop().add_(g).addcdiv_(g, trace.q[i - 1], value=-1.0)
    product = out.collapse().mul_(beta)
    if x is None:
        return product, None
    return product, Weights(d_lin, d_res, d_bias[::-1], d_tap)


class _Pyramid:
    """Sums tensors of several resolutions and carries the sum back to that of ``like``."""

    def __init__(self, like: Tensor) -> None:
        self.size = _resolution(like)
        self.levels: dict[tuple[int, int], Tensor] = {}

    def add(self, x: Tensor) -> None:
        size = _resolution(x)
        self.levels[size] = self.levels[size].add_(x) if size in self.levels else x

    def collapse(self) -> Tensor:
        parts = [_resize_adjoint(x, self.size) for x in self.levels.values()]
        total = parts[0].contiguous()
        for part in parts[1:]:
            total = total.add_(part)
        return total


def _resolution(x: Tensor) -> tuple[int, int]:
    return x.shape[-2], x.shape[-1]


# --- the autograd node ---------------------------------------------------------------------------


class ConvexGradient(torch.autograd.Function):
    """x, weights -> grad psi(x), as one node with a written-out backward.

    A second derivative (``create_graph=True``) goes through plain autograd on :func:`value`.
    """

    @staticmethod
    def forward(
        ctx: Any, layers: tuple[Layer, ...], beta: float, x: Tensor, *flat: Tensor | None
    ) -> Tensor:
        """Run :func:`gradient`, keeping its trace."""
        trace = Trace()
        out = gradient(layers, _unflatten(flat, len(layers)), x, beta, trace)
        ctx.layers, ctx.beta, ctx.n_flat = layers, beta, len(flat)
        ctx.given = [t is not None for t in flat]
        ctx.save_for_backward(
            x, *(t for t in flat if t is not None), *trace.y, *trace.q, *trace.delta
        )
        return out

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> tuple[Any, ...]:
        """Derivatives in x and every weight."""
        n = len(ctx.layers)
        x, *saved = ctx.saved_tensors
        given = iter(saved)
        flat = tuple(next(given) if is_given else None for is_given in ctx.given)
        rest = list(given)
        if torch.is_grad_enabled():
            return None, None, *_second_derivative(ctx, x, flat, v)
        trace = Trace(rest[:n], rest[n : 2 * n], rest[2 * n :])
        needs_weights = any(ctx.needs_input_grad[3:])
        w = _unflatten(flat, n)
        dx, dw = curvature(ctx.layers, w, _layout(v), ctx.beta, trace, x if needs_weights else None)
        grads = _flatten(dw) if dw is not None else (None,) * ctx.n_flat
        return None, None, dx, *grads


def _second_derivative(
    ctx: Any, x: Tensor, flat: tuple[Tensor | None, ...], v: Tensor
) -> tuple[Tensor | None, ...]:
    inputs = (x, *flat)
    with torch.enable_grad():
        x = x if x.requires_grad else x.detach().requires_grad_()
        psi = value(ctx.layers, _unflatten(flat, len(ctx.layers)), x, ctx.beta)
        (grad,) = torch.autograd.grad(psi.sum(), x, create_graph=True)
        wanted = [i for i, needed in enumerate(ctx.needs_input_grad[2:]) if needed]
        sought = [t for i in wanted if (t := inputs[i]) is not None]
        found = torch.autograd.grad(grad, sought, v, create_graph=True, allow_unused=True)
    by_place = dict(zip(wanted, found, strict=True))
    return tuple(by_place.get(i) for i in range(len(inputs)))


def _flatten(w: Weights) -> tuple[Tensor | None, ...]:
    return (*w.lin, *w.res, *w.bias, *w.tap)


def _unflatten(flat: Sequence[Tensor | None], n: int) -> Weights:
    parts = list(flat)
    a, b, c = n - 1, 2 * n - 1, 3 * n - 1
    return Weights(parts[:a], parts[a:b], parts[b:c], parts[c:])  # type: ignore[arg-type]


def _layout(x: Tensor) -> Tensor:
    """Channels last on a CPU, where its convolutions are faster; elsewhere as it comes."""
    return x.contiguous(memory_format=torch.channels_last) if x.device.type == "cpu" else x


def _layout_weights(layers: Sequence[Layer], w: Weights) -> Weights:
    res = [t if layer.dense else _layout(t) for layer, t in zip(layers, w.res, strict=True)]
    lin = [t if layer.dense else _layout(t) for layer, t in zip(layers[1:], w.lin, strict=True)]
    return Weights(lin, res, w.bias, w.tap)


def convex_gradient(layers: tuple[Layer, ...], w: Weights, x: Tensor, beta: float) -> Tensor:
    """Grad psi(x), differentiable in x and the weights; see :func:`gradient`."""
    w, x = _layout_weights(layers, w), _layout(x)
    flat = _flatten(w)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, *flat)):
        out: Tensor = ConvexGradient.apply(layers, beta, x, *flat)
        return out
    with torch.no_grad():
        return gradient(layers, w, x, beta)


@torch.no_grad()
def linearize(
    layers: tuple[Layer, ...], w: Weights, x: Tensor, beta: float
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Grad psi(x) and the map v -> Hessian of psi(x) times v, outside autograd."""
    w = _layout_weights(layers, w)
    trace = Trace()
    out = gradient(layers, w, _layout(x), beta, trace)

    @torch.no_grad()
    def hessian(v: Tensor) -> Tensor:
        return curvature(layers, w, _layout(v), beta, trace)[0]

    return out, hessian
