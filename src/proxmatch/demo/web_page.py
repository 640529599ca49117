"""The page of the demo: one HTML file of the report's assets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from torch import Tensor

from proxmatch._internal.palette import BLUE, BROWN, GRAY, RED
from proxmatch.data import encode_image
from proxmatch.demo.story import Story
from proxmatch.demo.words import called, count, listed
from proxmatch.methods import INK
from proxmatch.records import WholePicture, WholeView
from proxmatch.report.album import uri
from proxmatch.report.document import document
from proxmatch.report.method_styles import Style
from proxmatch.report.scenes import ShownPicture, ShownPictures

STYLES = ("page.css", "parts.css", "whole.css", "demo.css")
SCRIPTS = ("common.js", "whole.js", "chart.js", "demo.js")
#: How the rows look.
LOOKS = {
    "wrong": Style("wrong denoiser", GRAY, "2 3", "square"),
    "adapted": Style("adapted", RED, marker="diamond"),
    "right": Style("right denoiser", INK, "9 3"),
    "wiener": Style("Wiener filter", BLUE, "8 3 2 3", "square", False),
    "tv": Style("total variation", BROWN, "5 3", "triangle", False),
    "none": Style("no denoiser", BROWN, "2 3", "cross"),
}


def pictures(story: Story, says: Sequence[str]) -> ShownPictures:
    """The whole pictures: measured, by every method, and true."""
    return ShownPictures(tuple(says), tuple(_scene(story, i) for i in range(len(story.scenes))))


def page(story: Story, whole: ShownPictures, certificate: str, commands: str, python: str) -> bytes:
    """The page."""
    plan = story.plan
    best = [max(row.psnr[i] for row in story.rows) for i in range(len(story.scenes))]
    return document(
        "demo.html.j2",
        STYLES,
        SCRIPTS,
        _numbers(story, whole),
        whole=whole,
        certificate=certificate,
        commands=commands,
        python=python,
        story=story,
        plan=plan,
        rows=story.rows,
        looks=LOOKS,
        best=best,
        best_mean=max(row.mean for row in story.rows),
        crops=[uri(encode_image(crop)) for crop in story.crops],
        crop_names=listed([called(name) for name in plan.others]),
        crop_count=count(len(story.crops)),
        judged_count=count(min(plan.judged, len(story.crops))),
    )


def _scene(story: Story, number: int) -> ShownPicture:
    scene = story.scenes[number]
    shown: list[tuple[str, str, float | None, Tensor]] = [
        ("measured", "measured", None, scene.measured),
        *(
            (row.key, LOOKS[row.key].label, row.psnr[number], row.images[number])
            for row in story.rows
        ),
        ("truth", "truth", None, scene.truth),
    ]
    name = scene.about.name
    about = WholePicture(
        name=name,
        label=called(name),
        detail=scene.about.detail(*scene.truth.shape[1:]),
        views=[
            WholeView(key=key, label=label, psnr=psnr, file=f"{name}-{key}.png")
            for key, label, psnr, _ in shown
        ],
    )
    return ShownPicture(about, tuple(encode_image(image) for *_, image in shown))


def _numbers(story: Story, whole: ShownPictures) -> dict[str, Any]:
    return {
        "methods": {key: asdict(style) for key, style in LOOKS.items()},
        "warm": story.warm,
        "whole": whole.numbers(),
        "curves": {
            scene.about.name: {
                row.key: [round(value, 3) for value in row.curves[number]] for row in story.rows
            }
            for number, scene in enumerate(story.scenes)
        },
    }
