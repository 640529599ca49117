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

from proxmatch._internal.files import write_json, write_together
from proxmatch.data import encode_image
from proxmatch.demo.setup import Setup
from proxmatch.demo.sheet import sheet
from proxmatch.demo.story import Story
from proxmatch.demo.web_page import page, pictures as shown
from proxmatch.demo.words import certificate, commands, python, sentences
from proxmatch.denoisers import save
from proxmatch.errors import InputError
from proxmatch.records import WHOLE, write_whole

RECORD = "demo.json"
PAGE = "demo.html"
FOLDERS = ("pictures", "crops", "adapted", WHOLE)
FORMAT = "proxmatch demo"


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
