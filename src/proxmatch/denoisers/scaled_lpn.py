r"""Learned proximal networks of all noise levels and image sizes.

    Psi_s(x) = (1 - alpha_s) s^2 psi_s((x - c) / s) + alpha_s / 2 |x - c|^2 + <c, x>,
    D_s = grad Psi_s.

psi_s is convex in its input z and has two kinds of units. **Direct** units read the image alone, in
pairs of opposite sign, at three scales k; **deep** layers i, a UNet, read them, each other and z:

    a_k = (gamma_k S_k z, -gamma_k S_k z) + b_k,    y_k = phi(a_k),
    a_i = gamma_i (S_i z + sum_j W_ij y_j) + b_i,   y_i = phi(a_i),      W_ij >= 0,
    psi_s(z) = 1/18 |max(a_0, 0)|^2 + sum_w w^2 <c_w, phi(a_0 / w)> + sum_i <c_i, y_i>,   c > 0,

with phi(a) = p (a - p / 2), p = min(max(a, 0), 1): zero below 0, a parabola up to 1, then a line.
The last sum runs over all layers but the finest direct one, k = 0, for which gamma_0 = 1 and
b_0 <= 0. Alone, this layer is firm thresholding: (a)_+ / 9, and what the threshold took is given
back as the unit's input grows, over the widths w of :data:`WIDTHS`.

**Convex.** phi and max(a, 0)^2 are convex and nondecreasing, so psi_s is convex in z for all
weights. The level s enters only through b, gamma and c, which do not change that.

**Why squares.** With psi_s = sum <c_i, y_i>, as in the published networks, grad psi_s is bounded,
and at a small level s, where z = (x - c) / s is large and D must be nearly the identity, it cannot
be. With squares a direct unit that is on passes its filter on, however large the edge, and one that
is off removes it. A deep layer moves the threshold: it adds at most a constant to what a unit
passes, where there is structure around.

**Why PnP-PGD cannot run away.** R grows at infinity, so that F = eta f + R has a minimum, exactly
if D grows more slowly than its input there. phi is a line far out, so only squares count:

    psi_s(z) <= rho / 2 |z|^2 + a multiple of |z|,    rho = |S_0|^2,

|S_0| the largest singular value of the filters as a matrix, one row per filter on a window of 6 x 6
pixels: every pixel is in nine windows, which is where the 18 comes from. Singular values above
:data:`GROWTH` are cut after each step of training (:meth:`ScaledLPN.growth`).
Without that bound rho crept above one, and whatever passed the threshold there grew from step to
step of PnP-PGD: with squares in all layers it diverged on 16 of 16 faces, with squares of direct
units and no bound on 4 of 16 photographs.

**alpha_s** rises to 1 as s falls to 0, as it does for the best denoiser, which has to change
nothing there: alpha_s = alpha + (1 - alpha) / (1 + (s / knee)^2). D_s^{-1} is 1/alpha_s-Lipschitz.

The gradient is written out: one pass upward and one downward, in differentiable operations. The
network starts as firm thresholding of cosine transforms (:func:`initialize`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from torch.autograd import forward_ad

from proxmatch.denoisers.base import Linearization, ProximalDenoiser, Reach, Recipe, leaf
from proxmatch.denoisers.icnn import nonnegative
from proxmatch.denoisers.levels import Level

Width = Annotated[int, Field(ge=2, multiple_of=2)]


class ScaledLPNConfig(BaseModel):
    """How a scaled LPN is laid out.

    Attributes:
        channels: image channels.
        direct: units that read the image alone, at each of the three scales, for each channel.
        hidden: channels of the deep layers, at each of the three scales.
        alpha: strong convexity of the potential at large levels.
        knee: level below which it rises to 1.
        center: gray value c the input is measured from.
        sigma: noise level it is evaluated at unless told otherwise.
        levels: smallest and largest noise level of the training.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    channels: int = Field(3, ge=1)
    direct: tuple[Width, Width, Width] = (72, 16, 16)
    hidden: tuple[Width, Width, Width] = (48, 64, 64)
    alpha: float = Field(0.05, gt=0, lt=1)
    knee: float = Field(0.01, gt=0, allow_inf_nan=False)
    center: float = Field(0.5, allow_inf_nan=False)
    sigma: Level | None = None
    levels: tuple[Level, Level] | None = None

    def convexity(self, sigma: Tensor) -> Tensor:
        """alpha_s of each level."""
        return self.alpha + (1 - self.alpha) / (1 + (sigma / self.knee) ** 2)


