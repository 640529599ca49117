"""``proxmatch demo``: the paper's experiment in three minutes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proxmatch.commands import _experiment, _screen
from proxmatch.commands._options import Json, Out

if TYPE_CHECKING:
    from rich.table import Table

VERDICTS = {"holds": "yes", "does not hold": "no", "undecided": "?"}


def command(
    out: Out = Path("demo-out"),
    workers: Annotated[
        int | None, typer.Option(min=1, help="processes (default: one a core)")
    ] = None,
    show: Annotated[
        bool | None,
        typer.Option("--open/--no-open", help="the page (default: where there is a screen)"),
    ] = None,
    json: Json = False,
) -> None:
    """Deploy histology denoisers on photographs, adapt them with 1 and 5 crops, and compare.

    Both families and problems, the plain baselines, the paper's claims in small, a certificate and
    the page, in three minutes on two cores. What was interrupted goes on.

    Example: proxmatch demo --out demo-out
    """
    result, page = _experiment.run("demo", out, workers=workers)
    from proxmatch.experiments.scales import limits
    from proxmatch.experiments.sizes import SCALES

    claims = _read(out / "claims.json")
    drawn = _read(out / "figures" / "index.json")
    certified = [entry["caption"] for entry in drawn if entry["name"].startswith("certificate")]
    pictures = [str(out / "figures" / f"{entry['name']}.png") for entry in drawn]
    overview = next(table for table in result.tables if table.name == "overview")
    thinned = limits(SCALES["demo"]())
    chosen = _chosen(out)
    record = {
        "out": str(out),
        "page": str(page),
        "pictures": pictures,
        "columns": overview.columns,
        "rows": [
            [entry if entry is None else str(entry) for entry in row]
            for _, rows in overview.groups
            for row in rows
        ],
        "chosen": chosen,
        "claims": {claim["id"]: claim["verdict"] for claim in claims},
        "thinned": thinned,
        "cells": {"computed": result.computed, "planned": result.cells},
    }
    _screen.show(
        record,
        json,
        overview.rich(),
        _verdicts(claims),
        _lines("auto chose", ["; ".join(f"{who}: {what}" for who, what in chosen.items())]),
        _lines("certificate", certified),
        _lines("in small", thinned),
        "\n".join(f"{'' if i else 'pictures':13}{path}" for i, path in enumerate(pictures)),
        f"{'page':13}{page}",
    )
    if _screen.there_is_one() if show is None else show:
        typer.launch(page.resolve().as_uri())


def _verdicts(claims: list[dict[str, Any]]) -> Table:
    """One line a claim, one column a denoiser and problem."""
    from rich.table import Table

    from proxmatch.experiments.methods import FAMILIES
    from proxmatch.experiments.tables import SHORT

    columns = dict.fromkeys((claim["family"], claim["problem"]) for claim in claims)
    lines: dict[str, dict[tuple[str, str], str]] = {}
    for claim in claims:
        says = claim["id"].partition("/")[0].replace("-", " ")
        line = lines.setdefault(says + (f", n = {claim['n']}" if claim["n"] else ""), {})
        line[claim["family"], claim["problem"]] = VERDICTS[claim["verdict"]]
    counts = [f"{sum(claim['verdict'] == name for claim in claims)} {name}" for name in VERDICTS]
    table = Table(
        title="The paper's claims, in small",
        caption=f"{', '.join(counts)} (?: the interval has both signs). Proposed: PM for LPN, "
        "AdaPM for GS.",
    )
    table.add_column("claim")
    for family, problem in columns:
        table.add_column(f"{FAMILIES[family]}\n{SHORT[problem]}", justify="center")
    for says, line in lines.items():
        table.add_row(says, *(line.get(column, "") for column in columns))
    return table


def _lines(name: str, texts: list[str]) -> str:
    """A name and what there is to say, in lines of at most 80 columns."""
    from textwrap import fill

    return "\n".join(
        fill(text, 80, initial_indent=f"{'' if i else name:13}", subsequent_indent=13 * " ")
        for i, text in enumerate(texts)
    )


def _chosen(out: Path) -> dict[str, str]:
    """What ``auto`` returned in each case."""
    import csv

    from proxmatch.experiments.methods import FAMILIES
    from proxmatch.experiments.tables import SHORT

    return {
        f"{FAMILIES[row['family']]} {SHORT[row['problem']]} n = {row['n']}": row[
            "status"
        ].removeprefix("chose ")
        for row in csv.DictReader((out / "cells.csv").read_text("utf-8").splitlines())
        if (row["method"], row["kind"]) == ("auto", "adaptation")
    }


def _read(file: Path) -> list[dict[str, Any]]:
    import json

    found: list[dict[str, Any]] = json.loads(file.read_text("utf-8"))
    return found
