"""Denoisers of all noise levels against their own bare convolutions, and compiled.

The convolutions of a call, forward and transposed, are recorded while it runs and run again on the
same tensors with nothing in between: what no implementation can do without. Those of 1 x 1 pixels
may be products of matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.race import race
from proxmatch.denoisers import ProximalDenoiser, load

LEVEL = 0.05
MODELS = {"gs-photographs": "1.3", "lpn-photographs": "1.2"}
_ATEN = torch.ops.aten
CONVOLUTIONS = (
    _ATEN.convolution.default,
    _ATEN.convolution_backward.default,
    _ATEN.addmm.out,
    _ATEN.addmm_.default,
)


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the convolutions of what runs under it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in CONVOLUTIONS:
            self.calls.append((func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def bare(denoiser: ProximalDenoiser, x: Tensor) -> Callable[[], None]:
    """The convolutions of one call of a denoiser, alone."""
    with _Recorder() as recorder, torch.no_grad():
        denoiser(x, LEVEL)
    calls = [
        (func, tuple(a.detach() if isinstance(a, Tensor) else a for a in args), kwargs)
        for func, args, kwargs in recorder.calls
    ]

    @torch.no_grad()
    def run() -> None:
        for func, args, kwargs in calls:
            func(*args, **kwargs)

    return run


def calls(name: str, side: int, batch: int = 1, *, compiled: bool = False) -> dict[str, float]:
    """Median seconds of a call of a shipped denoiser, of its bare convolutions, and compiled."""
    denoiser = load(name)
    torch.manual_seed(0)
    x = torch.rand(batch, denoiser.channels, side, side)
    runners: dict[str, Callable[[], object]] = {"bare": bare(denoiser, x)}

    def ours() -> object:
        with torch.no_grad():
            return denoiser(x, LEVEL)

    runners["ours"] = ours
    if compiled:
        fast = torch.compile(denoiser)

        def quick() -> object:
            with torch.no_grad():
                return fast(x, LEVEL)

        quick()
        runners["compiled"] = quick
    return race(runners, rounds=7)


def training(name: str, side: int = 64, batch: int = 4) -> dict[str, float]:
    """Median seconds of a training step of a shipped LPN, as it is and compiled.

    A gradient-step denoiser differentiates inside its forward pass, and PyTorch does not compile
    the derivative of that.
    """
    denoiser = load(name).train()
    x = torch.rand(batch, denoiser.channels, side, side, generator=torch.Generator().manual_seed(0))

    def step(forward: Callable[..., Tensor]) -> None:
        denoiser.zero_grad()
        torch.autograd.backward(forward(x, LEVEL).square().mean())

    runners: dict[str, Callable[[], object]] = {
        "ours": partial(step, denoiser),
        "compiled": partial(step, torch.compile(denoiser)),
    }
    return race(runners, rounds=7)
