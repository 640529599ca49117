"""What TF32 does to a denoiser and its inverse, without a GPU: ``python -m benchmarks.tf32``.

The operands of every convolution are rounded to the 11 bits of TF32, products and sums stay in
float32, as the tensor cores of a GPU have it.
"""

from __future__ import annotations

from contextlib import nullcontext
from copy import deepcopy
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from proxmatch.data import embedded
from proxmatch.denoisers import load
from proxmatch.transforms import Relaxed

CONVOLUTIONS = (
    torch.ops.aten.convolution.default,
    torch.ops.aten.convolution_backward.default,
)
SIGMA, TOLERANCE = 0.05, 1e-6


class TF32(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Rounds the operands of convolutions."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in CONVOLUTIONS:
            count = 2 if func is CONVOLUTIONS[0] else 3
            args = (*(rounded(t) for t in args[:count]), *args[count:])
        return func(*args, **(kwargs or {}))


def rounded(t: Tensor) -> Tensor:
    """The nearest number of 11 bits, of a float32 tensor."""
    if t.dtype != torch.float32:
        return t
    bits = t.detach().contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32).view_as(t)


def main() -> None:
    """Print the error of D and what its inverse reaches, with and without."""
    table = Table(title=f"64 x 64 photographs, level {SIGMA}, inverse to {TOLERANCE}")
    for column in ("denoiser", "convolutions", "error of D", "evaluations", "residual", "the true"):
        table.add_column(column)
    images = embedded("photographs").test[:2]
    x = images + SIGMA * torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
    for name in ("gs-photographs", "lpn-photographs"):
        loaded = load(name).requires_grad_(False)
        denoiser = Relaxed(loaded, 0.5) if name.startswith("gs") else loaded  # t L < 1
        with torch.no_grad():
            exact = deepcopy(denoiser).double()(x.double(), SIGMA)
            for how, mode in (("float32", nullcontext()), ("TF32", TF32())):  # type: ignore[no-untyped-call]
                with mode:
                    u = denoiser(x, SIGMA)
                    found = denoiser.inverse(u, SIGMA, tolerance=TOLERANCE, max_iterations=60)
                table.add_row(
                    name,
                    how,
                    f"{_relative(u, exact):.1e}",
                    f"{int(found.iterations.max())}",
                    f"{float(found.residual.max()):.1e}",
                    f"{_relative(denoiser(found.z, SIGMA), u):.1e}",
                )
    Console().print(table)


def _relative(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


if __name__ == "__main__":
    main()
