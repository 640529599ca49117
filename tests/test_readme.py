"""README: its numbers are those of the results, its code and its links lead somewhere."""

from __future__ import annotations

import ast
import inspect
import re
from functools import reduce
from pathlib import Path

import pytest
import typer.main
from PIL import Image
from tools.readme import with_tables

import proxmatch
from proxmatch.cli import app

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
HOME = (ROOT / "docs" / "index.rst").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def test_the_tables_are_those_of_the_results() -> None:
    assert with_tables(TEXT) == TEXT
    assert TEXT.count("<!-- end of ") == 2
    assert with_tables(HOME, markdown=False) == HOME
    assert HOME.count(".. end of ") == 1


def test_both_are_short() -> None:
    assert len(TEXT.splitlines()) <= 120
    assert len(HOME.splitlines()) <= 120


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#]+)\)", TEXT))))
def test_links_lead_somewhere(link: str) -> None:
    assert link.startswith("https://") or (ROOT / link).exists()


def test_the_picture_is_one() -> None:
    with Image.open(ROOT / "docs" / "readme.jpg") as picture:
        assert min(picture.size) > 300
    assert (ROOT / "docs" / "readme.jpg").stat().st_size < 400_000


def test_the_code_calls_what_exists() -> None:
    assert len(BLOCKS) >= 2
    calls = [
        node
        for block in BLOCKS
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.Call) and re.fullmatch(r"pm\.[\w.]+", ast.unparse(node.func))
    ]
    assert len(calls) > 6
    for call in calls:
        names = ast.unparse(call.func).removeprefix("pm.").split(".")
        function = reduce(getattr, names, proxmatch)
        inspect.signature(function).bind(*call.args, **{k.arg: None for k in call.keywords})


def test_the_first_example_prints_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    shown = re.findall(r"```\n(tensor.*\n)```", TEXT)
    assert len(shown) == 1
    assert shown[0].strip() in HOME
    exec(BLOCKS[0], {})  # noqa: S102
    told, printed = (
        [float(number) for number in re.findall(r"\d+\.\d+", text)]
        for text in (shown[0], capsys.readouterr().out)
    )
    assert len(told) == 8
    assert printed == pytest.approx(told, abs=0.02)


def test_the_commands_have_their_options() -> None:
    known = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    shown = re.findall(r"^proxmatch (\w+)([^#\n]*)", TEXT, re.MULTILINE)
    assert len(shown) >= 4
    for command, rest in shown:
        options = {option for p in known[command].params for option in p.opts}
        assert set(re.findall(r"(--[a-z-]+)", rest)) <= options
