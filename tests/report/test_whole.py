"""Whole pictures at the head of a page: read as they were written, shown before everything else."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from proxmatch import cli
from proxmatch.errors import DataError
from proxmatch.records import Scene, View, write_whole
from proxmatch.report import write_report
from proxmatch.report.whole import ShownScene, ShownWhole, read_whole
from tests.report.fixture import write_folder, write_json
from tests.report.html import Page

KEYS = ("measured", "wrong", "adapted", "right", "wiener", "tv", "truth")


def png(width: int, height: int, seed: int) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def scene(name: str, width: int, height: int) -> ShownScene:
    views = [
        View(key=key, label=f"{key} view", psnr=None if key in ("measured", "truth") else 30.0 + i,
             file=f"{name}-{key}.png")
        for i, key in enumerate(KEYS)
    ]  # fmt: skip
    about = Scene(name=name, label=name.replace("_", " "), detail=(4, 6, 10), views=views)
    return ShownScene(about, tuple(png(width, height, i) for i in range(len(KEYS))))


SAYS = ("First this.", "Then that.", "<b>Last</b>.")


def write_demo(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    shown = ShownWhole(SAYS, (scene("astronaut", 40, 40), scene("two_cats", 60, 32)))
    write_whole(folder, shown.about, shown.files)
    return folder


def test_they_are_read_as_they_were_written(tmp_path: Path) -> None:
    old = ShownWhole(("old",), (scene("gone", 8, 8),))
    write_whole(tmp_path, old.about, old.files)
    write_demo(tmp_path)
    found = read_whole(tmp_path)
    assert found is not None
    assert found.says == SAYS
    assert [each.about.name for each in found.scenes] == ["astronaut", "two_cats"]
    assert found.scenes[1].size == (60, 32)
    assert found.scenes[0].files[2] == png(40, 40, 2)
    assert found.numbers()["two_cats"]["detail"] == [4, 6, 10]
    assert not list((tmp_path / "whole").glob("gone*"))  # of the demo before
    assert read_whole(tmp_path / "whole") is None


@pytest.mark.parametrize("damage", ["missing", "cut", "size", "elsewhere", "index"])
def test_what_is_damaged_is_named(tmp_path: Path, damage: str) -> None:
    folder = write_demo(tmp_path) / "whole"
    first = folder / "astronaut-measured.png"
    if damage == "missing":
        first.unlink()
    elif damage == "cut":
        first.write_bytes(first.read_bytes()[:100])
    elif damage == "size":
        (folder / "astronaut-truth.png").write_bytes(png(41, 40, 0))
    elif damage == "elsewhere":
        index = json.loads((folder / "index.json").read_text())
        index["scenes"][0]["views"][0]["file"] = "../../secret.png"
        write_json(folder / "index.json", index)
    else:
        (folder / "index.json").write_text('{"scenes": []}')
    with pytest.raises(DataError, match=r"astronaut|secret|index\.json"):
        read_whole(tmp_path)


def test_a_page_begins_with_them(tmp_path: Path) -> None:
    demo, folder = write_demo(tmp_path / "demo"), write_folder(tmp_path / "out")
    assert cli.run(["report", str(folder), "--whole", str(demo)]) == 0
    text = (folder / "report.html").read_text("utf-8")
    order = [text.index(f'<section id="{name}"') for name in ("whole", "story", "claims")]
    assert order == sorted(order)
    page = Page(text)
    assert [name for name, count in page.ids.items() if count > 1] == []
    assert all(said in page.text for said in SAYS)
    shown = [image["alt"] for image in page.images]
    assert [alt for alt in shown if alt.startswith("two cats, ")] == [
        f"two cats, {key} view" for key in KEYS
    ]


def test_a_page_without_pictures_has_no_empty_frames(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "out", pictures=0)
    page = Page(write_report(folder).read_text("utf-8"))
    assert "compare" not in page.ids
    assert "holds no pictures" in page.text
    assert "Drag the divider" not in page.text
    assert "MSE · n = 5" in page.text  # what the paper compares is told in numbers


def test_a_folder_without_them_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_folder(tmp_path / "out", pictures=0)
    assert cli.run(["report", str(folder), "--whole", str(tmp_path)]) == 2
    assert "no whole pictures" in capsys.readouterr().err
