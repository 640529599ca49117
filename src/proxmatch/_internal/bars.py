"""Progress on standard error, where it is a terminal: standard output is for results."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


def progress(*columns: str, console: Console | None = None) -> Progress:
    """A progress display.

    Args:
        columns: ``bar``, ``count``, ``elapsed``, ``remaining``, or a text such as
            ``{task.description}``.
        console: where; standard error by default.
    """
    from rich import progress as rich
    from rich.console import Console

    known = {
        "bar": rich.BarColumn(30),
        "count": rich.MofNCompleteColumn(),
        "elapsed": rich.TimeElapsedColumn(),
        "remaining": rich.TimeRemainingColumn(),
    }
    console = console or Console(stderr=True)
    shown = (known.get(column) or rich.TextColumn(column) for column in columns)
    return rich.Progress(*shown, console=console, disable=not console.is_terminal)
