"""Networks N that gradient-step denoisers are made of: their interface, and published networks.

Each is a denoiser of deepinv and can be used for plug-and-play as it is. None is a proximal map;
:class:`~proxmatch.denoisers.GradientStep` makes a gradient-step denoiser of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import deepinv
import torch
import torch.nn.functional as F
from deepinv.models import Denoiser
from torch import Tensor, nn

from proxmatch.errors import InputError


class Network(Denoiser):  # type: ignore[misc]
    """A network N, called as N(x) or N(x, s), with what a gradient-step denoiser needs to know.

    Attributes:
        conditional: whether it takes the noise level s.
        maps: whether s may differ between pixels, ``(B, 1, H, W)``.
        multiple: image sides it takes are multiples of this.
        smallest: image sides are at least this.
        radius: N(x) at a pixel depends on x within this many pixels; None if unknown.
    """

    conditional: bool = False
    maps: bool = False
    multiple: int = 1
    smallest: int = 1
    radius: int | None = None


class FFDNet(Network):
    """FFDNet: convolutions on two by two pixels gathered into channels, and one for the level.

    Zhang, Zuo and Zhang, "FFDNet: toward a fast and flexible solution for CNN-based image
    denoising", IEEE Trans. Image Process. 27, 2018. It returns the image, not the noise.

    Args:
        channels: image channels.
        width: channels of the layers between the first and the last.
        depth: number of 3 x 3 convolutions.
    """

    #: Pixels gathered into channels, in each direction.
    UNSHUFFLE = 2

    conditional = True
    maps = True
    multiple = UNSHUFFLE

    def __init__(self, channels: int = 3, width: int = 96, depth: int = 12) -> None:
        super().__init__()
        self.channels = channels
        packed = channels * self.UNSHUFFLE**2
        self.model = _convolutions(packed + 1, packed, width, depth)
        self.radius = self.UNSHUFFLE * depth + self.UNSHUFFLE - 1

    def forward(self, x: Tensor, sigma: float | Tensor, **kwargs: Any) -> Tensor:
        """The denoised image, the shape of x.

        Args:
            x: images, ``(B, C, H, W)``; an odd side is replicated to an even one.
            sigma: noise level: a number, one for each image, ``(B,)`` or ``(B, 1, 1, 1)``, or one
                for each pixel, ``(B, 1, H, W)``.
            kwargs: not used.
        """
        level = level_map(x, sigma)
        height, width = x.shape[-2:]
        border = (0, width % self.UNSHUFFLE, 0, height % self.UNSHUFFLE)
        if any(border):
            x = F.pad(x, border, mode="replicate")
            level = F.pad(level, border, mode="replicate") if is_map(level) else level
        y = F.pixel_unshuffle(x, self.UNSHUFFLE)
        if is_map(level):
            level = F.avg_pool2d(level, self.UNSHUFFLE)
        y = self.model(torch.cat([y, level.expand(-1, 1, *y.shape[2:])], 1))
        return F.pixel_shuffle(y, self.UNSHUFFLE)[..., :height, :width]


class DnCNN(Network):
    """DnCNN: x minus the noise that plain convolutions find in it; it takes no noise level.

    Zhang, Zuo, Chen, Meng and Zhang, "Beyond a Gaussian denoiser: residual learning of deep CNN
    for image denoising", IEEE Trans. Image Process. 26, 2017, its batch normalization merged into
    the convolutions.

    Args:
        channels: image channels.
        width: channels of the layers between the first and the last.
        depth: number of 3 x 3 convolutions.
    """

    def __init__(self, channels: int = 3, width: int = 64, depth: int = 20) -> None:
        super().__init__()
        self.channels = channels
        self.model = _convolutions(channels, channels, width, depth)
        self.radius = depth

    def forward(self, x: Tensor, sigma: float | Tensor | None = None, **kwargs: Any) -> Tensor:
        """The denoised image, the shape of x; the noise level is not used."""
        out: Tensor = x - self.model(x)
        return out


class DRUNet(deepinv.models.DRUNet, Network):  # type: ignore[misc]
    """deepinv's DRUNet, which is KAIR's: four scales, the noise level as a further channel.

    Args:
        channels: image channels.
        widths: channels at each scale.
        blocks: residual blocks at each scale, on the way down and up.
        activation: ``R`` for ReLU, ``E`` for ELU, ``S`` for softplus.
    """

    conditional = True
    maps = True
    multiple = 8
    smallest = 32

    def __init__(
        self,
        channels: int = 3,
        widths: Sequence[int] = (64, 128, 256, 512),
        blocks: int = 4,
        activation: Literal["R", "E", "S"] = "R",
    ) -> None:
        super().__init__(
            in_channels=channels,
            out_channels=channels,
            nc=widths,
            nb=blocks,
            act_mode={"S": "s"}.get(activation, activation),  # deepinv's own letters
            pretrained=None,
        )
        self.radius = unet_radius([blocks] * len(widths))

    def forward(self, x: Tensor, sigma: float | Tensor, **kwargs: Any) -> Tensor:
        """The denoised image, the shape of x.

        Args:
            x: images, ``(B, C, H, W)``.
            sigma: noise level, as in :meth:`FFDNet.forward`.
            kwargs: not used.
        """
        out: Tensor = super().forward(x, level_map(x, sigma))
        return out


def is_map(level: Tensor) -> bool:
    """Whether noise levels differ between the pixels of an image."""
    return level.dim() == 4 and level.shape[-2:] != (1, 1)


def level_map(x: Tensor, sigma: float | Tensor) -> Tensor:
    """Noise levels as ``(B, 1, 1, 1)``, or ``(B, 1, H, W)`` where they differ between pixels.

    Args:
        x: images, ``(B, C, H, W)``.
        sigma: a number, ``(B,)``, ``(B, 1, 1, 1)`` or ``(B, 1, H, W)``; B may be one.

    Raises:
        InputError: any other shape.
    """
    level = torch.as_tensor(sigma, dtype=x.dtype, device=x.device)
    if is_map(level):
        if level.shape[0] in (1, len(x)) and level.shape[1:] == (1, *x.shape[2:]):
            return level.expand(len(x), -1, -1, -1)
    elif level.numel() in (1, len(x)):
        return level.reshape(-1, 1, 1, 1).expand(len(x), 1, 1, 1)
    raise InputError(
        f"noise levels of shape {tuple(level.shape)} for images of shape {tuple(x.shape)}; give "
        f"one, one for each image, ({len(x)},), or one for each pixel, "
        f"({len(x)}, 1, {x.shape[2]}, {x.shape[3]})"
    )


def unet_radius(blocks: Sequence[int], finest: int = 1) -> int:
    """How far a UNet of residual blocks of two 3 x 3 convolutions sees, in pixels.

    Args:
        blocks: at each scale, from the finest, on the way down and up.
        finest: pixels between neighbors at the finest scale, where the first and the last
            convolution are; each scale doubles them.
    """
    pixels = [finest << scale for scale in range(len(blocks))]
    both_ways = [2] * (len(blocks) - 1) + [1]
    inside = sum(2 * b * p * w for b, p, w in zip(blocks, pixels, both_ways, strict=True))
    return 2 * finest + inside + pixels[-1] - 1


def _convolutions(inputs: int, outputs: int, width: int, depth: int) -> nn.Sequential:
    """3 x 3 convolutions with ReLU between them, numbered as in KAIR."""
    layers: list[nn.Module] = [nn.Conv2d(inputs, width, 3, padding=1)]
    for _ in range(depth - 2):
        layers += [nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)]
    return nn.Sequential(*layers, nn.ReLU(), nn.Conv2d(width, outputs, 3, padding=1))
