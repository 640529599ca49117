r"""Learned proximal networks of all noise levels and image sizes.

    Psi_s(x) = s^2 psi_s((x - c) / s) + alpha_s / 2 |x - c|^2 + <c, x>,        D_s = grad Psi_s.

psi_s is a UNet that is convex in its input z. Layer i computes, at its resolution,

    a_i = S_i z + sum_j W_ij y_j + b_i,    y_i = softplus(a_i),    W_ij >= 0,
    psi_s(z) = 1/2 sum_i <c_i, y_i^2>,                             c_i > 0.

**Convex.** y_i is convex and nonnegative, so y_i^2 is convex too. The level s enters through the
biases b_i, the gains of the S_i and the c_i only, none of which touches convexity in x.

**Why squares.** With psi_s = sum <c_i, y_i>, as in the published networks, grad psi_s is bounded,
and at a small level s, where z = (x - c) / s is large and D must be nearly the identity, it cannot
be. With squares psi_s grows as |z|^2: a unit that is on passes its filter on unchanged, however
large the edge, and one that is off removes it. Layers that read others are on where these are:
a filter passes where there is structure.

**What bounds the largest eigenvalue of J_D.** Nothing, so far. Where y_i is large and a unit below
it is at its kink, y_i^2 / 2 has the curvature beta y_i W_ij / 4 times that unit's filter: it grows
with the edge. Trained on faces for 6,000 steps the largest eigenvalue was 2.75, and plain PnP-PGD
at t = 1 diverged on all of 16 faces, although it denoises them at 33.9 dB at level 0.05. So none of
these ships yet. Squares of the first layer alone would be bounded.

**alpha_s** rises to 1 as s falls to 0, as it does for the best denoiser, which has to change
nothing there: alpha_s = alpha + (1 - alpha) / (1 + (s / knee)^2). D_s^{-1} is 1/alpha_s-Lipschitz.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from proxmatch.denoisers.base import Linearization, ProximalDenoiser, Reach, Recipe, leaf
from proxmatch.denoisers.icnn import nonnegative

Level = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ScaledLPNConfig(BaseModel):
    """How a scaled LPN is laid out.

    Attributes:
        channels: image channels.
        hidden: channels of every layer.
        beta: parameter of the softplus, for inputs in units of the noise.
        alpha: strong convexity of the potential at large levels.
        knee: level below which it rises to 1.
        center: gray value c the input is measured from.
        sigma: noise level it is evaluated at unless told otherwise.
        levels: smallest and largest noise level of the training.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    channels: int = Field(3, ge=1)
    hidden: int = Field(48, ge=2, multiple_of=2)
    beta: float = Field(4.0, gt=0, allow_inf_nan=False)
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


