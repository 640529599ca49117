from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
import torch

from proxmatch._internal.cluster import check_address, gpu_share
from proxmatch.errors import EngineError
from proxmatch.experiments import engines
from proxmatch.experiments.inputs import Inputs
from proxmatch.experiments.work import Workshop
from proxmatch.learning.engine import one_process


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


@pytest.mark.usefixtures("_two_gpus")
def test_workers_share_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def begin_all_here(workers: int, context: Any, begin: Any, given: tuple[Any, ...]) -> None:
        for _ in range(workers):
            monkeypatch.setattr(engines, "_own", [])
            begin(*given)
            equipped.append(engines.equipped(Workshop({}, "", "cuda")).device)

    equipped: list[str] = []
    monkeypatch.setattr(engines, "ProcessPoolExecutor", begin_all_here)
    engines.pool(3, engines.devices("cuda"))
    assert equipped == ["cuda:0", "cuda:1", "cuda:0"]


@pytest.mark.parametrize(
    ("workers", "gpus", "share"), [(1, 4, 1), (4, 4, 1), (5, 4, 0.5), (8, 1, 0.125), (3, 0, 1 / 3)]
)
def test_more_workers_than_gpus_share_them(workers: int, gpus: int, share: float) -> None:
    assert gpu_share(workers, gpus) == share


def test_images_of_two_experiments_lie_side_by_side(tmp_path: Path) -> None:
    given = [
        Inputs(torch.full((1, 3, 4, 4), value), ("a",), {}, {}, torch.zeros(1, 3, 4, 4))
        for value in (0.25, 0.75)
    ]
    files = [engines._kept(inputs, tmp_path) for inputs in given]
    for file, inputs in zip(files, given, strict=True):
        assert torch.equal(engines._inputs(file).test, inputs.test)


def test_a_training_runs_on_the_device_of_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """XPU, which Fabric has no accelerator for, as well."""
    assert one_process(torch.device("xpu", 1)).device == torch.device("xpu", 1)
    asked: list[object] = []
    monkeypatch.setattr("lightning_fabric.Fabric", lambda **options: asked.append(options))
    for device in ("cpu", "cuda", "cuda:1", "mps"):
        one_process(torch.device(device))
    assert asked == [
        {"accelerator": "cpu", "devices": 1},
        {"accelerator": "cuda", "devices": 1},
        {"accelerator": "cuda", "devices": [1]},
        {"accelerator": "mps", "devices": 1},
    ]


def test_an_address_where_nothing_listens_is_refused_at_once() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{listening.getsockname()[1]}"
        for address in (place, f"ray://{place}", "127.0.0.1:99999"):
            with pytest.raises(EngineError, match="nothing answers at"):
                check_address(address)
        listening.listen()
        check_address(place)
    check_address("auto")
