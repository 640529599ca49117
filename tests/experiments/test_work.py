"""Cells do what their addresses say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from proxmatch.denoisers import ProximalDenoiser, load
from proxmatch.experiments import work
from proxmatch.experiments.cells import Outcome, cell
from proxmatch.experiments.inputs import Inputs
from proxmatch.experiments.origins import checkpoint
from proxmatch.experiments.work import Workshop, perform
from proxmatch.learning import adaptation
from proxmatch.methods import METHODS
from proxmatch.records import Label
from tests.experiments import tiny


class Reached(Exception):
    """``auto`` was called."""


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
    monkeypatch.setattr(work, "fabric_of", lambda shop: None)
    model = cell("model", {}, Label())
    settings = {
        **METHODS["auto"].spec,
        "set": 0,
        "images": {"count": 2},
        "seed": 1003,
        "max_steps": 2,
        "size": 32,
        "problems": ["deblurring"],
        "iterations": 3,
    }
    made = cell("adaptation", settings, Label(method="auto"), model=model)
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    inputs = Inputs(images, ("a", "b"), {0: images}, {0: ("a", "b")}, images)
    source = Outcome({}, checkpoint(load(tiny.models(tmp_path)["lpn/extreme"])))
    with pytest.raises(Reached):
        perform(made, inputs, {"model": source}, Workshop({}, str(tmp_path), device="meta"))
    assert told == {"seed": 1003, "devices": {"meta"}}
