"""Tables made from registrations: ``.. problem-table::`` and ``.. method-table::`` on a page."""

from __future__ import annotations

from typing import Any

from proxmatch.methods import offered
from proxmatch.problems import PROBLEMS


def table() -> str:
    """All problems with their options and defaults, in reStructuredText."""
    lines = [
        ".. list-table::",
        "   :header-rows: 1",
        "   :widths: 22 30 48",
        "",
        "   * - problem",
        "     - what it is",
        "     - options and defaults",
    ]
    for name in sorted(PROBLEMS):
        known = PROBLEMS[name]
        about = known.title
        if known.channels is not None:
            about += f"; {known.channels} channels"
        if not known.pictures:
            about += "; on the command line with `--simulate` only"
        options = ", ".join(
            f"`{option.name}`"
            + (" (needed)" if option.required else "")
            + ("" if option.required or option.default is None else f" {option.default}")
            for option in known.options.values()
        )
        lines += [f"   * - `{name}`", f"     - {about}", f"     - {options}"]
    return "\n".join(lines) + "\n"


def methods() -> str:
    """All ways to adapt, in reStructuredText."""
    lines = [
        ".. list-table::",
        "   :header-rows: 1",
        "   :widths: 18 82",
        "",
        "   * - `method`",
        "     - what it does",
    ]
    for name, method in offered().items():
        lines += [f"   * - `{name}`", f"     - {method.help}"]
    return "\n".join(lines) + "\n"


def insert(app: Any, page: str, source: list[str]) -> None:
    """Put the tables in the place of their marks, before a page is read."""
    for mark, made in ((".. problem-table::\n", table), (".. method-table::\n", methods)):
        source[0] = source[0].replace(mark, made())


def setup(app: Any) -> dict[str, bool]:
    """For Sphinx."""
    app.connect("source-read", insert)
    return {"parallel_read_safe": True}
