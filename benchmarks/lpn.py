"""LPN of the official topology: ours, the autograd route, and the bare convolutions.

The bare convolutions are those of the network, skips included, each once forwards and once
transposed, on tensors of the right sizes, with nothing in between: what no implementation of an
inference step can do without. A training step is given three times that (a backward of each).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from proxmatch.denoisers import LPN, LPNConfig

HIDDEN, SIDE, BATCH = 64, 128, 4


def network() -> tuple[LPN, Tensor]:
    """The network and a batch of images."""
    torch.manual_seed(0)
    return LPN(LPNConfig.official(hidden=HIDDEN)), torch.rand(BATCH, 3, SIDE, SIDE)


def by_autograd(model: LPN, x: Tensor, create_graph: bool) -> Tensor:
    """D(x) as the official code has it: autograd of the potential."""
    leaf = x.detach().requires_grad_()
    (out,) = torch.autograd.grad(model.potential(leaf).sum(), leaf, create_graph=create_graph)
    return out


def training_step(model: LPN, x: Tensor, denoise: Callable[[Tensor], Tensor]) -> None:
    """Loss and gradients; no optimizer."""
    loss = (denoise(x) - x).square().sum()
    loss.backward()  # type: ignore[no-untyped-call]
    model.zero_grad()


def bare_convolutions(model: LPN, layout: torch.memory_format) -> Callable[[], None]:
    """Every convolution of the network, forwards and transposed."""
    jobs = []
    side = SIDE
    state = {name: p.detach() for name, p in model.named_parameters()}
    for i, layer in enumerate(model.layers):
        names = ["lin.0.weight"] if i == 0 else [f"res.{i - 1}.weight", f"lin.{i}.weight"]
        for name in names:
            weight = state[name].contiguous(memory_format=layout)
            given = torch.randn(BATCH, weight.shape[1], side, side).contiguous(memory_format=layout)
            made = F.conv2d(given, weight, None, layer.stride, layer.padding)
            reach = (made.shape[-1] - 1) * layer.stride - 2 * layer.padding + weight.shape[-1]
            jobs.append((given, weight, made, layer.stride, layer.padding, side - reach))
        side = made.shape[-1]

    @torch.no_grad()
    def run() -> None:
        for given, weight, _, stride, padding, _ in jobs:
            F.conv2d(given, weight, None, stride, padding)
        for _, weight, made, stride, padding, rest in jobs:
            F.conv_transpose2d(made, weight, None, stride, padding, rest)

    return run


def runners() -> dict[str, Callable[[], object]]:
    """Everything that is raced."""
    model, x = network()

    @torch.no_grad()
    def ours() -> object:
        return model(x)

    return {
        "bare": bare_convolutions(model, torch.contiguous_format),
        "bare, channels last": bare_convolutions(model, torch.channels_last),
        "ours": ours,
        "autograd": lambda: by_autograd(model, x, create_graph=False),
        "ours, training": lambda: training_step(model, x, model),
        "autograd, training": lambda: training_step(
            model, x, lambda v: by_autograd(model, v, create_graph=True)
        ),
    }


def peak_memory(route: str) -> float:
    """Megabytes that one training step adds to a fresh process, by its resident set (Linux)."""
    out = subprocess.run(
        [sys.executable, "-m", "benchmarks.lpn", route], capture_output=True, text=True, check=True
    )
    return float(out.stdout)


def _measure_memory(route: str) -> float:
    torch.set_num_threads(2)
    model, x = network()
    with torch.no_grad():
        model(x[:1])  # libraries loaded, kernels chosen
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = _status("VmRSS")
    if route == "ours":
        training_step(model, x, model)
    else:
        training_step(model, x, lambda v: by_autograd(model, v, create_graph=True))
    return (_status("VmHWM") - before) / 1024


def _status(name: str) -> int:
    """A line of /proc/self/status, in kB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    print(_measure_memory(sys.argv[1]))
