"""Which files of a folder are its pictures, in which order, and in which split.

Three layouts are recognized, in this order:

- CelebA's: ``img_align_celeba/`` and, beside it, ``list_eval_partition.txt``, which says of each
  picture whether it is for training (0), validation (1) or testing (2);
- a folder that holds pictures itself;
- BreCaHAD's, and that of many others: pictures in ``images/``.

No other folder is entered. Pictures are recognized by the endings in ``decoding.SUFFIXES``; hidden
files are ignored, links to files are followed. The order is the natural one (``img2`` before
``img10``).

Without a partition file the splits are runs of that order, so that neighbors (the same patient,
the same scene) stay together: the last tenth is for testing, the tenth before it for validation (a
tenth is at least one picture), the rest for training. Pictures are split, never crops.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from natsort import natsorted

from proxmatch.data.decoding import SUFFIXES
from proxmatch.errors import DataError

Split = Literal["train", "validation", "test"]

_FACES, _PARTITION = "img_align_celeba", "list_eval_partition.txt"


@dataclass(frozen=True)
class Layout:
    """Where the pictures are."""

    folder: Path  # the one that holds them
    names: list[str]  # of the files, in natural order
    aligned: bool  # their subject is at the center (CelebA)


def find(root: Path, split: Split | None) -> Layout:
    """The pictures under ``root`` that belong to ``split`` (all of them, if it is None)."""
    if not root.exists():
        raise DataError(f"there is no folder {root}: give the one that holds the images")
    if not root.is_dir():
        raise DataError(f"{root} is a file: give the folder that holds it")
    faces = root / _FACES
    if faces.is_dir():
        names = _partition(root / _PARTITION, _pictures(faces), split)
        return Layout(faces, _some(names, faces, split), aligned=True)
    folder, names = root, _pictures(root)
    if not names and (root / "images").is_dir():
        folder = root / "images"
        names = _pictures(folder)
    names = _some(names, folder, None)
    return Layout(folder, names if split is None else _run(names, split), aligned=False)


def is_picture(name: str) -> bool:
    """Whether a file of this name is taken for a picture."""
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def _pictures(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            names = [
                entry.name for entry in entries if is_picture(entry.name) and not entry.is_dir()
            ]
    except OSError as error:
        raise DataError(f"cannot list {folder}: {error.strerror}") from error
    return natsorted(sorted(names))  # a1 and a01 are the same number: the plain order decides


def _some(names: list[str], folder: Path, split: Split | None) -> list[str]:
    if not names:
        raise DataError(
            f"no image{f' for {split}' if split else ''} in {folder} (endings "
            f"{', '.join(SUFFIXES)}); subfolders are not searched: give the one that holds them"
        )
    return names


def _run(names: list[str], split: Split) -> list[str]:
    if len(names) < 3:
        raise DataError(
            f"{len(names)} picture(s) cannot be split in three; give at least 3, or do not split "
            "them (train --validation 0)"
        )
    tenth = max(1, round(len(names) / 10))
    validation, test = len(names) - 2 * tenth, len(names) - tenth
    runs = {"train": slice(validation), "validation": slice(validation, test)}
    return names[runs.get(split, slice(test, None))]


def _partition(file: Path, names: list[str], split: Split | None) -> list[str]:
    """The ``names`` that CelebA's partition file assigns to ``split``."""
    if split is None:
        return names
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise DataError(
            f"cannot read {file}, which says what is for {split}: put it there"
        ) from None
    wanted = str(get_args(Split).index(split))
    chosen = set()
    for number, line in enumerate(lines, 1):
        match line.split():
            case [name, "0" | "1" | "2" as part]:
                if part == wanted:
                    chosen.add(name)
            case []:
                pass
            case _:
                raise DataError(f"{file.name}, line {number}: not a file name and 0, 1 or 2")
    return [name for name in names if name in chosen]
