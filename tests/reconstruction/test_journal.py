from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from proxmatch.errors import InputError
from proxmatch.reconstruction.journal import FORMER, JOURNAL, Journal

SETTINGS: dict[str, Any] = {"model": "a", "seed": 0}
ONE, TWO = {"status": "completed", "psnr": 30.5}, {"status": "diverged", "psnr": None}


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    made = Journal(tmp_path, SETTINGS)
    made.begin()
    return made


def test_what_is_appended_is_there_in_order(journal: Journal) -> None:
    journal.append({"a.png": ONE, "b.png": TWO})
    journal.append({"a.png": TWO})
    assert list(journal.results()) == [("a.png", ONE), ("b.png", TWO), ("a.png", TWO)]


@pytest.mark.parametrize("cut", [1, 20, 39])
def test_a_line_that_was_cut_off_is_not_counted_and_does_no_harm(
    journal: Journal, cut: int
) -> None:
    journal.append({"a.png": ONE})
    journal.append({"b.png": ONE})
    content = journal.path.read_bytes()
    journal.path.write_bytes(content[:-cut])
    assert [name for name, _ in journal.results()] == ["a.png"]
    journal.append({"c.png": TWO})
    assert list(journal.results()) == [("a.png", ONE), ("c.png", TWO)]


def test_what_was_written_is_not_written_again(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cost of a result is that of its line, however many there are."""
    written: list[int] = []
    real = os.fsync

    def count(handle: int) -> None:
        written.append(os.fstat(handle).st_size)
        real(handle)

    monkeypatch.setattr(os, "fsync", count)
    inode = journal.path.stat().st_ino
    for number in range(50):
        journal.append({f"{number:03}.png": ONE})
    assert journal.path.stat().st_ino == inode
    grown = {b - a for a, b in pairwise(written)}
    assert len(grown) == 1


def test_results_of_other_settings_are_refused(journal: Journal, tmp_path: Path) -> None:
    other = Journal(tmp_path, {**SETTINGS, "seed": 1})
    with pytest.raises(InputError, match=r"other settings \(seed\)"):
        list(other.results())


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]\n", b'{"settings": 3}\n', b"\xff\n", b'{"settings": {}}\n[1]\n']
)
def test_what_is_no_journal_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / JOURNAL).write_bytes(content)
    with pytest.raises(InputError, match=JOURNAL):
        list(Journal(tmp_path, {}).results())


def test_a_folder_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    (tmp_path / FORMER).write_text(json.dumps({"settings": SETTINGS, "files": {"a.png": ONE}}))
    journal = Journal(tmp_path, SETTINGS)
    assert journal.exists()
    assert list(journal.results()) == [("a.png", ONE)]
    journal.begin()
    journal.append({"b.png": TWO})
    assert list(journal.results()) == [("a.png", ONE), ("b.png", TWO)]
    assert not (tmp_path / FORMER).exists()
    (tmp_path / JOURNAL).unlink()
    (tmp_path / FORMER).write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        list(journal.results())
