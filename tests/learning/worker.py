"""A small run in a process of its own, to be killed: ``python -m tests.learning.worker FOLDER``."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import safetensors.torch
import torch

from proxmatch.denoisers import LPN, LPNConfig
from proxmatch.learning import Optimizer, TrainingSettings, run, stream

SETTINGS = TrainingSettings(
    loss="pm",
    steps=60,
    batch=4,
    checkpoint_every=7,
    log_every=5,
    optimizer=Optimizer(rate=1e-2, clip=1.0),
)


def images(count: int, generator: torch.Generator) -> torch.Tensor:
    return torch.rand(count, 1, 8, 8, generator=generator)


def model() -> LPN:
    torch.manual_seed(0)
    return LPN(LPNConfig(channels=1, size=8, hidden=4, features=3, strides=(2,)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    print("ready", flush=True)
    result = run(
        model(), stream(images), SETTINGS, sys.argv[1], on_step=lambda *_: time.sleep(0.004)
    )
    state = {name: t.contiguous() for name, t in result.denoiser.state_dict().items()}
    safetensors.torch.save_file(state, Path(sys.argv[1]) / "final.safetensors")
