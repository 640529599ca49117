"""The numbers and pictures that the page's scripts draw, as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from proxmatch.records import ImageRow, Pictures, Setting
from proxmatch.report import wording
from proxmatch.report.album import Album
from proxmatch.report.digest import Digest
from proxmatch.report.folder import Folder
from proxmatch.report.narrative import Narrative
from proxmatch.report.summary import Curve, Summary
from proxmatch.report.table_views import order_relaxations


def data(
    folder: Folder, digest: Digest, story: Narrative | None, album: Album | None
) -> dict[str, Any]:
    """Everything that the scripts draw; a part with nothing to show is empty."""
    settings = [c.setting for c in digest.cells] + [c.setting for c in digest.curves]
    settings += [strip.setting for strip, _ in album.strips] if album else []
    return {
        "methods": {name: asdict(style) for name, style in digest.looks.items()},
        "denoisers": [
            {"family": b.family, "source": b.source, "label": wording.denoiser(b)}
            for b in digest.blocks
        ],
        "relaxations": [
            {"name": name, "label": wording.relaxation(name)}
            for name in order_relaxations(s.relaxation for s in settings)
        ],
        "claimed": [wording.denoiser(block) for block in digest.claimed],
        "cells": [_cell(cell) for cell in digest.cells],
        "curves": [_curve(curve) for curve in digest.curves],
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
        "pictures": _pictures(folder.pictures, album, folder.images)
        if folder.pictures and album
        else None,
    }


def _cell(cell: Summary) -> dict[str, Any]:
    return asdict(cell.setting) | {
        "psnr": _short(cell.psnr),
        "gap": _short(cell.gap),
        "images": cell.images,
        "sets": [[_short(psnr), _short(gap)] for psnr, gap in cell.sets],
    }


def _curve(curve: Curve) -> dict[str, Any]:
    return asdict(curve.setting) | {
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
        key = asdict(strip.setting)
        psnr = measured.get((strip.setting, strip.set, strip.image))
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
