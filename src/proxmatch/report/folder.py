"""Reading an experiment's folder: any part may be missing, none may be damaged."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from proxmatch.errors import DataError
from proxmatch.records import (
    PER_IMAGE,
    ClaimRecord,
    Figure,
    ImageRow,
    IterationRow,
    Manifest,
    Pictures,
    Setting,
    plain_family,
)

T = TypeVar("T")
PARTS = (
    "manifest.json",
    "images.csv",
    "iterations.csv",
    "cells.csv",
    "claims.json",
    "tables",
    "figures",
    "pictures",
)


@dataclass(frozen=True)
class Folder:
    """An experiment as it is on disk."""

    path: Path  # the folder
    manifest: Manifest  # how it was made; empty when it is missing
    images: list[ImageRow]  # rows of images.csv
    iterations: list[IterationRow]  # rows of iterations.csv
    cells: list[dict[str, str]]  # rows of cells.csv, as text
    claims: list[ClaimRecord]  # the paper's claims, tested
    tables: dict[str, str]  # Markdown by name
    figures: list[Figure]  # those whose PNG file is there, in the order of the paper
    pictures: Pictures | None  # the reconstructions, or None


def read_folder(path: Path) -> Folder:
    """Read what there is.

    Raises:
        DataError: the folder does not exist, or holds no part of an experiment, a damaged part, or
            a link to one elsewhere.
    """
    if not path.is_dir():
        raise DataError(f"{path} is not a folder: give the --out folder of `proxmatch reproduce`")
    if not any((path / part).exists() for part in PARTS):
        raise DataError(f"{path} holds no part of an experiment ({', '.join(PARTS)})")
    tables = [inside(path, f"tables/{p.name}") for p in sorted((path / "tables").glob("*.md"))]
    figures = read_json(inside(path, "figures/index.json"), list[Figure]) or []
    return Folder(
        path=path,
        manifest=read_json(inside(path, "manifest.json"), Manifest) or Manifest(),
        images=list(_images(inside(path, "images.csv"))),
        iterations=list(_iterations(inside(path, "iterations.csv"))),
        cells=[row for _, row in _rows(inside(path, "cells.csv"), ())],
        claims=read_json(inside(path, "claims.json"), list[ClaimRecord]) or [],
        tables={table.stem: _text(table) for table in tables if table.is_file()},
        figures=[f for f in figures if inside(path, f"figures/{f.name}.png").is_file()],
        pictures=read_json(inside(path, "pictures/index.json"), Pictures),
    )


def inside(folder: Path, name: str) -> Path:
    """The file of this name, which must not lead out of the folder."""
    try:
        place = (folder / name).resolve()
    except (OSError, ValueError):
        raise DataError(f"{name!r} is not a file name") from None
    if not place.is_relative_to(folder.resolve()):
        raise DataError(f"{name} lies outside {folder}: an index of it was tampered with")
    return place


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text: delete it, or make it again") from None


def read_json(path: Path, kind: type[T]) -> T | None:
    """What a file holds; None if there is none."""
    if not path.is_file():
        return None
    try:
        return TypeAdapter(kind).validate_python(json.loads(_text(path)))
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{path} is not JSON ({error}): delete it, or make it again") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "its top"
        raise DataError(f"{path}, at {where}: {first['msg']}") from None


_SETTING = tuple(field.name for field in fields(Setting))


def _images(path: Path) -> Iterator[ImageRow]:
    for where, row in _rows(path, (*_SETTING, "image", "psnr")):
        setting, number = _setting(where, row), _integer(where, row, "set")
        values = {name: _number(where, row, name) for name in ("t", *PER_IMAGE)}
        yield ImageRow(setting, number, row["image"], **values)


def _iterations(path: Path) -> Iterator[IterationRow]:
    for where, row in _rows(path, (*_SETTING, "iteration", "psnr")):
        setting, number = _setting(where, row), _integer(where, row, "set")
        psnr = _number(where, row, "psnr")
        yield IterationRow(setting, number, _integer(where, row, "iteration"), psnr)


def _rows(path: Path, needed: tuple[str, ...]) -> Iterator[tuple[str, dict[str, str]]]:
    """Each row, with the place to name in an error."""
    if not path.is_file():
        return
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            missing = [name for name in needed if name not in (reader.fieldnames or ())]
            if missing:
                raise DataError(f"{path} has no column {', '.join(missing)}")
            for row in reader:
                texts = {k: v or "" for k, v in row.items() if isinstance(k, str)}
                yield f"{path}, line {reader.line_num}", texts
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not a CSV file ({error})") from None


def _setting(where: str, row: dict[str, str]) -> Setting:
    return Setting(
        plain_family(row["family"]),
        row["source"],
        row["method"],
        _integer(where, row, "n"),
        row["problem"],
        row["relaxation"],
    )


def _number(where: str, row: dict[str, str], name: str) -> float | None:
    text = row.get(name, "")
    try:
        value = float(text) if text else math.nan
    except ValueError:
        raise DataError(f"{where}: {name} is {text!r}, not a number") from None
    return value if math.isfinite(value) else None


def _integer(where: str, row: dict[str, str], name: str) -> int:
    value = _number(where, row, name)
    return 0 if value is None else int(value)
