"""Tidy tables of what has been computed so far: per image, per iteration, per cell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from proxmatch._internal.files import csv_text, write_together
from proxmatch.experiments.cells import Cell, Store
from proxmatch.records import PER_IMAGE, Label

Array = npt.NDArray[np.float64]

LABEL = tuple(Label().columns())
IMAGES = (*LABEL, "t", "image", *PER_IMAGE)
ITERATIONS = (*LABEL, "iteration", "psnr", "gap", "lipschitz", "images")
CELLS = (*LABEL, "kind", "seconds", "steps", "step", "status", "key")

Line = dict[str, Any]


@dataclass(frozen=True)
class ReconstructionScores:
    """The figures of one reconstruction cell, by image."""

    label: Label  # which it is
    ids: tuple[str, ...]  # of the images
    values: dict[str, Array]  # psnr, ssim, gap, lipschitz, ...: (images,), NaN where missing
    curves: Array | None  # PSNR of every image and iteration, (images, K + 1), if it was kept
    result: Line = field(repr=False)  # the cell's own JSON values


def reconstructions(cells: Iterable[Cell], store: Store) -> list[ReconstructionScores]:
    """The reconstruction cells that the store has."""
    found = []
    for cell in cells:
        if cell.kind != "reconstruction" or cell.key not in store:
            continue
        result = store.result(cell.key)
        images = result["images"]
        values = {name: np.array(images[name], dtype=np.float64) for name in PER_IMAGE}
        curves = None if result["curves"] is None else np.array(result["curves"], dtype=np.float64)
        found.append(ReconstructionScores(cell.label, tuple(images["ids"]), values, curves, result))
    return found


def image_lines(found: Iterable[ReconstructionScores]) -> list[Line]:
    """One line for each image of each reconstruction."""
    return [
        {
            **r.label.columns(),
            "t": r.result["t"],
            "image": name,
            **{column: r.result["images"][column][index] for column in PER_IMAGE},
        }
        for r in found
        for index, name in enumerate(r.ids)
    ]


def iteration_lines(found: Iterable[ReconstructionScores]) -> list[Line]:
    """One line for each iteration of each reconstruction: means over its images."""
    lines = []
    for r in found:
        means = r.result["means"]
        for k, psnr in enumerate(means["psnr"]):
            lines.append(
                {
                    **r.label.columns(),
                    "iteration": k,
                    "psnr": psnr,
                    "gap": means["gap"][k],
                    "lipschitz": means["lipschitz"].get(str(k)),
                    "images": len(r.ids),
                }
            )
    return lines


def cell_lines(cells: Sequence[Cell], store: Store) -> list[Line]:
    """One line for each cell that is there."""
    lines = []
    for cell in cells:
        if cell.key in store:
            result = store.result(cell.key)
            line: Line = {**cell.label.columns(), "kind": cell.kind, "key": cell.key}
            line |= {name: result.get(name) for name in ("seconds", "steps", "step")}
            line["status"] = result.get("status", _status(result))
            lines.append(line)
    return lines


def csv_lines(columns: Sequence[str], lines: Iterable[Line]) -> bytes:
    """Lines as CSV; a value that is missing is empty."""
    return csv_text(columns, ([line.get(c) for c in columns] for line in lines)).encode()


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> str:
    """A table in Markdown; the last ``numbers`` columns are aligned to the right."""
    rule = ["---"] * (len(header) - numbers) + ["---:"] * numbers
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, rule, *rows))


def write(
    out: Path,
    cells: Sequence[Cell],
    store: Store,
    found: Sequence[ReconstructionScores],
    parquet: bool,
) -> None:
    """Write ``images.csv``, ``iterations.csv`` and ``cells.csv``, on demand as Parquet too."""
    tables: dict[str, tuple[Sequence[str], list[Line]]] = {
        "images": (IMAGES, image_lines(found)),
        "iterations": (ITERATIONS, iteration_lines(found)),
        "cells": (CELLS, cell_lines(cells, store)),
    }
    write_together(out, {f"{name}.csv": csv_lines(*table) for name, table in tables.items()})
    if parquet:
        pa: Any = import_module("pyarrow")
        pq: Any = import_module("pyarrow.parquet")
        for name, (columns, lines) in tables.items():
            table = pa.table({c: [line.get(c) for line in lines] for c in columns})
            sink = pa.BufferOutputStream()
            pq.write_table(table, sink)
            write_together(out, {f"{name}.parquet": sink.getvalue().to_pybytes()})


def _status(result: Line) -> str:
    diverged = result.get("diverged", 0)
    return f"{diverged} diverged" if diverged else "completed"