@dataclass(frozen=True)
class _Layer:
    """One layer: its resolution is that of the image divided by 2, 4 or 8 (scale 0, 1, 2)."""

    name: str
    scale: int
    reads: tuple[str, ...] = ()


DIRECT = (_Layer("edges_0", 0), _Layer("edges_1", 1), _Layer("edges_2", 2))
DEEP = (
    _Layer("fine", 0, ("edges_0",)),
    _Layer("middle", 1, ("edges_1", "fine")),
    _Layer("coarse", 2, ("edges_2", "middle")),
    _Layer("middle_again", 1, ("coarse", "middle")),
    _Layer("fine_again", 0, ("middle_again", "fine")),
)
SCALE = {layer.name: layer.scale for layer in (*DIRECT, *DEEP)}
#: Image sides are brought to multiples of this.
MULTIPLE = 8
#: Biases, gains and taps are polynomials in the logarithm of the level, of this many terms.
TERMS = 4
#: The direct layer that has squares.
SQUARED = DIRECT[0].name
#: Threshold that the direct units start with, in units of the noise.
THRESHOLD = 1.5
#: Over how many units of the noise a threshold is given back.
WIDTHS = (1.0, 3.0, 9.0)
#: Bound of rho in training.
GROWTH = 0.99
#: Windows of the finest direct units that a pixel is in.
OVERLAP = 9
#: Direct units extend beyond the edge, so that no pixel is seen by fewer of them; other layers do
#: not read the extra units.
RING = (1, 1, 1, 1)
#: Numbers of the finest direct layer that are handled at a time.
BLOCK = 1 << 17
#: Weights between layers are stored multiplied by their fan-in over this, so that one learning
#: rate fits all weights.
FAN = 5.0
#: So are the filters of the squares, which start as a good basis: they move this much more slowly.
#: At the rate of all others they wander, and training gains little.
RIGID = 20.0


@dataclass
class _Level:
    """What depends on the level, ``(B, channels, 1, 1)`` by layer: biases, gains and taps.

    ``back`` are the taps of the finest direct layer, one for each of :data:`WIDTHS`.
    """

    bias: dict[str, Tensor]
    gain: dict[str, Tensor]
    tap: dict[str, Tensor]
    back: list[Tensor]


@dataclass
class _Trace:
    """What the upward pass leaves behind, by layer."""

    squared: Tensor  # S_0 z, what the units that have squares see, with a ring around the image
    slope: dict[str, Tensor]  # phi'(a) = p of the other layers
    y: dict[str, Tensor]  # phi(a) of the other layers


