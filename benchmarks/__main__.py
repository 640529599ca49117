"""Print every ratio, beside the bound it is meant to keep.

python -m benchmarks [--parts lpn,memory,scaled,pnp,inverse,sizes,peers] [--threads 2]
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import lpn, peers, pnp, scaled, sizes, theory
from benchmarks.race import race
from proxmatch.problems import gaussian_deblurring, super_resolution

console = Console(width=160)


def published_lpn() -> None:
    """The published LPN against its bare convolutions, and against autograd."""
    times = race(lpn.runners())
    bare, last = times["bare"], times["bare, channels last"]
    table = Table(
        title=f"LPN, official topology, hidden {lpn.HIDDEN}, {lpn.SIDE} x {lpn.SIDE}, "
        f"batch {lpn.BATCH}"
    )
    for column in ("", "ms", "x bare convolutions", "x bare, channels last", "bound"):
        table.add_column(column, justify="right" if column else "left")
    for name, seconds in times.items():
        training = 3 if "training" in name else 1
        bound = {"ours": "1.2", "ours, training": "1.3"}.get(name, "")
        table.add_row(
            name,
            f"{1e3 * seconds:.1f}",
            f"{seconds / bare / training:.2f}",
            f"{seconds / last / training:.2f}",
            bound,
        )
    console.print(table)
    console.print("A training step is compared with three times the bare convolutions.")
    console.print(
        f"ours against autograd: inference {times['ours'] / times['autograd']:.2f} x, training "
        f"{times['ours, training'] / times['autograd, training']:.2f} x"
    )


def memory() -> None:
    """Of a training step."""
    found = {
        route: statistics.median(lpn.peak_memory(route) for _ in range(3))
        for route in ("ours", "autograd")
    }
    console.print(
        f"peak memory of a training step: ours {found['ours']:.0f} MB, autograd "
        f"{found['autograd']:.0f} MB: {found['ours'] / found['autograd']:.2f} x (bound 0.7)"
    )


def all_levels() -> None:
    """Denoisers of all levels: their bare convolutions, and compiled."""
    table = Table(title="Denoisers of all levels: one call")
    for column in ("denoiser", "image", "ms", "x bare convolutions", "bound", "compiled, ms"):
        table.add_column(column)
    for model, bound in scaled.MODELS.items():
        for side in (128, 512):
            found = scaled.calls(model, side, compiled=side == 128)
            table.add_row(
                model,
                f"{side} x {side}",
                f"{1e3 * found['ours']:.0f}",
                f"{found['ours'] / found['bare']:.2f}",
                bound,
                f"{1e3 * found['compiled']:.0f}" if "compiled" in found else "",
            )
    console.print(table)
    found = scaled.training("lpn-photographs")
    console.print(
        f"training step of lpn-photographs: {1e3 * found['ours']:.0f} ms, compiled "
        f"{1e3 * found['compiled']:.0f} ms"
    )


def iterations() -> None:
    """PnP-PGD against its own calls."""
    table = Table(title=f"PnP-PGD, 64 x 64, batch {pnp.BATCH}, {pnp.ITERATIONS} iterations")
    for column in ("problem", "denoiser", "recorded", "s", "x its own calls", "bound"):
        table.add_column(column)
    for problem in (gaussian_deblurring(64), super_resolution(64)):
        for model, record, bound in (
            ("gs-photographs", None, "1.05"),
            ("lpn-photographs", None, "1.05"),
            ("lpn-photographs", ("psnr", "ssim", "residual"), ""),
        ):
            seconds, ratio = pnp.overhead(problem, model, record)
            what = "with SSIM" if record else "by default"
            table.add_row(problem.name, model, what, f"{seconds:.2f}", f"{ratio:.3f}", bound)
    console.print("its own calls: those of the denoiser and of A^T A in the same run")
    console.print(table)


PARTS: dict[str, Callable[[], None]] = {
    "lpn": published_lpn,
    "memory": memory,
    "scaled": all_levels,
    "pnp": iterations,
    "inverse": lambda: console.print(str(theory.inversion())),
    "sizes": lambda: console.print(sizes.table()),
    "peers": lambda: console.print(peers.table()),
}


def main() -> None:
    """Race, measure memory, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for part in args.parts.split(","):
        PARTS[part]()


if __name__ == "__main__":
    main()
