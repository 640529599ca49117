"""The examples in docstrings run, and every public function of some packages has one."""

from __future__ import annotations

import doctest
import inspect
from importlib import import_module
from pathlib import Path

import pytest

import proxmatch

SOURCE = Path(proxmatch.__file__).parents[1]
PROMPT = ">>> "
TEXTS = {
    ".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): text
    for file in sorted(SOURCE.glob("proxmatch/**/*.py"))
    if PROMPT in (text := file.read_text(encoding="utf-8"))
}
#: Whose public functions all have an example.
COMPLETE = (
    "proxmatch.baselines",
    "proxmatch.data",
    "proxmatch.denoisers",
    "proxmatch.losses",
    "proxmatch.methods",
    "proxmatch.metrics",
    "proxmatch.pnp",
    "proxmatch.problems",
    "proxmatch.reconstruction",
    "proxmatch.theory",
    "proxmatch.transforms",
)
#: They need a published file, or what another function has measured; the guides show them.
SHOWN = {"import_checkpoint", "import_network", "checked_count", "check", "draw", "measure"}


def public_functions(name: str) -> dict[str, object]:
    """Those of a module, or of a package whichever module they are defined in."""
    functions = inspect.getmembers(import_module(name), inspect.isfunction)
    return {
        found: it
        for found, it in functions
        if it.__module__.startswith(name) and not found.startswith("_")
    }


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


@pytest.mark.parametrize("name", COMPLETE)
def test_public_functions_have_an_example(name: str) -> None:
    functions = public_functions(name)
    assert functions
    assert {n for n, it in functions.items() if PROMPT not in (it.__doc__ or "")} <= SHOWN
