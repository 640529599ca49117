"""Workers of this machine and of Ray: what one process finds, whoever dies on the way."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from proxmatch._internal import workers
from proxmatch.baselines import Wiener
from proxmatch.data import encode_image
from proxmatch.errors import EngineError
from proxmatch.reconstruction import Engine, FileBatch
from tests.data.test_stored import archive

NUMBER, RAY = 12, pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")


def pictures() -> torch.Tensor:
    return torch.rand(NUMBER, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def planned(tmp_path: Path, out: str) -> FileBatch:
    shard = tmp_path / "shard.tar"
    if not shard.exists():
        archive(shard, {f"{n:02}.png": encode_image(x) for n, x in enumerate(pictures())})
    return FileBatch.planned(
        Wiener.fit(pictures(), 0.1), "wiener", [shard], "denoising", [], tmp_path / out,
        simulate=True, bits=None, format="png", iterations=3, batch=2, tile=512, seed=0,
    )  # fmt: skip


def contents(folder: Path) -> dict[str, bytes]:
    lines = sorted((folder / "reconstruction.jsonl").read_bytes().splitlines())
    return {p.name: p.read_bytes() for p in folder.glob("*.png")} | {"": b"\n".join(lines)}


def run(job: FileBatch, engine: Engine, told: Callable[[int], None] = lambda n: None) -> None:
    job.out.mkdir(exist_ok=True)
    job.run(job.earlier(), told, engine)


@pytest.fixture
def expected(tmp_path: Path) -> Iterator[dict[str, bytes]]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    job = planned(tmp_path, "one")
    run(job, Engine())
    assert len(job.results()) == NUMBER
    yield contents(job.out)
    torch.set_num_threads(threads)


def killer(names: tuple[bytes, ...]) -> Callable[[int], None]:
    """What kills one process below this one, of these names, the first time it is told anything."""
    me, killed = os.getpid(), []

    def below(pid: int) -> list[int]:
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found += [int(stat.parent.name), *below(int(stat.parent.name))]
        return found

    def kill(_: int) -> None:
        for pid in below(me) if not killed else ():
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if any(name in command for name in names):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
                return

    kill.killed = killed  # type: ignore[attr-defined]
    return kill


@pytest.mark.parametrize(
    ("name", "workers_are"),
    [("local", (b"spawn_main",)), pytest.param("ray", (b"ray::_in_task", b"ray::IDLE"), marks=RAY)],
)
def test_workers_find_what_one_process_finds_though_one_is_killed(
    tmp_path: Path, expected: dict[str, bytes], name: str, workers_are: tuple[bytes, ...]
) -> None:
    job = planned(tmp_path, name)
    kill = killer(workers_are)
    run(job, Engine(name, workers=2, threads=1), kill)  # type: ignore[arg-type]
    assert kill.killed  # type: ignore[attr-defined]
    assert contents(job.out) == expected


def test_a_run_goes_on_with_another_number_of_workers(
    tmp_path: Path, expected: dict[str, bytes]
) -> None:
    class Stop(Exception):
        pass

    def stop(_: int) -> None:
        if len(list((tmp_path / "out").glob("*.png"))) >= 4:
            raise Stop

    job = planned(tmp_path, "out")
    with pytest.raises(Stop):
        run(job, Engine(), stop)
    written = {p: p.stat().st_mtime_ns for p in job.out.glob("*.png")}
    assert 4 <= len(written) < NUMBER
    run(planned(tmp_path, "out"), Engine("local", workers=2, threads=1))
    assert contents(job.out) == expected
    assert all(p.stat().st_mtime_ns == time for p, time in written.items())


@RAY
def test_what_no_node_can_do_is_refused_at_once() -> None:
    gpus = "no node of the Ray cluster has 2 CPU, 3 GPU, .*127.0.0.1|: 2 CPU, 0 GPU"
    with pytest.raises(EngineError, match=gpus), workers.ray_cluster(None, 1, 2, 3):
        pass


class Cluster:
    """As much of Ray as the check of versions asks."""

    def __init__(self, found: object) -> None:
        self.found = found

    def nodes(self) -> list[dict[str, object]]:
        return [{"Alive": True, "NodeID": "00" * 28, "NodeManagerAddress": "10.0.0.7"}]

    def remote(self, function: object = None) -> Cluster:
        return self

    def options(self, **_: object) -> Cluster:
        return self

    def get(self, reference: object, timeout: float) -> object:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


@RAY
def test_other_versions_on_a_node_are_refused() -> None:
    here = workers._versions()
    workers._check_versions(Cluster(here))
    with pytest.raises(EngineError, match=r"10\.0\.0\.7 has torch 1\.0, here it is torch"):
        workers._check_versions(Cluster({**here, "torch": "1.0"}))
    with pytest.raises(EngineError, match=r"cannot run proxmatch: No module named 'proxmatch'"):
        workers._check_versions(Cluster(ModuleNotFoundError("No module named 'proxmatch'")))


def test_lines_of_the_journal_say_where_results_come_from(
    tmp_path: Path, expected: dict[str, bytes]
) -> None:
    head, *lines = (tmp_path / "one" / "reconstruction.jsonl").read_text().splitlines()
    assert json.loads(head)["settings"]["problem"] == "denoising"
    first = json.loads(lines[0])
    assert first["name"] == first["source"] == "00.png"
    assert first["psnr"] > first["start"]
