"""`proxmatch reproduce`, wrong or interrupted: one line, exit code 2, before any long work."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from PIL import Image

from proxmatch._internal.files import UNFINISHED
from proxmatch.cli import run
from proxmatch.commands import reproduce
from proxmatch.errors import EngineError
from proxmatch.experiments import engines, outputs
from proxmatch.experiments.reproduction import Reproduction
from proxmatch.experiments.studies import STUDIES, Study
from proxmatch.experiments.tables import main_table, overview, paper_table
from tests.experiments.made_up import made_up


@pytest.fixture(autouse=True)
def began(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Runs that came as far as the long work; they stop there."""
    begun: list[int] = []

    def stop(*arguments: object, **options: object) -> None:
        begun.append(len(begun))
        raise EngineError("stopped here")

    monkeypatch.setattr(engines, "run", stop)
    monkeypatch.setattr(outputs, "write", lambda *arguments, **options: [])
    monkeypatch.setenv("COLUMNS", "200")
    return begun


@pytest.fixture
def refused(began: list[int], capsys: pytest.CaptureFixture[str]):
    """Run the command; it must refuse, and say so in one line."""

    def call(*arguments: object) -> str:
        before = len(began)
        capsys.readouterr()
        assert run(["reproduce", *(str(a) for a in arguments)]) == 2
        assert len(began) == before
        said = capsys.readouterr().err
        assert said.startswith("error: ")
        assert len(said.splitlines()) == 1
        return said

    return call


@pytest.fixture
def begin(began: list[int], capsys: pytest.CaptureFixture[str]):
    """Run the command as far as the long work."""

    def call(*arguments: object) -> None:
        before = len(began)
        assert run(["reproduce", *(str(a) for a in arguments)]) == 2
        assert "stopped here" in capsys.readouterr().err
        assert len(began) == before + 1

    return call


def pictures(folder: Path, count: int, side: int = 140) -> Path:
    folder.mkdir()
    for k in range(count):
        Image.effect_noise((side, side), 5 + k).convert("RGB").save(folder / f"{k:02}.png")
    return folder


def test_the_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", "--help"]) == 0
    assert "proxmatch reproduce quick --out" in capsys.readouterr().out


def test_a_wrong_folder(refused, tmp_path: Path) -> None:
    out, there = tmp_path / "out", pictures(tmp_path / "there", 3)
    missing, empty, file = tmp_path / "missing", tmp_path / "empty", tmp_path / "file"
    empty.mkdir()
    file.write_text("no picture")
    where = ("cpu", "--out", out, "--source", there, "--target")
    assert f"there is no folder {missing}" in refused(*where, missing)
    assert "no image" in refused(*where, empty)
    assert "is a file" in refused(*where, file)
    assert "both --source and --target" in refused("cpu", "--out", out, "--source", there)
    assert not out.exists()


def test_three_images_are_not_fifty(refused, tmp_path: Path) -> None:
    out, few = tmp_path / "out", pictures(tmp_path / "few", 3)
    said = refused("cpu", "--out", out, "--source", few, "--target", few)
    assert str(few) in said
    assert "50 are needed" in said
    assert not out.exists()


def test_images_smaller_than_the_scale(refused, tmp_path: Path) -> None:
    large, small = pictures(tmp_path / "large", 3), pictures(tmp_path / "small", 9, side=109)
    said = refused("paper", "--out", tmp_path / "out", "--source", large, "--target", small)
    assert "109" in said
    assert "128 x 128" in said


def test_a_changed_seed(begin, refused, tmp_path: Path) -> None:
    out = tmp_path / "out"
    begin("quick", "--out", out, "--families", "lpn")
    said = refused("quick", "--out", out, "--families", "lpn", "--seed", "1")
    assert "scale.seed was 0, is 1" in said
    assert "another folder" in said
    begin("quick", "--out", out, "--families", "lpn")
    said = refused("quick", "--out", out, "--families", "lpn", "--max-steps", "2")
    assert "scale.max_steps was null, is 2" in said


def test_a_run_that_was_killed_at_once_is_begun_again(begin, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / f".run.json.a{UNFINISHED}").touch()
    begin("quick", "--out", out, "--families", "lpn")


def test_a_missing_image(begin, refused, tmp_path: Path) -> None:
    source, target = pictures(tmp_path / "source", 3), pictures(tmp_path / "target", 30)
    command = ("quick", "--out", tmp_path / "out", "--source", source, "--target", target)
    bounds = ("--max-images", "2", "--max-steps", "2")
    begin(*command, *bounds)
    (target / "03.png").unlink()
    assert "pictures was" in refused(*command, *bounds)


def test_options_that_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option in (("huge",), ("quick", "--max-steps", "0"), ("quick", "--max-images", "0")):
        assert run(["reproduce", *option, "--out", str(tmp_path / "out")]) == 2
        assert option[-2 if len(option) > 1 else 0].lstrip("-") in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_options_that_would_be_ignored(refused, tmp_path: Path) -> None:
    where = ("--out", tmp_path / "out")
    study = (*where, "--study", "denoising", "--data", tmp_path)
    assert "--only is for a run with --study" in refused("quick", *where, "--only", "n=1")
    assert "--data is for a run with --study" in refused("quick", *where, "--data", tmp_path)
    assert "either a scale or --study" in refused("quick", *study)
    assert "--engine is for a run with a scale" in refused(*study, "--engine", "local")
    assert "--resume is for a run with a scale" in refused(*study, "--no-resume")


def test_a_study_that_is_interrupted_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(settings: object, work: object) -> dict[str, object]:
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError("the signal ended nothing")

    study = Study("one", "One", lambda work: [{"n": 1}], interrupted, lambda cells: "")
    monkeypatch.setitem(STUDIES, "one", study)
    command = ["reproduce", "--study", "one", "--data", str(tmp_path), "--out", str(tmp_path / "o")]
    assert run(command) == 130
    assert "the same command continues" in capsys.readouterr().err


@pytest.mark.parametrize(("width", "shown"), [(80, 1), (140, 3)])
def test_tables_that_do_not_fit_stay_in_their_files(
    width: int,
    shown: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = [made_up("lpn", method, 5, [20, 30, 25]) for method in ("mse", "pm")]
    problems = ["deblurring", "super-resolution"]
    tables = [paper_table(found, "deblurring", (5,)), main_table(found, problems)]
    result = Reproduction(tmp_path, [*tables, overview(found, problems)], 9, 4)
    page = tmp_path / "report.html"
    monkeypatch.setattr(reproduce, "_run", lambda *arguments, **options: (result, page))
    monkeypatch.setenv("COLUMNS", str(width))
    assert run(["reproduce", "quick", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said.count("LPN-PM") == shown
    assert "…" not in said
    assert ("wider than this window" in said) == (shown < 3)
    assert str(page) in said
