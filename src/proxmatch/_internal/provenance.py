"""Versions and hashes of the code that a result depends on, for its record."""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from importlib.metadata import version
from pathlib import Path

#: Modules and packages whose source decides what a denoiser, a problem and a reconstruction give.
CORE = ("pnp.py", "metrics.py", "denoisers", "problems", "transforms", "baselines")


def versions() -> dict[str, str]:
    """Versions of the packages that decide a result."""
    return {name: version(name) for name in ("proxmatch", "torch", "deepinv")}


@cache
def code_digest(*parts: str) -> str:
    """A hash of the code of modules and packages, given by their paths in proxmatch.

    Comments, docstrings and layout do not count: better prose does not make a result out of date.
    """
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for part in parts:
        path = root / part
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(f"{file.name}\0{_without_prose(file.read_text('utf-8'))}".encode())
    return digest.hexdigest()[:12]


def _without_prose(source: str) -> str:
    """Python source without comments and docstrings, in one layout."""
    tree = ast.parse(source)
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            node.body[0] = ast.Pass()
    return ast.unparse(tree)
