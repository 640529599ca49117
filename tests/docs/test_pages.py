"""What the pages name exists, and what exists is named."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest
import torch
import typer
from PIL import Image

import proxmatch
from proxmatch import commands
from proxmatch.cli import app
from proxmatch.problems import PROBLEMS

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {page.stem: page.read_text(encoding="utf-8") for page in DOCS.glob("*.rst")}
CODE = re.compile(r"^( *)\.\. code-block:: python\n\n((?:\1 +.*\n|\n)+)", re.MULTILINE)


def blocks(text):
    return [textwrap.dedent(found[2]) for found in CODE.finditer(text)]


def found(name):
    """The object of a dotted name under proxmatch, attributes of results included."""
    parts = name.split(".")
    for cut in range(len(parts), -1, -1):
        module = ".".join(["proxmatch", *parts[:cut]])
        try:
            home = import_module(module)
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            home = getattr(home, part)
        return home
    raise AssertionError(name)


MAP = sorted(set(re.findall(r"`((?:[A-Za-z_]+\.)+[A-Za-z_]+)`", PAGES["theory"])))


@pytest.mark.parametrize("name", MAP)
def test_names_of_the_map_exist(name):
    found(name)


def test_the_map_has_fields_that_exist():
    """Lines such as: `mismatch` of `pnp.PnPResult` and `theory.Trajectory`."""
    lines = re.findall(
        r"((?:`[a-z]+`, )*`[a-z]+`) of (`[\w.]+`(?: and `[\w.]+`)?)", PAGES["theory"]
    )
    assert len(lines) > 5
    for fields, owners in lines:
        for owner in re.findall(r"`([\w.]+)`", owners):
            for field in re.findall(r"`([a-z]+)`", fields):
                home = found(owner)
                known = inspect.signature(home).parameters
                assert field in known, f"{owner} has no {field}"


def test_the_map_has_the_rows_that_are_checked():
    source = inspect.getsource(import_module("proxmatch.theory.inequalities"))
    for row in re.findall(r'rows? "([^"]+)"', PAGES["theory"]):
        assert f'"{row}' in source, row


def test_the_map_has_every_equation():
    """The paper numbers 48 of them."""
    part = PAGES["theory"].split("Statements\n")[0]
    cells = re.findall(r"^   \* - ([\d, ]+)$", part, re.MULTILINE)
    assert sorted(int(n) for cell in cells for n in cell.split(",")) == list(range(1, 49))


def test_every_public_name_is_in_the_api():
    assert set(re.findall(r"`pm\.(\w+) <", PAGES["api"])) == set(proxmatch.__all__)


def test_every_package_is_in_the_api():
    for module in re.findall(r"^   (proxmatch[\w.]+)$", PAGES["api"], re.MULTILINE):
        import_module(module)


@pytest.mark.parametrize("page", sorted(name for name in PAGES if blocks(PAGES[name])))
def test_code_calls_what_exists(page):
    for code in blocks(PAGES[page]):
        for call in ast.walk(ast.parse(code)):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                continue
            name = ast.unparse(call.func)
            if not re.fullmatch(r"pm\.[\w.]+", name):
                continue
            function = found(name.removeprefix("pm."))
            keywords = {k.arg: None for k in call.keywords if k.arg}
            inspect.signature(function).bind(*call.args, **keywords)


@pytest.mark.filterwarnings("ignore:the alignment made things worse")
def test_the_fifteen_lines_run(tmp_path, monkeypatch):
    code = blocks(PAGES["adapt"])[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 15
    x = proxmatch.embedded("photographs").test
    for number, image in enumerate(x[:5]):
        pixels = (255 * image).round().byte().permute(1, 2, 0).numpy()
        folder = tmp_path / "my-images"
        folder.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    aligned = partial(proxmatch.adapt, method="align")  # quick, where auto takes a minute
    monkeypatch.setattr(proxmatch, "adapt", aligned, raising=False)
    monkeypatch.chdir(tmp_path)
    scope = {"y": x[20:21]}
    with torch.no_grad():
        exec(code, scope)  # noqa: S102
    for name in ("x_pgd", "x_hqs"):
        assert scope[name].shape == x[20:21].shape
        assert bool(scope[name].isfinite().all())


@pytest.mark.parametrize("page", ["commands", "modalities"])
def test_every_problem_is_in_the_table(page, monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    source = [PAGES[page]]
    import_module("problem_table").insert(None, page, source)
    rows = dict(re.findall(r"   \* - `([\w-]+)`\n     - .*\n     - (.*)\n", source[0]))
    for name, known in PROBLEMS.items():
        assert re.findall(r"`(\w+)`", rows[name]) == list(known.options)


def test_every_modality_has_an_example_that_runs(capsys):
    """One after the other, as a reader would run them; each improves its start."""
    scope, seen = {}, set()
    for code in blocks(PAGES["modalities"]):
        exec(code, scope)  # noqa: S102
        seen |= set(re.findall(r'make_problem\("([\w-]+)"', code))
        numbers = [float(x) for x in re.findall(r"\d+\.\d+", capsys.readouterr().out)]
        assert len(numbers) == 2 * code.count("print(")
        for start, end in zip(numbers[::2], numbers[1::2], strict=True):
            assert end > start + 0.3, code
    assert seen == {
        "tomography", "mri", "multicoil-mri", "poisson-denoising", "poisson-deblurring",
        "demosaicing", "box-inpainting", "kernel-deblurring",
    }  # fmt: skip


def test_every_command_is_described():
    table = PAGES["commands"].split("Problems\n")[0]
    named = re.findall(r"^   \* - `(\w+)`$", table, re.MULTILINE)
    assert set(named) == {name.rstrip("_") for name in commands.names()}


@pytest.mark.parametrize("page", sorted(PAGES))
def test_commands_have_the_options_they_are_shown_with(page):
    known = typer.main.get_command(app).commands
    text = re.sub(r"\\\n\s*", "", PAGES[page])  # lines that go on
    shown = re.findall(r"(?:\$ |`|^   +)proxmatch (\w+)\b([^\n`]*)", text, re.MULTILINE)
    assert shown or page != "commands"
    for command, rest in shown:
        options = [option for p in known[command].params for option in p.opts]
        for option in re.findall(r" (--[a-z-]+)", rest):
            assert option in [*options, "--help"], f"{command} {option}"


def test_no_page_says_that_held_out_pixels_have_no_influence():
    """They choose the candidate that ``adapt`` returns; nothing more is true of them."""
    others = (DOCS.parent / "README.md", *sorted((DOCS / "gallery").iterdir()))
    read = [file.read_text(encoding="utf-8") for file in others if file.is_file()]
    assert len(read) > 5
    for text in (*PAGES.values(), *read):
        text = re.sub(r"\s+(# )?", " ", text)  # lines that go on, in comments too
        assert not re.search(r"(pixels|part of the picture) that had no (influence|part)", text)
