"""Where the images of a step come from: pure functions of the step and the settings.

So every method that is compared sees the same images and the same noise, a run that was killed goes
on as if it had not been, and several processes that share a batch do what one would have done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from proxmatch._internal.randomness import generator_of
from proxmatch.errors import InputError
from proxmatch.learning.augmentation import augment
from proxmatch.learning.settings import Levels, TrainingSettings

Draw = Callable[[int, torch.Generator], Tensor]


@dataclass(frozen=True)
class Batch:
    """The images of one step.

    Attributes:
        noisy: D's inputs, ``(B, C, H, W)``.
        clean: what they should become, the same shape.
        keys: which of a finite number of inputs each is, so that something can be kept for it from
            one step to the next; None when every step has new ones.
        level: standard deviation of the noise in each, ``(B,)``, for networks that take it;
            NaN for query points of PnP, where a denoiser has the level it is deployed at.
    """

    noisy: Tensor
    clean: Tensor
    keys: tuple[int, ...] | None = None
    level: Tensor | None = None


Source = Callable[[int, TrainingSettings], Batch]


def stream(draw: Draw) -> Source:
    """New images and new noise at every step, for training.

    Args:
        draw: ``(count, generator) -> (count, C, H, W)``, a pure function of these.

    Example:
        >>> def draw(count: int, generator: torch.Generator) -> Tensor:
        ...     return torch.rand(count, 1, 8, 8, generator=generator)
        >>> batch = stream(draw)(0, TrainingSettings(batch=4))
        >>> batch.clean.shape
        torch.Size([4, 1, 8, 8])
    """

    def source(step: int, settings: TrainingSettings) -> Batch:
        return _batch(
            draw(settings.batch, generator_of(settings.seed, step, "images")), step, settings
        )

    return source


def windows(draw: Draw, size: int) -> Draw:
    """Square windows of side ``size``, anywhere in the images that are drawn.

    Example:
        >>> def draw(count: int, generator: torch.Generator) -> Tensor:
        ...     return torch.rand(count, 1, 16, 16, generator=generator)
        >>> windows(draw, 8)(4, torch.Generator()).shape
        torch.Size([4, 1, 8, 8])
    """

    def smaller(count: int, generator: torch.Generator) -> Tensor:
        images = draw(count, generator)
        return torch.stack([_window(image, size, generator) for image in images])

    return smaller


def pairs(images: Sequence[Tensor], size: int, draws: int | None) -> Source:
    """The given images again and again, in a new order each time, for adaptation.

    Every image is seen equally often. With ``draws`` = M each has M noise draws, which stay the
    same from one epoch to the next, and so does the window that is cut from a larger image; with
    None, or when the images are augmented, both are new each time.

    Args:
        images: ``(C, H, W)`` each, of any sizes from ``size`` on.
        size: side of the windows.
        draws: M.

    Example:
        >>> source = pairs([torch.zeros(1, 8, 8), torch.ones(1, 8, 8)], 8, draws=1)
        >>> batch = source(0, TrainingSettings(batch=2))
        >>> sorted(float(image.mean()) for image in batch.clean)
        [0.0, 1.0]
    """
    if not images:
        raise InputError("there are no images to adapt to")
    small = [tuple(image.shape) for image in images if min(image.shape[1:]) < size]
    if small:
        raise InputError(f"the images must be at least {size} x {size}, got {small[0]}")
    count = len(images) * (draws or 1)

    def pair(
        key: int, which: Sequence[int | str], settings: TrainingSettings
    ) -> tuple[Tensor, ...]:
        generator = generator_of(settings.seed, *which)
        clean = _window(images[key // (draws or 1)], size, generator)
        noisy, level = _noisy(clean[None], settings, generator)
        return noisy[0], clean, level[0]

    def source(step: int, settings: TrainingSettings) -> Batch:
        fixed = draws is not None and settings.augmentation is None
        keys, found = [], []
        for position in range(step * settings.batch, (step + 1) * settings.batch):
            epoch, place = divmod(position, count)
            order = torch.randperm(count, generator=generator_of(settings.seed, epoch, "order"))
            key = int(order[place])
            keys.append(key)
            found.append(pair(key, ("pair", key) if fixed else ("position", position), settings))
        noisy, clean, level = map(torch.stack, zip(*found, strict=True))
        if settings.augmentation is not None:
            return _batch(clean, step, settings)
        return Batch(noisy, clean, tuple(keys), level)

    return source


def _batch(clean: Tensor, step: int, settings: TrainingSettings) -> Batch:
    """Images that are seen once, augmented, with noise."""
    if settings.augmentation is not None:
        generator = generator_of(settings.seed, step, "augmentation")
        clean = augment(clean, settings.augmentation, generator)
    noisy, level = _noisy(clean, settings, generator_of(settings.seed, step, "noise"))
    return Batch(noisy, clean, level=level)


def _noisy(
    clean: Tensor, settings: TrainingSettings, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Images with noise, and its level in each, ``(B,)``."""
    noise = torch.randn(clean.shape, generator=generator, dtype=clean.dtype)
    if isinstance(settings.noise, Levels):
        law = settings.noise
        draw = torch.rand(len(clean), generator=generator)
        level = law.low + (law.high - law.low) * draw**law.power
    elif isinstance(settings.noise, tuple):
        low, high = settings.noise
        level = low + (high - low) * torch.rand(len(clean), generator=generator)
    else:
        level = torch.full((len(clean),), settings.noise, dtype=clean.dtype)
    return clean + level.view(-1, 1, 1, 1).to(clean) * noise, level


def _window(image: Tensor, size: int, generator: torch.Generator) -> Tensor:
    place = torch.rand(2, generator=generator, dtype=torch.float64).tolist()
    room = (image.shape[1] - size + 1, image.shape[2] - size + 1)
    top, left = (int(p * r) for p, r in zip(place, room, strict=True))
    return image[:, top : top + size, left : left + size]
