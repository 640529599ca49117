"""A short hash that identifies a linear operator by what it does."""

from __future__ import annotations

import hashlib

import torch
from deepinv.physics import LinearPhysics
from torch import Tensor

from proxmatch.problems.image_sizes import ImageSize
from proxmatch.problems.placement import moved, placement

IMAGES = 3
DIRECTIONS = 4
DIGITS = 4
ANYWHERE = (torch.device("cpu"), torch.float64)


@torch.no_grad()
def digest(physics: LinearPhysics, img_size: ImageSize) -> str:
    """A hash of <A x_i, v_j> for a few fixed random images x_i and directions v_j.

    Each is divided by ||A x_i|| and rounded to four decimals, the norms to four digits. Where the
    physics can be moved there, this is computed in float64 on the CPU, so that it does not depend
    on the device and the precision of the problem.
    """
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(IMAGES, *img_size, generator=generator, dtype=torch.float64)
    seen = _applied(physics, images).cpu().flatten(1)
    if seen.is_complex():
        seen = torch.view_as_real(seen).flatten(1)
    seen = seen.double()
    directions = torch.randn(DIRECTIONS, seen.shape[1], generator=generator, dtype=torch.float64)
    size = torch.linalg.vector_norm(seen, dim=1)
    angles = seen @ directions.T / size[:, None].clamp_min(torch.finfo(torch.float64).tiny)
    numbers = [f"{norm:.{DIGITS - 1}e}" for norm in size.tolist()]
    numbers += [f"{angle + 0.0:.{DIGITS}f}" for angle in angles.flatten().tolist()]
    return hashlib.blake2b(" ".join(numbers).encode(), digest_size=8).hexdigest()


def _applied(physics: LinearPhysics, images: Tensor) -> Tensor:
    """A of images, in float64 on the CPU if the physics can be moved there."""
    here = placement(physics)
    try:
        there = physics if here == ANYWHERE else moved(physics, *ANYWHERE)
        seen: Tensor = there.A(images)
    except (RuntimeError, TypeError, AttributeError):  # it holds tensors that cannot be moved
        seen = physics.A(images.to(*here))
    return seen
