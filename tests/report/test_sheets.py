"""A folder of reconstructions to look at, through the command that writes it."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from proxmatch import cli
from proxmatch.data import encode_image
from proxmatch.report.sheets import metrics_csv


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two clean pictures, one with a name that HTML would trip over, reconstructed."""
    place = tmp_path_factory.mktemp("sheets")
    clean = place / "clean"
    clean.mkdir()
    generator = torch.Generator().manual_seed(0)
    for name in ("a.png", "<b> & #1.png"):
        coarse = torch.rand(1, 3, 5, 5, generator=generator)
        smooth = F.interpolate(coarse, size=(64, 64), mode="bilinear")[0]
        (clean / name).write_bytes(encode_image(smooth))
    arguments = ["reconstruct", "lpn-photographs", str(clean), "--problem", "deblurring"]
    out = place / "out"
    told = ["--simulate", "--iterations", "1", "--sheet", "--json", "--out", str(out)]
    assert cli.run([*arguments, *told]) in (0, 1)  # 1: suspicious, after a single step
    return out


def test_the_table_has_the_figures_of_the_record(folder: Path) -> None:
    with (folder / "metrics.csv").open(newline="") as file:
        rows = {row["file"]: row for row in csv.DictReader(file)}
    assert set(rows) == {"a.png", "<b> & #1.png"}
    record = json.loads((folder / "reconstruction.json").read_text())["files"]
    for name, row in rows.items():
        assert float(row["psnr"]) == pytest.approx(record[name]["psnr"], abs=0.01)
        assert row["status"] == record[name]["status"]


def test_every_picture_of_the_page_is_there(folder: Path) -> None:
    text = (folder / "index.html").read_text("utf-8")
    assert "&lt;b&gt; &amp; #1.png" in text
    assert "<b> & #1" not in text
    assert "default-src &#39;none&#39;" in text
    sources = re.findall(r'<img src="([^"]+)"', text)
    assert len(sources) == 2
    for source in sources:
        from urllib.parse import unquote

        with Image.open(folder / unquote(source)) as sheet:
            assert sheet.format == "JPEG"
            assert min(sheet.size) > 200


def test_what_is_shown_as_measured_is_what_was_reconstructed_from(tmp_path: Path) -> None:
    """The noise of a simulation is a function of the file, so that it can be drawn again."""
    import hashlib

    import proxmatch as pm

    how = {"bits": None, "format": "png", "iterations": None, "batch": None, "tile": 512}
    for channels in (3, 1):  # gray pictures stay gray, whatever the denoiser is for
        path = tmp_path / f"x{channels}.png"
        path.write_bytes(encode_image(torch.rand(channels, 32, 32)))
        batch = pm.reconstruction.FileBatch.planned(
            pm.load("lpn-faces"), "lpn-faces", [path], "deblurring", ["noise=0.1"],
            tmp_path / "out", simulate=True, seed=3, **how,
        )  # fmt: skip
        found = batch.before(path.name)
        assert found is not None
        truth = pm.read_image(path)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        problem = pm.gaussian_deblurring(32, noise=0.1, channels=channels)
        torch.testing.assert_close(found[0], problem.measure(truth[None], ids=[digest], seed=3)[0])
        assert batch.before("gone.png") is None


def test_columns_that_nothing_has_are_left_out() -> None:
    text = metrics_csv({"a.png": {"size": "4 x 4", "status": "completed", "steps": 3}})
    assert text.splitlines() == ["file,size,status,steps", "a.png,4 x 4,completed,3"]
