"""Interruptions, folders in use, full or forbidden disks: nothing lost, nothing half written."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import torch
from matplotlib import get_cachedir, get_configdir

from proxmatch._internal.cluster import check_versions, connected
from proxmatch._internal.files import UNFINISHED
from proxmatch._internal.journal import Journal
from proxmatch._internal.locks import LOCK, owned
from proxmatch._internal.provenance import versions
from proxmatch.data import decoding, encode_image
from proxmatch.denoisers import load
from proxmatch.errors import EngineError, FolderInUseError
from proxmatch.learning import state
from tests.commands.conftest import WRITTEN, Run
from tests.fuzz import harmless
from tests.ray_workers import working

Models = dict[str, Path]
RUN = "import sys; from proxmatch.cli import run; sys.exit(run(sys.argv[1:]))"


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RUN, *map(str, arguments)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # the tests may run in the background, where SIGINT is ignored


def wait_for(condition: object, seconds: float = 240) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_training_that_is_stopped_goes_on(
    number: signal.Signals, pictures: Path, tmp_path: Path, proxmatch: Run
) -> None:
    config = tmp_path / "settings.yaml"
    config.write_text("{steps: 100000, batch: 1, checkpoint_every: 2, log_every: 1}")
    out = tmp_path / "run"
    arguments = (
        "train", "gs", "--images", pictures, "--config", config, "--validation", 0, "--threads", 1,
        "--out", out,
    )  # fmt: skip
    worker = start(*arguments)
    try:
        wait_for((out / state.FILE).exists)
        second = proxmatch(*arguments)  # meanwhile another one is refused, and told by whom
        assert second.code == 2
        assert f"in use by process {worker.pid} on " in second.err
        worker.send_signal(number)
        _, err = worker.communicate(timeout=60)
    finally:
        worker.kill()
        worker.wait()
    found = state.read(out)
    assert found is not None
    if number == signal.SIGKILL:
        assert worker.returncode == -signal.SIGKILL
        assert (out / LOCK).exists()  # and it is stale
    else:
        assert worker.returncode == 130
        assert f"continues from step {found.step}" in err
        assert "Traceback" not in err
        assert not (out / LOCK).exists()
        assert not [p for p in out.iterdir() if p.name.startswith(".")]
    with owned(out):
        pass
    assert not (out / LOCK).exists()


def adaptation(model: Path, images: Path, out: Path) -> tuple[object, ...]:
    return (
        "adapt", model, "--images", images / "picture0.png", "--method", "mse", "--problem",
        "denoising", "--steps", 20, "--threads", 1, "--out", out,
    )  # fmt: skip


@pytest.fixture(scope="module")
def undisturbed(
    small: Models, pictures: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, torch.Tensor]:
    """Weights of an adaptation that nobody stopped."""
    out = tmp_path_factory.mktemp("whole") / "out"
    assert start(*adaptation(small["gs"], pictures, out)).wait(240) in (0, 1)
    return load(out / "model").state_dict()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_adaptation_that_is_stopped_goes_on_to_the_same_weights(
    number: signal.Signals,
    small: Models,
    pictures: Path,
    tmp_path: Path,
    proxmatch: Run,
    undisturbed: dict[str, torch.Tensor],
) -> None:
    out = tmp_path / "out"
    worker = start(*adaptation(small["gs"], pictures, out))
    try:
        wait_for(lambda: list(out.rglob(state.FILE)))
        worker.send_signal(number)
        _, err = worker.communicate(timeout=60)
    finally:
        worker.kill()
        worker.wait()
    if worker.returncode in (0, 1):
        pytest.skip("it was faster than the signal")
    assert worker.returncode == (-number if number == signal.SIGKILL else 130)
    assert "Traceback" not in err
    assert not (out / "model").exists()
    done = proxmatch(*adaptation(small["gs"], pictures, out))
    assert done.code in (0, 1), done.err
    found = load(out / "model").state_dict()
    assert all(torch.equal(found[name], value) for name, value in undisturbed.items())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_reconstruction_goes_on(
    number: signal.Signals, small: Models, pictures: Path, tmp_path: Path, proxmatch: Run
) -> None:
    out = tmp_path / "out"
    arguments = (
        "reconstruct", small["gs"], pictures, "--problem", "denoising", "--batch", 1,
        "--iterations", 60, "--threads", 1, "--out", out,
    )  # fmt: skip
    worker = start(*arguments)
    try:
        wait_for((out / "picture1.png").exists)
        worker.send_signal(number)
        _, err = worker.communicate(timeout=60)
    finally:
        worker.kill()
        worker.wait()
    if worker.returncode in WRITTEN:
        pytest.skip("it was faster than the signal")
    assert worker.returncode == (-number if number == signal.SIGKILL else 130)
    assert number == signal.SIGKILL or "the same command continues" in err
    assert not (out / "reconstruction.json").exists()
    _, known = Journal(out / "reconstruction.jsonl").read()
    assert "picture0.png" in known
    stamps = {name: (out / name).stat().st_mtime_ns for name in known}
    done = proxmatch(*arguments)
    assert done.code in WRITTEN, done.err
    assert len(list(out.glob("*.png"))) == 6
    assert all((out / name).stat().st_mtime_ns == stamp for name, stamp in stamps.items())
    record = json.loads((out / "reconstruction.json").read_text())["files"]
    assert record == Journal(out / "reconstruction.jsonl").read()[1]


def test_a_folder_of_before_there_was_a_journal_goes_on(
    small: Models, pictures: Path, tmp_path: Path, proxmatch: Run
) -> None:
    out = tmp_path / "out"
    arguments = (
        "reconstruct", small["gs"], pictures, "--problem", "denoising", "--iterations", 1,
        "--out", out,
    )  # fmt: skip
    assert proxmatch(*arguments).code in WRITTEN
    before = json.loads((out / "reconstruction.json").read_text())
    (out / "reconstruction.jsonl").unlink()
    (out / "picture3.png").unlink()
    stamp = (out / "picture2.png").stat().st_mtime_ns
    assert proxmatch(*arguments).code in WRITTEN
    assert (out / "picture3.png").exists()
    assert (out / "picture2.png").stat().st_mtime_ns == stamp
    assert Journal(out / "reconstruction.jsonl").read() == (before["settings"], before["files"])


def test_a_folder_of_before_there_was_a_journal_is_killed(
    small: Models, pictures: Path, tmp_path: Path, proxmatch: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While its journal is begun: what was done is known to the next run."""
    out = tmp_path / "out"
    arguments = (
        "reconstruct", small["gs"], pictures, "--problem", "denoising", "--iterations", 1,
        "--out", out,
    )  # fmt: skip
    assert proxmatch(*arguments).code in WRITTEN
    (out / "reconstruction.jsonl").unlink()
    (out / "picture3.png").unlink()
    stamp = (out / "picture2.png").stat().st_mtime_ns

    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append", killed)
        assert proxmatch(*arguments).code == 130
    assert proxmatch(*arguments).code in WRITTEN
    assert (out / "picture2.png").stat().st_mtime_ns == stamp


