"""``proxmatch report``: an experiment's folder as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report_command(
    folder: Annotated[Path, typer.Argument(help="what `reproduce` or `demo` wrote")],
    out: Annotated[
        Path | None, typer.Option(help="the file; report.html in the folder by default")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="open it in the browser")] = False,
) -> None:
    """Write the page of an experiment: one HTML file that opens offline.

    Any part of the folder may be missing, so a run that is not finished has a page as well.

    Example: proxmatch report runs/cpu --open
    """
    import warnings

    from proxmatch.errors import ThinnedWarning
    from proxmatch.report import write_report

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ThinnedWarning)
        page = write_report(folder, out)
    for warning in caught:
        typer.echo(f"note: {warning.message}", err=True)
    typer.echo(f"wrote {page} ({page.stat().st_size / 1e6:.1f} MB)")
    if show:
        typer.launch(page.resolve().as_uri())
