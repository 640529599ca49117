"""A few images of a domain to adapt to: the same on every machine, small sets inside large ones."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass

import torch
from torch import Tensor

from proxmatch.data.domain import ImageDomain
from proxmatch.data.embedded import EmbeddedDomain
from proxmatch.errors import InputError


@dataclass(frozen=True, eq=False)
class FewShot:
    """A few images and where they come from.

    Attributes:
        images: ``(n, C, size, size)``.
        indices: of the images in their domain.
        names: of the images.
    """

    images: Tensor
    indices: tuple[int, ...]
    names: tuple[str, ...]


def few_shot(domain: ImageDomain | EmbeddedDomain, n: int, set_seed: int) -> FewShot:
    """The first ``n`` images of the order that ``set_seed`` gives to the domain.

    The order is that of SHA-256(seed, name): sets of one seed are nested, and depend on no random
    number generator, only on the names.

    Args:
        domain: where the images come from; of an :class:`EmbeddedDomain`, the adaptation crops.
        n: number of images.
        set_seed: which set; any integer.

    Example:
        >>> from proxmatch.data import embedded
        >>> domain = embedded("histology")
        >>> five = few_shot(domain, 5, set_seed=0)
        >>> five.images.shape
        torch.Size([5, 3, 64, 64])
        >>> few_shot(domain, 2, set_seed=0).names == five.names[:2]
        True
    """
    source: Tensor | ImageDomain
    if isinstance(domain, EmbeddedDomain):
        source = domain.adaptation
        names = [f"{domain.name}@{index}" for index in range(len(source))]
    else:
        source = domain
        names = [domain.name(index) for index in range(len(source))]
    if not 1 <= n <= len(names):
        raise InputError(f"the domain has {len(names)} images to adapt to, {n} were asked for")

    def rank(index: int) -> bytes:
        return hashlib.sha256(os.fsencode(f"{set_seed}/{names[index]}")).digest()

    indices = sorted(range(len(names)), key=rank)[:n]
    images = torch.stack([source[index] for index in indices])
    return FewShot(images, tuple(indices), tuple(names[index] for index in indices))
