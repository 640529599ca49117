"""The commands, one module each: a module in this folder is a command of the same name.

It offers ``command``, a function for typer whose docstring is the help, with an example. What is
slow to import (torch, deepinv, matplotlib) is imported inside that function. A trailing underscore
is dropped (``import_``), and modules that begin with one are shared by the others.

Exit codes: 0 fine; 1 it ran, and the answer is no; 2 wrong use or input; 130 interrupted.
"""

from __future__ import annotations

from pkgutil import iter_modules

#: In the order of the help; the others follow.
ORDER = (
    "info",
    "models",
    "problems",
    "import_",
    "train",
    "adapt",
    "reconstruct",
    "diagnose",
    "certify",
)


def names() -> list[str]:
    """The modules that are commands."""
    found = {module.name for module in iter_modules(__path__) if not module.name.startswith("_")}
    return [name for name in ORDER if name in found] + sorted(found - set(ORDER))
