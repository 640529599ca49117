from __future__ import annotations

from pathlib import Path

import typer
from typer.testing import CliRunner

from proxmatch.commands.reproduce import command


def run(*arguments: str) -> tuple[int, str, BaseException | None]:
    app = typer.Typer()
    app.command()(command)
    found = CliRunner().invoke(app, list(arguments))
    return found.exit_code, found.output, found.exception


def test_the_help_has_an_example() -> None:
    code, text, _ = run("--help")
    assert code == 0
    assert "proxmatch reproduce quick --out" in text


def test_a_wrong_folder_stops_it(tmp_path: Path) -> None:
    missing = str(tmp_path / "nothing")
    code, _, error = run("cpu", "--out", str(tmp_path / "o"), "--source", missing, "--target",
                         missing)  # fmt: skip
    assert code != 0
    assert "there is no folder" in str(error)
    assert not (tmp_path / "o").exists()


def test_an_unknown_scale_is_wrong_use(tmp_path: Path) -> None:
    code, text, _ = run("huge", "--out", str(tmp_path))
    assert code == 2
    assert "quick" in text
