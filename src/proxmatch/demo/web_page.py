"""The page of the demo: one HTML file of the report's assets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from proxmatch._internal.palette import BLUE, BROWN, GRAY, RED
from proxmatch.data import encode_image
from proxmatch.demo.sheet import detail
from proxmatch.demo.story import Scene, Story
from proxmatch.demo.words import called, count, listed
from proxmatch.methods import INK
from proxmatch.report.album import uri
from proxmatch.report.document import document
from proxmatch.report.method_styles import Style

STYLES = ("page.css", "parts.css", "demo.css")
SCRIPTS = ("common.js", "chart.js", "demo.js")
#: How the rows look.
LOOKS = {
    "wrong": Style("wrong denoiser", GRAY, "2 3", "square"),
    "adapted": Style("adapted", RED, marker="diamond"),
    "right": Style("right denoiser", INK, "9 3"),
    "wiener": Style("Wiener filter", BLUE, "8 3 2 3", "square", False),
    "tv": Style("total variation", BROWN, "5 3", "triangle", False),
    "none": Style("no denoiser", BROWN, "2 3", "cross"),
}


@dataclass(frozen=True)
class Stage:
    """One way to look at a picture.

    Attributes:
        key: of a row, ``measured`` or ``truth``.
        label: what it is.
        psnr: in dB, of a row.
        picture: a data URI.
    """

    key: str
    label: str
    psnr: float | None
    picture: str


def page(story: Story, says: Sequence[str], certificate: str, commands: str, python: str) -> bytes:
    """The page.

    Args:
        story: what happened.
        says: the same in sentences.
        certificate: in one line.
        commands: that do the same.
        python: likewise.
    """
    plan = story.plan
    best = [max(row.psnr[i] for row in story.rows) for i in range(len(story.scenes))]
    return document(
        "demo.html.j2",
        STYLES,
        SCRIPTS,
        _numbers(story),
        says=says,
        certificate=certificate,
        commands=commands,
        python=python,
        story=story,
        plan=plan,
        rows=story.rows,
        looks=LOOKS,
        best=best,
        best_mean=max(row.mean for row in story.rows),
        scenes=[(scene, _stages(story, i)) for i, scene in enumerate(story.scenes)],
        crops=[uri(encode_image(crop)) for crop in story.crops],
        crop_names=listed([called(name) for name in plan.others]),
        crop_count=count(len(story.crops)),
        judged_count=count(min(plan.judged, len(story.crops))),
        called=called,
    )


def _stages(story: Story, number: int) -> list[Stage]:
    scene = story.scenes[number]
    return [
        Stage("measured", "measured", None, _png(scene.measured)),
        *(
            Stage(row.key, LOOKS[row.key].label, row.psnr[number], _png(row.images[number]))
            for row in story.rows
        ),
        Stage("truth", "truth", None, _png(scene.truth)),
    ]


def _numbers(story: Story) -> dict[str, Any]:
    return {
        "methods": {key: asdict(style) for key, style in LOOKS.items()},
        "warm": story.warm,
        "pictures": {scene.about.name: _of(story, i) for i, scene in enumerate(story.scenes)},
    }


def _of(story: Story, number: int) -> dict[str, Any]:
    scene: Scene = story.scenes[number]
    height, width = scene.truth.shape[1:]
    return {
        "label": called(scene.about.name),
        "size": [width, height],
        "detail": list(detail(scene.about, height, width)),
        "curves": {
            row.key: [round(value, 3) for value in row.curves[number]] for row in story.rows
        },
    }


def _png(image: Tensor) -> str:
    return uri(encode_image(image))
