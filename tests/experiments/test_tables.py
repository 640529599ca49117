from __future__ import annotations

import csv
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from proxmatch.experiments.tables import Table, main_table, overview, paper_table
from tests.experiments.made_up import made_up

ONES = np.ones(6)
FOUND = [
    made_up("lpn", "source", 0, 9 * ONES, gap=80 * ONES, ssim=0.3 * ONES),
    made_up("lpn", "reference", 0, 28 * ONES, gap=0 * ONES, ssim=0.9 * ONES),
    made_up("lpn", "mse", 5, [10, 12, 10, 12, 10, 12], gap=12 * ONES, ssim=0.5 * ONES),
    made_up("lpn", "mse", 5, 15 * ONES, gap=14 * ONES, ssim=0.5 * ONES, number=1),
    made_up("lpn", "pm", 5, 20 * ONES, gap=3 * ONES, ssim=0.7 * ONES),
    made_up("lpn", "pm", 5, 24 * ONES, relaxation="chosen"),
    made_up("gs", "adapm", 1, 25 * ONES, lipschitz=[0.9, 1.2, 1, 1, 1, 1]),
    made_up("baseline", "wiener", 1, 22 * ONES, source="", relaxation="chosen"),
]


@pytest.fixture(params=["table2", "main"])
def table(request: pytest.FixtureRequest) -> Table:
    if request.param == "main":
        return main_table(FOUND, ["deblurring"])
    return paper_table(FOUND, "deblurring", (1, 5))


def test_values_and_the_papers_stand_side_by_side() -> None:
    table = paper_table(FOUND, "deblurring", (1, 5))
    lines = list(csv.DictReader(table.csv().decode().splitlines()))
    mse = next(line for line in lines if line["method"] == "LPN-MSE")
    values = np.array([10, 12, 10, 12, 10, 12, *15 * ONES])
    assert float(mse["PSNR"]) == pytest.approx(values.mean())
    assert float(mse["PSNR, std"]) == pytest.approx(values.std(ddof=1))
    assert float(mse["gap %"]) == pytest.approx(13)
    assert (float(mse["paper's PSNR"]), float(mse["paper's gap %"])) == (23.52, 6.51)
    adapm = next(line for line in lines if line["method"] == "GS-AdaPM")
    assert (float(adapm["L"]), float(adapm["paper's L"])) == (1.2, 1.446)
    assert adapm["gap %"] == ""


def test_the_main_table_has_every_row_at_both_relaxations() -> None:
    lines = list(csv.DictReader(main_table(FOUND, ["deblurring"]).csv().decode().splitlines()))
    pm = next(line for line in lines if line["method"] == "LPN-PM")
    assert (float(pm["deblurring, t = 1"]), float(pm["deblurring, chosen"])) == (20, 24)
    mse = next(line for line in lines if line["method"] == "LPN-MSE")
    assert (float(mse["deblurring, t = 1"]), float(mse["deblurring, t = 1, std"])) == (13, 2)
    assert mse["sets"] == "2"
    wiener = next(line for line in lines if line["method"] == "Wiener filter")
    assert wiener["group"] == "no learned prior"
    assert wiener["deblurring, t = 1"] == ""


def test_the_overview_compares_on_the_images_that_all_rows_have() -> None:
    found = [
        made_up("gs", "source", 0, [20, 20, 30, 30]),
        made_up("gs", "source", 0, [25, 26], relaxation="chosen"),
        made_up("gs", "adapm", 1, [21, 22, 31, 32], gap=[1, 2, np.nan, np.nan]),
        made_up("gs", "pm", 1, [5], gap=[5]),  # a control, on fewer still
        made_up("baseline", "wiener", 1, [24, 24, 24], source="", relaxation="chosen"),
    ]
    table = overview(found, ["deblurring"])
    lines = {line["method"]: line for line in csv.DictReader(table.csv().decode().splitlines())}
    assert list(lines) == ["GS-source", "GS-AdaPM", "Wiener filter"]
    values = [lines["GS-source"][f"deblur, {what}"] for what in ("t = 1", "chosen")]
    assert [float(value) for value in values] == [20, 25.5]
    assert float(lines["GS-AdaPM"]["deblur, t = 1"]) == 21.5
    assert float(lines["GS-AdaPM"]["deblur, gap %"]) == 1.5
    assert table.note.endswith("GS 2, no learned prior 3.")


def test_the_main_table_counts_images() -> None:
    found = [
        made_up("gs", "source", 0, [20, 20, 30, 30]),
        made_up("gs", "source", 0, [25, 26], relaxation="chosen"),
    ]
    (line,) = csv.DictReader(main_table(found, ["deblurring"]).csv().decode().splitlines())
    assert line["images"] == "4 / 2"


def test_markdown_is_a_table(table: Table) -> None:
    rows = [line for line in table.markdown().splitlines() if line.startswith("|")]
    assert {row.count("|") for row in rows} == {len(table.columns) + 1}


def test_latex_is_well_formed(table: Table, tmp_path: Path) -> None:
    text = table.latex()
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    body = [row for row in rows if "multicolumn" not in row]
    assert {row.count("&") - row.count(r"\&") for row in body} == {len(table.columns) - 1}
    for sign in ("±", "%"):
        assert sign not in text.replace(r"\%", "").replace("% \\usepackage", "")
    spec = text.split(r"\begin{tabular}{@{}")[1].split("@{}}")[0]
    assert spec.startswith("l" * table.texts)
    assert spec.count("S[table-format") + spec.replace("table-format", "").count("c") == (
        len(table.columns) - table.texts
    )
    for start in ("toprule", "midrule", "bottomrule"):
        assert f"\\{start}" in text
    tex = shutil.which("pdflatex") or shutil.which("tectonic")
    if tex is None:
        return
    whole = (
        "\\documentclass{article}\\usepackage{booktabs,siunitx}\\begin{document}\n"
        + text
        + "\\end{document}\n"
    )
    (tmp_path / "t.tex").write_text(whole)
    done = subprocess.run([tex, "t.tex"], cwd=tmp_path, capture_output=True, stdin=-3, timeout=120)
    assert done.returncode == 0, done.stdout[-2000:]


def test_the_screen_shows_it(table: Table) -> None:
    from rich.console import Console

    console = Console(width=250, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table.rich())
    assert "LPN-PM" in console.export_text()
