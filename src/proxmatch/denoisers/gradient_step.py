r"""Gradient-step denoisers: D = Id - grad g (equations bg_gs_denoiser and gs_def).

    g(x) = 1/2 |x - N(x)|^2,    grad g(x) = r - J_N(x)^T r,    r = x - N(x),

for a network N. D = grad h with h(x) = |x|^2 / 2 - g(x). If grad g is L-Lipschitz with L < 1, h is
(1 - L)-strongly convex and D is a proximal map on its image (Proposition B.2). L < 1 is a property
of the trained weights: it is measured (:func:`proxmatch.denoisers.lipschitz`), never assumed.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn
from torch.func import jvp

from proxmatch.denoisers.base import Linearization, ProximalDenoiser, Reach, leaf
from proxmatch.denoisers.unet import CompactUNet, ScaledUNet
from proxmatch.errors import NotContractiveError, UnknownLipschitzError

Level = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class GradientStepConfig(BaseModel):
    """How the network N of a gradient-step denoiser is laid out.

    Attributes:
        channels: image channels.
        network: ``unet`` (:class:`CompactUNet`, of one noise level), ``scaled-unet``
            (:class:`ScaledUNet`, of all levels) or ``drunet`` (deepinv's DRUNet, which is given
            the noise level as a further channel).
        widths: channels at each scale; four scales for DRUNet.
        blocks: residual blocks at each scale, of the last two.
        activation: of DRUNet: ``E`` for ELU, ``S`` for softplus.
        sigma: noise level of the training; a network of many levels is evaluated there unless
            told otherwise.
        levels: smallest and largest noise level of the training, of a network of many levels.
        lipschitz: estimate of L, the Lipschitz constant of grad g, on images of the domain.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    channels: int = Field(3, ge=1)
    network: Literal["unet", "scaled-unet", "drunet"] = "unet"
    widths: tuple[Annotated[int, Field(ge=1)], ...] = Field((24, 48), min_length=2)
    blocks: int = Field(2, ge=1)
    activation: Literal["E", "S"] = "E"
    sigma: float | None = Field(None, gt=0, allow_inf_nan=False)
    levels: tuple[Level, Level] | None = None
    lipschitz: float | None = Field(None, ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.network == "drunet" and len(self.widths) != 4:
            raise ValueError(f"DRUNet has four scales, not {len(self.widths)} widths")
        return self

    @classmethod
    def compact(cls, **changes: Any) -> GradientStepConfig:
        """The network for a CPU: about 0.1 M parameters."""
        return cls(**changes)

    @classmethod
    def scaled(cls, **changes: Any) -> GradientStepConfig:
        """The network of all noise levels for a CPU: 1.3 M parameters."""
        default: dict[str, Any] = {"network": "scaled-unet", "widths": (48, 96, 192), "blocks": 1}
        return cls(**{**default, **changes})

    @classmethod
    def drunet(cls, **changes: Any) -> GradientStepConfig:
        """The published GSDRUNet: 17 M parameters."""
        return cls(**{"network": "drunet", "widths": (64, 128, 256, 512), **changes})

    @property
    def multiple(self) -> int:
        """Image sides are brought to multiples of this by replicating the border."""
        return self.finest << (len(self.widths) - 1)

    @property
    def finest(self) -> int:
        """Pixels between neighbors at the finest scale of the network."""
        return ScaledUNet.UNSHUFFLE if self.network == "scaled-unet" else 1

    @property
    def conditional(self) -> bool:
        """Whether the network is told the noise level."""
        return self.network != "unet"

    @property
    def smallest(self) -> int:
        """Image sides are brought to at least this."""
        return 32 if self.network == "drunet" else self.multiple


class GradientStep(ProximalDenoiser):
    """A gradient-step denoiser.

    Args:
        config: the layout; :meth:`GradientStepConfig.compact` by default.

    Attributes:
        lipschitz: the current estimate of L, or None; set it after measuring it.
    """

    always_convex = False
    trainable = True
    penalized = True
    # Convolutions are faster so on a CPU, and no slower on a GPU.
    memory_format = torch.channels_last

    config: GradientStepConfig

    def __init__(self, config: GradientStepConfig | None = None) -> None:
        config = config or GradientStepConfig.compact()
        super().__init__(config.channels, config.sigma)
        self.config = config
        self.lipschitz = config.lipschitz
        self.network = _build(config).to(memory_format=self.memory_format)

    def forward(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """D(x) = x - grad g(x), the shape of x."""
        x = self._check(x)
        keep = torch.is_grad_enabled() and (
            x.requires_grad or any(p.requires_grad for p in self.parameters())
        )
        with torch.inference_mode(False), torch.enable_grad():
            z = x if keep and x.requires_grad else leaf(x)
            out = z - self._grad_g(z, self._level(z, sigma), create_graph=keep)
        out = out.contiguous()
        return out if keep else out.detach()

    def potential(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """h(x) = |x|^2 / 2 - g(x), ``(B,)``."""
        x = self._check(x)
        r = x - self._network(x, self._level(x, sigma))
        return ((x**2).flatten(1).sum(1) - (r**2).flatten(1).sum(1)) / 2

    def linearize(self, x: Tensor, sigma: float | Tensor | None = None) -> Linearization:
        """D(x) and v -> J_D(x) v, over one graph that is kept for all v."""
        with torch.inference_mode(False), torch.enable_grad():
            z = leaf(self._check(x))
            g = self._grad_g(z, self._level(z, sigma), create_graph=True)

        def jacobian(v: Tensor) -> Tensor:
            with torch.inference_mode(False):
                (hv,) = torch.autograd.grad(g, z, v.detach().clone(), retain_graph=True)
            return v.detach() - hv

        return (z - g).detach(), jacobian

    def second_derivative(
        self, x: Tensor, v: Tensor, sigma: float | Tensor | None = None
    ) -> Tensor:
        """v^T H v with H the Hessian of g at x, ``(B,)``, differentiable in x and the parameters.

        It is d^2/dt^2 g(x + t v) = |r'|^2 + <r, r''> with r = x - N(x) along x + t v: a Taylor
        pass through N where the network has one, forward-over-forward differentiation elsewhere.

        Args:
            x: where, ``(B, C, H, W)``.
            v: directions, the same shape.
            sigma: noise level, as in :meth:`forward`.
        """
        x, v = self._check(x), self._check(v)
        level = self._level(x, sigma)
        if isinstance(self.network, CompactUNet) and not any(map(self._missing, x.shape[-2:])):
            n, dn, ddn = self.network.taylor(x, v)
        else:

            def moved(t: Tensor) -> Tensor:
                return self._network(x + t * v, level)

            def slope(t: Tensor) -> Tensor:
                derivative: Tensor = jvp(moved, (t,), (torch.ones_like(t),))[1]
                return derivative

            zero = x.new_zeros(())
            n = moved(zero)
            dn, ddn = jvp(slope, (zero,), (torch.ones_like(zero),))[:2]
        return ((v - dn).square() - (x - n) * ddn).flatten(1).sum(1)

    def convexity(self, sigma: float | None = None) -> float:
        """1 - L, from the estimate :attr:`lipschitz`; negative where D is no proximal map."""
        if self.lipschitz is None:
            raise UnknownLipschitzError(
                "L of this gradient-step denoiser was never measured; set denoiser.lipschitz to "
                "float(lipschitz(denoiser, images).constant.max()) on images of the domain"
            )
        return 1.0 - self.lipschitz

    @property
    def smoothness(self) -> float:
        """L_H = 1 / (1 - L) (Proposition B.2), from the estimate :attr:`lipschitz`."""
        mu = self.convexity()
        if not mu > 0:
            raise NotContractiveError(
                f"L = {self.lipschitz:.3f} >= 1: D is not known to be a proximal map and L_H does "
                "not exist; weaken it (tune), or adapt it with the contractivity penalty"
            )
        return 1.0 / mu

    @property
    def conditional(self) -> bool:
        """Whether the network is told the noise level."""
        return self.config.conditional

    @property
    def reach(self) -> Reach:
        """With r the reach of the network N, grad g = r - J_N^T r reaches 2 r."""
        config, coarsest = self.config, self.config.multiple
        finest = config.finest
        convolutions = 2 * (config.blocks if config.conditional else 1)
        # Of the scales but the coarsest, on the way down and up: 1 + 2 + 4 + ...
        finer = 2 * convolutions * (coarsest - finest)
        radius = 2 * finest + finer + convolutions * coarsest + coarsest - 1
        return Reach(2 * radius, coarsest)

    def _why(self) -> str:
        if self.lipschitz is not None and self.lipschitz >= 1:
            return f"this denoiser is no proximal map: L = {self.lipschitz:.2f} >= 1"
        return "u may lie outside the image of D"

    def _grad_g(self, x: Tensor, sigma: Tensor | None, create_graph: bool) -> Tensor:
        """Grad g(x) for an x that requires a gradient."""
        n = self._network(x, sigma)
        r = x - n
        (jtr,) = torch.autograd.grad(n, x, r, create_graph=create_graph)
        return r - jtr

    def _network(self, x: Tensor, sigma: Tensor | None) -> Tensor:
        """N(x) at any size: border replicated up to a size the network takes, result cropped."""
        height, width = x.shape[-2:]
        bottom, right = (self._missing(n) for n in (height, width))
        if not bottom and not right:
            return self._call(x, sigma)
        padded = F.pad(x, (0, right, 0, bottom), mode="replicate")
        return self._call(padded, sigma)[..., :height, :width]

    def _missing(self, n: int) -> int:
        m = self.config.multiple
        return max(-(-n // m) * m, self.config.smallest) - n

    def _call(self, x: Tensor, sigma: Tensor | None) -> Tensor:
        out: Tensor = self.network(x) if sigma is None else self.network(x, sigma)
        return out

    def _level(self, x: Tensor, sigma: float | Tensor | None) -> Tensor | None:
        """Noise level of each image, ``(B, 1, 1, 1)``, for a network that wants one."""
        if not self.config.conditional:
            return None
        return self._levels(x, sigma).view(-1, 1, 1, 1)


def _build(config: GradientStepConfig) -> nn.Module:
    if config.network == "unet":
        return CompactUNet(config.channels, config.widths)
    if config.network == "scaled-unet":
        return ScaledUNet(config.channels, config.widths, config.blocks)
    from deepinv.models import DRUNet

    network: nn.Module = DRUNet(
        in_channels=config.channels,
        out_channels=config.channels,
        nc=config.widths,
        nb=config.blocks,
        act_mode=config.activation,
        pretrained=None,
    )
    return network
