"""A large picture through the command line: memory, and time per megapixel beside a small one.

    python -m benchmarks.large [--side 4096] [--picture FILE] [--models NAMES] [--memory]

Each reconstruction is a process of its own, as a user would start it; its peak memory and user CPU
seconds come from the operating system. The seconds of a process with fewer iterations are taken
off, so that what is compared is the cost of an iteration and not of importing PyTorch. Small and
large take turns, so that what disturbs one disturbs the other. With ``--memory`` there are three
iterations of the large picture, for its peak alone: momentum begins with the second.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image
from rich.console import Console
from rich.table import Table

from proxmatch.data import embedded

MODELS = ("lpn-photographs", "gs-photographs", "lpn-grey", "gs-grey")  # in color, in gray
SMALL = 512  # pixels along a side
MORE = {SMALL: 32}  # iterations that are timed; 1 of the large one
PEAK = 3  # iterations after which memory grows no more
MEMORY, RATIO = 4e9 / 2**30, 1.3  # bounds: GiB, and large against small


@dataclass(frozen=True)
class Cost:
    """What a process took: user CPU seconds, and its peak memory in GiB."""

    seconds: float
    memory: float


def main() -> None:
    """Measure both families in color and gray, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=4096)
    parser.add_argument("--picture", type=Path, help="to tile; embedded photographs by default")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--problem", default="deblurring")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--memory", action="store_true", help="for its peak alone")
    args = parser.parse_args()
    models = args.models.split(",")
    if args.memory:
        with tempfile.TemporaryDirectory() as folder:
            picture = _picture(Path(folder), args.side, args.picture)
            for model in models:
                cost = _run(model, args.problem, picture, PEAK)
                print(f"{model}: {cost.memory:.2f} GiB, {cost.seconds:.0f} CPU s", flush=True)
        print(f"bound: {MEMORY:.2f} GiB")
        return
    table = Table(title=f"{args.problem}: {args.side} x {args.side} beside {SMALL} x {SMALL}")
    for column in ("model", "pixels", "s / (megapixel iteration)", "ratio", "peak GiB"):
        table.add_column(column, justify="right" if column != "model" else "left")
    with tempfile.TemporaryDirectory() as folder:
        pictures = {side: _picture(Path(folder), side, args.picture) for side in (SMALL, args.side)}
        for model in models:
            found = {side: Measured([], []) for side in pictures}
            for _ in range(args.rounds):
                for side, picture in pictures.items():
                    more = MORE.get(side, 1)
                    few, many = (_run(model, args.problem, picture, n) for n in (1, 1 + more))
                    megapixels = more * side**2 / 1e6
                    found[side].seconds.append((many.seconds - few.seconds) / megapixels)
                    found[side].memory.append(many.memory)
            small = statistics.median(found[SMALL].seconds)
            for side, measured in found.items():
                seconds = statistics.median(measured.seconds)
                table.add_row(
                    model,
                    f"{side} x {side}",
                    f"{seconds:.2f}",
                    f"{seconds / small:.2f}",
                    f"{max(measured.memory):.2f}",
                )
    console = Console()
    console.print(table)
    console.print(f"bounds: {MEMORY:.2f} GiB, ratio {RATIO}")


@dataclass(frozen=True)
class Measured:
    """Seconds a megapixel and iteration, and peak memory in GiB, of each round."""

    seconds: list[float]
    memory: list[float]


def _picture(folder: Path, side: int, given: Path | None) -> Path:
    """A picture of a side, of smaller ones side by side."""
    if given is None:
        crops = embedded("photographs", 64).test[:36].permute(0, 2, 3, 1).mul(255).byte().numpy()
        tile = crops.reshape(6, 6, 64, 64, 3).swapaxes(1, 2).reshape(384, 384, 3)
    else:
        tile = np.asarray(Image.open(given).convert("RGB"))
    across = -(-side // min(tile.shape[:2]))
    large = np.tile(tile, (across, across, 1))[:side, :side]
    path = folder / f"{side}.png"
    Image.fromarray(large).save(path)
    return path


def _run(model: str, problem: str, picture: Path, iterations: int) -> Cost:
    """One process of ``proxmatch reconstruct``."""
    with tempfile.TemporaryDirectory() as out:
        command = [
            sys.executable, "-c", "from proxmatch.cli import main; main()",
            "reconstruct", model, str(picture), "--problem", problem,
            "--iterations", str(iterations), "--threads", "1", "--out", out,
        ]  # fmt: skip
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"exit status {status}: {' '.join(command)}")
    unit = 2**30 if sys.platform == "darwin" else 2**20  # bytes there, kilobytes elsewhere
    return Cost(usage.ru_utime, usage.ru_maxrss / unit)


if __name__ == "__main__":
    main()
