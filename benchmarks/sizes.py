"""What a pixel costs, whatever the side of the picture: ``python -m benchmarks.sizes``."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.race import race
from proxmatch.data import embedded
from proxmatch.denoisers import LPN, GradientStep, LPNConfig, ProximalDenoiser, load
from proxmatch.denoisers.ridge import Ridge, RidgeConfig

SIDES = (64, 65, 100, 127, 128, 256, 512)
#: Rounds; fewer of one that is solved for, and takes a second where others take a hundredth.
ROUNDS = {"ridge": 1}
#: Smallest side from which on the costs of a pixel are compared, and the bound on their ratio.
LARGE, BOUND = 100, 1.5
LEVEL = 0.05


def families() -> dict[str, Callable[[], ProximalDenoiser]]:
    """One denoiser of every kind, untrained where none is shipped."""
    return {
        "gs-photographs": partial(load, "gs-photographs"),
        "lpn-photographs": partial(load, "lpn-photographs"),
        "gs-compact": GradientStep,
        "lpn-compact, 64 x 64 patches": partial(LPN, LPNConfig.compact()),
        "ridge": partial(Ridge, RidgeConfig()),
    }


def cost(
    make: Callable[[], ProximalDenoiser], sides: Sequence[int] = SIDES, rounds: int = 3
) -> dict[int, float]:
    """CPU microseconds a pixel of one call for one color picture, by side."""
    denoiser = make().requires_grad_(False).eval()
    crops = embedded("photographs", 64).test[:36]
    mosaic = crops.view(6, 6, 3, 64, 64).permute(2, 0, 3, 1, 4).reshape(1, 3, 384, 384)
    picture = mosaic.repeat(1, 1, 2, 2)
    noise = torch.randn(picture.shape, generator=torch.Generator().manual_seed(0))
    noisy = picture + LEVEL * noise

    def call(x: Tensor) -> object:
        with torch.no_grad():
            return denoiser(x, LEVEL)

    runners: dict[str, Callable[[], object]] = {
        str(side): partial(call, noisy[..., :side, :side].contiguous()) for side in sides
    }
    seconds = race(runners, rounds, time.process_time)
    return {int(side): 1e6 * s / int(side) ** 2 for side, s in seconds.items()}


def table() -> Table:
    """Families by sides."""
    made = Table(title="CPU microseconds a pixel of one call, by the side of the picture")
    for column in ("denoiser", *map(str, SIDES), f"largest / smallest from {LARGE} on", "bound"):
        made.add_column(column)
    for name, make in families().items():
        found = cost(make, rounds=ROUNDS.get(name, 3))
        above = [each for side, each in found.items() if side >= LARGE]
        figures = (f"{found[side]:.1f}" for side in SIDES)
        made.add_row(name, *figures, f"{max(above) / min(above):.2f}", str(BOUND))
    return made


if __name__ == "__main__":
    torch.set_num_threads(1)
    Console(width=160).print(table())