class ScaledLPN(ProximalDenoiser):
    """A learned proximal network for every noise level, on images of any size.

    Args:
        config: the layout.
    """

    trainable = True
    recipe = Recipe(clip=1.0, rate=5e-4)
    memory_format = torch.channels_last
    config: ScaledLPNConfig

    def __init__(self, config: ScaledLPNConfig | None = None) -> None:
        config = config or ScaledLPNConfig()
        super().__init__(config.channels, config.sigma)
        self.config = config
        packed = (4 * config.channels, 16 * config.channels, 16 * config.channels)
        units = {layer.name: config.channels * config.direct[layer.scale] for layer in DIRECT}
        units |= {layer.name: config.hidden[layer.scale] for layer in DEEP}
        filters = {n: u // 2 if n in _DIRECT else u for n, u in units.items()}
        scaled = [n for n in units if n != SQUARED]
        self.filters = nn.ParameterDict(
            {n: torch.empty(f, packed[SCALE[n]], 3, 3) for n, f in filters.items()}
        )
        self.reads = nn.ParameterDict(
            {
                _read(layer, below): torch.empty(
                    units[layer.name], units[below], *_kernel(layer, below)
                )
                for layer in DEEP
                for below in layer.reads
            }
        )
        self.bias = nn.ParameterDict({n: torch.zeros(TERMS, u) for n, u in units.items()})
        self.tap = nn.ParameterDict({n: torch.zeros(TERMS, units[n]) for n in scaled})
        self.back = nn.ParameterList(torch.zeros(TERMS, units[SQUARED]) for _ in WIDTHS)
        self.gain = nn.ParameterDict({n: torch.zeros(TERMS, filters[n]) for n in scaled})
        if not self.filters["fine"].is_meta:
            initialize(self)
        self.to(memory_format=self.memory_format)

    def constrained(self) -> dict[str, nn.Parameter]:
        """The parameters that must be nonnegative for psi to be convex, by name."""
        return {n: p for n, p in self.named_parameters() if n.startswith("reads.")}

    def convex(self, z: Tensor, sigma: Tensor) -> Tensor:
        """psi_s(z), ``(B,)``.

        Args:
            z: images in units of the noise, ``(B, C, H, W)``, sides multiples of 8.
            sigma: levels, ``(B,)``.
        """
        level = self._at(sigma)
        trace = self._up(z, level, self._weights())
        on = _on(trace.squared, level)
        total = on.square().flatten(1).sum(1) / (2 * OVERLAP)
        for width, tap in zip(WIDTHS, level.back, strict=True):
            p = on.clamp(max=width)
            total = total + (tap * p * (on - p / 2)).flatten(1).sum(1)
        for name, tap in level.tap.items():
            total = total + (tap * trace.y[name]).flatten(1).sum(1)
        return total

    def convex_gradient(self, z: Tensor, sigma: Tensor) -> Tensor:
        """Grad psi_s(z), the shape of z; arguments as in :meth:`convex`."""
        if z.device.type != "cpu" or torch.is_grad_enabled() or _transformed():
            return self._differentiable(z, sigma)
        if sigma.stride(0) == 0 or len(sigma) == 1:  # one level for all
            return self._in_place(z, sigma[:1])
        pairs = zip(torch.split(z, 1), torch.split(sigma, 1), strict=True)
        return torch.cat([self._in_place(*pair) for pair in pairs])

    def _differentiable(self, z: Tensor, sigma: Tensor) -> Tensor:
        """Grad psi_s(z) in differentiable operations."""
        level, weights = self._at(sigma), self._weights()
        trace = self._up(z, level, weights)
        back: dict[str, Tensor] = {}  # W^T delta by the layer that is read
        views: dict[int, Tensor] = {}  # S^T delta by scale
        for layer in reversed(DEEP):
            name = layer.name
            g = level.tap[name] + back[name] if name in back else level.tap[name]
            delta = g * trace.slope[name] * level.gain[name]
            _add(views, layer.scale, F.conv_transpose2d(delta, self.filters[name], padding=1))
            for below in layer.reads:
                if below == SQUARED:  # units of the ring are read by no layer
                    delta = F.pad(delta, RING)
                _add(back, below, _adjoint(delta, weights[_read(layer, below)], layer, below))
        for layer in DIRECT:
            name = layer.name
            if name == SQUARED:
                delta = _passed(trace.squared, back[name], level)
            else:
                g = (level.tap[name] + back[name]) * trace.slope[name]
                delta = _odd(g) * level.gain[name]
            border = 1 + (name == SQUARED)
            _add(views, layer.scale, F.conv_transpose2d(delta, self._filters(name), padding=border))
        return _collapsed(views)

    def _in_place(self, z: Tensor, sigma: Tensor) -> Tensor:
        """Grad psi_s(z) at one level, ``(1,)``, without a graph: buffers are written again.

        Most of the time beside the convolutions is that of memory, so that gains go into the
        weights, biases and taps into the convolutions.
        """
        level = self._at(sigma)
        bias, tap = ({n: v.flatten() for n, v in d.items()} for d in (level.bias, level.tap))
        gain = {n: v.view(-1, 1, 1, 1) for n, v in level.gain.items()}
        filters = {n: self._filters(n) * gain.get(n, 1) for n in SCALE}
        weights = self._weights()
        reads = {
            (layer.name, below): weights[_read(layer, below)] * gain[layer.name]
            for layer in DEEP
            for below in layer.reads
        }
        views = _views(z)
        seen = _last(F.conv2d(views[0], filters[SQUARED], padding=2))
        slope: dict[str, Tensor] = {}
        y: dict[str, Tensor] = {}
        for layer in DIRECT[1:]:
            name = layer.name
            u = F.conv2d(views[layer.scale], filters[name], padding=1)
            a = torch.cat([u, -u], 1).add_(level.bias[name])
            slope[name], y[name] = _phi_(a)
        for layer in DEEP:
            name = layer.name
            a = _last(F.conv2d(views[layer.scale], filters[name], bias[name], padding=1))
            for below in layer.reads:
                weight = reads[name, below]
                if below == SQUARED:
                    _read_squares_(a, seen, weight, level)
                elif SCALE[below] > layer.scale:
                    _enlarged_(a, F.conv2d(y[below], weight))
                else:
                    a += _apply(y[below], weight, layer, below)
            if layer is DEEP[-1]:  # which no layer reads
                slope[name] = a.clamp_(0, 1)
            else:
                slope[name], y[name] = _phi_(a)
        del a, y
        back: dict[str, Tensor] = {}
        sums: dict[int, Tensor] = {}
        for layer in (*reversed(DEEP), *DIRECT):
            name, padding = layer.name, 1
            if name == SQUARED:
                delta, padding = seen, 2
            else:
                delta = slope.pop(name).mul_(back.pop(name) if name in back else level.tap[name])
                if name in _DIRECT:
                    delta = _odd(delta)
            view = F.conv_transpose2d(delta, filters[name], padding=padding)
            sums[layer.scale] = sums[layer.scale].add_(view) if layer.scale in sums else view
            for below in layer.reads:
                weight = reads[name, below]
                if below == SQUARED:
                    _pass_squares_(seen, delta, weight, level)
                elif below in back:
                    back[below] += _adjoint(delta, weight, layer, below)
                else:
                    back[below] = _adjoint(delta, weight, layer, below, tap[below])
        return _collapsed(sums)

    def forward(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """D_s(x) = grad Psi_s(x), the shape of x."""
        x = self._check(x)
        return self._denoised(x, self._levels(x, sigma)).contiguous()

    def potential(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """Psi_s(x), ``(B,)``."""
        x = self._check(x)
        level = self._levels(x, sigma)
        alpha = self.config.convexity(level)
        centered = x - self.config.center
        quadratic = alpha / 2 * centered.square().flatten(1).sum(1)
        linear = self.config.center * centered.flatten(1).sum(1)
        psi = self.convex(_framed(centered / level.view(-1, 1, 1, 1)), level)
        return (1 - alpha) * level**2 * psi + quadratic + linear

    def linearize(self, x: Tensor, sigma: float | Tensor | None = None) -> Linearization:
        """D_s(x) and v -> J(x) v, over one graph that is kept for all v."""
        x = self._check(x)
        level = self._levels(x, sigma)
        with torch.inference_mode(False), torch.enable_grad():
            z = leaf(x)
            out = self._denoised(z, level)

        def jacobian(v: Tensor) -> Tensor:  # J is symmetric
            with torch.inference_mode(False):
                (product,) = torch.autograd.grad(out, z, v.detach().clone(), retain_graph=True)
            return product

        return out.detach().contiguous(), jacobian

    def convexity(self, sigma: float | None = None) -> float:
        """alpha_s (Proposition B.1)."""
        level = self._levels(torch.zeros(1, self.channels, 1, 1, dtype=torch.float64), sigma)
        return float(self.config.convexity(level))

    @torch.no_grad()
    def growth(self) -> float:
        """Rho: far from the center D grows by a factor of at most alpha_s + (1 - alpha_s) rho."""
        return float(torch.linalg.matrix_norm(self._filters(SQUARED).flatten(1), 2)) ** 2

    @torch.no_grad()
    def project_(self) -> None:
        """Nonnegative weights, and rho at most :data:`GROWTH`: larger singular values are cut."""
        super().project_()
        matrix = self._filters(SQUARED).flatten(1)
        squared, vectors = torch.linalg.eigh(matrix.T @ matrix)
        if float(squared[-1]) > GROWTH:
            cut = (GROWTH / squared.clamp_min(GROWTH)).sqrt()
            matrix = matrix @ (vectors * cut) @ vectors.T
            self.filters[SQUARED].copy_(RIGID * matrix.view_as(self.filters[SQUARED]))

    @property
    def smoothness(self) -> float:
        """L_H = 1 / alpha_s at the denoiser's own level (Proposition B.1)."""
        return 1.0 / self.convexity()

    @property
    def conditional(self) -> bool:
        """It takes the noise level."""
        return True

    @property
    def reach(self) -> Reach:
        """Two convolutions at each scale on the way up, and as many on the way down."""
        radius = sum(2 * (2 << layer.scale) + (2 << layer.scale) for layer in (DIRECT[0], *DEEP))
        return Reach(2 * radius, MULTIPLE)

    def _denoised(self, x: Tensor, level: Tensor) -> Tensor:
        """D_s(x), differentiable; sides are brought to multiples of 8 with gray."""
        sigma = level.view(-1, 1, 1, 1)
        alpha = self.config.convexity(sigma)
        centered = x - self.config.center
        g = self.convex_gradient(_framed(centered / sigma), level)
        g = g[..., : x.shape[-2], : x.shape[-1]]
        out: Tensor = (1 - alpha) * sigma * g + alpha * centered + self.config.center
        return out

    def _at(self, sigma: Tensor) -> _Level:
        """Biases, gains and taps at levels ``(B,)``."""
        place = (sigma.log() + 3.5) / 2
        terms = torch.stack([place**k for k in range(TERMS)], 1)  # (B, TERMS)

        def value(table: nn.ParameterDict) -> dict[str, Tensor]:
            return {name: (terms @ p)[:, :, None, None] for name, p in table.items()}

        gain, tap = ({n: v.exp() for n, v in value(t).items()} for t in (self.gain, self.tap))
        bias = value(self.bias)
        bias[SQUARED] = -F.softplus(bias[SQUARED])  # a threshold
        back = [(terms @ p).exp()[:, :, None, None] for p in self.back]
        return _Level(bias, gain, tap, back)

    def _filters(self, name: str) -> Tensor:
        """S of a layer."""
        filters: Tensor = self.filters[name]
        return filters / RIGID if name == SQUARED else filters

    def _weights(self) -> dict[str, Tensor]:
        """The W_ij."""
        return {n: nonnegative(w) * (FAN / w[0].numel()) for n, w in self.reads.items()}

    def _up(self, z: Tensor, level: _Level, weights: dict[str, Tensor]) -> _Trace:
        """All units at z."""
        views = _views(z)
        trace = _Trace(F.conv2d(views[0], self._filters(SQUARED), padding=2), {}, {})
        for layer in DIRECT[1:]:
            name = layer.name
            u = level.gain[name] * F.conv2d(views[layer.scale], self.filters[name], padding=1)
            trace.slope[name], trace.y[name] = _phi(torch.cat([u, -u], 1) + level.bias[name])
        for layer in DEEP:
            name = layer.name
            a = F.conv2d(views[layer.scale], self.filters[name], padding=1)
            for below in layer.reads:
                weight = weights[_read(layer, below)]
                if below == SQUARED:
                    y = _phi(_on(trace.squared[..., 1:-1, 1:-1], level))[1]
                else:
                    y = trace.y[below]
                a = a + _apply(y, weight, layer, below)
            trace.slope[name], trace.y[name] = _phi(
                torch.addcmul(level.bias[name], level.gain[name], a)
            )
        return trace


_DIRECT = {layer.name for layer in DIRECT}


def _phi(a: Tensor) -> tuple[Tensor, Tensor]:
    """phi'(a) and phi(a)."""
    p = a.clamp(0, 1)
    return p, p * torch.sub(a, p, alpha=0.5)


def _on(u: Tensor, level: _Level) -> Tensor:
    """max(a_0, 0) of the units that have squares, ``(B, 2 F, H, W)``, from S_0 z."""
    plus, minus = level.bias[SQUARED].chunk(2, 1)
    return torch.cat([plus + u, minus - u], 1).relu_()


def _passed(u: Tensor, g: Tensor, level: _Level) -> Tensor:
    """What the units that have squares pass down, ``(B, F, H, W)``."""
    on = _on(u, level)
    delta = torch.addcmul(on / OVERLAP, g, on.clamp(max=1))
    for width, tap in zip(WIDTHS, level.back, strict=True):
        delta.addcmul_(tap, on.clamp(max=width))
    return _odd(delta)


def _odd(delta: Tensor) -> Tensor:
    """What the filters get: pairs of units see them with opposite signs."""
    plus, minus = delta.chunk(2, 1)
    return plus - minus


def _phi_(a: Tensor) -> tuple[Tensor, Tensor]:
    """phi'(a), and phi(a) in place of a."""
    p = a.clamp(0, 1)
    return p, a.sub_(p, alpha=0.5).mul_(p)


def _views(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What the layers of each scale see of an image."""
    fine = F.pixel_unshuffle(z, 2)
    middle = F.pixel_unshuffle(fine, 2)
    return fine, middle, F.avg_pool2d(middle, 2)


def _collapsed(views: dict[int, Tensor]) -> Tensor:
    """The adjoint of :func:`_views`."""
    middle = views[1] + F.interpolate(views[2], scale_factor=2.0) / 4
    out: Tensor = F.pixel_shuffle(views[0] + F.pixel_shuffle(middle, 2), 2)
    return out


def _transformed() -> bool:
    """Whether PyTorch follows what is done: a compiler, torch.func or forward-mode derivatives."""
    return (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
    )


def _last(x: Tensor) -> Tensor:
    """With the channels of a pixel side by side."""
    return x.contiguous(memory_format=torch.channels_last)


def _pixels(x: Tensor) -> Tensor:
    """The same memory as ``(B, H, W, C)``, of a tensor from :func:`_last`."""
    return x.permute(0, 2, 3, 1)


def _enlarged_(a: Tensor, small: Tensor) -> None:
    """Add images of half the size to a."""
    to, b, (height, width) = _pixels(a), small.permute(0, 2, 3, 1), small.shape[-2:]
    to.view(len(a), height, 2, width, 2, -1).add_(b[:, :, None, :, None])


# The finest direct layer has far more channels than any other. Of a whole picture they are slow to
# write and read again; a few rows of them stay in the cache of the processor.


def _halves(weight: Tensor, *values: Tensor) -> Iterator[tuple[int, Tensor, list[Tensor]]]:
    """The sign of each half of the finest direct units, its weights and its values."""
    matrices = weight.flatten(1).chunk(2, 1)
    parts = zip(*(v.flatten().chunk(2) for v in values), strict=True)
    for sign, matrix, own in zip((1, -1), matrices, parts, strict=True):
        yield sign, matrix.contiguous(), list(own)


def _rows(width: int, number: int) -> int:
    """How many rows are handled at a time, of so many pairs of units."""
    return max(1, BLOCK // (2 * width * number))


def _read_squares_(a: Tensor, seen: Tensor, weight: Tensor, level: _Level) -> None:
    """Add W y of the finest direct units to a."""
    to, us = _pixels(a), _pixels(seen)[:, 1:-1, 1:-1]
    rows = _rows(*us.shape[2:])
    block = us.new_empty(2, rows, *us.shape[2:])
    halves = list(_halves(weight, level.bias[SQUARED]))
    for image, into in zip(us, to, strict=True):
        for u, sums in zip(torch.split(image, rows), torch.split(into, rows), strict=True):
            y, p = block[:, : len(u)]
            for sign, matrix, (bias,) in halves:
                torch.add(bias, u, alpha=sign, out=y)
                torch.clamp(y, 0, 1, out=p)
                y.sub_(p, alpha=0.5).mul_(p)
                sums.view(-1, sums.shape[-1]).addmm_(y.view(-1, y.shape[-1]), matrix.T)


def _pass_squares_(seen: Tensor, delta: Tensor, weight: Tensor, level: _Level) -> None:
    """What the finest direct units pass down, in place of what they see.

    Of two opposite units at most one is on: both thresholds are at least zero.
    """
    us, above = _pixels(seen), _pixels(_last(delta))
    rows, number = _rows(*us.shape[2:]), above.shape[-1]
    block = us.new_empty(3, rows, *us.shape[2:])
    framed = above.new_zeros(rows, us.shape[2], number)  # rows of delta, with the ring
    halves = list(_halves(weight, *level.back))
    plus, minus = level.bias[SQUARED].flatten().chunk(2)
    for image, source in zip(us, above, strict=True):
        for top in range(0, len(image), rows):
            u = image[top : top + rows]
            first, last = max(top, 1), min(top + rows, len(image) - 1)  # those in the image
            framed.zero_()
            framed[first - top : last - top, 1:-1] = source[first - 1 : last - 1]
            g, p, out = block[:, : len(u)]
            torch.clamp(u, minus, -plus, out=p)
            u.sub_(p)  # on, with the sign of the unit
            out.zero_()
            for sign, matrix, taps in halves:
                pixels = framed[: len(u)].view(-1, number)
                torch.addmm(taps[0], pixels, matrix, out=g.view(-1, g.shape[-1]))
                for width, tap in zip(WIDTHS, (g, *taps[1:]), strict=True):
                    torch.clamp(u, min(0, sign * width), max(0, sign * width), out=p)
                    out.addcmul_(p, tap)
            torch.add(out, u, alpha=1 / OVERLAP, out=u)


def _read(layer: _Layer, below: str) -> str:
    return f"{layer.name}_of_{below}"


def _kernel(layer: _Layer, below: str) -> tuple[int, int]:
    """The kernel with which a layer reads another: 3 x 3; 2 x 2 from a finer one, else 1 x 1."""
    side = 1 if below in _DIRECT else {0: 3, 1: 2, -1: 1}[layer.scale - SCALE[below]]
    return side, side


def _apply(y: Tensor, weight: Tensor, layer: _Layer, below: str) -> Tensor:
    """W y."""
    if SCALE[below] == layer.scale:
        return F.conv2d(y, weight, padding=weight.shape[-1] // 2)
    if SCALE[below] < layer.scale:
        return F.conv2d(y, weight, stride=2)
    return F.interpolate(F.conv2d(y, weight), scale_factor=2.0)


def _adjoint(
    delta: Tensor, weight: Tensor, layer: _Layer, below: str, bias: Tensor | None = None
) -> Tensor:
    """W^T delta, and a bias."""
    if SCALE[below] == layer.scale:
        return F.conv_transpose2d(delta, weight, bias, padding=weight.shape[-1] // 2)
    if SCALE[below] < layer.scale:
        return F.conv_transpose2d(delta, weight, bias, stride=2)
    return F.conv_transpose2d(4 * F.avg_pool2d(delta, 2), weight, bias)


def _framed(z: Tensor) -> Tensor:
    """Images with zeros on the right and below, up to multiples of 8."""
    height, width = z.shape[-2:]
    if height % MULTIPLE or width % MULTIPLE:
        return F.pad(z, (0, -width % MULTIPLE, 0, -height % MULTIPLE))
    return z


def _add(sums: dict[Any, Tensor], key: Any, term: Tensor) -> None:
    sums[key] = sums[key] + term if key in sums else term


def cosines(channels: int, side: int, number: int) -> Tensor:
    """The lowest products of cosines on a window, orthonormal, ``(number, C, side, side)``.

    Color is split into its mean and the rest, whose frequencies count double: there is less of it,
    and it is smoother.
    """
    k, i = torch.arange(side)[:, None], torch.arange(side)
    one = (torch.pi / side * (i + 0.5) * k).cos() * (2 / side) ** 0.5
    one[0] /= 2**0.5
    c, j = torch.arange(channels)[:, None], torch.arange(channels)
    color = (torch.pi / channels * (j + 0.5) * c).cos() * (2 / channels) ** 0.5
    color[0] /= 2**0.5
    frequency = k.square() + i.square()
    height = torch.cat([(1 + 3 * (q > 0)) * frequency[None] + (q > 0) for q in range(channels)])
    chosen = height.flatten().argsort(stable=True)[:number]
    basis = torch.einsum("cj,ka,lb->ckljab", color, one, one)
    return basis.flatten(0, 2)[chosen.sort().values]


@torch.no_grad()
def initialize(denoiser: ScaledLPN) -> None:
    """Start as firm thresholding of cosine transforms, a little below the identity.

    The direct units of scale k are the lowest cosines on windows of 6, 12 and 24 pixels. The
    weights between layers average, and the taps are small.
    """
    c = denoiser.channels
    for layer in DIRECT:
        name, weight = layer.name, denoiser.filters[layer.name]
        number, pack = len(weight), 2 << min(layer.scale, 1)
        basis = cosines(c, 3 * pack, min(number, c * (3 * pack) ** 2))
        more = torch.randn(number - len(basis), *basis.shape[1:]) * basis[0].numel() ** -0.5
        basis = torch.cat([basis, more])
        if layer.scale:
            basis = F.pixel_unshuffle(basis, 2)
        weight.copy_(F.pixel_unshuffle(basis, 2) * (2.0 if layer.scale == 2 else 1.0))
        if name == SQUARED:
            denoiser.bias[name][0] = math.log(math.expm1(THRESHOLD))
            for width, tap in zip(WIDTHS, denoiser.back, strict=True):
                tap[0] = math.log(THRESHOLD / len(WIDTHS) / width / OVERLAP)
            weight *= RIGID * 0.97**0.5
        else:
            denoiser.bias[name][0] = -THRESHOLD
            denoiser.tap[name][0] = -5.0
    for layer in DEEP:
        name, weight = layer.name, denoiser.filters[layer.name]
        weight.copy_(torch.randn(weight.shape) * weight[0].numel() ** -0.5)
        denoiser.bias[name][0] = -0.2
        denoiser.tap[name][0] = -5.0
    for weight in denoiser.reads.values():
        weight.copy_(torch.rand(weight.shape) / (2 * FAN))
