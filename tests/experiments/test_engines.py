from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import torch

from proxmatch.experiments import engines
from proxmatch.experiments.work import Workshop, fabric_of


@pytest.fixture
def _two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.mark.usefixtures("_two_gpus")
def test_a_worker_a_gpu() -> None:
    assert engines.devices("cuda") == ["cuda:0", "cuda:1"]
    assert engines.devices("cuda:1") == ["cuda:1"]
    assert engines.default_workers("cuda") == 2
    assert engines.default_workers("cuda:1") == 1


def test_a_worker_a_core() -> None:
    assert engines.devices("cpu") == ["cpu"]
    assert engines.default_workers("cpu") == engines.available_cores()


def meet(folder: Path, many: int) -> list[str]:
    """In a worker: its device, once that many workers are there to tell theirs."""
    (folder / str(os.getpid())).write_text(engines.equipped(Workshop({}, "")).device)
    end = time.monotonic() + 120
    while len(list(folder.iterdir())) < many and time.monotonic() < end:
        time.sleep(0.05)
    return sorted(file.read_text() for file in folder.iterdir())


@pytest.mark.usefixtures("_two_gpus")
def test_workers_share_the_gpus(tmp_path: Path) -> None:
    with engines.pool(3, engines.devices("cuda")) as pool:
        told = [pool.submit(meet, tmp_path, 3) for _ in range(3)]
        assert told[0].result() == ["cuda:0", "cuda:0", "cuda:1"]


def test_a_training_runs_on_the_gpu_of_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr("lightning_fabric.Fabric", lambda **options: asked.append(options))
    for device in ("cpu", "cuda", "cuda:1"):
        fabric_of(Workshop({}, "", device))
    assert asked == [
        {"accelerator": "cuda", "devices": 1},
        {"accelerator": "cuda", "devices": [1]},
    ]
