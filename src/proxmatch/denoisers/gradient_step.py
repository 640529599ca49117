r"""Gradient-step denoisers: D = Id - grad g (equations 7 and 25 of the paper).

    g(x) = 1/2 |x - N(x)|^2,    grad g(x) = r - J_N(x)^T r,    r = x - N(x),

for a network N. D = grad h with h(x) = |x|^2 / 2 - g(x). If grad g is L-Lipschitz with L < 1, h is
(1 - L)-strongly convex and D is a proximal map on its range (Proposition B.2). L < 1 is a property
of the trained weights: it is measured (:func:`proxmatch.denoisers.jacobian_spectrum`), never
assumed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

import torch
import torch.nn.functional as F
from deepinv.models.GSPnP import GSPnP
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)
from torch import Tensor, nn
from torch.func import vjp

from proxmatch._internal.hardware import without_autocast
from proxmatch.denoisers.base import Linearization, ProximalDenoiser, Reach, leaf
from proxmatch.denoisers.convolutions import QuickPullback
from proxmatch.denoisers.given import TRIED, Given, GivenConfig, Told, describe
from proxmatch.denoisers.levels import Level
from proxmatch.denoisers.networks import DnCNN, DRUNet, FFDNet, Network, is_map
from proxmatch.denoisers.smoothing import SHARPNESS, kinks, smooth
from proxmatch.denoisers.unet import CompactUNet, ScaledUNet
from proxmatch.errors import (
    InputError,
    NotContractiveError,
    NotSmoothWarning,
    UnknownLipschitzError,
)

#: Noise level for a network of many levels unless another is given.
SIGMA = 0.05

Count = Annotated[int, Field(ge=1)]

#: Networks by the names that configurations use, each made from its configuration.
NETWORKS: dict[str, Callable[[GradientStepConfig], Network]] = {
    "unet": lambda c: CompactUNet(c.channels, c.widths),
    "scaled-unet": lambda c: ScaledUNet(
        c.channels, c.widths, c.blocks, c.leak or 0.0, c.contrast or 0.0
    ),
    "drunet": lambda c: DRUNet(c.channels, c.widths, _one(c.blocks), c.activation),
    "ffdnet": lambda c: FFDNet(c.channels, c.widths[0], _one(c.blocks)),
    "dncnn": lambda c: DnCNN(c.channels, c.widths[0], _one(c.blocks)),
}


def _one(blocks: int | tuple[int, ...]) -> int:
    """The number of blocks of a network with the same number at every scale."""
    assert isinstance(blocks, int)  # noqa: S101
    return blocks


class GradientStepConfig(BaseModel):
    """How the network N of a gradient-step denoiser is laid out.

    Attributes:
        channels: image channels.
        network: ``unet`` (:class:`CompactUNet`, of one noise level), ``scaled-unet``
            (:class:`ScaledUNet`, of all levels), ``drunet`` (deepinv's DRUNet), ``ffdnet`` or
            ``dncnn`` (:mod:`proxmatch.denoisers.networks`), or ``given``, a network of the user's
            own class, which is passed along (:meth:`GradientStep.of`).
        widths: channels at each scale; four scales for DRUNet, one for FFDNet and DnCNN.
        blocks: residual blocks at each scale, of the scaled UNet (also one number per scale) and
            DRUNet; convolutions of FFDNet and DnCNN.
        leak: slope of the scaled UNet's activation where ELU is flat; None for none.
        contrast: of images, for the coarse scales of the scaled UNet; None for none.
        activation: of DRUNet: ``E`` for ELU, ``S`` for softplus, ``R`` for ReLU.
        smooth: sharpness of the softplus that stands for activations with a kink
            (:func:`proxmatch.denoisers.smooth`); None leaves them as they are. True stands for the
            default sharpness, False and 0 for None.
        given: how a network of the user's own is called.
        sigma: noise level of the training; a network of many levels is evaluated there unless
            told otherwise.
        levels: smallest and largest noise level of the training, of a network of many levels.
        lipschitz: estimate of L, the Lipschitz constant of grad g, on images of the domain.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    channels: int = Field(3, ge=1)
    network: Literal["unet", "scaled-unet", "drunet", "ffdnet", "dncnn", "given"] = "unet"
    widths: tuple[Count, ...] = Field((24, 48), min_length=1)
    blocks: Count | tuple[Count, ...] = 2
    leak: float | None = Field(None, gt=0, lt=1)
    contrast: Level | None = None
    activation: Literal["E", "S", "R"] = "E"
    smooth: Level | None = None
    given: GivenConfig | None = None
    sigma: Level | None = None
    levels: tuple[Level, Level] | None = None
    lipschitz: float | None = Field(None, ge=0, allow_inf_nan=False)

    @field_validator("smooth", mode="before")
    @classmethod
    def _sharpness(cls, value: Any) -> Any:
        return SHARPNESS if value is True else value or None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.network == "drunet" and len(self.widths) != 4:
            raise ValueError(f"DRUNet has four scales, not {len(self.widths)} widths")
        if self.network in ("unet", "scaled-unet") and len(self.widths) < 2:
            raise ValueError("a UNet has at least two widths")
        if isinstance(self.blocks, tuple) and (
            self.network != "scaled-unet" or len(self.blocks) != len(self.widths)
        ):
            raise ValueError("blocks per scale are for the scaled UNet, one number for each width")
        if (self.network == "given") is (self.given is None):
            raise ValueError("a given network, and no other, is described by 'given'")
        return self

    @model_serializer(mode="wrap")
    def _lean(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without fields that the first networks do not have: older versions can then read it."""
        out: dict[str, Any] = dump(self)
        added = ("smooth", "given", "leak", "contrast")
        return {k: v for k, v in out.items() if v is not None or k not in added}

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


class GradientStep(ProximalDenoiser):
    """A gradient-step denoiser.

    Args:
        config: the layout; :meth:`GradientStepConfig.compact` by default.
        network: N, where the configuration says that it is given; see :meth:`of`.

    Attributes:
        network: N.
        lipschitz: the current estimate of L, or None; set it after measuring it.

    Raises:
        InputError: the network is missing, or was not asked for.
    """

    always_convex = False
    trainable = True
    penalized = True
    mixable = True
    # Convolutions are faster this way on a CPU, and no slower on a GPU.
    memory_format = torch.channels_last

    config: GradientStepConfig
    network: Network

    def __init__(
        self, config: GradientStepConfig | None = None, network: nn.Module | None = None
    ) -> None:
        config = config or GradientStepConfig.compact()
        super().__init__(config.channels, config.sigma)
        self.config = config
        self.lipschitz = config.lipschitz
        built = _build(config, network)
        if config.smooth is not None:
            built = smooth(built, config.smooth)  # type: ignore[assignment]
        self.network = built.to(memory_format=self.memory_format)

    @classmethod
    def of(
        cls,
        network: nn.Module,
        *,
        channels: int = 3,
        told: Told | None = None,
        residual: bool = False,
        multiple: int | None = None,
        smooth: float | bool = False,
        **settings: Any,
    ) -> Self:
        """The gradient-step denoiser of any network: any ``nn.Module``, any denoiser of deepinv.

        Whether and how the network takes the noise level, and which image sizes, is found out by
        calling it on small random images. It is held, not copied, unless it is made smooth.

        Args:
            network: N: images ``(B, C, H, W)`` to images of the same shape, differentiable twice;
                or deepinv's own gradient step of it, a GSPnP such as GSDRUNet.
            channels: image channels C.
            told: how it gets the noise level (:class:`~proxmatch.denoisers.given.GivenConfig`);
                found out by default.
            residual: whether it returns the noise: N(x) is x minus its output.
            multiple: image sides it takes are multiples of this; others are padded. Found out by
                default.
            smooth: replace activations with kinks by smooth ones, of this sharpness if it is a
                number (:func:`proxmatch.denoisers.smooth`).
            settings: ``sigma``, ``levels`` and ``lipschitz`` of :class:`GradientStepConfig`. A
                network that takes a level gets 0.05 unless another is given.

        Raises:
            InputError: the network cannot be called in this way.

        Warns:
            NotSmoothWarning: it has kinks, where D jumps and is not a proximal map.
        """
        if not isinstance(network, nn.Module):
            raise InputError(
                f"a gradient step is one of a torch.nn.Module, got {type(network).__name__}; write "
                "a function as the forward of a module, or use it as it is, without a potential"
            )
        network = _inside(network)
        given = describe(network, channels, told=told, residual=residual, multiple=multiple)
        kind: dict[str, Any] = {"network": "given", "given": given, "smooth": smooth}
        if given.told != "nothing":
            settings = {"sigma": SIGMA, **settings}
        denoiser = cls(GradientStepConfig(channels=channels, **kind, **settings), network)
        denoiser.train(network.training)
        denoiser.tell_kinks()
        return denoiser

    def inherit_(self, other: ProximalDenoiser) -> None:
        """Start from the weights of another one; a scaled UNet may have fewer blocks than this one.

        Raises:
            InputError: it does not fit.
        """
        theirs = getattr(other, "network", None)
        if isinstance(self.network, ScaledUNet) and isinstance(theirs, ScaledUNet):
            self.network.inherit_(theirs)
        else:
            super().inherit_(other)

    def tell_kinks(self) -> None:
        """Warn if the network has kinks, where D jumps.

        Warns:
            NotSmoothWarning: naming the layers.
        """
        side = -(-TRIED // self.network.multiple) * self.network.multiple
        like = next(self.parameters(), torch.zeros(()))
        x = torch.full((1, self.channels, side, side), 0.5).to(like)
        level = x.new_full((1, 1, 1, 1), 0.1) if self.conditional else None
        part = self.network.module if isinstance(self.network, Given) else self.network
        found = kinks(part, lambda: self._network(x, level))
        if not found:
            return
        names = ", ".join(found[:4]) + (f" and {len(found) - 4} more" if len(found) > 4 else "")
        todo = (
            "pass smooth=True, or exchange them yourself"
            if self.config.smooth is None
            else "smooth=True cannot exchange these; write them as nn.Softplus or average pooling"
        )
        warnings.warn(
            f"{names}: these layers have kinks, where a gradient-step denoiser jumps, so that it "
            f"is not a proximal map and the L that is measured does not count; {todo}",
            NotSmoothWarning,
            stacklevel=3,
        )

    def forward(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """D(x) = x - grad g(x), the shape of x."""
        x = self._check(x)
        keep = torch.is_grad_enabled() and (
            x.requires_grad or any(p.requires_grad for p in self.parameters())
        )
        if torch.compiler.is_compiling() and not keep:  # what a compiler can follow in one graph
            level = self._level(x, sigma)
            n, pullback = vjp(lambda z: self._network(z, level), x)[:2]
            r = x - n
            compiled: Tensor = x - (r - pullback(r)[0])
            return compiled.contiguous()
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

    @without_autocast
    def second_derivative(
        self, x: Tensor, v: Tensor, sigma: float | Tensor | None = None
    ) -> Tensor:
        """v^T H v with H the Hessian of g at x, ``(B,)``, differentiable in x and the parameters.

        Where the network has a Taylor pass, it is d^2/dt^2 g(x + t v) = |r'|^2 + <r, r''> with
        r = x - N(x) along x + t v; elsewhere the product of v and the derivative of grad g.

        Args:
            x: where, ``(B, C, H, W)``.
            v: directions, the same shape.
            sigma: noise level, as in :meth:`forward`.
        """
        x, v = self._check(x), self._check(v)
        if isinstance(self.network, CompactUNet) and not any(map(self._missing, x.shape[-2:])):
            n, dn, ddn = self.network.taylor(x, v)
            return ((v - dn).square() - (x - n) * ddn).flatten(1).sum(1)
        keep = torch.is_grad_enabled()
        with torch.inference_mode(False), torch.enable_grad():
            z, v = x if keep and x.requires_grad else leaf(x), v.detach().clone()
            g = self._grad_g(z, self._level(z, sigma), create_graph=True)
            (hv,) = torch.autograd.grad(g, z, v, create_graph=keep)
        return (v * hv).flatten(1).sum(1)

    def convexity(self, sigma: float | None = None) -> float:
        """1 - L, from the estimate :attr:`lipschitz`; negative where D is not a proximal map."""
        if self.lipschitz is None:
            raise UnknownLipschitzError(
                "L of this gradient-step denoiser was never measured; set denoiser.lipschitz to "
                "float(jacobian_spectrum(denoiser, images).constant.max()) on images of the domain"
            )
        return 1.0 - self.lipschitz

    @property
    def smoothness(self) -> float:
        """L_H = 1 / (1 - L) (Proposition B.2), from the estimate :attr:`lipschitz`."""
        mu = self.convexity()
        if not mu > 0:
            raise NotContractiveError(
                f"L = {self.lipschitz:.3f} >= 1: D is not known to be a proximal map and L_H does "
                "not exist; weaken it (choose_strength), or adapt it with the contractivity penalty"
            )
        return 1.0 / mu

    @property
    def conditional(self) -> bool:
        """Whether the network takes the noise level."""
        return self.network.conditional

    @property
    def maps(self) -> bool:
        """Whether the noise level may differ between pixels."""
        return self.network.maps

    @property
    def reach(self) -> Reach | None:
        """With r the reach of the network N, grad g = r - J_N^T r reaches 2 r; None if unknown."""
        radius = self.network.radius
        return None if radius is None else Reach(2 * radius, self.network.multiple)

    def _why(self) -> str:
        if self.lipschitz is not None and self.lipschitz >= 1:
            return f"this denoiser is not a proximal map: L = {self.lipschitz:.2f} >= 1"
        return "u may lie outside the image of D"

    def _grad_g(self, x: Tensor, sigma: Tensor | None, create_graph: bool) -> Tensor:
        """Grad g(x) for an x that requires a gradient."""
        if create_graph and any(p.requires_grad for p in self.parameters()):
            quick = QuickPullback()
            with quick:
                n = self._network(x, sigma)
            r = x - n
            jtr = quick.pullback(n, x, r)
        else:
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
        border = (0, right, 0, bottom)
        if sigma is not None and is_map(sigma):
            sigma = F.pad(sigma, border, mode="replicate")
        return self._call(F.pad(x, border, mode="replicate"), sigma)[..., :height, :width]

    def _missing(self, n: int) -> int:
        m = self.network.multiple
        return max(-(-n // m) * m, self.network.smallest) - n

    def _call(self, x: Tensor, sigma: Tensor | None) -> Tensor:
        # In half precision D is not grad h: a training or a comparison may use it, nothing else.
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.mixed):
            out: Tensor = self.network(x) if sigma is None else self.network(x, sigma)
        return out

    def _level(self, x: Tensor, sigma: float | Tensor | None) -> Tensor | None:
        """Noise level of each image, ``(B, 1, 1, 1)``, or pixel, ``(B, 1, H, W)``, if wanted."""
        if not self.conditional:
            return None
        level = self._levels(x, sigma)
        return level if is_map(level) else level.view(-1, 1, 1, 1)


def _build(config: GradientStepConfig, network: nn.Module | None) -> Network:
    if config.given is None:
        if network is not None:
            raise InputError(f"the network of a {config.network} is built from its configuration")
        return NETWORKS[config.network](config)
    name = config.given.name
    if network is None:
        raise InputError(
            f"its network is of a class of your own, {name}: pass network=, such a network or a "
            "function that makes one"
        )
    network = _inside(network)
    kind = type(network).__name__
    if kind != name.rpartition(".")[2]:
        raise InputError(f"its network is of the class {name}, the one passed is a {kind}")
    return Given(network, config.given)


def _inside(network: nn.Module) -> nn.Module:
    """The N of deepinv's gradient step Id - alpha grad g, or the network itself."""
    if not isinstance(network, GSPnP):
        return network
    if network.alpha != 1:
        raise InputError(
            f"a GSPnP with alpha = {network.alpha:g} is not Id - grad g; take it with alpha = 1 "
            f"and weaken the result: Relaxed(denoiser, {network.alpha:g})"
        )
    inside: nn.Module = network.student_grad.model
    return inside
