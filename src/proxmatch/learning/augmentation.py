"""Augmentation: changes of the clean images that leave them plausible images of their domain."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from proxmatch.learning.settings import Augmentation


def augment(images: Tensor, settings: Augmentation, generator: torch.Generator) -> Tensor:
    """Change each image of a batch on its own: place first, then colors, then blending.

    Args:
        images: clean, in [0, 1], ``(B, C, H, W)``; not changed.
        settings: by how much.
        generator: of everything that is drawn.

    Returns:
        Images in [0, 1], the same shape.

    Example:
        >>> images = torch.rand(4, 3, 16, 16)
        >>> changed = augment(images, Augmentation(), torch.Generator().manual_seed(0))
        >>> changed.shape, bool((changed - images).abs().max() > 0.1)
        (torch.Size([4, 3, 16, 16]), True)
    """
    b = len(images)

    def draw(low: float, high: float, count: int = 1) -> Tensor:
        return low + (high - low) * torch.rand(b, count, generator=generator, dtype=torch.float64)

    chosen = (draw(0, 1) < settings.share)[:, :, None, None]
    flip = torch.where(draw(0, 1) < 0.5, -1.0, 1.0)
    angle = draw(-1, 1) * math.radians(settings.rotation)
    zoom = draw(math.log(settings.zoom[0]), math.log(settings.zoom[1])).exp()
    shift = draw(-2, 2, 2) * settings.shift
    contrast = draw(*settings.contrast)
    brightness = draw(-1, 1) * settings.brightness
    gamma = (draw(-1, 1) * settings.gamma).exp()
    blending = draw(0, 1) * settings.blending
    c = images.shape[1]
    noise = torch.randn(b, c, c, generator=generator, dtype=torch.float64)

    moved = _moved(images, flip, angle, zoom, shift).clamp(0, 1)
    mean = moved.mean((2, 3), keepdim=True)
    matrix = torch.eye(c).to(images) + settings.colors * noise.to(images)
    changed = torch.einsum("bij,bjhw->bihw", matrix, moved - mean)
    changed = _like(contrast, images) * changed + mean + _like(brightness, images)
    changed = changed.clamp(0, 1) ** _like(gamma, images)
    weight = _like(blending, images)
    changed = (1 - weight) * changed + weight * changed.roll(1, 0)
    return torch.where(chosen.to(images.device), changed, images)


def _moved(images: Tensor, flip: Tensor, angle: Tensor, zoom: Tensor, shift: Tensor) -> Tensor:
    """Images mirrored, turned, magnified and shifted, ``(B, 1)`` and ``(B, 2)`` of each."""
    height, width = images.shape[-2:]
    ratio = height / width
    cos, sin = angle.cos() / zoom, angle.sin() / zoom
    rows = (
        torch.cat([flip * cos, -ratio * sin, shift[:, :1]], 1),
        torch.cat([flip * sin / ratio, cos, shift[:, 1:]], 1),
    )
    grid = F.affine_grid(torch.stack(rows, 1).to(images), list(images.shape), align_corners=False)
    # Bicubic: bilinear interpolation would take the finest detail, and the denoiser would learn
    # that there is none.
    return F.grid_sample(
        images, grid, mode="bicubic", padding_mode="reflection", align_corners=False
    )


def _like(numbers: Tensor, images: Tensor) -> Tensor:
    """One number per image, ``(B, 1)``, as ``(B, 1, 1, 1)``."""
    return numbers[:, :, None, None].to(images)
