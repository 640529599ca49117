"""The demo with next to no work in it, and what the real one promises."""

from __future__ import annotations

import contextlib
import csv
import io
import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import pytest

from proxmatch import cli
from proxmatch.experiments import drawn, report, sizes
from proxmatch.experiments.inputs import look
from proxmatch.experiments.plan import plan
from proxmatch.experiments.scales import Row, Scale, limits
from proxmatch.learning.auto import Search

REAL = sizes.demo()


def small() -> Scale:
    """One image and one step; no total variation, of the gradient-step denoisers only the ends."""
    none = {"gap_images": 0, "lipschitz_images": 0, "test_images": 1, "chosen_images": 0}
    families = {}
    for name, family in REAL.families.items():
        rows = family.rows if name == "lpn" else family.rows[:2]
        changes = {
            "rows": tuple(_once(row, none) for row in rows),
            "max_steps": 1,
            "strengths": (1.0,),
            "auto": Search((1.0, 0.2), crops=1, steps=0, compare=False),
        }
        families[name] = family.model_copy(update=changes)
    more = {"certificate_iterations": 1, "certificate_budget": 1, "budgets": (1,)}
    baselines = tuple(_once(row, none) for row in REAL.baselines if row.method != "tv")
    changes = {"families": families, "baselines": baselines, "resamples": 100, **more}
    return REAL.model_copy(update=changes)


def _once(row: Row, changes: dict[str, int]) -> Row:
    sets = {n: 1 for n in row.sets if n <= 1}
    if row.method in ("auto", "none", "wiener"):
        changes = {**changes, "chosen_images": 1}
    return row.model_copy(update={**changes, "sets": sets})


def run(*arguments: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as text:
        assert cli.run(["demo", *arguments]) == 0
    return text.getvalue()


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """The folder, what a first run says in 80 columns, and what a second one says to machines."""
    out = tmp_path_factory.mktemp("demo") / "made" / "here"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sizes.SCALES, "demo", small)
        patch.setattr(drawn, "DPI", 30)
        patch.setenv("COLUMNS", "80")
        said = run("--out", str(out), "--workers", "1")
        missing = [
            word for word in said.split() if word.startswith(str(out)) and not Path(word).is_file()
        ]
        assert not missing
        patch.setattr(report, "draw", lambda *arguments: [])  # most of the work
        again = run("--out", str(out), "--workers", "1", "--json")
    return out, said, again


def test_the_tables_fit_a_terminal_and_all_paths_are_there(demo: tuple[Path, str, str]) -> None:
    out, said, again = demo
    drawn_lines = [line for line in said.splitlines() if line[:1] in "┏┃┡│├└"]
    assert [line[0] for line in drawn_lines].count("┏") == 2  # the overview, and the claims
    shown = [[cell.strip() for cell in line.strip("│").split("│")] for line in drawn_lines]
    for row in json.loads(again)["rows"]:  # every row, and nothing of it cut
        assert ["-" if entry is None else entry for entry in row] in shown
    assert max(map(len, drawn_lines)) <= 80
    assert "…" not in said
    paths = [word for word in said.split() if word.startswith(str(out))]
    assert str(out / "report.html") in paths
    assert str(out / "figures" / "deblurring-reconstructions.png") in paths
    words = " ".join(said.split())
    assert "certificate Mean of |grad F*|^2" in words
    assert "LPN deblur n = 1: Wiener" in words
    assert all(sentence in words for sentence in limits(small()))


def test_the_table_has_the_means_of_the_images(demo: tuple[Path, str, str]) -> None:
    out, said, again = demo
    found = defaultdict(list)
    for line in csv.DictReader((out / "images.csv").read_text().splitlines()):
        at_one = line["relaxation"] == "paper"
        found[line["family"], line["method"], line["problem"], at_one].append(float(line["psnr"]))
    told = json.loads(again)
    rows = {row[0]: dict(zip(told["columns"], row, strict=True)) for row in told["rows"]}
    for family, name in (("lpn", "LPN"), ("gs", "GS")):
        for problem, short in (("deblurring", "deblur"), ("super-resolution", "SR")):
            wrong, right = (
                fmean(found[family, method, problem, True]) for method in ("source", "reference")
            )
            assert wrong < right - 1  # the wrong prior is worse than the right one
            assert rows[f"{name}-source"][f"{short}, t = 1"] == f"{wrong:.2f}"
            assert f"{wrong:.2f}" in said
    ours = fmean(found["lpn", "auto", "deblurring", False])
    assert ours > fmean(found["lpn", "source", "deblurring", True]) + 1
    assert rows["LPN, auto"]["deblur, chosen"] == f"{ours:.2f}"
    assert rows["LPN, auto"]["deblur, t = 1"] is None


def test_a_second_run_computes_nothing(demo: tuple[Path, str, str]) -> None:
    told = json.loads(demo[2])
    assert told["cells"]["computed"] == 0
    assert told["cells"]["planned"] > 30
    assert told["page"] == str(demo[0] / "report.html")
    assert set(told["claims"].values()) <= {"holds", "does not hold", "undecided"}
    assert "source-far-below-reference/gs/extreme/deblurring" in told["claims"]


def test_the_real_one_has_what_it_promises() -> None:
    planned = plan(REAL, look(REAL, None, None), ("lpn", "gs"))
    assert all(cell.key in planned.taken for cell in planned.of("model"))  # nothing is trained
    rows = {
        (cell.label.family, cell.label.method, cell.label.n, cell.label.problem)
        for cell in planned.of("reconstruction")
    }
    for problem in ("deblurring", "super-resolution"):
        for family, proposed in (("lpn", "pm"), ("gs", "adapm")):
            for method in ("mse", proposed, "auto"):
                assert {(family, method, n, problem) for n in (1, 5)} <= rows
            assert {(family, end, 0, problem) for end in ("source", "reference")} <= rows
        assert {("baseline", name, 1, problem) for name in ("none", "wiener", "tv")} <= rows
    assert len(planned.of("certificate")) == 1
