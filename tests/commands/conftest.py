"""Small models and pictures for the commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

from proxmatch.cli import run
from proxmatch.denoisers import LPN, GradientStep, GradientStepConfig, LPNConfig, save

#: Everything is written; the result of an untrained denoiser may be called suspicious.
WRITTEN = (0, 1)


class Done(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def proxmatch(capsys: pytest.CaptureFixture[str]) -> Run:
    """The command line in this process: what it prints and its exit code."""

    def call(*arguments: object) -> Done:
        capsys.readouterr()
        code = run([str(a) for a in arguments])
        out, err = capsys.readouterr()
        return Done(code, out, err)

    return call


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An LPN and a gradient-step denoiser that take no time, the same in every session."""
    folder = tmp_path_factory.mktemp("models")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        lpn = LPN(LPNConfig(size=8, hidden=4, features=3, strides=(2,), sigma=0.07))
        gs = GradientStep(GradientStepConfig(widths=(4, 4), sigma=0.05))
    return {name: save(model, folder / name) for name, model in {"lpn": lpn, "gs": gs}.items()}


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five smooth pictures of 64 x 64, and one of 40 x 48."""
    folder = tmp_path_factory.mktemp("pictures")
    random = np.random.default_rng(0)
    for i in range(6):
        height, width = (40, 48) if i == 5 else (64, 64)
        coarse = random.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        image = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
        image.save(folder / f"picture{i}.png")
    return folder
