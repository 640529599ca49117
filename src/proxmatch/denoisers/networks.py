"""Published denoising networks, as plain modules: FFDNet and DnCNN as in KAIR.

They are denoisers of deepinv and take part in plug-and-play as they are. They are no proximal maps:
:class:`~proxmatch.denoisers.GradientStep` makes one of them.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from deepinv.models import Denoiser
from torch import Tensor, nn

from proxmatch.errors import InputError


class FFDNet(Denoiser):  # type: ignore[misc]
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

    def __init__(self, channels: int = 3, width: int = 96, depth: int = 12) -> None:
        super().__init__()
        self.channels = channels
        packed = channels * self.UNSHUFFLE**2
        self.model = _convolutions(packed + 1, packed, width, depth)

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
            level = F.pad(level, border, mode="replicate") if level.shape[-1] > 1 else level
        y = F.pixel_unshuffle(x, self.UNSHUFFLE)
        if level.shape[-1] > 1:
            level = F.avg_pool2d(level, self.UNSHUFFLE)
        y = self.model(torch.cat([y, level.expand(-1, 1, *y.shape[2:])], 1))
        return F.pixel_shuffle(y, self.UNSHUFFLE)[..., :height, :width]


class DnCNN(Denoiser):  # type: ignore[misc]
    """DnCNN: x minus the noise that plain convolutions find in it; it is not told the level.

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

    def forward(self, x: Tensor, sigma: float | Tensor | None = None, **kwargs: Any) -> Tensor:
        """The denoised image, the shape of x; the noise level is not used."""
        out: Tensor = x - self.model(x)
        return out


def level_map(x: Tensor, sigma: float | Tensor) -> Tensor:
    """Noise levels as ``(B, 1, 1, 1)``, or ``(B, 1, H, W)`` where they differ between pixels.

    Args:
        x: images, ``(B, C, H, W)``.
        sigma: a number, ``(B,)``, ``(B, 1, 1, 1)`` or ``(B, 1, H, W)``; B may be one.

    Raises:
        InputError: any other shape.
    """
    level = torch.as_tensor(sigma, dtype=x.dtype, device=x.device)
    if level.numel() == 1:
        return level.reshape(1, 1, 1, 1).expand(len(x), 1, 1, 1)
    if level.numel() == len(x):
        return level.reshape(-1, 1, 1, 1)
    if level.dim() == 4 and level.shape[0] in (1, len(x)) and level.shape[1:] == (1, *x.shape[2:]):
        return level.expand(len(x), -1, -1, -1)
    raise InputError(
        f"noise levels of shape {tuple(level.shape)} for images of shape {tuple(x.shape)}; give a "
        f"number, one for each image, ({len(x)},), or one for each pixel, "
        f"({len(x)}, 1, {x.shape[2]}, {x.shape[3]})"
    )


def _convolutions(inputs: int, outputs: int, width: int, depth: int) -> nn.Sequential:
    """3 x 3 convolutions with ReLU between them, numbered as in KAIR."""
    layers: list[nn.Module] = [nn.Conv2d(inputs, width, 3, padding=1)]
    for _ in range(depth - 2):
        layers += [nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)]
    return nn.Sequential(*layers, nn.ReLU(), nn.Conv2d(width, outputs, 3, padding=1))
