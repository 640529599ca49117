"""An experiment of a few seconds, and ``python -m tests.experiments.tiny OUT MODELS`` to kill."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from proxmatch.denoisers import LPN, GradientStep, GradientStepConfig, LPNConfig, save
from proxmatch.experiments.cells import Cell
from proxmatch.experiments.reproduction import reproduce
from proxmatch.experiments.scales import FamilyScale, Scale, ScaleRow
from proxmatch.transforms import color_statistics

_ALL = {"test_images": 3, "chosen_images": 2, "gap_images": 2, "lipschitz_images": 1}

SCALE = Scale(
    name="tiny",
    size=32,
    source_downscale=1,
    target_downscale=1,
    iterations=3,
    budgets=(1, 5),
    max_steps=2,
    lipschitz_at=(1, 3),
    lanczos=4,
    picture_images=1,
    resamples=200,
    families={
        "lpn": FamilyScale(
            preset="lpn-compact",
            training={},
            tuning_images=2,
            strengths=(1.0, 0.5),
            batch=2,
            rows=(
                ScaleRow(method="source", sets={0: 1}, pictures=(0,), curves=True, **_ALL),
                ScaleRow(method="reference", source="", sets={0: 1}, pictures=(0,), **_ALL),
                ScaleRow(method="mse", sets={1: 2, 5: 1}, pictures=(1, 5), curves=True, **_ALL),
                ScaleRow(method="pm", sets={1: 2, 5: 1}, pictures=(1, 5), curves=True, **_ALL),
                ScaleRow(method="pm-best", sets={5: 1}, **_ALL),
                ScaleRow(method="aligned", sets={1: 1}, **_ALL),
            ),
        ),
        "gs": FamilyScale(
            preset="gs-compact",
            training={},
            tuning_images=1,
            strengths=(1.0, 0.5),
            rows=(
                ScaleRow(method="source", sets={0: 1}, **_ALL),
                ScaleRow(method="adapm", sets={1: 1}, test_images=2),
            ),
        ),
    },
    baselines=(
        ScaleRow(method="none", source="", sets={1: 1}, test_images=3, chosen_images=3),
        ScaleRow(
            method="wiener", source="", sets={1: 1}, test_images=3, chosen_images=3, pictures=(1,)
        ),
    ),
)


def models(folder: Path) -> dict[str, Path]:
    """Denoisers that know nothing."""
    found = {}
    for seed, name in enumerate(("lpn/extreme", "lpn/reference", "gs/extreme", "gs/reference")):
        torch.manual_seed(seed)
        model = (
            LPN(LPNConfig(size=32, hidden=4, features=4, strides=(2,), sigma=0.1))
            if name.startswith("lpn")
            else GradientStep(GradientStepConfig(widths=(4, 6), sigma=0.1))
        )
        with torch.no_grad():
            for p in model.parameters():
                p += 0.03 * torch.randn_like(p)
        model.record = {"colors": color_statistics(torch.rand(2, 3, 8, 8)).to_json()}
        found[name] = save(model, folder / name)
    return found


def say(cell: Cell, done: int, planned: int) -> None:
    print(cell.key, flush=True)


if __name__ == "__main__":
    given = {f"{f}/{k}": Path(sys.argv[2]) / f / k
             for f in ("lpn", "gs") for k in ("extreme", "reference")}  # fmt: skip
    reproduce(SCALE, sys.argv[1], families=("lpn",), workers=1, models=given, on_cell=say)
