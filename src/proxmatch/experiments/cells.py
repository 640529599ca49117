"""Cells: pure functions of their settings, addressed by content, computed once.

The address of a cell is a hash of its kind, of the code that computes the kind, of its settings
(fingerprints of images and given weights among them) and of the addresses of the cells it needs. So
it is known before anything runs. Changing a setting changes the addresses of the cells that depend
on it, and no others; a cell of older code is never taken for a current one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from proxmatch._internal.files import write_together
from proxmatch._internal.provenance import CORE, code_digest
from proxmatch.records import Label

Kind = Literal["model", "adaptation", "reconstruction", "pictures", "whole", "certificate"]

#: What computes each kind, beside the core of proxmatch and ``work.py``.
CODE: dict[Kind, tuple[str, ...]] = {
    "model": ("losses", "learning"),
    "adaptation": ("losses", "learning"),
    "reconstruction": ("experiments/measure.py",),
    "pictures": ("experiments/strips.py",),
    "whole": ("experiments/strips.py",),
    "certificate": ("theory", "experiments/certificates.py"),
}


@dataclass(frozen=True)
class Cell:
    """One piece of work."""

    kind: Kind  # what is done
    key: str  # the address
    settings: Mapping[str, Any]  # what decides the result, JSON values
    needs: Mapping[str, str]  # addresses of other cells, by what they are needed as
    label: Label  # its place in the tables


@dataclass(frozen=True)
class Outcome:
    """What a cell leaves behind."""

    result: dict[str, Any]  # JSON values
    files: dict[str, bytes]  # contents by name


def cell(kind: Kind, settings: Mapping[str, Any], label: Label, **needs: Cell | None) -> Cell:
    """A cell with its address."""
    keys = {role: need.key for role, need in needs.items() if need is not None}
    code = code_digest(*CORE, "experiments/work.py", *CODE[kind])
    content = {"kind": kind, "code": code, "settings": settings, "needs": keys}
    return Cell(kind, address(content), dict(settings), keys, label)


def address(content: Any) -> str:
    """Hash of JSON values, whatever the order of their keys."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


class Store:
    """Outcomes in a folder: ``KEY.json`` each, and a folder ``KEY`` where there are files.

    The JSON file is written last and says that all is there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def __contains__(self, key: str) -> bool:
        return (self.folder / f"{key}.json").is_file()

    def result(self, key: str) -> dict[str, Any]:
        """The JSON values of a cell."""
        found: dict[str, Any] = json.loads((self.folder / f"{key}.json").read_text("utf-8"))
        return found

    def read(self, key: str) -> Outcome:
        """All of a cell."""
        folder = self.folder / key
        found = sorted(folder.iterdir()) if folder.is_dir() else []
        files = {f.name: f.read_bytes() for f in found if not f.name.startswith(".")}
        return Outcome(self.result(key), files)

    def write(self, key: str, outcome: Outcome) -> None:
        """Keep an outcome; nothing is ever half written."""
        if outcome.files:
            (self.folder / key).mkdir(exist_ok=True)
            write_together(self.folder / key, outcome.files)
        text = json.dumps(outcome.result, separators=(",", ":"), allow_nan=False) + "\n"
        write_together(self.folder, {f"{key}.json": text.encode()})
