"""The story on the disk: the page, the sheets, the numbers, and the files its commands start from.

demo.html            the page
demo.json            the numbers
astronaut.png ...    damaged, reconstructed and true, with a detail
whole/               the same one by one, with an index, for `proxmatch report`
pictures/, crops/    the true pictures, and the crops that were adapted to
adapted/             the adapted denoiser
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from proxmatch._internal.files import write_json, write_together
from proxmatch.data import encode_image
from proxmatch.demo.setup import Setup
from proxmatch.demo.story import Story
from proxmatch.demo.web_page import LOOKS, page, pictures as shown
from proxmatch.demo.words import certificate, commands, python, sentences
from proxmatch.denoisers import save
from proxmatch.errors import InputError
from proxmatch.plots import plot_images, rendered
from proxmatch.records import WHOLE, write_whole

RECORD = "demo.json"
PAGE = "demo.html"
FOLDERS = ("pictures", "crops", "adapted", WHOLE)
FORMAT = "proxmatch demo"
#: Of a sheet, and the rows that are on it.
DPI = 120
SHOWN = ("wiener", "tv", "wrong", "adapted", "right")


@dataclass(frozen=True)
class Written:
    """Where everything is."""

    page: Path  # the HTML file
    sheets: tuple[Path, ...]  # one PNG file for each picture
    record: dict[str, Any]  # what demo.json holds


def check(plan: Setup, out: Path) -> None:
    """Refuse a folder where a file that no demo wrote would be overwritten.

    Raises:
        InputError: the folder holds such a file.
    """
    if (out / RECORD).exists():
        try:
            found = json.loads((out / RECORD).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            found = None
        if isinstance(found, dict) and found.get("format") == FORMAT:
            return
    ours = (RECORD, PAGE, *FOLDERS, *(f"{about.name}.png" for about in plan.pictures))
    there = [name for name in ours if (out / name).exists()]
    if there:
        raise InputError(
            f"{out / there[0]} is there already, and no demo wrote it; choose another --out"
        )


def write(story: Story, out: Path) -> Written:
    """Write everything; an earlier demo in the folder is replaced.

    Raises:
        InputError: a file that no demo wrote would be overwritten.
    """
    check(story.plan, out)
    sheets = {f"{scene.about.name}.png": sheet(story, i) for i, scene in enumerate(story.scenes)}
    told = record(story)
    write_json(out, RECORD, {"format": FORMAT, **told})  # from now on the folder is ours
    for name in FOLDERS[:2]:
        (out / name).mkdir(exist_ok=True)
    pictures = {f"{scene.about.name}.png": encode_image(scene.truth) for scene in story.scenes}
    write_together(out / "pictures", pictures)
    crops = {f"crop{i}.png": encode_image(crop) for i, crop in enumerate(story.crops)}
    for file in (out / "crops").glob("crop*.png"):
        file.unlink()  # of an earlier demo, which may have had more crops
    write_together(out / "crops", crops)
    save(story.adapted, out / "adapted")
    whole = shown(story, told["says"])
    write_whole(out, whole.about, whole.files)
    html = page(story, whole, told["certificate"], commands(story, out), python(story, out))
    write_together(out, {**sheets, PAGE: html})
    return Written(out / PAGE, tuple(out / name for name in sheets), told)


def sheet(story: Story, number: int) -> bytes:
    """One picture damaged, reconstructed in several ways and true, with details: a PNG file."""
    scene = story.scenes[number]
    views = {"measured": scene.measured}
    for row in map(story.row, SHOWN):
        views[f"{LOOKS[row.key].label}\n{row.psnr[number]:.2f} dB"] = row.images[number]
    views["truth"] = scene.truth
    height, width = scene.truth.shape[1:]
    wide = 2.3
    figure = Figure((wide * len(views), wide * (1 + height / width) + 0.7), layout="constrained")
    plot_images(views, zoom=scene.about.detail(height, width), figure=figure)
    return rendered(figure, "png", dpi=DPI)


def record(story: Story) -> dict[str, Any]:
    """Everything but pixels, as JSON values."""
    found = story.eigenvalues
    return {
        "problem": {"name": story.plan.problem, "options": list(story.plan.options)},
        "columns": ["method", *(scene.about.name for scene in story.scenes), "mean", "strength"],
        "rows": [
            [row.name, *(round(value, 3) for value in (*row.psnr, row.mean)), row.strength]
            for row in story.rows
        ],
        "diverged": {row.key: row.diverged for row in story.rows if row.diverged},
        "diagnosis": story.diagnosis.to_dict(),
        "eigenvalues": {
            "picture": found.picture,
            "iterations": list(found.at),
            "smallest": [round(value, 4) for value in found.smallest],
            "residuals": [round(value, 4) for value in found.residuals],
            "t L": round(found.product, 4),
            "proximal": found.proximal,
        },
        "certificate": certificate(found),
        "says": sentences(story),
        "adaptation": {
            "crops": len(story.crops),
            "steps": story.plan.steps,
            "seconds": round(story.seconds, 1),
        },
    }
