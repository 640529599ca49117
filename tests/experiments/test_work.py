"""Cells do what their addresses say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from proxmatch.denoisers import ProximalDenoiser, load
from proxmatch.denoisers.checkpoint import packed
from proxmatch.experiments import work
from proxmatch.experiments.cells import Outcome, cell
from proxmatch.experiments.inputs import Inputs
from proxmatch.experiments.work import Workshop, perform
from proxmatch.learning import TrainingSettings, adaptation
from proxmatch.methods import METHODS
from proxmatch.problems import Problem, denoising
from proxmatch.records import Label
from tests.experiments import tiny


class Reached(Exception):
    """What a test waits for was called."""


def adapting(method: str, folder: Path) -> None:
    """Perform a cell that adapts in some way, with the seed 1003 and on the device ``meta``."""
    model = cell("model", {}, Label())
    settings = {
        **METHODS[method].spec,
        "set": 0,
        "images": {"count": 2},
        "seed": 1003,
        "max_steps": 2,
        "size": 32,
        "problems": ["deblurring"],
        "iterations": 3,
    }
    made = cell("adaptation", settings, Label(method=method), model=model)
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    inputs = Inputs(images, ("a", "b"), {0: images}, {0: ("a", "b")}, images)
    source = Outcome({}, packed(load(tiny.models(folder)["lpn/extreme"])))
    perform(made, inputs, {"model": source}, Workshop({}, str(folder), device="meta"))


def test_auto_has_the_seed_and_the_device_of_its_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It once had seed 0 and ran on the CPU, whatever the cell and the workshop said."""
    told: dict[str, Any] = {}

    def auto(sources: Mapping[str, ProximalDenoiser], *_: Any, **options: Any) -> None:
        told["seed"] = options["seed"]
        told["devices"] = {p.device.type for d in sources.values() for p in d.parameters()}
        raise Reached

    monkeypatch.setattr(adaptation, "auto", auto)
    monkeypatch.setattr(work, "one_process", lambda device: None)
    with pytest.raises(Reached):
        adapting("auto", tmp_path)
    assert told == {"seed": 1003, "devices": {"meta"}}


def test_a_fine_tuning_has_the_seed_and_the_device_of_its_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, Any] = {}

    def fine_tune(
        source: ProximalDenoiser, images: Any, settings: TrainingSettings, **options: Any
    ) -> None:
        told.update(seed=settings.seed, device=options["fabric"].type)
        raise Reached

    monkeypatch.setattr(adaptation, "fine_tune", fine_tune)
    monkeypatch.setattr(work, "one_process", lambda device: device)
    with pytest.raises(Reached):
        adapting("pm", tmp_path)
    assert told == {"seed": 1003, "device": "meta"}


def test_a_certificate_has_the_device_of_its_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It once ran on the CPU, whatever the workshop said."""
    told: set[str] = set()

    def certificate(models: Mapping[str, ProximalDenoiser], y: torch.Tensor, *_: Any) -> None:
        told.update(p.device.type for d in models.values() for p in d.parameters())
        told.add(y.device.type)
        raise Reached

    monkeypatch.setattr(work, "certificate", certificate)

    def problem_of(settings: Mapping[str, Any], channels: int, device: str) -> Problem:
        told.add(device)
        return denoising(32, channels=channels)

    monkeypatch.setattr(work, "problem_of", problem_of)  # these two look at numbers
    monkeypatch.setattr(Problem, "measure", lambda self, truth, **_: truth)
    model = cell("model", {}, Label())
    settings = {
        "problem": "deblurring",
        "size": 32,
        "iterations": 3,
        "seed": 0,
        "test": {"count": 2},
    }
    made = cell("certificate", settings, Label(), reference=model)
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    inputs = Inputs(images, ("a", "b"), {0: images}, {0: ("a", "b")}, images)
    source = Outcome({}, packed(load(tiny.models(tmp_path)["lpn/extreme"])))
    with pytest.raises(Reached):
        perform(made, inputs, {"reference": source}, Workshop({}, str(tmp_path), device="meta"))
    assert told == {"meta"}
