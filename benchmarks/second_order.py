"""The gradient of a gradient-step denoiser's training: ours against PyTorch's own.

    python -m benchmarks.second_order

A step differentiates through J_N^T r. PyTorch's second derivative of a convolution takes images for
kernels; :mod:`proxmatch.denoisers.convolutions` does not.
"""

from __future__ import annotations

from functools import partial
from unittest.mock import patch

import torch
from torch import Tensor

from benchmarks.race import race
from proxmatch.denoisers import GradientStep, gradient_step, load
from proxmatch.denoisers.convolutions import QuickPullback

LEVEL = 0.1


class Own(QuickPullback):
    """The same pullback by PyTorch alone."""

    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return func(*args, **(kwargs or {}))


def gradient(denoiser: GradientStep, x: Tensor, mode: type[QuickPullback], mixed: bool) -> Tensor:
    """Of a squared error, with respect to all weights."""
    denoiser.mixed = mixed
    with patch.object(gradient_step, "QuickPullback", mode):
        loss = (denoiser(x, LEVEL) - 0.5).square().mean()
    found = torch.autograd.grad(loss, list(denoiser.parameters()))
    return torch.cat([g.flatten() for g in found])


def table(side: int = 128, batch: int = 2) -> str:
    """Seconds of a gradient and its relative error, in single precision and in bfloat16."""
    denoiser = load("gs-photographs").train()
    assert isinstance(denoiser, GradientStep)  # noqa: S101
    x = torch.rand(batch, 3, side, side, generator=torch.Generator().manual_seed(0))
    ways = {
        f"{name}, {'bfloat16' if mixed else 'single'}": partial(gradient, denoiser, x, mode, mixed)
        for mixed in (False, True)
        for name, mode in (("PyTorch", Own), ("ours", QuickPullback))
    }
    exact = ways["PyTorch, single"]()
    errors = {name: float((way() - exact).norm() / exact.norm()) for name, way in ways.items()}
    seconds = race(dict(ways), rounds=7)
    rows = [f"{name}: {1e3 * seconds[name]:.0f} ms, error {errors[name]:.1e}" for name in ways]
    return "\n".join(rows)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(table())
