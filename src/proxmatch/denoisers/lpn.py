r"""Learned proximal networks: D = grad Psi with Psi strongly convex (equation 23).

    Psi(x) = psi(x) + alpha / 2 |x|^2,    psi input-convex with softplus,    alpha in (0, 1).

D is a bijection, D = prox_R for an R that is generally not convex, and D^{-1} is 1/alpha-Lipschitz
(Proposition B.1). The network itself is in :mod:`proxmatch.denoisers.icnn`; this module says how
it is laid out, keeps its weights nonnegative and makes it a denoiser.
"""

from __future__ import annotations

from typing import Any, Literal, Self

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn

from proxmatch.denoisers import icnn
from proxmatch.denoisers.base import Linearization, ProximalDenoiser, Reach, Recipe
from proxmatch.denoisers.icnn import nonnegative
from proxmatch.denoisers.levels import Level
from proxmatch.denoisers.patches import patch_gradient, patch_potential


class LPNConfig(BaseModel):
    """How an LPN is laid out.

    Attributes:
        channels: image channels.
        size: height and width the network reads; None for a network of any size, which has no
            layer that sees the whole image.
        hidden: channels of the convolutional layers.
        strides: strides of the convolutions after the first, which has stride one.
        features: outputs of the last, dense layer of a network with a ``size``.
        unshuffle: pixels gathered into channels before the first layer, in each direction.
        center: gray value the input is measured from.
        taps: whether the potential reads the last layer only, or all of them.
        beta: parameter of the softplus.
        alpha: strong convexity of the potential.
        sigma: noise level of the training, if known.
        tile_batch: patches handled at once on images of another size than ``size``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    channels: int = Field(3, ge=1)
    size: int | None = Field(64, ge=4)
    hidden: int = Field(32, ge=1)
    strides: tuple[Literal[1, 2], ...] = (2, 1, 2)
    features: int = Field(64, ge=1)
    unshuffle: int = Field(2, ge=1)
    center: float = Field(0.5, allow_inf_nan=False)
    taps: Literal["last", "all"] = "all"
    beta: float = Field(10.0, gt=0, allow_inf_nan=False)
    alpha: float = Field(0.1, gt=0, lt=1)
    sigma: Level | None = None
    tile_batch: int = Field(64, ge=1)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.size is not None and self.size % self.multiple:
            raise ValueError(f"size {self.size} must be a multiple of {self.multiple}")
        return self

    @property
    def multiple(self) -> int:
        """Image sides are multiples of this, by zero padding if need be."""
        product = self.unshuffle
        for stride in self.strides:
            product *= stride
        return product

    @classmethod
    def compact(cls, **changes: Any) -> LPNConfig:
        """The network for a CPU: 64 x 64 unless told otherwise, about 0.2 M parameters."""
        return cls(**changes)

    @classmethod
    def any_size(cls, **changes: Any) -> LPNConfig:
        """The compact network without its dense layer, for images of any size."""
        return cls(**{"size": None, **changes})

    @classmethod
    def official(cls, **changes: Any) -> LPNConfig:
        """The published ``lpn_128``. Its alpha multiplies |x|^2: ours is twice as large."""
        settings: dict[str, Any] = {
            "size": 128,
            "hidden": 256,
            "strides": (2, 1, 2, 1, 2),
            "unshuffle": 1,
            "center": 0.0,
            "taps": "last",
            "beta": 100.0,
            "alpha": 2e-6,
        }
        return cls(**{**settings, **changes})


def _tensors(module: Any) -> tuple[Tensor, Tensor]:
    """Weight and bias of a layer, wherever they come from (a replica, a parametrization)."""
    return module.weight, module.bias


class LPN(ProximalDenoiser):
    """A learned proximal network.

    The parameters are named as in the published networks: ``lin.i`` reads the layer below (the
    first reads the image, the last is the tap of the top layer), ``res.i`` reads the resized
    image, ``tap.i`` are the taps of the lower layers. Those that must be nonnegative for convexity
    (:meth:`constrained`) are used as max(w, 0), whatever an optimizer makes of them.

    Args:
        config: the layout; :meth:`LPNConfig.compact` by default.
    """

    trainable = True
    recipe = Recipe(200, None, None, looks=20, rate=7e-4, batch=8, steps=(200, 600))
    config: LPNConfig

    def __init__(self, config: LPNConfig | None = None) -> None:
        config = config or LPNConfig.compact()
        super().__init__(config.channels, config.sigma)
        self.config = config
        c, h = config.channels * config.unshuffle**2, config.hidden
        layers = [icnn.Layer()]
        first = nn.Conv2d(c, h, 3)
        lin: list[nn.Module] = [first]
        res: list[nn.Module] = []
        for stride in config.strides:
            layers.append(icnn.Layer(stride))
            lin.append(nn.Conv2d(h, h, 3, bias=False))
            res.append(nn.Conv2d(c, h, 3))
        top = h
        if config.size is not None:
            layers.append(icnn.Layer(padding=0, dense=True))
            top, kernel = config.features, config.size // config.multiple
            lin.append(nn.Conv2d(h, top, kernel, bias=False))
            res.append(nn.Conv2d(c, top, kernel))
        last = nn.Linear(top, 1)
        last.bias.requires_grad_(False)  # a constant of h, which D does not depend on
        lin.append(last)
        self.layers = tuple(layers)
        self.lin = nn.ModuleList(lin)
        self.res = nn.ModuleList(res)
        lower = len(layers) - 1 if config.taps == "all" else 0
        self.tap = nn.ParameterList([nn.Parameter(torch.empty(h)) for _ in range(lower)])
        if not first.weight.is_meta:
            initialize(self)

    # --- weights ---------------------------------------------------------------------------------

    def constrained(self) -> dict[str, nn.Parameter]:
        """The parameters that must be nonnegative for Psi to be convex, by name."""
        return {
            name: p
            for name, p in self.named_parameters()
            if name.startswith("tap.")
            or (name.startswith("lin.") and name.endswith("weight") and name != "lin.0.weight")
        }

    def _weights(self) -> icnn.Weights:
        first, *lin, last = (_tensors(module) for module in self.lin)
        inputs = [first, *(_tensors(module) for module in self.res)]
        taps: list[Tensor | None] = [nonnegative(self.tap[i]) for i in range(len(self.tap))]
        taps += [None] * (len(lin) - len(taps))
        return icnn.Weights(
            [nonnegative(weight) for weight, _ in lin],
            [weight for weight, _ in inputs],
            [bias for _, bias in inputs],
            [*taps, nonnegative(last[0].flatten())],
        )

    # --- the maps --------------------------------------------------------------------------------

    def forward(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """D(x) = grad Psi(x), the shape of x; the noise level is not used."""
        x = self._check(x)
        if self._by_patches(x):
            return patch_gradient(x, self._size, self.forward, self.config.tile_batch)
        v, crop = self._enter(x)
        g = icnn.convex_gradient(self.layers, self._weights(), v, self.config.beta)
        return self._leave(g, crop) + self._affine(x)

    def potential(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """Psi(x), ``(B,)``; the noise level is not used."""
        x = self._check(x)
        if self._by_patches(x):
            return patch_potential(x, self._size, self.potential, self.config.tile_batch)
        v, _ = self._enter(x)
        psi = icnn.value(self.layers, self._weights(), v, self.config.beta)
        centered = (x - self.config.center).flatten(1)
        quadratic = self.config.alpha / 2 * (centered**2).sum(1)
        linear = self.config.center * centered.sum(1)
        _, constant = _tensors(self.lin[-1])
        total: Tensor = psi + constant + quadratic + linear
        return total

    @torch.no_grad()
    def linearize(self, x: Tensor, sigma: float | Tensor | None = None) -> Linearization:
        """D(x) and v -> J_D(x) v; the noise level is not used."""
        x = self._check(x).detach()
        if self._by_patches(x):

            def product(patches: Tensor, direction: Tensor) -> Tensor:
                return self.linearize(patches)[1](direction)

            def by_patches(v: Tensor) -> Tensor:
                return patch_gradient(x, self._size, product, self.config.tile_batch, v.detach())

            return self.forward(x), by_patches
        v, crop = self._enter(x)
        g, hessian = icnn.linearize(self.layers, self._weights(), v, self.config.beta)

        def jacobian(v: Tensor) -> Tensor:
            v = v.detach()
            return self._leave(hessian(self._pack(v)), crop).add_(v, alpha=self.config.alpha)

        return self._leave(g, crop) + self._affine(x), jacobian

    @property
    def smoothness(self) -> float:
        """L_H = 1 / alpha (Proposition B.1)."""
        return 1.0 / self.config.alpha

    @property
    def native_size(self) -> int | None:
        """Side of the images the network reads; others are cut into patches."""
        return self.config.size

    @property
    def reach(self) -> Reach | None:
        """One pass up and one down; None for a network of one size, which works by patches."""
        if self.config.size is not None:
            return None
        scale = self.config.unshuffle
        radius = scale  # of the first layer
        for stride in self.config.strides:
            radius += 2 * scale
            scale *= stride
        return Reach(2 * (radius + scale), scale)

    # --- from images to the network and back -----------------------------------------------------

    @property
    def _size(self) -> int:
        return self.config.size or 0

    def _by_patches(self, x: Tensor) -> bool:
        return self.config.size is not None and x.shape[-2:] != (self._size, self._size)

    def _affine(self, x: Tensor) -> Tensor:
        c, alpha = self.config.center, self.config.alpha
        return alpha * (x - c) + c if c else alpha * x

    def _enter(self, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
        x = x - self.config.center if self.config.center else x
        return self._pack(x), (x.shape[-2], x.shape[-1])

    def _pack(self, x: Tensor) -> Tensor:
        """Zero padding to a size the strides divide (its adjoint crops), then unshuffling."""
        m = self.config.multiple
        h, w = x.shape[-2:]
        if h % m or w % m:
            x = F.pad(x, (0, -w % m, 0, -h % m))
        return F.pixel_unshuffle(x, self.config.unshuffle) if self.config.unshuffle > 1 else x

    def _leave(self, g: Tensor, crop: tuple[int, int]) -> Tensor:
        g = F.pixel_shuffle(g, self.config.unshuffle) if self.config.unshuffle > 1 else g
        return g[..., : crop[0], : crop[1]]


@torch.no_grad()
def initialize(lpn: LPN) -> None:
    """Draw the weights so that D starts near the identity, and every layer matters.

    The filters that read the image come in pairs of opposite sign: softplus(a) + softplus(-a) is
    even, so that grad psi starts nearly linear and centered. The nonnegative weights average the
    layer below. Then all taps are scaled together (grad psi is linear in them) until
    D(x) - x is as small as can be on smooth random images.
    """
    constrained = lpn.constrained()
    for name, p in lpn.named_parameters():
        if name.endswith("bias"):
            p.zero_()
        elif name not in constrained:
            half = torch.randn((p.shape[0] + 1) // 2, *p.shape[1:]) * p[0].numel() ** -0.5
            p.copy_(torch.cat([half, -half])[: p.shape[0]])
        elif p.dim() == 4:
            p.copy_(torch.rand(p.shape) * 2 / p[0].numel())
        else:
            p.fill_(1.0)

    side = lpn.config.size or 8 * lpn.config.multiple
    x = torch.rand(8, lpn.config.channels, side // 4 + 1, side // 4 + 1)
    x = F.interpolate(x, size=(side, side), mode="bilinear", antialias=False)
    centered = x - lpn.config.center
    psi = lpn(x) - lpn._affine(x)
    psi = psi - psi.mean((0, 2, 3), keepdim=True)
    wanted = (1 - lpn.config.alpha) * centered
    scale = (psi * wanted).sum() / (psi * psi).sum()
    for p in constrained.values():
        if p.dim() < 4:
            p.mul_(scale)
