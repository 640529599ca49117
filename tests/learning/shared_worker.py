"""Shared runs: ``torchrun --nproc-per-node N -m tests.learning.shared_worker FOLDER N``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from lightning_fabric import Fabric

from proxmatch.denoisers import GradientStep, GradientStepConfig, ProximalDenoiser
from proxmatch.denoisers.families import new
from proxmatch.learning import (
    PRESETS,
    Check,
    Optimizer,
    Penalty,
    TrainingSettings,
    pairs,
    run,
    stream,
)
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


def paper(folder: Path, fabric: Fabric, preset: str, **small: object) -> list[dict[str, float]]:
    """A few steps of a preset of the paper, with fewer channels and images, and its penalty."""
    given = PRESETS[preset]
    changes: dict[str, object] = {"steps": 4, "batch": 4, "log_every": 1, "check_every": 100}
    if given.settings.penalty is not None:
        changes["penalty"] = given.settings.penalty.model_copy(
            update={"begin": 0.5, "iterations": 2, "limit": 0.1}
        )
    torch.manual_seed(0)
    denoiser = new(given.model.model_copy(update={"channels": 1, **small})).double()
    return run(
        denoiser,
        stream(images),
        given.settings.model_copy(update=changes),
        folder,
        fabric=fabric,
    ).history


def lpn_paper(folder: Path, fabric: Fabric) -> list[dict[str, float]]:
    """The published layout on 8 x 8 images."""
    return paper(folder, fabric, "lpn-paper", size=8, hidden=4, features=3, strides=(2,))


def gs_paper(folder: Path, fabric: Fabric) -> list[dict[str, float]]:
    """DRUNet with few channels."""
    return paper(folder, fabric, "gs-paper", widths=(4, 4, 6, 6), blocks=1)


JOBS = (lpn, gradient_step, lpn_paper, gs_paper)

if __name__ == "__main__":
    torch.set_num_threads(1)
    folder, processes = Path(sys.argv[1]), int(sys.argv[2])
    fabric = Fabric(accelerator="cpu", devices=processes, strategy="ddp")
    fabric.launch()
    histories = [job(folder / job.__name__, fabric) for job in JOBS]
    if fabric.is_global_zero:
        (folder / "histories.json").write_text(json.dumps(histories), encoding="utf-8")
