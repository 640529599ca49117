"""Noise that depends on an image and a seed alone, whatever was drawn before."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from deepinv.physics import LinearPhysics
from torch import Tensor

from proxmatch.errors import InputError


def measured(
    physics: LinearPhysics, x: Tensor, ids: Sequence[str | int] | None, seed: int
) -> Tensor:
    """Measurements y = Ax + noise, drawn in float64, image by image, from (seed, id).

    Args:
        physics: A and its noise.
        x: images, ``(B, C, H, W)``.
        ids: one name per image; a hash of its float32 pixels if None.
        seed: another seed, another draw.

    Raises:
        InputError: not one id per image, or noise that is not the same for all images.
    """
    ids = content(x) if ids is None else ids
    if len(ids) != len(x):
        raise InputError(f"got {len(ids)} ids for {len(x)} images; give one for each")
    return with_noise(physics, physics.A(x), ids, seed)


def with_noise(
    physics: LinearPhysics, clean: Tensor, ids: Sequence[str | int], seed: int
) -> Tensor:
    """Measurements y from Ax, as by :func:`measured`.

    Raises:
        InputError: noise that is not the same for all images.
    """
    wide = torch.promote_types(clean.dtype, torch.float64)
    noisy = []
    with _borrowed_randomness(physics.noise_model):
        for i, name in enumerate(ids):
            _set_seed(seed_of(seed, name), clean.device)
            noisy.append(physics.noise(clean[i : i + 1].to(wide)).to(clean.dtype))
    y: Tensor = physics.sensor(torch.cat(noisy) if len(noisy) > 1 else noisy[0])
    if len(y) != len(clean):
        raise InputError(
            f"{type(physics.noise_model).__name__} made {len(y)} measurements of {len(clean)} "
            "images; its parameters must be the same for all images"
        )
    return y


def content(x: Tensor) -> list[str]:
    """A hash of the float32 pixels of each image."""
    pixels = x.detach().to("cpu", torch.float32).contiguous().numpy()
    return [hashlib.blake2b(image.tobytes(), digest_size=16).hexdigest() for image in pixels]


def seed_of(seed: int, name: str | int) -> int:
    """The seed of one image."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def _set_seed(seed: int, device: torch.device) -> None:
    """Seed torch's generator of a device.

    ``torch.manual_seed`` seeds those of all devices, and for each that is not in use it writes
    down where it was called from, which takes longer than the noise of a small image.
    """
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


@contextmanager
def _borrowed_randomness(noise: Any) -> Iterator[None]:
    """Make a noise model draw from torch's generators; all random states are restored on leaving.

    A generator of its own is set aside: deepinv replaces it by a copy when the model moves.
    """
    rng = getattr(noise, "rng", None)
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        if rng is not None:
            noise.rng = None
        try:
            yield
        finally:
            if rng is not None:
                noise.rng = rng
