"""A progress bar for a run: steps, rate, remaining time, current loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@contextmanager
def bar(
    steps: int | None, title: str, console: Console | None = None
) -> Iterator[Callable[[int, float], None]]:
    """Show a bar while the block runs; yields what a run calls ``on_step``.

    Args:
        steps: of the whole run, if it is known.
        title: shown before the bar.
        console: where; stderr by default, so that standard output stays for results.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn as Remaining,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        Remaining(),
        TextColumn("loss {task.fields[loss]}"),
    )
    console = console or Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(title, total=steps, loss="...", rate="")

        def on_step(step: int, loss: float) -> None:
            speed = progress.tasks[task].speed
            rate = f"{speed:.1f} steps/s" if speed else ""
            progress.update(task, completed=step, loss=f"{loss:.3g}", rate=rate)

        yield on_step
