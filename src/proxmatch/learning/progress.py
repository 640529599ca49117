"""A progress bar for a run: steps, rate, remaining time, current loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from proxmatch._internal.bars import progress

if TYPE_CHECKING:
    from rich.console import Console


@contextmanager
def bar(
    steps: int | None, title: str, console: Console | None = None
) -> Iterator[Callable[[int, float], None]]:
    """Show a bar while the block runs; yields the ``on_step`` of a run."""
    rate, last = "{task.fields[rate]}", "loss {task.fields[loss]}"
    columns = ("{task.description}", "bar", "count", rate, "remaining", last)
    with progress(*columns, console=console) as shown:
        task = shown.add_task(title, total=steps, loss="...", rate="")

        def on_step(step: int, loss: float) -> None:
            speed = shown.tasks[task].speed
            rate = f"{speed:.1f} steps/s" if speed else ""
            shown.update(task, completed=step, loss=f"{loss:.3g}", rate=rate)

        yield on_step
