"""Whole pictures, each in several ways, with a divider between any two: what a page begins with.

A demo and an experiment on embedded pictures leave them in their folders. The page of an experiment
shows its own, or those of a demo.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from proxmatch.errors import DataError
from proxmatch.records import WHOLE, WHOLE_INDEX, WholePicture, WholePictures, WholeView
from proxmatch.report.album import checked_png, uri
from proxmatch.report.folder import inside, read_json


@dataclass(frozen=True)
class ShownPicture:
    """A picture and its views, with their PNG files."""

    about: WholePicture  # what there is
    files: tuple[bytes, ...]  # of each view, in order

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        with Image.open(io.BytesIO(self.files[0])) as image:
            return image.size

    @property
    def views(self) -> list[tuple[WholeView, str]]:
        """Each view with its data URI."""
        pairs = zip(self.about.views, self.files, strict=True)
        return [(view, uri(content)) for view, content in pairs]


@dataclass(frozen=True)
class ShownPictures:
    """The whole pictures of a page."""

    says: tuple[str, ...]  # what they show, in sentences
    scenes: tuple[ShownPicture, ...]  # at least one

    @property
    def files(self) -> dict[str, bytes]:
        """All files, by name."""
        return {
            view.file: content
            for scene in self.scenes
            for view, content in zip(scene.about.views, scene.files, strict=True)
        }

    @property
    def about(self) -> WholePictures:
        """The pictures and their views, as they are recorded."""
        return WholePictures(says=list(self.says), scenes=[scene.about for scene in self.scenes])

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


def read_whole(out: Path) -> ShownPictures | None:
    """The pictures of a folder; None if it has none.

    Raises:
        DataError: a file is missing or damaged, lies elsewhere, or has another size.
    """
    folder = out / WHOLE
    found = read_json(inside(out, f"{WHOLE}/{WHOLE_INDEX}"), WholePictures)
    if found is None:
        return None
    scenes = []
    for scene in found.scenes:
        shape: tuple[int, int] | None = None
        files = []
        for view in scene.views:
            path = inside(folder, view.file)
            if not path.is_file():
                raise DataError(f"{path} is missing, though {WHOLE_INDEX} names it: make it again")
            files.append(checked_png(path, shape))
            shape = shape or ShownPicture(scene, tuple(files)).size
        scenes.append(ShownPicture(scene, tuple(files)))
    return ShownPictures(tuple(found.says), tuple(scenes))
