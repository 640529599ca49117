"""The examples in docstrings run, and every public function has one, there or in the gallery."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

import proxmatch

SOURCE = Path(proxmatch.__file__).parents[1]
PROMPT = ">>> "
TEXTS = {
    ".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): text
    for file in sorted(SOURCE.glob("proxmatch/**/*.py"))
    if PROMPT in (text := file.read_text(encoding="utf-8"))
}
GALLERY = Path(__file__).parents[1] / "docs" / "gallery"
API = (Path(__file__).parents[1] / "docs" / "api.rst").read_text(encoding="utf-8")
#: The modules of the top level, and the packages, that are for users.
ROOMS = [
    name
    for _, name, _ in iter_modules(proxmatch.__path__)
    if not name.startswith("_") and name not in ("app", "cli", "commands", "demo", "errors")
]
#: It takes minutes: the guide shows it, and ``tests/experiments`` runs it.
LONG = {"reproduce"}


def public_functions() -> dict[str, str]:
    """The docstrings of all functions of the rooms and of the pages of the API, by full name."""
    listed = set(re.findall(r"^   (proxmatch[\w.]+)$", API, re.MULTILINE))
    found = {}
    for place in ("proxmatch", *(f"proxmatch.{room}" for room in ROOMS), *sorted(listed)):
        module = import_module(place)
        there = inspect.getmembers(module, inspect.isfunction)
        names = getattr(module, "__all__", [n for n, it in there if it.__module__ == place])
        found |= {f"{place}.{n}": it.__doc__ or "" for n, it in there if n in names and n[0] != "_"}
    return found


def shown_in_the_gallery() -> set[str]:
    """The names of proxmatch that the code of the gallery imports, or writes out after ``pm.``."""
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in GALLERY.glob("*.py")]
    found: set[str] = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("proxmatch"):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute) and ast.unparse(node).startswith("pm."):
            found.add(node.attr)
    return found


@pytest.mark.parametrize("name", TEXTS)
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in an empty folder of its own."""
    flags = doctest.NORMALIZE_WHITESPACE | doctest.REPORT_ONLY_FIRST_FAILURE
    runner = doctest.DocTestRunner(optionflags=flags)
    said: list[str] = []
    for number, test in enumerate(doctest.DocTestFinder().find(import_module(name), name)):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        runner.run(test, out=said.append)
    done = runner.summarize(verbose=False)
    assert done.failed == 0, "".join(said)
    assert done.attempted == TEXTS[name].count(PROMPT), "an example was not found"


def test_every_public_function_has_an_example_that_runs() -> None:
    """As a doctest, which runs above, or in the gallery, which ``tests/docs`` runs."""
    functions = public_functions()
    assert len(functions) > 100
    without = {name.rpartition(".")[2] for name, text in functions.items() if PROMPT not in text}
    assert without - shown_in_the_gallery() == LONG
