"""The numbers and pictures that the page's scripts draw, as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from proxmatch.report import words
from proxmatch.report.colours import Style
from proxmatch.report.pictures import Album
from proxmatch.report.schema import ImageRow, Pictures, Setting, Strip
from proxmatch.report.story import Story
from proxmatch.report.summary import Cell, Curve, Denoiser
from proxmatch.report.tables import order_relaxations


def data(
    cells: list[Cell],
    curves: list[Curve],
    blocks: list[Denoiser],
    looks: dict[str, Style],
    story: Story | None,
    pictures: Pictures | None,
    album: Album | None,
    rows: list[ImageRow],
    claimed: list[Denoiser],
) -> dict[str, Any]:
    """All of it; each part is empty when there is nothing to show."""
    settings = [item.setting for item in (*cells, *curves)]
    strips = [strip for strip, _ in album.strips] if album else []
    relaxations = [s.relaxation for s in settings] + [s.relaxation for s in strips]
    return {
        "methods": {name: asdict(style) for name, style in looks.items()},
        "denoisers": [
            {"family": b.family, "source": b.source, "label": words.denoiser(b)} for b in blocks
        ],
        "relaxations": [
            {"name": name, "label": words.relaxation(name)}
            for name in order_relaxations(relaxations)
        ],
        "claimed": [words.denoiser(block) for block in claimed],
        "cells": [_cell(cell) for cell in cells],
        "curves": [_curve(curve) for curve in curves],
        "story": None
        if story is None
        else {
            "family": story.denoiser.family,
            "source": story.denoiser.source,
            "problem": story.problem,
            "method": story.method,
            "n": story.n,
            "relaxation": story.relaxation,
            "image": story.image,
        },
        "pictures": None if pictures is None or album is None else _pictures(pictures, album, rows),
    }


def _key(setting: Setting | Strip) -> dict[str, Any]:
    return {
        "family": setting.family,
        "source": setting.source,
        "method": setting.method,
        "n": setting.n,
        "problem": setting.problem,
        "relaxation": setting.relaxation,
    }


def _cell(cell: Cell) -> dict[str, Any]:
    return _key(cell.setting) | {
        "psnr": _short(cell.psnr),
        "gap": _short(cell.gap),
        "images": cell.images,
        "sets": [[_short(psnr), _short(gap)] for psnr, gap in cell.sets],
    }


def _curve(curve: Curve) -> dict[str, Any]:
    return _key(curve.setting) | {
        "iterations": curve.iterations,
        "psnr": [_short(v) for v in curve.psnr],
        "low": [_short(v) for v in curve.low],
        "high": [_short(v) for v in curve.high],
        "sets": curve.sets,
    }


def _pictures(pictures: Pictures, album: Album, rows: list[ImageRow]) -> dict[str, Any]:
    measured: dict[tuple[Setting, int, str], float | None] = {
        (row.setting, row.set, row.image): row.psnr for row in rows
    }
    entries = []
    for strip, place in album.strips:
        key = _key(strip)
        psnr = measured.get((Setting(**key), strip.set, strip.image))
        entries.append(
            key | {"set": strip.set, "image": strip.image, "file": place, "psnr": _short(psnr)}
        )
    return {
        "size": pictures.size,
        "frames": pictures.frames,
        "entries": entries,
        "truth": album.truth,
        "degraded": album.degraded,
        "files": album.files,
    }


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
