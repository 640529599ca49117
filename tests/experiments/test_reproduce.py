from __future__ import annotations

import csv
import io
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from proxmatch._internal.files import UNFINISHED
from proxmatch._internal.locks import LOCK, owned
from proxmatch.data import encode_image
from proxmatch.data.embedded import embedded_picture
from proxmatch.errors import DataError, FolderInUseError, InputError
from proxmatch.experiments import drawn, outputs
from proxmatch.experiments.cells import Cell
from proxmatch.experiments.reproduction import reproduce
from proxmatch.experiments.scales import Scale
from proxmatch.experiments.sizes import SCALES
from proxmatch.metrics import psnr
from proxmatch.report.scenes import read_whole
from tests.experiments import tiny
from tests.ray_workers import working

#: The toys that are trained here harm every picture.
pytestmark = pytest.mark.filterwarnings("ignore::proxmatch.errors.SuspiciousWarning")

SAME = ("images.csv", "iterations.csv", "claims.json", "tables", "pictures/index.json")


def contents(out: Path) -> dict[str, bytes]:
    """Everything that must not depend on how a run went."""
    files = [
        file
        for name in SAME
        for file in ([out / name] if (out / name).is_file() else sorted((out / name).iterdir()))
    ]
    return {str(f.relative_to(out)): f.read_bytes() for f in files}


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return tiny.models(tmp_path_factory.mktemp("models"))


