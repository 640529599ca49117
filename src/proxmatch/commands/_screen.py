"""What a command shows: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from proxmatch._internal.bars import progress

if TYPE_CHECKING:
    from rich.console import RenderableType

INTERRUPTED = 130


def say(text: str) -> None:
    """One line about what is going on, on standard error."""
    typer.echo(text, err=True)


def show(record: Mapping[str, Any], as_json: bool, *texts: str | RenderableType) -> None:
    """The result: one JSON object, or texts and tables for people."""
    if as_json:
        typer.echo(json.dumps(record, indent=1, allow_nan=False))
        return
    from rich.console import Console

    console = Console(soft_wrap=False)
    for text in texts:
        if isinstance(text, str):
            typer.echo(text)
        else:
            console.print(text)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> RenderableType:
    """A table of plain text; markup in it is escaped."""
    from rich.markup import escape
    from rich.table import Table

    made = Table(title=escape(title) or None)
    for i, name in enumerate(header):
        numbers = all(_numeric(row[i]) for row in rows)
        made.add_column(escape(name), overflow="fold", justify="right" if numbers else "left")
    for row in rows:
        made.add_row(*map(escape, row))
    return made


def _numeric(text: str) -> bool:
    return text in ("", "-") or text.lstrip("-").replace(".", "", 1).isdigit()


@contextmanager
def bar(total: int, title: str) -> Iterator[Callable[[int], None]]:
    """A progress bar with the remaining time; yields a function that advances it."""
    with progress("{task.description}", "bar", "count", "remaining") as shown:
        task = shown.add_task(title, total=total)
        yield lambda done: shown.advance(task, done)


@contextmanager
def stages(first: str) -> Iterator[Callable[[str, int | None], None]]:
    """A bar over stages; yields a function that begins one, given its name and their number."""
    with progress("bar", "count", "elapsed", "{task.description}") as shown:
        task = shown.add_task(first, total=None)

        def begin(name: str, number: int | None) -> None:
            if number is None:
                shown.update(task, description=name, advance=1)
            else:
                shown.update(task, description=name, total=number)

        yield begin


@contextmanager
def interruptible(how_to_go_on: Callable[[], str]) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the block, say how to continue, and exit with 130."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, stop) if main else None
    try:
        yield
    except KeyboardInterrupt:
        say(f"stopped: {how_to_go_on()}")
        raise typer.Exit(INTERRUPTED) from None
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def there_is_one() -> bool:
    """Whether there is a screen that a browser can open on."""
    here = sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    return here and sys.stdout.isatty()