LAYERS = (
    _Layer("first", 0),
    _Layer("fine", 0, ("first",)),
    _Layer("middle", 1, ("fine",)),
    _Layer("coarse", 2, ("middle",)),
    _Layer("middle_again", 1, ("coarse", "middle")),
    _Layer("fine_again", 0, ("middle_again", "fine")),
)
SCALE = {layer.name: layer.scale for layer in LAYERS}
#: Image sides are brought to multiples of this.
MULTIPLE = 8
#: Biases, gains and taps are polynomials in the logarithm of the level, of this many terms.
TERMS = 4


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
        h = config.hidden
        packed = (4 * config.channels, 16 * config.channels, 16 * config.channels)
        self.filters = nn.ParameterDict(
            {layer.name: torch.empty(h, packed[layer.scale], 3, 3) for layer in LAYERS}
        )
        self.reads = nn.ParameterDict(
            {
                f"{layer.name}_of_{below}": torch.empty(h, h, *_kernel(layer, below))
                for layer in LAYERS
                for below in layer.reads
            }
        )
        self.bias, self.gain, self.tap = (
            nn.ParameterDict({layer.name: torch.zeros(TERMS, h) for layer in LAYERS})
            for _ in range(3)
        )
        if not self.filters["first"].is_meta:
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
        place = (sigma.log() + 3.5) / 2
        terms = torch.stack([place**k for k in range(TERMS)], 1)  # (B, TERMS)
        fine = F.pixel_unshuffle(z, 2)
        middle = F.pixel_unshuffle(fine, 2)
        views = (fine, middle, F.avg_pool2d(middle, 2))
        y: dict[str, Tensor] = {}
        total = z.new_zeros(len(z))
        for layer in LAYERS:
            name, scale = layer.name, layer.scale
            gain = (terms @ self.gain[name]).exp()[:, :, None, None]
            a = gain * F.conv2d(views[scale], self.filters[name], padding=1)
            for below in layer.reads:
                weight = nonnegative(self.reads[f"{name}_of_{below}"])
                if SCALE[below] == scale:
                    a = a + F.conv2d(y[below], weight, padding=1)
                elif SCALE[below] < scale:
                    a = a + F.conv2d(y[below], weight, stride=2)
                else:
                    a = a + F.interpolate(F.conv2d(y[below], weight), scale_factor=2.0)
            a = a + (terms @ self.bias[name])[:, :, None, None]
            y[name] = F.softplus(a, beta=self.config.beta)
            tap = (terms @ self.tap[name]).exp()[:, :, None, None]
            total = total + (tap * y[name].square()).flatten(1).sum(1) / 2
        return total

    def forward(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """D_s(x) = grad Psi_s(x), the shape of x."""
        x = self._check(x)
        level = self._levels(x, sigma)
        keep = torch.is_grad_enabled() and (
            x.requires_grad or any(p.requires_grad for p in self.parameters())
        )
        with torch.inference_mode(False), torch.enable_grad():
            z = x if keep and x.requires_grad else leaf(x)
            out = self._gradient(z, level, create_graph=keep)
        out = out.contiguous()
        return out if keep else out.detach()

    def potential(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """Psi_s(x), ``(B,)``."""
        x = self._check(x)
        level = self._levels(x, sigma)
        centered = x - self.config.center
        quadratic = self.config.convexity(level) / 2 * centered.square().flatten(1).sum(1)
        linear = self.config.center * centered.flatten(1).sum(1)
        return self._scaled(x, level) + quadratic + linear

    def linearize(self, x: Tensor, sigma: float | Tensor | None = None) -> Linearization:
        """D_s(x) and v -> J(x) v, over one graph that is kept for all v."""
        x = self._check(x)
        level = self._levels(x, sigma)
        with torch.inference_mode(False), torch.enable_grad():
            z = leaf(x)
            out = self._gradient(z, level, create_graph=True)

        def jacobian(v: Tensor) -> Tensor:
            with torch.inference_mode(False):
                (product,) = torch.autograd.grad(out, z, v.detach().clone(), retain_graph=True)
            return product

        return out.detach().contiguous(), jacobian

    def convexity(self, sigma: float | None = None) -> float:
        """alpha_s (Proposition B.1)."""
        level = self._levels(torch.zeros(1, self.channels, 1, 1, dtype=torch.float64), sigma)
        return float(self.config.convexity(level))

    @property
    def smoothness(self) -> float:
        """L_H = 1 / alpha_s at the denoiser's own level (Proposition B.1)."""
        return 1.0 / self.convexity()

    @property
    def conditional(self) -> bool:
        """It is told the noise level."""
        return True

    @property
    def reach(self) -> Reach:
        """Two convolutions at each scale on the way up, and as many on the way down."""
        radius = sum(2 * (2 << layer.scale) + (2 << layer.scale) for layer in LAYERS)
        return Reach(2 * radius, MULTIPLE)

    def _scaled(self, x: Tensor, level: Tensor) -> Tensor:
        """s^2 psi_s((x - c) / s), ``(B,)``; sides are brought to multiples of 8 with gray."""
        z = (x - self.config.center) / level.view(-1, 1, 1, 1)
        height, width = x.shape[-2:]
        if height % MULTIPLE or width % MULTIPLE:
            z = F.pad(z, (0, -width % MULTIPLE, 0, -height % MULTIPLE))
        return level**2 * self.convex(z, level)

    def _gradient(self, x: Tensor, level: Tensor, create_graph: bool) -> Tensor:
        """D_s(x) for an x that requires a gradient."""
        (g,) = torch.autograd.grad(self._scaled(x, level).sum(), x, create_graph=create_graph)
        c = self.config.center
        alpha = self.config.convexity(level).view(-1, 1, 1, 1)
        out: Tensor = g + alpha * (x - c) + c
        return out


def _kernel(layer: _Layer, below: str) -> tuple[int, int]:
    """The kernel with which a layer reads another: 3 x 3; 2 x 2 from a finer one, else 1 x 1."""
    side = {0: 3, 1: 2, -1: 1}[layer.scale - SCALE[below]]
    return side, side


@torch.no_grad()
def initialize(denoiser: ScaledLPN) -> None:
    """Draw weights so that D_s starts near the identity.

    Filters come in pairs of opposite sign, so that grad psi starts nearly linear. The weights
    between layers average. Then all taps are scaled together until D_s(x) - x is as small as can
    be on smooth random images.
    """
    for layer in LAYERS:
        weight = denoiser.filters[layer.name]
        half = torch.randn(len(weight) // 2, *weight.shape[1:]) * weight[0].numel() ** -0.5
        weight.copy_(torch.cat([half, -half]))
        denoiser.bias[layer.name][0] = -0.2
    for weight in denoiser.constrained().values():
        weight.copy_(torch.rand(weight.shape) / (2 * weight[0].numel()))
    x = F.interpolate(torch.rand(8, denoiser.channels, 9, 9), size=(32, 32), mode="bilinear")
    level = torch.full((8,), 0.05)
    alpha = denoiser.config.convexity(level).view(-1, 1, 1, 1)
    centered = x - denoiser.config.center
    psi = denoiser(x, level) - alpha * centered - denoiser.config.center
    scale = (psi * (1 - alpha) * centered).sum() / psi.square().sum()
    for tap in denoiser.tap.values():
        tap[0] += scale.log()
