"""``proxmatch demo``: one story on whole pictures, in three minutes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proxmatch.commands import _screen
from proxmatch.commands._options import Json, Open, Out, Threads, compute

if TYPE_CHECKING:
    from rich.console import RenderableType

    from proxmatch.demo.output import Written
    from proxmatch.demo.story import Story

INDENT = 13 * " "


def command(
    out: Out = Path("demo-out"),
    show: Open = None,
    threads: Threads = None,
    tiny: Annotated[
        bool, typer.Option("--tiny", hidden=True, help="almost no work: to see that it runs")
    ] = False,
    json: Json = False,
) -> None:
    """Reconstruct damaged pictures with a denoiser of the wrong domain, and adapt it.

    The right denoiser and plain methods are shown for comparison, with a certificate, before/after
    pictures and a page that opens offline: at most three minutes on two cores, no download.

    Example: proxmatch demo --out demo-out
    """
    from proxmatch._internal.locks import owned

    again = _screen.interruptible(lambda: "the same command starts again")
    with owned(out), again, _screen.stages("loading") as begin:
        from proxmatch.demo.output import check, write
        from proxmatch.demo.setup import REAL, TINY
        from proxmatch.demo.story import STAGES, tell

        compute("cpu", threads)
        plan = TINY if tiny else REAL
        check(plan, out)
        begin(STAGES[0], len(STAGES) + 1)
        story = tell(plan, lambda stage: begin(stage, None))
        begin("pictures and page", None)
        written = write(story, out)
    record = {
        "out": str(out),
        "page": str(written.page),
        "pictures": [str(path) for path in written.sheets],
        **written.record,
    }
    _screen.show(record, json, _table(story), *_lines(written))
    if _screen.there_is_one() if show is None else show:
        typer.launch(written.page.resolve().as_uri())


def _table(story: Story) -> RenderableType:
    """One line per method, one column per picture."""
    from proxmatch.demo.words import called

    names = [called(scene.about.name) for scene in story.scenes]
    rows = [
        (row.name, *(f"{value:.2f}" for value in (*row.psnr, row.mean)), row.strength)
        for row in story.rows
    ]
    title = f"{story.plan.damage.capitalize()} pictures, reconstructed: higher is better"
    return _screen.table(("PSNR in dB", *names, "mean", "strength"), rows, title)


def _lines(written: Written) -> list[str]:
    """What happened, the certificate and the paths, in lines of at most 80 columns."""
    from textwrap import fill

    told = written.record
    says = [fill(text, 80) for text in told["says"]]
    proved = fill(told["certificate"], 80, initial_indent="certificate  ", subsequent_indent=INDENT)
    sheets = [f"{'' if i else 'pictures':13}{path}" for i, path in enumerate(written.sheets)]
    return [*says, proved, *sheets, f"{'page':13}{written.page}"]
