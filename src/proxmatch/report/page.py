"""One HTML file from the folder of an experiment (:mod:`proxmatch.report.document`)."""

from __future__ import annotations

import glob
import warnings
from pathlib import Path

from proxmatch._internal.files import UNFINISHED, write_together
from proxmatch.errors import DataError, ThinnedWarning
from proxmatch.report.album import Album, Drawn, album, figures
from proxmatch.report.data import data
from proxmatch.report.digest import Digest, digest
from proxmatch.report.document import document
from proxmatch.report.folder import Folder, read_folder
from proxmatch.report.narrative import tell
from proxmatch.report.whole import ShownWhole, read_whole

LIMIT = 15_000_000  # bytes of the page
STYLES = ("page.css", "parts.css", "whole.css")
SCRIPTS = (
    "common.js",
    "whole.js",
    "pictures.js",
    "story.js",
    "tables.js",
    "chart.js",
    "curves.js",
    "browser.js",
)


def write_report(folder: Path, out: Path | None = None, *, whole: Path | None = None) -> Path:
    """Write an experiment's page, whatever the folder holds so far.

    Args:
        folder: what ``proxmatch reproduce`` wrote.
        out: the file; ``report.html`` in the folder by default. Its folder is made.
        whole: what ``proxmatch demo`` wrote: the page begins with its whole pictures.

    Returns:
        The file.

    Raises:
        DataError: the folder holds nothing of an experiment or something damaged, or the page
            would be larger than 15 MB even without pictures.

    Warns:
        ThinnedWarning: pictures were compressed or left out.

    Example:
        >>> Path("manifest.json").write_text('{"scale": "quick"}')
        18
        >>> write_report(Path()).name
        'report.html'
    """
    read = read_folder(folder)
    seen = read_whole(folder if whole is None else whole)
    if seen is None and whole is not None:
        raise DataError(f"{whole} holds no whole pictures: give the --out folder of a demo")
    page, notes = render(read, LIMIT, seen)
    place = folder / "report.html" if out is None else out
    place.parent.mkdir(parents=True, exist_ok=True)
    write_together(place.parent, {place.name: page})
    for left in place.parent.glob(f".{glob.escape(place.name[:40])}.*{UNFINISHED}"):
        left.unlink(missing_ok=True)  # by a run that was killed
    if notes:
        warnings.warn(ThinnedWarning(" ".join(notes)), stacklevel=2)
    return place


def render(folder: Folder, limit: int, whole: ShownWhole | None = None) -> tuple[bytes, list[str]]:
    """The page of at most ``limit`` bytes, and what was done to the pictures to make it fit."""
    drawn, notes = figures(folder.path, folder.figures)
    said = digest(folder)
    bare = _fill(folder, said, drawn, None, notes, whole)
    room = limit - len(bare)
    if folder.pictures is None and room >= 0:
        return bare, notes
    while folder.pictures is not None and room > 0:
        shown = album(folder.path, folder.pictures, room)
        done = [*notes, *shown.notes]
        page = _fill(folder, said, drawn, shown, done, whole)
        if len(page) <= limit:
            return page, done
        room -= len(page) - limit
    raise DataError(
        f"the page would have {len(bare) / 1e6:.1f} MB without any reconstruction: "
        f"at most {limit / 1e6:.1f} are allowed; take figures out of {folder.path / 'figures'}"
    )


def _fill(
    folder: Folder,
    said: Digest,
    drawn: Drawn,
    shown: Album | None,
    notes: list[str],
    whole: ShownWhole | None,
) -> bytes:
    story = tell(said, folder.pictures, shown, folder.cells)
    numbers = data(folder, said, story, shown)
    if whole is not None:
        numbers["whole"] = whole.numbers()
    return document(
        "report.html.j2",
        STYLES,
        SCRIPTS,
        numbers,
        **vars(said),
        drawn=drawn,
        folder=folder,
        manifest=folder.manifest,
        story=story,
        shown=shown,
        whole=whole,
        notes=notes,
    )
