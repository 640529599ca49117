"""A folder of reconstructions to look at: before/after sheets, the numbers as CSV, and a page.

sheets/NAME.jpg    measured, reconstructed, and the truth where it is known, with a detail
metrics.csv        one line per picture
index.html         all of them on one page, which opens offline
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from proxmatch._internal.files import csv_text, write_together
from proxmatch.data import read_file
from proxmatch.plots import plot_images, rendered
from proxmatch.report.document import document

#: The number of sheets that are drawn, at most.
MOST = 200
COLUMNS = ("file", "source", "size", "status", "steps", "start", "psnr", "ssim")

#: What was measured and the truth if it is known, ``(C, H, W)`` each, by the name of a result.
Before = Callable[[str], tuple[Tensor, Tensor | None] | None]


def write_sheets(
    out: Path, results: Mapping[str, Mapping[str, Any]], before: Before, title: str
) -> Path:
    """Write the sheets, the table and the page of a finished folder; earlier ones are replaced.

    Returns:
        The page.
    """
    sheets: dict[str, bytes] = {}
    for name in list(results)[:MOST]:
        found = before(name)
        if found is not None:
            sheets[f"{Path(name).stem}.jpg"] = sheet(out / name, *found, results[name])
    (out / "sheets").mkdir(exist_ok=True)
    write_together(out / "sheets", sheets)
    rows = [
        (name, f"sheets/{Path(name).stem}.jpg" if f"{Path(name).stem}.jpg" in sheets else None, one)
        for name, one in results.items()
    ]
    page = document(
        "sheets.html.j2", ("page.css", "sheets.css"), (), {}, title=title, rows=rows[:MOST],
        total=len(results), simulated=any("psnr" in one for one in results.values()),
        means=means(results), local_pictures=True,
    )  # fmt: skip
    write_together(out, {"metrics.csv": metrics_csv(results).encode(), "index.html": page})
    return out / "index.html"


def sheet(result: Path, measured: Tensor, truth: Tensor | None, told: Mapping[str, Any]) -> bytes:
    """Measured, reconstructed and true, as a JPEG file."""
    from matplotlib.figure import Figure

    image = read_file(result, len(measured)).pixels
    score = f"\n{told['psnr']:.2f} dB" if told.get("psnr") is not None else ""
    shown = {"measured": measured, f"reconstruction{score}": image}
    if truth is not None:
        shown["truth"] = truth
    tall = 3.2 * image.shape[1] / image.shape[2]
    figure = Figure(figsize=(3.2 * len(shown), tall + 3.7), layout="constrained")
    plot_images(shown, figure=figure)
    return rendered(figure, "jpeg", dpi=100, pil_kwargs={"quality": 90})


def metrics_csv(results: Mapping[str, Mapping[str, Any]]) -> str:
    """One line per picture; columns that no picture has are left out."""
    columns = [c for c in COLUMNS[1:] if any(c in one for one in results.values())]
    rows = ([name, *(one.get(column) for column in columns)] for name, one in results.items())
    return csv_text([COLUMNS[0], *columns], rows)


def means(results: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Mean of each number over the pictures that have it."""
    found = {}
    for column in ("start", "psnr", "ssim"):
        values = [v for one in results.values() if isinstance(v := one.get(column), float)]
        if values:
            found[column] = sum(values) / len(values)
    return found