def test_a_journal_that_is_a_link_is_not_written_to(
    small: Models, pictures: Path, tmp_path: Path, proxmatch: Run
) -> None:
    """As it may be in a folder from a stranger."""
    out, mine = tmp_path / "out", tmp_path / "mine"
    arguments = (
        "reconstruct", small["gs"], pictures, "--problem", "denoising", "--iterations", 1,
        "--out", out,
    )  # fmt: skip
    assert proxmatch(*arguments).code in WRITTEN
    journal = out / "reconstruction.jsonl"
    journal.rename(mine)
    before = mine.read_bytes()
    journal.symlink_to(mine)
    (out / "picture3.png").unlink()
    done = proxmatch(*arguments)
    assert done.code == 2
    assert journal.name in done.err
    assert mine.read_bytes() == before


def test_ray_with_a_worker_killed_reconstructs_what_one_process_does(
    small: Models, pictures: Path, tmp_path: Path, proxmatch: Run
) -> None:
    pytest.importorskip("ray")
    many = tmp_path / "many"
    many.mkdir()
    for k in range(12):
        (many / f"{k}.png").write_bytes((pictures / f"picture{k % 5}.png").read_bytes())
    (many / "gray.png").write_bytes(b"no picture")
    for name in ("0.png", "1.png"):  # some of them in an archive
        with tarfile.open(tmp_path / "shard.tar", "a") as tar:
            tar.add(many / name)
        (many / name).unlink()
    arguments = (
        "reconstruct", small["gs"], many, tmp_path / "shard.tar", "--problem", "denoising",
        "--simulate", "--batch", 1, "--iterations", 60, "--threads", 1,
    )  # fmt: skip
    alone = proxmatch(*arguments, "--out", tmp_path / "alone")
    killed: list[int] = []

    def kill() -> None:
        wait_for(lambda: list((tmp_path / "ray").glob("*.png")))
        wait_for(working)
        killed.extend(working()[:1])
        for pid in killed:
            os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    done = proxmatch(*arguments, "--engine", "ray", "--workers", 2, "--out", tmp_path / "ray")
    killer.join()
    assert killed
    assert (done.code, done.err) == (alone.code, alone.err)
    names = ("reconstruction.json", *(f"{k}.png" for k in range(12)))
    for name in names:
        assert (tmp_path / "ray" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()
    # What two workers left half done is completed by another number of them, and by one process.
    for number, more in enumerate((("--engine", "ray", "--workers", 1), ())):
        gone = names[1 + number :: 2]
        for name in gone:
            (tmp_path / "ray" / name).unlink()
        stamps = {n: (tmp_path / "ray" / n).stat().st_mtime_ns for n in {*names[1:]} - {*gone}}
        assert proxmatch(*arguments, *more, "--out", tmp_path / "ray").code == alone.code
        for name in names:
            same = (tmp_path / "alone" / name).read_bytes()
            assert (tmp_path / "ray" / name).read_bytes() == same
        assert stamps == {n: (tmp_path / "ray" / n).stat().st_mtime_ns for n in stamps}


def test_what_a_cluster_lacks_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")  # of a cluster that was not asked for
    with connected(None, workers=1, cpus=1):
        begun = "a task needs 1 CPU.s. and 1 GPU.s. on one node, and none .* .at most 1 CPU.s., 0"
        with pytest.raises(EngineError, match=begun), connected(None, workers=1, gpus=1):
            pass
        assert ray.is_initialized()  # it belongs to the outer one
    assert not ray.is_initialized()


def test_workers_of_other_versions_are_refused() -> None:
    check_versions(versions())
    with pytest.raises(EngineError, match=r"torch .* and not 0.1 as here: install the same"):
        check_versions(versions() | {"torch": "0.1"})


def test_a_folder_has_one_owner(tmp_path: Path) -> None:
    refused = pytest.raises(FolderInUseError, match=f"process {os.getpid()} on")
    with owned(tmp_path / "deep" / "er"), refused, owned(tmp_path / "deep" / "er"):
        pass
    with owned(tmp_path / "deep" / "er"):
        pass
    assert not (tmp_path / "deep" / "er").exists()  # nothing came of it
    with owned(tmp_path / "deep" / "er"):
        (tmp_path / "deep" / "er" / "kept").touch()
    assert [found.name for found in (tmp_path / "deep" / "er").iterdir()] == ["kept"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid": 1, "host": "elsewhere"}', b"\xff"])
def test_a_stale_lock_is_no_hindrance(tmp_path: Path, content: bytes) -> None:
    (tmp_path / LOCK).write_bytes(content)
    with owned(tmp_path):
        assert json.loads((tmp_path / LOCK).read_text())["pid"] == os.getpid()
    assert not (tmp_path / LOCK).exists()


def test_a_lock_that_is_a_link_is_not_written_to(tmp_path: Path) -> None:
    """As it may be in a folder from a stranger."""
    mine, out = tmp_path / "mine.txt", tmp_path / "out"
    mine.write_text("mine")
    out.mkdir()
    (out / LOCK).symlink_to(mine)
    with pytest.raises(OSError, match=LOCK), owned(out):
        pass
    assert mine.read_text() == "mine"


def test_the_owner_is_named_even_when_the_work_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), owned(tmp_path):
        _ = 1 / 0
    assert not (tmp_path / LOCK).exists()


def forbidden(tmp_path: Path) -> list[Path]:
    (tmp_path / "file").write_text("mine")
    return [tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nowhere/out")]


def test_folders_that_cannot_be_written(
    small: Models, pictures: Path, tmp_path: Path, proxmatch: Run
) -> None:
    for out in forbidden(tmp_path):
        done = proxmatch(
            "reconstruct", small["gs"], pictures, "--problem", "denoising", "--out", out
        )
        assert done.code == 2
        assert done.err.startswith("error: ")
        assert str(out) in done.err or str(out.parent) in done.err
        assert len(done.err.strip().splitlines()) == 1
    assert (tmp_path / "file").read_text() == "mine"


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True
    )
    if made.returncode:
        pytest.skip("no small disk can be mounted here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk(small: Models, pictures: Path, tiny_disk: Path, proxmatch: Run) -> None:
    (tiny_disk / "filler").write_bytes(b"x" * 56 * 1024)
    done = proxmatch(
        "reconstruct", small["gs"], pictures, "--problem", "denoising", "--iterations", 1, "--bits",
        16, "--out", tiny_disk / "out",
    )  # fmt: skip
    assert done.code == 2
    assert "No space left" in done.err
    for path in (tiny_disk / "out").glob("*"):
        assert path.suffix in (".png", ".jsonl")
        assert not path.name.startswith(".")


@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
@pytest.mark.parametrize("part", [0.0, 0.5, 0.99])
def test_a_truncated_checkpoint(
    small: Models, pictures: Path, tmp_path: Path, proxmatch: Run, file: str, part: float
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for path in small["gs"].iterdir():
        content = path.read_bytes()
        (broken / path.name).write_bytes(
            content[: int(part * len(content))] if path.name == file else content
        )
    done = proxmatch(
        "reconstruct", broken, pictures, "--problem", "denoising", "--out", tmp_path / "out"
    )
    assert done.code == 2
    assert file in done.err
    assert "This is a defect" not in done.err
    assert not (tmp_path / "out").exists()


def test_a_truncated_state_is_named(pictures: Path, tmp_path: Path, proxmatch: Run) -> None:
    config = tmp_path / "settings.yaml"
    config.write_text("{steps: 2, batch: 1, checkpoint_every: 1}")
    out = tmp_path / "run"
    arguments = ("train", "gs", "--images", pictures, "--config", config, "--validation", 0)
    assert proxmatch(*arguments, "--out", out).code == 0
    path = out / state.FILE
    path.write_bytes(path.read_bytes()[:200])
    done = proxmatch(*arguments, "--out", out)
    assert done.code == 2
    assert "truncated or foreign" in done.err
    load(out / "model")  # what was there is whole


def test_what_a_killed_run_left_half_written_is_removed(tmp_path: Path) -> None:
    """By the next owner of the folder; what a live one writes below stays."""
    inner, other = tmp_path / "model", tmp_path / "other"
    inner.mkdir()
    code = (
        "import os, pathlib, sys; from proxmatch._internal import files\n"
        "os.replace = lambda *places: os.kill(os.getpid(), 9)\n"
        "files.write_together(pathlib.Path(sys.argv[1]), {'picture.png': b'half', 'x' * 255: b''})"
    )
    for folder in (tmp_path, inner):
        assert subprocess.run([sys.executable, "-c", code, folder]).returncode == -signal.SIGKILL
        assert len(list(folder.glob(f".*{UNFINISHED}"))) == 2
    with owned(other):
        (other / f".a{UNFINISHED}").touch()
        with owned(tmp_path):
            assert not [*tmp_path.glob(f".*{UNFINISHED}"), *inner.iterdir()]
        assert (other / f".a{UNFINISHED}").exists()


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_disk_that_becomes_read_only(
    number: int,
    small: Models,
    pictures: Path,
    tmp_path: Path,
    proxmatch: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not even the lock can be removed; when it can be written again, the command goes on."""
    out = tmp_path / "out"
    arguments = (
        "reconstruct", small["gs"], pictures, "--problem", "denoising", "--batch", 1,
        "--iterations", 1, "--out", out,
    )  # fmt: skip
    make = tempfile.mkstemp

    def refuse(*arguments: object, **options: object) -> Any:
        raise OSError(number, os.strerror(number), str(out))

    def until_the_third(suffix: str, prefix: str, folder: Path) -> tuple[int, str]:
        if "picture2" in prefix:
            patch.setattr(Path, "unlink", refuse)
            refuse()
        return make(suffix, prefix, folder)

    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "mkstemp", until_the_third)
        done = proxmatch(*arguments)
    assert done.code == 2
    assert os.strerror(number) in done.err
    assert len(done.err.splitlines()) == 1
    assert (out / LOCK).exists()
    stamp = (out / "picture1.png").stat().st_mtime_ns
    assert proxmatch(*arguments).code in WRITTEN
    assert len(list(out.glob("*.png"))) == 6
    assert (out / "picture1.png").stat().st_mtime_ns == stamp
    assert not [file for file in out.iterdir() if file.name.startswith(".")]


def test_a_clock_that_jumps(
    small: Models, pictures: Path, tmp_path: Path, proxmatch: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is done is known by its content, whatever its time, and a lock by its owner."""
    out = tmp_path / "out"
    arguments = (
        "reconstruct", small["gs"], pictures, "--problem", "denoising", "--iterations", 1,
        "--out", out,
    )  # fmt: skip
    assert proxmatch(*arguments).code in WRITTEN
    for then in (0, 2**33):  # 1970 and 2242
        for file in (*out.iterdir(), pictures / "picture0.png"):
            os.utime(file, (then, then))
        (out / LOCK).write_text(json.dumps({"pid": 1, "since": 10.0**30}))
        monkeypatch.setattr(time, "time", lambda then=then: 2**33 - then)
        assert proxmatch(*arguments).code in WRITTEN
        assert all(file.stat().st_mtime == then for file in out.glob("*.png"))


@pytest.mark.parametrize("how", ["vanishes", "changes"])
def test_a_picture_that_is_not_what_it_was(
    how: str, small: Models, tmp_path: Path, proxmatch: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named and left out; the next run takes it as it is then."""
    content = encode_image(torch.rand(3, 16, 16))
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(content)
    real = decoding._decoded

    def decoded(file: BinaryIO, most: int) -> decoding.Pixels:
        pixels = real(file, most)
        if file.name.endswith("a.png"):
            (tmp_path / "b.png").unlink(missing_ok=True)
            if how == "changes":
                (tmp_path / "b.png").write_bytes(content)
        elif how == "changes":
            (tmp_path / "b.png").write_bytes(encode_image(torch.zeros(3, 16, 18)))
        return pixels

    arguments = (
        "reconstruct", small["gs"], tmp_path, "--problem", "denoising", "--iterations", 1,
        "--out", tmp_path / "out",
    )  # fmt: skip
    with monkeypatch.context() as patch:
        patch.setattr(decoding, "_decoded", decoded)
        done = proxmatch(*arguments)
    assert done.code in WRITTEN
    assert "b.png" in done.err
    assert {"vanishes": "no such file", "changes": "changed while it was read"}[how] in done.err
    assert {file.name for file in (tmp_path / "out").glob("*.png")} == {"a.png"}
    (tmp_path / "b.png").write_bytes(content)
    assert proxmatch(*arguments).code in WRITTEN
    assert (tmp_path / "out" / "b.png").exists()


def test_commands_use_no_network_and_write_to_their_folder_alone(
    small: Models, pictures: Path, tmp_path: Path, proxmatch: Run
) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("{steps: 2, batch: 2}")
    seen = ("--images", pictures, "--problem", "denoising")
    size = ("--size", 32, "--number", 2, "--iterations", 2)
    commands: list[tuple[object, ...]] = [
        ("info",),
        ("models",),
        ("problems",),
        ("train", "gs", "--images", pictures, "--config", settings, "--validation", 0),
        ("adapt", small["gs"], *seen, "--method", "mse", "--steps", 2),
        ("reconstruct", small["gs"], pictures, "--problem", "denoising", "--iterations", 2),
        ("diagnose", small["gs"], *seen, *size, "--from", small["lpn"]),
        ("certify", small["gs"], "--reference", small["gs"], *seen, *size),
    ]
    allowed = [Path(p) for p in (tempfile.gettempdir(), get_cachedir(), get_configdir())]
    for number, command in enumerate(commands):
        out = tmp_path / str(number)
        with harmless(*allowed):
            done = proxmatch(*command, *(("--out", out) if number > 2 else ()))
        assert done.code in WRITTEN, done.err
