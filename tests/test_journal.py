"""Journals: nothing is lost but the line that was being written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from proxmatch._internal import journal as module
from proxmatch._internal.journal import Journal
from proxmatch.errors import InputError

RESULTS = st.dictionaries(st.text(max_size=20), st.dictionaries(st.text(), st.integers()))


@given(groups=st.lists(RESULTS, max_size=5), block=st.integers(1, 40))
def test_what_is_written_is_read(
    groups: list[dict[str, Any]], block: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    journal = Journal(tmp_path_factory.mktemp("journal") / "j.jsonl")
    journal.begin({"a": 1}, {})
    expected: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        for group in groups:
            told = {n: {k: v for k, v in r.items() if k != "name"} for n, r in group.items()}
            journal.append(told)
            expected |= told
    assert journal.read() == ({"a": 1}, expected)


@given(cut=st.integers(0, 200), block=st.integers(1, 40))
def test_a_cut_costs_the_line_that_it_hits_and_those_behind_it(
    cut: int, block: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever the length at which the disk was full or the power gone."""
    journal = Journal(tmp_path_factory.mktemp("journal") / "j.jsonl")
    journal.begin({}, {})
    journal.append({f"{n}": {"value": n} for n in range(8)})
    content = journal.path.read_bytes()
    begin = content.index(b"\n") + 1
    journal.path.write_bytes(content[: begin + cut])
    whole = content[begin : begin + cut].count(b"\n")
    assert list(journal.read()[1]) == [f"{n}" for n in range(whole)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        journal.append({"new": {"value": -1}})
    assert list(journal.read()[1]) == [*(f"{n}" for n in range(whole)), "new"]


@pytest.mark.parametrize("content", [b"", b"nonsense\n", b"[1]\n", b'{"settings": 3}\n'])
def test_what_is_no_journal_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"cannot be read .* remove it"):
        Journal(path).read()


def test_a_line_costs_the_same_however_many_there_are(tmp_path: Path) -> None:
    """Bytes that are read and written for one more line."""
    journal = Journal(tmp_path / "j.jsonl")
    journal.begin({}, {})
    journal.append({f"{n}": {"value": 0.5} for n in range(5000)})
    before = journal.path.stat()
    journal.append({"one more": {"value": 0.5}})
    after = journal.path.stat()
    assert after.st_ino == before.st_ino  # appended to, not written anew
    assert after.st_size - before.st_size == len(json.dumps({"name": "one more", "value": 0.5})) + 1
