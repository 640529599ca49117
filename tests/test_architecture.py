"""ARCHITECTURE.md: what it lists is there, and packages import from those above them alone."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "proxmatch"
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
TREE = re.search(r"^src/proxmatch/\n(.*?)^tests/", PAGE, re.MULTILINE | re.DOTALL)
#: The packages and modules of the top level, in the order of the page.
ORDER = re.findall(r"^  ([\w]+)(?:/|\.py)", TREE[1] if TREE else "", re.MULTILINE)
MODULES = [path for path in SOURCE.rglob("*.py") if path.name != "__init__.py"]
#: Inside a function, and said on the page.
LAZY = {
    ("denoisers/checkpoint.py", "transforms"),
}


def imported(path: Path) -> Iterator[tuple[str, bool]]:
    """The top-level names of proxmatch that a module imports, and whether at its own top level."""

    def below(node: ast.AST, inside: bool) -> Iterator[tuple[str, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.ImportFrom) and (child.module or "").startswith("proxmatch"):
                _, *parts = str(child.module).split(".")
                for name in parts[:1] or [alias.name for alias in child.names]:
                    yield name, not inside
            yield from below(child, inside or isinstance(child, ast.FunctionDef | ast.Lambda))

    return below(ast.parse(path.read_text(encoding="utf-8")), False)


def test_the_page_lists_what_there_is() -> None:
    there = {path.stem for path in SOURCE.iterdir() if (path.suffix or path.is_dir()) and path.stem}
    assert set(ORDER) | {"__init__", "__main__", "py", "cli"} >= there - {"__pycache__"}
    assert all((SOURCE / name).is_dir() or (SOURCE / f"{name}.py").is_file() for name in ORDER)


def test_the_page_is_one_page_and_names_files_that_exist() -> None:
    assert len(PAGE.splitlines()) <= 80
    for name in re.findall(r"`([\w/]+(?:\.py|/))`", PAGE):
        assert (ROOT / name).exists() or (SOURCE / name).exists(), name


def test_every_module_says_what_it_is_for_in_one_line() -> None:
    """The list of all modules: the page has the packages alone."""
    for path in SOURCE.rglob("*.py"):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        first, *rest = text.split("\n", 1)
        assert first, path
        assert not rest or rest[0].startswith("\n"), f"{path}: the first line is a summary"


def test_packages_import_from_those_above_them() -> None:
    assert len(ORDER) > 15
    place = {name: number for number, name in enumerate(ORDER)}
    place |= {"__init__": -1, "cli": len(ORDER), "__main__": len(ORDER) + 1}
    for path in MODULES:
        own = path.relative_to(SOURCE)
        here = place[own.with_suffix("").parts[0]]
        for name, eager in imported(path):
            if name in place and place[name] > here:
                assert not eager, f"{own} imports {name}, which stands below it"
                assert (own.as_posix(), name) in LAZY, f"{own} looks down to {name}"


def test_no_two_modules_and_no_two_public_classes_have_one_name() -> None:
    rooms = [path for path in MODULES if path.parent.name not in ("commands", "weights")]
    modules = Counter(path.stem for path in rooms)
    assert [name for name, number in modules.items() if number > 1] == []
    classes = Counter(
        node.name
        for path in MODULES
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, number in classes.items() if number > 1] == []
