"""An experiment with a bar above it and its page at the end: `reproduce` and `demo`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxmatch._internal.bars import progress
from proxmatch.commands import _screen

if TYPE_CHECKING:
    from proxmatch.experiments.cells import Cell
    from proxmatch.experiments.reproduction import Reproduction


def run(*arguments: Any, **options: Any) -> tuple[Reproduction, Path]:
    """Call :func:`proxmatch.experiments.reproduction.reproduce` with a bar; its result and page."""
    with (
        _screen.interruptible(lambda: "the same command continues where it stopped"),
        progress("bar", "count", "elapsed", "remaining", "{task.description}") as shown,
    ):
        bar = shown.add_task("looking at the images", total=None)
        from proxmatch.experiments.reproduction import reproduce
        from proxmatch.report import write_report

        def on_plan(planned: int, missing: int) -> None:
            done = planned - missing
            shown.update(bar, description="computing", total=planned, completed=done)

        def on_cell(cell: Cell, done: int, planned: int) -> None:
            now = f"{cell.kind}: {cell.label}" if done < planned else "figures and page"
            shown.update(bar, description=now, completed=done)

        result = reproduce(*arguments, **options, on_plan=on_plan, on_cell=on_cell)
        return result, write_report(result.out)
