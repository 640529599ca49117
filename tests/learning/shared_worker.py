"""A shared run: ``python -m tests.learning.shared_worker FOLDER PROCESSES``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from lightning_fabric import Fabric

from proxmatch.denoisers import GradientStep, GradientStepConfig, ProximalDenoiser
from proxmatch.learning import Check, Optimizer, Penalty, TrainingSettings, pairs, run, stream
from proxmatch.losses import FromData
from tests.learning.worker import images, model

COMMON = {"steps": 40, "batch": 4, "log_every": 1, "check_every": 10, "checkpoint_every": 10}


def lpn(folder: Path, fabric: Fabric) -> list[dict[str, float]]:
    """Proximal matching whose gamma depends on the residuals of the whole batch."""
    settings = TrainingSettings(
        loss="pm", gamma=FromData(), optimizer=Optimizer(rate=3e-3, clip=0.1), **COMMON
    )

    def check(denoiser: ProximalDenoiser) -> Check:
        gray = torch.full((1, 1, 8, 8), 0.5, dtype=torch.float64)
        return Check(float(denoiser(gray).detach().mean()), {})

    return run(
        model().double(), stream(images), settings, folder, fabric=fabric, check=check
    ).history


def gradient_step(folder: Path, fabric: Fabric) -> list[dict[str, float]]:
    """A penalty whose directions are kept for inputs that wander from process to process."""
    torch.manual_seed(0)
    denoiser = GradientStep(GradientStepConfig(channels=1, widths=(4, 6))).double()
    settings = TrainingSettings(
        noise=0.3,
        optimizer=Optimizer(rate=5e-3),
        penalty=Penalty(limit=0.1, weight=1, iterations=2, shift=0.1),
        **COMMON,
    )
    given = list(images(3, torch.Generator().manual_seed(5)))
    return run(denoiser, pairs(given, 8, 3), settings, folder, fabric=fabric).history


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder, processes = Path(sys.argv[1]), int(sys.argv[2])
    fabric = Fabric(accelerator="cpu", devices=processes, strategy="ddp")
    fabric.launch()
    histories = [job(folder / job.__name__, fabric) for job in (lpn, gradient_step)]
    if fabric.is_global_zero:
        (folder / "histories.json").write_text(json.dumps(histories), encoding="utf-8")
