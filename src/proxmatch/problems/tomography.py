"""Parallel-beam tomography with few views."""

from __future__ import annotations

import math
from functools import partial
from typing import Annotated, Any

import torch
from deepinv.physics import LinearPhysics, Tomography
from torch import Tensor

from proxmatch.errors import InputError
from proxmatch.problems.image_sizes import ImageSize
from proxmatch.problems.registration import Design, Noise, gaussian_noise, register


def width(measured: tuple[int, int]) -> tuple[int, int]:
    """(H, W) of the images whose sinograms have ``measured`` detector cells and views.

    The detector covers the diagonal: ceil(sqrt(2) W) cells, which determine W.
    """
    side = math.floor(measured[0] / math.sqrt(2))
    return side, side


@register(
    "tomography", "line integrals in few directions (parallel beam)", pictures=False, side=width
)
def tomography(
    img_size: ImageSize,
    *,
    views: Annotated[int, "number of directions, evenly spread over 180 degrees"] = 40,
    noise: Noise = 0.002,
) -> Design:
    """Square images seen from a few directions; x_0 by filtered back-projection.

    The measurements are line integrals, ``(B, C, cells, views)``, in units of the side of the
    image: a ray through all of an image of ones measures between 1 and sqrt(2). A is nonnegative,
    and its norm is bounded from above as such (:mod:`proxmatch.problems.norms`).

    deepinv's own back-projection B is not the adjoint of its projection: ||A - B^T|| / ||A|| in the
    Frobenius norm is 6 to 9 % for 64 and 128 pixels and 30 to 60 views. A^T is therefore made by
    differentiating A, which is exact.

    Example:
        >>> problem = tomography(16)
        >>> problem.name
        'tomography'
    """
    _, height, side = img_size
    if height != side or side < 2:
        raise InputError(f"tomography takes square images, got {height} x {side}; crop or pad them")
    if views < 1:
        raise InputError(f"there is at least one view, got {views}")
    return Design(partial(_build, views, side), gaussian_noise(noise), back_projection)


class Scanner(Tomography):  # type: ignore[misc]
    """deepinv's ``Tomography`` with the side of the image as the unit of length.

    Args:
        views: number of directions.
        side: of the image in pixels.
        dtype: precision.
        kwargs: passed on, such as ``device``.
    """

    def __init__(self, views: int, side: int, dtype: torch.dtype, **kwargs: Any) -> None:
        angles = torch.linspace(0, 180, views + 1, dtype=torch.float64)[:-1]
        super().__init__(
            angles.to(kwargs.get("device"), dtype),
            side,
            circle=False,
            adjoint_via_backprop=True,
            normalize=False,
            dtype=dtype,
            **kwargs,
        )
        # What deepinv divides A by when it normalizes: here a length, not an estimated norm.
        self.register_buffer("operator_norm", torch.tensor(float(side)).to(self.angles))
        self.normalize = True


def back_projection(y: Tensor, physics: LinearPhysics) -> Tensor:
    """Filtered back-projection with a ramp filter, ``(B, C, H, W)``."""
    x: Tensor = physics.fbp(y)
    return x


def _build(views: int, side: int, device: torch.device, dtype: torch.dtype) -> Scanner:
    return Scanner(views, side, dtype, device=device)
