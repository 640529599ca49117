"""A figure with its texts, and how it is written: PNG, PDF and the numbers behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from proxmatch._internal.files import write_json, write_together
from proxmatch.experiments.collect import Line, csv_lines
from proxmatch.plots import rendered

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 200


@dataclass(frozen=True)
class Drawn:
    """One figure."""

    name: str  # of its files
    title: str  # a short one
    caption: str  # what there is to see
    alt: str  # for those who cannot see it
    figure: Figure  # the drawing
    lines: list[Line] = field(repr=False)  # the numbers behind it


def figure_files(figure: Figure, name: str) -> dict[str, bytes]:
    """A figure as ``NAME.png`` and ``NAME.pdf``, the same bytes every time."""
    return {
        f"{name}.png": rendered(figure, "png", dpi=DPI),
        f"{name}.pdf": rendered(figure, "pdf", metadata={"CreationDate": None}),
    }


def write(out: Path, drawn: Sequence[Drawn], others: Sequence[dict[str, str]] = ()) -> None:
    """Write ``figures/NAME.{png,pdf,csv}`` and ``figures/index.json``."""
    folder = out / "figures"
    folder.mkdir(exist_ok=True)
    for one in drawn:
        columns = list(dict.fromkeys(column for line in one.lines for column in line))
        table = {f"{one.name}.csv": csv_lines(columns, one.lines)}
        write_together(folder, {**table, **figure_files(one.figure, one.name)})
    index = [
        *({"name": d.name, "title": d.title, "caption": d.caption, "alt": d.alt} for d in drawn),
        *others,
    ]
    write_json(folder, "index.json", index)
    names = {entry["name"] for entry in index}
    for file in folder.iterdir():
        if file.suffix in (".png", ".pdf", ".csv") and file.stem not in names:
            file.unlink()  # of an earlier state of the run
