"""Anything at all in the folder of an experiment: a page, or an error that names what is wrong."""

from __future__ import annotations

import os
import shutil
import warnings
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from proxmatch.errors import DataError, ThinnedWarning
from proxmatch.report import write_report
from tests.fuzz import attempt, damaged, edits, parts, usual, values
from tests.report.fixture import write_json
from tests.report.html import Page
from tests.report.test_page import write_named

FILES = (
    "manifest.json", "images.csv", "iterations.csv", "cells.csv", "claims.json", "tables/main.md",
    "figures/index.json", "figures/a.png", "pictures/index.json", "p.png", "s.png",
)  # fmt: skip


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("experiment")
    write_named(out, "name")
    (out / "tables").mkdir()
    (out / "tables" / "main.md").write_text("| a | b |\n| --- | --- |\n| 1 | <b> |\n")
    return out


def check(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ThinnedWarning)
        page = attempt(lambda: write_report(folder), DataError, "", folder)
    if page is None:
        assert not (folder / "report.html").exists()
        return
    found = Page(page.read_text(encoding="utf-8"))
    assert all(address.startswith(("data:", "#")) for address in found.addresses)
    assert found.tags["script"] == 2


def changed(folder: Path, experiment: Path) -> Path:
    """A fresh copy."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(experiment, folder)
    return folder


@usual(30, share=0.4)
@given(file=st.sampled_from(FILES), changes=edits, keep=parts)
def test_damaged_files(
    tmp_path: Path, experiment: Path, file: str, changes: list[tuple[float, bytes]], keep: float
) -> None:
    folder = changed(tmp_path / "folder", experiment)
    (folder / file).write_bytes(damaged((experiment / file).read_bytes(), changes, keep))
    check(folder)


@usual(30, share=0.4)
@given(
    file=st.sampled_from([file for file in FILES if file.endswith("json")]),
    content=values,
    key=st.sampled_from(
        ["", "entries", "truth", "frames", "size", "name", "n", "settings", "data"]
    ),
)
def test_any_json(tmp_path: Path, experiment: Path, file: str, content: object, key: str) -> None:
    folder = changed(tmp_path / "folder", experiment)
    whole: object = {key: content} if key else content
    write_json(folder / file, [whole] if file in ("claims.json", "figures/index.json") else whole)
    check(folder)


@pytest.mark.parametrize("file", FILES)
def test_links_do_not_lead_out_of_the_folder(tmp_path: Path, experiment: Path, file: str) -> None:
    folder = changed(tmp_path / "folder", experiment)
    secret = tmp_path / "secret"
    shutil.move(folder / file, secret)
    (folder / file).symlink_to(secret)
    with pytest.raises(DataError, match=r"outside"):
        write_report(folder)


def test_a_pipe_in_the_place_of_a_table_is_not_waited_for(tmp_path: Path, experiment: Path) -> None:
    folder = changed(tmp_path / "folder", experiment)
    os.mkfifo(folder / "tables" / "pipe.md")
    check(folder)
