"""An append-only record: one line of settings, then one line for each result.

A line costs the same however many there are. It is on the disk before the next one is begun, so
that a run that is killed loses at most the line it was writing, which is recognized by its missing
end and written over.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from proxmatch._internal.files import NO_LINK, write_together
from proxmatch.errors import InputError

#: Bytes at the end of a file that are looked at together.
BLOCK = 1 << 16


class Journal:
    """The journal in a file, which one process writes at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def exists(self) -> bool:
        """Whether it was begun."""
        return self.path.exists()

    def begin(self, settings: Mapping[str, Any], results: Mapping[str, Mapping[str, Any]]) -> None:
        """Write the settings and what is done already, at once, in place of anything before."""
        content = _line({"settings": settings}) + _lines(results)
        write_together(self.path.parent, {self.path.name: content})

    def append(self, results: Mapping[str, Mapping[str, Any]]) -> None:
        """Add results by name. A reader sees a result as a whole or not at all."""
        with os.fdopen(os.open(self.path, os.O_RDWR | NO_LINK), "r+b") as file:
            _drop_torn(file)
            file.write(_lines(results))
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Settings, and results by name; if a name occurs twice, the last counts.

        Raises:
            InputError: this is not a journal.
        """
        try:
            content = self.path.read_bytes()
            first, *rest = [json.loads(line) for line in content[: _whole(content)].splitlines()]
            return dict(first["settings"]), {line.pop("name"): line for line in rest}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{self.path} cannot be read ({error}); remove it") from error


def _lines(results: Mapping[str, Mapping[str, Any]]) -> bytes:
    return b"".join(_line({"name": name, **found}) for name, found in results.items())


def _line(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, allow_nan=False).encode() + b"\n"


def _whole(content: bytes) -> int:
    """How many bytes belong to lines that have an end."""
    return content.rfind(b"\n") + 1


def _drop_torn(file: BinaryIO) -> None:
    """Go to the end of a file, and cut off a last line without an end."""
    place = file.seek(0, os.SEEK_END)
    while place > 0:
        begin = max(0, place - BLOCK)
        file.seek(begin)
        whole = _whole(file.read(place - begin))
        if whole or begin == 0:
            file.seek(begin + whole)
            file.truncate()
            return
        place = begin
