"""The command adapts as the library does: the same settings, the same windows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from proxmatch import learning
from proxmatch.data import image_files, read_image
from proxmatch.denoisers import LPN, LPNConfig, load, save
from proxmatch.learning import AdaptationPlan, plan_adaptation
from proxmatch.problems import denoising
from proxmatch.transforms import Aligned
from tests.commands.conftest import Run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Eleven pictures of 16 x 16."""
    random = np.random.default_rng(0)
    (tmp_path / "images").mkdir()
    for i in range(11):
        pixels = random.integers(0, 256, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{i:02d}.png")
    return tmp_path / "images"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """An LPN for 8 x 8 pixels, aligned to other colors."""
    torch.manual_seed(0)
    inner = LPN(LPNConfig(size=8, hidden=4, features=3, strides=(2,), sigma=0.07))
    eye, zero = torch.eye(3), torch.zeros(3)
    return save(Aligned(inner, 1.0, eye, zero, zero), tmp_path / "model")


def test_the_command_plans_like_the_library(
    proxmatch: Run, folder: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 11 images it once trained four times as long, and an aligned LPN at another size."""
    plans: list[AdaptationPlan] = []

    def stop(plan: AdaptationPlan, **options: Any) -> None:
        plans.append(plan)
        raise KeyboardInterrupt

    monkeypatch.setattr(learning.adaptation, "carry_out", stop)
    options = ("--images", folder, "--method", "mse", "--problem", "denoising")
    assert proxmatch("adapt", model, *options, "--out", tmp_path / "out").code == 130
    images = [read_image(path, 3) for path in image_files([folder])]
    expected = plan_adaptation(load(model), images, denoising, method="mse")
    assert [plan.settings for plan in plans] == [expected.settings]
    assert [plan.size for plan in plans] == [expected.size] == [8]
    assert [plan.draws for plan in plans] == [1]
    assert [problem.img_size for problem in plans[0].problems] == [(3, 8, 8)]
