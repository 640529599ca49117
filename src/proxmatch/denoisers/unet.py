r"""Networks N of gradient-step denoisers, sized for a CPU.

:class:`CompactUNet` is trained at one noise level. :class:`ScaledUNet` is trained at all of them:

    N_s(x) = x + s U((x - c) / s, log s),

so that its UNet always sees noise of standard deviation one, and predicts noise of that size.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from proxmatch.denoisers.networks import Network, is_map, level_map, unet_radius
from proxmatch.errors import InputError


class CompactUNet(Network):
    """N(x) = x + UNet(x): one residual block per scale, ELU, biases, additive skips.

    ELU is once continuously differentiable, which is what a Jacobian of D needs.

    Args:
        channels: image channels.
        widths: channels at each scale, from the finest; each scale halves the resolution.
    """

    def __init__(self, channels: int = 3, widths: Sequence[int] = (24, 48)) -> None:
        super().__init__()
        self.head = nn.Conv2d(channels, widths[0], 3, padding=1)
        pairs = list(pairwise(widths))
        self.encode = nn.ModuleList(_Block(w) for w in widths[:-1])
        self.down = nn.ModuleList(nn.Conv2d(a, b, 2, stride=2) for a, b in pairs)
        self.body = _Block(widths[-1])
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in pairs)
        self.decode = nn.ModuleList(_Block(w) for w in widths[:-1])
        self.tail = nn.Conv2d(widths[0], channels, 3, padding=1)
        self.multiple = self.smallest = 1 << (len(widths) - 1)
        self.radius = unet_radius([1] * len(widths))

    def forward(self, x: Tensor, sigma: float | Tensor | None = None, **kwargs: Any) -> Tensor:
        """N(x), the shape of x; the noise level is not used."""
        y = self.head(x)
        skips = []
        for encode, down in zip(self.encode, self.down, strict=True):
            y = encode(y)
            skips.append(y)
            y = down(y)
        y = self.body(y)
        for decode, up, skip in reversed(list(zip(self.decode, self.up, skips, strict=True))):
            y = decode(up(y) + skip)
        out: Tensor = x + self.tail(y)
        return out

    def taylor(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """N(x), J_N(x) v and N''(x)[v, v]: one pass over the three stacked along the batch.

        Linear layers act on each alike, with the bias on the value alone; an activation f maps
        (a, a', a'') to (f, f' a', f'' a'^2 + f' a'').
        """
        y = _linear(self.head, torch.cat([x, v, torch.zeros_like(v)]))
        skips = []
        for encode, down in zip(self.encode, self.down, strict=True):
            y = _taylor_block(encode, y)
            skips.append(y)
            y = _linear(down, y)
        y = _taylor_block(self.body, y)
        for decode, up, skip in reversed(list(zip(self.decode, self.up, skips, strict=True))):
            y = _taylor_block(decode, _linear(up, y) + skip)
        n, dn, ddn = _linear(self.tail, y).chunk(3)
        return x + n, v + dn, ddn


class _Block(nn.Module):
    """x + W_2 f(W_1 x), f(a) = ELU(a) + leak a: with a leak no unit is ever without a gradient."""

    def __init__(self, width: int, leak: float = 0.0) -> None:
        super().__init__()
        self.leak = leak
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.first(x)
        y = F.elu(a) + self.leak * a if self.leak else F.elu(a)
        out: Tensor = x + self.second(y)
        return out


class ScaledUNet(Network):
    """N_s(x) = x + s U((x - c) / s, log s) for every noise level s.

    The level enters twice: as a scale, and as one more input channel. Two by two pixels are
    gathered into channels first. ELU, biases, additive skips.

    Args:
        channels: image channels.
        widths: channels at each scale, from the finest; each scale halves the resolution.
        blocks: residual blocks at each scale, on the way down and up: one number, or one per scale.
        leak: slope of the activation where ELU is flat.
        contrast: standard deviation d of images. The scales below the finest then see features
            times s / sqrt(s^2 + d^2), whose size does not depend on the level. Without it, at a
            small level s, they see images of contrast d / s, and train their units to be off.
        center: gray value c that the input is measured from.
    """

    #: Pixels gathered into channels, in each direction.
    UNSHUFFLE = 2

    conditional = True
    maps = True

    def __init__(
        self,
        channels: int = 3,
        widths: Sequence[int] = (48, 96, 192),
        blocks: int | Sequence[int] = 1,
        leak: float = 0.0,
        contrast: float = 0.0,
        center: float = 0.5,
    ) -> None:
        super().__init__()
        numbers = [blocks] * len(widths) if isinstance(blocks, int) else list(blocks)
        scales = list(zip(widths, numbers, strict=True))
        packed = channels * self.UNSHUFFLE**2
        pairs = list(pairwise(widths))
        self.center, self.leak, self.contrast = center, leak, contrast
        self.head = nn.Conv2d(packed + 1, widths[0], 3, padding=1)
        self.encode = nn.ModuleList(_blocks(w, n, leak) for w, n in scales[:-1])
        self.down = nn.ModuleList(nn.Conv2d(a, b, 2, stride=2) for a, b in pairs)
        self.body = _blocks(*scales[-1], leak)
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in pairs)
        self.decode = nn.ModuleList(_blocks(w, n, leak) for w, n in scales[:-1])
        self.tail = nn.Conv2d(widths[0], packed, 3, padding=1)
        self.multiple = self.smallest = self.UNSHUFFLE << (len(widths) - 1)
        self.radius = unet_radius(numbers, self.UNSHUFFLE)

    def forward(self, x: Tensor, sigma: float | Tensor, **kwargs: Any) -> Tensor:
        """N_s(x), the shape of x.

        Args:
            x: images, ``(B, C, H, W)``, H and W multiples of the strides.
            sigma: noise level s: a number, one for each image, ``(B,)`` or ``(B, 1, 1, 1)``, or
                one for each pixel, ``(B, 1, H, W)``.
            kwargs: not used.
        """
        sigma = level_map(x, sigma)
        y = F.pixel_unshuffle((x - self.center) / sigma, self.UNSHUFFLE)
        coarse = F.avg_pool2d(sigma, self.UNSHUFFLE) if is_map(sigma) else sigma
        level = (coarse.log() + 3.5) / 2  # about -1 to 1 for levels from 0.003 to 0.25
        # In single precision, whatever is around: at a small level s, images / s are large.
        single = torch.autocast(x.device.type, enabled=False)
        with single:
            y = self.head(torch.cat([y, level.expand(len(y), 1, *y.shape[2:])], 1))
        skips = []
        for encode, down in zip(self.encode, self.down, strict=True):
            y = encode(y)
            skips.append(y)
            if self.contrast and len(skips) == 1:
                y = y * coarse / (coarse.square() + self.contrast**2).sqrt()
            y = down(y)
        y = self.body(y)
        for decode, up, skip in reversed(list(zip(self.decode, self.up, skips, strict=True))):
            y = decode(up(y) + skip)
        with single:
            out: Tensor = x + sigma * F.pixel_shuffle(self.tail(y), self.UNSHUFFLE)
        return out

    @torch.no_grad()
    def inherit_(self, other: ScaledUNet) -> None:
        """Start from the weights of another scaled UNet of the same widths.

        Residual blocks that the other one lacks begin as the identity, so that N is unchanged. A
        network of one channel gets N(x) = mean over channels of the other's N(x, x, x).

        Args:
            other: with the same widths and no more blocks, and as many channels or, here, one.

        Raises:
            InputError: it does not fit.
        """
        given = other.state_dict()
        channels, others = (n.tail.out_channels // n.UNSHUFFLE**2 for n in (self, other))
        if channels == 1 < others:
            head, level = given["head.weight"].tensor_split([-1], 1)
            given["head.weight"] = torch.cat([head.unflatten(1, (others, -1)).sum(1), level], 1)
            for name in ("tail.weight", "tail.bias"):
                given[name] = given[name].unflatten(0, (others, -1)).mean(0)
        mine = self.state_dict()
        foreign = any(n not in mine or mine[n].shape != t.shape for n, t in given.items())
        if foreign or (self.leak, self.contrast) != (other.leak, other.contrast):
            raise InputError(
                "the network to start from has other widths, channels, activations or more blocks"
            )
        for name in mine.keys() - given.keys():
            if ".second." in name:
                mine[name].zero_()
        self.load_state_dict(given, strict=False)


def _blocks(width: int, number: int, leak: float) -> nn.Sequential:
    return nn.Sequential(*(_Block(width, leak) for _ in range(number)))


def _linear(layer: nn.Module, stacked: Tensor) -> Tensor:
    """A layer on (value, first, second derivative): the bias goes to the value alone."""
    bias = layer.get_parameter("bias")
    out: Tensor = layer(stacked) - bias.view(-1, 1, 1)
    value, derivatives = out.tensor_split([len(out) // 3])
    return torch.cat([value + bias.view(-1, 1, 1), derivatives])


def _taylor_elu(stacked: Tensor) -> Tensor:
    a, da, dda = stacked.chunk(3)
    y = F.elu(a)
    slope = torch.where(a > 0, 1.0, y + 1)  # exp(a) below zero
    bend = torch.where(a > 0, 0.0, y + 1)
    return torch.cat([y, slope * da, bend * da.square() + slope * dda])


def _taylor_block(block: nn.Module, stacked: Tensor) -> Tensor:
    first, second = block.get_submodule("first"), block.get_submodule("second")
    return stacked + _linear(second, _taylor_elu(_linear(first, stacked)))
