"""Device and precision of a deepinv physics, and copies of it elsewhere."""

from __future__ import annotations

import torch
from deepinv.physics import LinearPhysics
from torch import Tensor

_COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}


def placement(physics: LinearPhysics) -> tuple[torch.device, torch.dtype]:
    """Device and real dtype of the tensors a physics holds; float32 if it holds none.

    The tensors of its noise model and deepinv's own device marker say nothing about the operator
    and are left out.
    """
    dtype: torch.dtype | None = None
    for name, tensor in (*physics.named_parameters(), *physics.named_buffers()):
        if name == "_device_holder" or name.startswith("noise_model."):
            continue
        if tensor.is_floating_point() or tensor.is_complex():
            held = tensor.real.dtype if tensor.is_complex() else tensor.dtype
            dtype = held if dtype is None else torch.promote_types(dtype, held)
    device: torch.device = next(physics.buffers()).device  # deepinv's marker is always there
    return device, dtype or torch.float32


def moved(physics: LinearPhysics, device: torch.device, dtype: torch.dtype) -> LinearPhysics:
    """A copy of a physics on another device or in another precision; the given one is untouched.

    ``Module.to(torch.float64)`` would drop the imaginary part of complex buffers.
    """

    def cast(tensor: Tensor) -> Tensor:
        if tensor.is_complex():
            return tensor.to(device, _COMPLEX[dtype])
        return tensor.to(device, dtype if tensor.is_floating_point() else None)

    return physics.clone()._apply(cast)
