"""Writing files so that nothing is ever half written, and nothing half written is left behind."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

#: Ending of the name of a file that is being written, or whose writer was killed.
UNFINISHED = ".unfinished"
#: For a file that is written to in its place: a link there would lead to a file of somebody else.
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
#: Files that wait for the disk at the same time.
WAITING = 8


def write_together(folder: Path, files: dict[str, bytes]) -> None:
    """Write all files under temporary names, flush them to the disk, and move them into place.

    Args:
        folder: an existing folder.
        files: contents by name.

    Raises:
        OSError: nothing, or the first few files, have been replaced.
    """
    written: list[tuple[str, Path]] = []
    try:
        for name, content in files.items():
            handle, temporary = tempfile.mkstemp(UNFINISHED, f".{name[:40]}.", folder)
            written.append((temporary, folder / name))
            with os.fdopen(handle, "wb") as file:
                file.write(content)
        with ThreadPoolExecutor(WAITING) as waiting:  # hardly longer than for one file
            list(waiting.map(_to_disk, (temporary for temporary, _ in written)))
        for temporary, place in written:
            os.chmod(temporary, 0o644)
            os.replace(temporary, place)
    finally:
        for temporary, _ in written:
            Path(temporary).unlink(missing_ok=True)


def write_json(folder: Path, name: str, content: Any) -> None:
    """Write JSON for people and machines; NaN is an error."""
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    write_together(folder, {name: text.encode()})


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table as CSV; None is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def _to_disk(path: str) -> None:
    """Wait until a file is on the disk."""
    with open(path, "r+b") as file:
        os.fsync(file.fileno())


def clear_unfinished(folder: Path, unless: str) -> None:
    """Remove what a killed process left half written in a folder that nobody else writes to now.

    Args:
        folder: to look in, and in the folders below it; links are not followed.
        unless: name of a file that marks a folder below as in use; it is left alone.
    """
    for place, below, names in os.walk(folder):
        if unless in names and Path(place) != folder:
            below.clear()
            continue
        for name in names:
            if name.startswith(".") and name.endswith(UNFINISHED):
                (Path(place) / name).unlink(missing_ok=True)
