"""The demo with next to no work in it: whether everything runs, and says what it found."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

import pytest
import torch
from PIL import Image

from proxmatch import cli
from proxmatch._internal.locks import owned
from proxmatch.demo.setup import REAL, TINY
from proxmatch.denoisers import load, shipped


def run(*arguments: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as text:
        assert cli.run(["demo", "--tiny", "--no-open", *arguments]) == 0
    return text.getvalue()


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object], str]:
    """The folder, what the demo says to machines, and what it says the second time to people."""
    out = tmp_path_factory.mktemp("demo") / "made" / "here"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "100")
        record = json.loads(run("--out", str(out), "--json"))
        said = run("--out", str(out))
    return out, record, said


def test_every_row_is_told_and_kept(demo: tuple[Path, dict[str, object], str]) -> None:
    out, record, said = demo
    kept = json.loads((out / "demo.json").read_text("utf-8"))
    for name in ("wrong", "adapted", "Wiener", "total variation", "no denoiser"):
        assert name in said
        assert name in json.dumps(kept)
    assert record["page"] == str(out / "demo.html")
    for sheet in record["pictures"]:  # type: ignore[attr-defined]
        with Image.open(sheet) as picture:
            assert min(picture.size) > 50
    assert "certificate" in said
    assert str(out / "demo.html") in said


def test_the_adapted_denoiser_can_be_loaded(demo: tuple[Path, dict[str, object], str]) -> None:
    found = [file.parent for file in demo[0].rglob("config.json")]
    assert len(found) == 1
    x = torch.rand(1, 3, 16, 16)
    assert load(found[0])(x).shape == x.shape


def test_the_page_is_one_file_that_asks_for_nothing(
    demo: tuple[Path, dict[str, object], str],
) -> None:
    text = (demo[0] / "demo.html").read_text("utf-8")
    assert "default-src &#39;none&#39;" in text
    assert not re.findall(r"""(?:src|href)=["']https?://""", text)
    assert text.count("data:image/png") >= 2 * len(TINY.pictures)


def test_the_real_demo_uses_what_is_shipped() -> None:
    assert {REAL.wrong, REAL.right} <= set(shipped())
    assert not {picture.name for picture in REAL.pictures} & set(REAL.others)


def test_two_at_once_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with owned(tmp_path):
        assert cli.run(["demo", "--tiny", "--no-open", "--out", str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err
