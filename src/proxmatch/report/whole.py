"""Whole pictures, each in several ways, with a divider between any two: what a page begins with.

The demo shows them on its page and leaves them in its folder, where the page of an experiment takes
them from.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from proxmatch._internal.files import write_together
from proxmatch.errors import DataError
from proxmatch.records import Scene, View, Whole
from proxmatch.report.album import checked_png, uri
from proxmatch.report.folder import inside, read_json

FOLDER, INDEX = "whole", "index.json"


@dataclass(frozen=True)
class ShownScene:
    """A picture and its views, with their PNG files.

    Attributes:
        about: what there is.
        files: of each view, in order.
    """

    about: Scene
    files: tuple[bytes, ...]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        with Image.open(io.BytesIO(self.files[0])) as image:
            return image.size

    @property
    def views(self) -> list[tuple[View, str]]:
        """Each view with its data URI."""
        pairs = zip(self.about.views, self.files, strict=True)
        return [(view, uri(content)) for view, content in pairs]


@dataclass(frozen=True)
class ShownWhole:
    """The whole pictures of a page.

    Attributes:
        says: what they show, in sentences.
        scenes: at least one.
    """

    says: tuple[str, ...]
    scenes: tuple[ShownScene, ...]

    def numbers(self) -> dict[str, Any]:
        """What the script needs, by the name of the picture."""
        return {
            scene.about.name: {
                "label": scene.about.label,
                "size": list(scene.size),
                "detail": list(scene.about.detail),
            }
            for scene in self.scenes
        }


def write_whole(out: Path, says: Sequence[str], scenes: Sequence[ShownScene]) -> None:
    """Write the pictures to ``whole/`` in a folder, in place of those that are there.

    Args:
        out: an existing folder.
        says: what they show, in sentences.
        scenes: the pictures.
    """
    folder = out / FOLDER
    folder.mkdir(exist_ok=True)
    index = Whole(says=list(says), scenes=[scene.about for scene in scenes])
    files = {
        view.file: content
        for scene in scenes
        for view, content in zip(scene.about.views, scene.files, strict=True)
    }
    for old in folder.glob("*.png"):
        if old.name not in files:
            old.unlink()
    write_together(folder, files)
    text = json.dumps(index.model_dump(mode="json"), indent=1, allow_nan=False) + "\n"
    write_together(folder, {INDEX: text.encode()})


def read_whole(out: Path) -> ShownWhole | None:
    """The pictures of a folder; None if it has none.

    Raises:
        DataError: a file is missing or damaged, lies elsewhere, or has another size.
    """
    folder = out / FOLDER
    found = read_json(inside(out, f"{FOLDER}/{INDEX}"), Whole)
    if found is None:
        return None
    scenes = []
    for scene in found.scenes:
        shape: tuple[int, int] | None = None
        files = []
        for view in scene.views:
            path = inside(folder, view.file)
            if not path.is_file():
                raise DataError(f"{path} is missing, though {INDEX} names it: make it again")
            files.append(checked_png(path, shape))
            shape = shape or ShownScene(scene, tuple(files)).size
        scenes.append(ShownScene(scene, tuple(files)))
    return ShownWhole(tuple(found.says), tuple(scenes))
