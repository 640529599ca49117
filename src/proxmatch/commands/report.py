"""``proxmatch report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from proxmatch.commands import _screen
from proxmatch.commands._options import Json


def command(
    folder: Annotated[Path, typer.Argument(help="a folder that `reproduce` wrote")],
    out: Annotated[
        Path | None, typer.Option(help="the file to write (default: report.html in the folder)")
    ] = None,
    whole: Annotated[
        Path | None,
        typer.Option(help="a folder that `demo` wrote: the page begins with its pictures"),
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="open it in the browser")] = False,
    json: Json = False,
) -> None:
    """Write the page of an experiment: one HTML file that opens offline.

    Any part of the folder may be missing, so a run that is not finished has a page as well.

    Example: proxmatch report results/cpu --whole demo-out --open
    """
    import warnings

    from proxmatch.report import write_report

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        page = write_report(folder, out, whole=whole)
    notes = [str(warning.message) for warning in caught]
    for note in () if json else notes:
        _screen.say(f"note: {note}")
    size = page.stat().st_size
    record = {"page": str(page), "bytes": size, "notes": notes}
    _screen.show(record, json, f"wrote {page} ({size / 1e6:.1f} MB)")
    if show:
        typer.launch(page.resolve().as_uri())