@pytest.fixture(autouse=True)
def _without_figures(parts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing them is most of the work, and done once."""
    monkeypatch.setattr(outputs, "draw", lambda *arguments: [])


@pytest.fixture(scope="module")
def parts(
    tmp_path_factory: pytest.TempPathFactory, given: dict[str, Path]
) -> tuple[Path, dict[str, bytes]]:
    """Both families in two parts, in this process, and what there was after the first."""
    out = tmp_path_factory.mktemp("done") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outputs, "draw", lambda *arguments: [])
        reproduce(tiny.SCALE, out, families=("lpn",), workers=1, models=given)
        first = contents(out)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawn, "DPI", 30)
        (out / "figures" / "stale.png").write_bytes(b"of another time")
        reproduce(tiny.SCALE, out, families=("gs",), workers=1, models=given)
    return out, first


@pytest.fixture(scope="module")
def done(parts: tuple[Path, dict[str, bytes]]) -> Path:
    return parts[0]


def test_the_folder_holds_what_the_page_reads(done: Path) -> None:
    manifest = json.loads((done / "manifest.json").read_text())
    assert manifest["cells"]["done"] == manifest["cells"]["planned"] > 0
    assert set(manifest["models"]) == {
        f"{f}/{k}" for f in ("lpn", "gs") for k in ("extreme", "reference")
    }
    assert manifest["data"]["target"]["fingerprint"]
    images = list(csv.DictReader((done / "images.csv").read_text().splitlines()))
    assert {line["method"] for line in images} == {
        "source", "reference", "mse", "pm", "pm-best", "aligned", "adapm", "none", "wiener",
    }  # fmt: skip
    one = [
        line for line in images
        if (line["method"], line["n"], line["set"], line["problem"], line["relaxation"])
        == ("mse", "1", "0", "deblurring", "paper")
    ]  # fmt: skip
    assert [bool(line["gap"]) for line in one] == [True, True, False]
    assert [bool(line["lipschitz"]) for line in one] == [True, False, False]
    assert all(float(line["t"]) == 1 for line in one)
    reference = [line for line in images if line["method"] == "reference" and line["gap"]]
    assert {float(line["gap"]) for line in reference} == {0.0}
    iterations = list(csv.DictReader((done / "iterations.csv").read_text().splitlines()))
    assert {line["iteration"] for line in iterations} == {"0", "1", "2", "3"}
    cells = list(csv.DictReader((done / "cells.csv").read_text().splitlines()))
    adapted = [line for line in cells if line["kind"] == "adaptation" and line["method"] == "pm"]
    assert {line["steps"] for line in adapted} == {"2"}
    assert all(line["key"] and line["status"] for line in cells)
    claims = json.loads((done / "claims.json").read_text())
    assert {"id", "statement", "paper", "effect", "low", "high", "verdict", "drivers"} <= set(
        claims[0]
    )
    figures = json.loads((done / "figures" / "index.json").read_text())
    for figure in figures:
        for ending in ("png", "pdf", "csv"):
            assert (done / "figures" / f"{figure['name']}.{ending}").stat().st_size > 0
    assert figures[0]["name"] == "domains"
    names = {figure["name"] for figure in figures}
    assert {"deblurring-budgets", "super-resolution-reconstructions", "lpn-trajectories"} <= names
    assert not (done / "figures" / "stale.png").exists()
    for name in ("table2", "table3", "main"):
        assert (done / "tables" / f"{name}.tex").is_file()


def test_strips_have_two_rows_and_a_column_a_frame(done: Path) -> None:
    index = json.loads((done / "pictures" / "index.json").read_text())
    assert index["frames"] == [0, 1, 2, 3]
    assert index["entries"]
    for entry in index["entries"]:
        with Image.open(done / entry["file"]) as strip:
            assert strip.size == (4 * 32, 2 * 32)
            assert strip.mode == "RGB"
            z_0, x_0 = (strip.crop((0, top, 32, top + 32)).tobytes() for top in (0, 32))
        with Image.open(done / index["degraded"][entry["problem"]][entry["image"]]) as start:
            assert z_0 == x_0 == start.tobytes()


def test_whole_pictures_have_the_figures_of_their_pixels(
    tmp_path: Path, given: dict[str, Path], done: Path
) -> None:
    assert not (done / "whole").exists()  # the tiny scale has none
    scale = tiny.SCALE.model_copy(update={"whole": ("cat",)})
    out = tmp_path / "out"
    reproduce(scale, out, families=("lpn",), workers=1, models=given, cells=done / "work")
    found = read_whole(out)
    assert found is not None
    [scene] = found.scenes
    keys = [view.key for view in scene.about.views]
    assert (keys[0], keys[-1]) == ("measured", "truth")
    assert {"wiener-1", "source-0", "adapted", "reference-0"} <= set(keys)
    truth = embedded_picture("cat")[None]
    assert scene.size == (truth.shape[3], truth.shape[2])
    for view, content in zip(scene.about.views, scene.files, strict=True):
        if view.psnr is not None:
            with Image.open(io.BytesIO(content)) as image:
                pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None] / 255
            assert view.psnr == pytest.approx(float(psnr(pixels, truth)), abs=0.05)
    adapted = [v.psnr for v in scene.about.views if v.label.startswith(("LPN-MSE", "LPN-PM"))]
    assert scene.about.views[keys.index("adapted")].psnr == max(adapted)
    assert "left halves" in found.says[0]


def test_killed_twice_and_resumed_a_run_ends_as_if_it_had_not_been(
    tmp_path: Path, given: dict[str, Path], parts: tuple[Path, dict[str, bytes]]
) -> None:
    root = next(iter(given.values())).parents[1]
    killed = tmp_path / "killed"
    command = [sys.executable, "-m", "tests.experiments.tiny", str(killed), str(root)]
    for after in (3, 9):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
            assert run.stdout is not None
            for _ in range(after):
                assert run.stdout.readline()
            run.send_signal(signal.SIGKILL)
        assert run.returncode == -signal.SIGKILL
    computed: list[Cell] = []
    result = reproduce(
        tiny.SCALE, killed, families=("lpn",), workers=1, models=given,
        on_cell=lambda cell, done, planned: computed.append(cell),
    )  # fmt: skip
    assert 0 < result.computed == len(computed) <= result.cells - 12
    assert contents(killed) == parts[1]


def test_two_workers_one_of_them_killed_find_what_one_finds(
    tmp_path: Path, given: dict[str, Path], parts: tuple[Path, dict[str, bytes]]
) -> None:
    out = tmp_path / "two"
    killed: list[int] = []

    def kill(cell: Cell, number: int, planned: int) -> None:
        if not killed and cell.kind == "adaptation":
            victim = multiprocessing.active_children()[0]
            assert victim.pid is not None
            os.kill(victim.pid, signal.SIGKILL)
            killed.append(victim.pid)

    reproduce(tiny.SCALE, out, families=("lpn",), workers=2, models=given, on_cell=kill)
    assert killed
    assert contents(out) == parts[1]


def test_nothing_is_computed_twice(done: Path, given: dict[str, Path], tmp_path: Path) -> None:
    other = tiny.SCALE.model_copy(update={"resamples": 100})
    shared = reproduce(other, tmp_path / "other", workers=1, models=given, cells=done / "work")
    assert shared.computed == 0


def refused(error: type[Exception], match: str, *args: Any, **options: Any) -> None:
    def never(planned: int, missing: int) -> None:
        raise AssertionError("work began")

    with pytest.raises(error, match=match):
        reproduce(*args, on_plan=never, **options)


def test_what_is_wrong_is_said_before_any_work(
    tmp_path: Path, done: Path, given: dict[str, Path]
) -> None:
    out = tmp_path / "out"
    refused(InputError, "no scale 'huge'", "huge", out)
    refused(InputError, "both --source and --target", tiny.SCALE, out, source=tmp_path)
    refused(DataError, "there is no folder", tiny.SCALE, out, tmp_path / "a", tmp_path / "b")
    refused(InputError, "families are among lpn, gs", tiny.SCALE, out, families=("lpm",))
    refused(InputError, "no engine", tiny.SCALE, out, engine="dask")
    refused(InputError, "address", tiny.SCALE, out, address="auto")
    refused(InputError, "no lpn/extreme|does not train|holds", tiny.SCALE, done, models={})
    seeded = {"seed": 1, "models": given}
    refused(InputError, "scale.seed was 0, is 1", tiny.SCALE, done, **seeded)
    refused(InputError, "holds a run already", tiny.SCALE, done, resume=False, models=given)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    refused(InputError, "other files", tiny.SCALE, tmp_path / "full", models=given)
    swapped = {**given, "lpn/reference": given["lpn/extreme"]}
    refused(InputError, "models.lpn/reference", tiny.SCALE, done, models=swapped)
    assert not out.exists()


def test_three_images_are_not_fifty(tmp_path: Path) -> None:
    for name in ("source", "target"):
        (tmp_path / name).mkdir()
        for k in range(3):
            Image.new("RGB", (200, 200), (k, k, 9 * k)).save(tmp_path / name / f"{k}.png")
    folders = (tmp_path / "source", tmp_path / "target")
    refused(DataError, "50 are needed", SCALES["cpu"](), tmp_path / "out", *folders)
    assert not (tmp_path / "out").exists()


def smaller() -> Scale:
    """A few cells, for two folders of images."""
    lpn = tiny.SCALE.families["lpn"]
    few = {"lpn": lpn.model_copy(update={"rows": lpn.rows[:2]})}
    return tiny.SCALE.model_copy(update={"families": few, "baselines": ()})


def two_folders(at: Path, seed: int = 0) -> tuple[Path, Path]:
    generator = torch.Generator().manual_seed(seed)
    for name in ("source", "target"):
        (at / name).mkdir(parents=True)
        for k in range(12):
            content = encode_image(torch.rand(3, 70, 70, generator=generator))
            (at / name / f"{k}.png").write_bytes(content)
    return at / "source", at / "target"


def test_a_missing_image_is_noticed(tmp_path: Path, given: dict[str, Path]) -> None:
    folders = two_folders(tmp_path)
    options = {"families": ("lpn",), "workers": 1, "models": given}
    reproduce(smaller(), tmp_path / "out", *folders, **options)
    (tmp_path / "target" / "3.png").unlink()
    refused(InputError, r"data.target.train.pictures was 10, is 9", smaller(), tmp_path / "out",
            *folders, **options)  # fmt: skip


def test_two_data_sets_that_share_their_cells(tmp_path: Path, given: dict[str, Path]) -> None:
    """In one process: each is computed with its own images."""
    options = {"families": ("lpn",), "workers": 1, "models": given}
    first, second = (two_folders(tmp_path / name, k) for k, name in enumerate("ab"))
    for name, folders in (("first", first), ("second", second)):
        shared = {**options, "cells": tmp_path / "cells"}
        assert reproduce(smaller(), tmp_path / name, *folders, **shared).computed > 0
    reproduce(smaller(), tmp_path / "alone", *second, **options)
    assert contents(tmp_path / "second") == contents(tmp_path / "alone")


@pytest.mark.parametrize("taken", ["out", "cells"])
def test_nothing_is_written_to_a_folder_of_another_run(
    tmp_path: Path, given: dict[str, Path], taken: str
) -> None:
    names = ("out", "cells")
    folders = [tmp_path / name for name in names]
    with owned(tmp_path / taken):
        refused(FolderInUseError, taken, tiny.SCALE, folders[0], cells=folders[1], models=given)
        assert [file.name for file in tmp_path.rglob("*")] == [taken, LOCK]


def test_a_run_that_was_killed_before_it_wrote_anything(
    tmp_path: Path, given: dict[str, Path]
) -> None:
    out = tmp_path / "out"
    (out / "work").mkdir(parents=True)
    for folder in (out, out / "work"):
        (folder / LOCK).write_text("{}")
    (out / "work" / f".run.json.a{UNFINISHED}").touch()
    reproduce(smaller(), out, *two_folders(tmp_path), families=("lpn",), workers=1, models=given)
    assert not [*out.rglob(LOCK), *out.rglob(f"*{UNFINISHED}")]


def test_ray_with_a_worker_killed_finds_what_local_workers_find(
    tmp_path: Path, given: dict[str, Path], parts: tuple[Path, dict[str, bytes]]
) -> None:
    pytest.importorskip("ray")
    out = tmp_path / "ray"
    killed: list[int] = []

    def kill(cell: Cell, number: int, planned: int) -> None:
        if not killed and cell.kind == "adaptation":
            killed.extend(working()[:1])
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    reproduce(
        tiny.SCALE, out, families=("lpn",), engine="ray", workers=2, models=given, on_cell=kill
    )
    assert killed
    assert contents(out) == parts[1]


def test_ray_is_asked_for_by_name_when_it_is_missing(tmp_path: Path) -> None:
    try:
        import ray  # noqa: F401
    except ImportError:
        refused(InputError, r"proxmatch\[ray\]", tiny.SCALE, tmp_path / "out", engine="ray")
