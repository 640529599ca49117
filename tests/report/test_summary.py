"""Means, scales and colors behind the page."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from proxmatch.methods import METHODS
from proxmatch.records import ClaimRecord, ImageRow, IterationRow, Setting, plain_family
from proxmatch.report.claim_list import blocks, groups, tally
from proxmatch.report.method_styles import styles
from proxmatch.report.summary import Denoiser, cells, curves, denoisers
from proxmatch.report.table_views import tables
from proxmatch.report.wording import flat, number

PM = Setting("lpn", "extreme", "pm", 5, "deblurring", "paper")


def row(setting: Setting, number: int, image: str, psnr: float | None) -> ImageRow:
    return ImageRow(setting, number, image, 1.0, psnr, None, None, None, None, None)


@given(st.lists(st.lists(st.floats(5, 40), min_size=3, max_size=3), min_size=1, max_size=4))
def test_a_cell_is_what_numpy_says(values: list[list[float]]) -> None:
    rows = [row(PM, s, f"i{i}", v) for s, line in enumerate(values) for i, v in enumerate(line)]
    (cell,) = cells(rows)
    assert cell.psnr == pytest.approx(np.mean(values))
    assert cell.spread == pytest.approx(np.std(np.mean(values, axis=0)), abs=1e-9)
    assert [psnr for psnr, _ in cell.sets] == pytest.approx(np.mean(values, axis=1).tolist())
    assert (cell.images, cell.gap, cell.ssim) == (3, None, None)


def test_a_missing_value_does_not_count() -> None:
    (cell,) = cells([row(PM, 0, "a", 20.0), row(PM, 0, "b", None)])
    assert cell.psnr == 20.0
    assert cell.spread is None


def test_a_curve_is_ordered_and_has_the_range_of_its_sets() -> None:
    rows = [IterationRow(PM, s, k, 20.0 + k + 2 * s) for k in (2, 0, 1) for s in (0, 1)]
    (curve,) = curves(rows)
    assert curve.iterations == (0, 1, 2)
    assert curve.psnr == (21.0, 22.0, 23.0)
    assert (curve.low[0], curve.high[0], curve.sets) == (20.0, 22.0, 2)


def test_baselines_without_a_family_are_in_every_block() -> None:
    assert plain_family("baseline") == ""
    none = Setting("", "", "none", 1, "deblurring", "paper")
    gs = Setting("gs", "histology", "source", 0, "deblurring", "paper")
    reference = Setting("lpn", "", "reference", 0, "deblurring", "paper")
    blocks = denoisers([none, PM, gs, reference])
    assert blocks == [Denoiser("lpn", "extreme"), Denoiser("gs", "histology")]
    assert all(block.has(none) for block in blocks)
    made = tables(
        cells(row(s, 0, "a", 20.0 + i) for i, s in enumerate((none, PM, gs, reference))),
        blocks,
        styles(["none", "pm", "source", "reference"]),
    )
    assert all(r.always == (r.method != "pm") for table in made for r in table.rows)
    assert [[r.method for r in table.rows] for table in made] == [
        ["reference", "none", "pm"],
        ["source", "none"],
    ]


def test_the_best_of_each_n_is_marked() -> None:
    settings = [Setting("lpn", "a", m, n, "p", "paper") for m in ("mse", "pm") for n in (1, 5)]
    values = dict(zip(settings, (8.0, 21.0, 10.0, 20.0), strict=True))
    (table,) = tables(
        cells(row(s, 0, "i", v) for s, v in values.items()),
        [Denoiser("lpn", "a")],
        styles(["mse", "pm"]),
    )
    assert [(r.method, r.n) for r in table.rows if r.best] == [("pm", 1), ("mse", 5)]
    assert [r.position for r in table.rows] == [0.0, 15.4, 100.0, 92.3]


def test_one_color_a_method_and_no_two_look_the_same() -> None:
    looks = styles([*METHODS, "pm-late", "mine", "yours"])
    assert looks["pm-late"].color == looks["pm"].color
    seen = [(s.color, s.dash, s.marker, s.filled) for s in looks.values()]
    assert len(set(seen)) == len(seen)
    assert styles(["pm"])["pm"] == looks["pm"]


@given(st.lists(st.floats(-30, 30), min_size=3, max_size=3))
def test_bars_keep_the_order_of_the_numbers(values: list[float]) -> None:
    low, effect, high = sorted(values)
    claim = ClaimRecord(statement="s", verdict="undecided", effect=effect, low=low, high=high)
    ((test,),) = [group.tested for group in groups([claim])]
    bar = test.bar
    assert bar is not None
    assert 0 <= bar.low <= bar.effect <= bar.high <= 100
    assert (bar.zero - bar.effect) * effect <= 0 or abs(bar.zero - bar.effect) < 0.02


def test_claims_of_one_statement_are_one_group() -> None:
    made = [
        ClaimRecord(statement="a", verdict="holds", n="1", paper="x"),
        ClaimRecord(statement="b", verdict="undecided"),
        ClaimRecord(statement="a", verdict="does not hold", n="5", paper="x"),
    ]
    first, second = groups(made)
    assert (first.title, first.paper, len(first.tested)) == ("a", "x", 2)
    assert [(test.what, test.where) for test in second.tested] == [("overall", "")]
    assert tally(made) == [("holds", 1), ("does not hold", 1), ("undecided", 1)]


def test_claims_of_one_kind_are_one_group_whatever_they_say() -> None:
    made = [
        ClaimRecord(id=f"largest-step/lpn/n{n}", statement=f"at n = {n}", verdict="holds", effect=n,
              threshold=3, family="lpn", source="mild")
        for n in (1, 5)
    ]  # fmt: skip
    (group,) = groups(made)
    assert (group.title, group.told) == ("Where more images help most", False)
    first, second = (test.bar for test in group.tested)
    assert first is not None
    assert second is not None
    assert first.zero < first.effect < first.threshold == second.threshold < second.effect
    assert blocks(made) == [Denoiser("lpn", "mild")]


def test_numbers_and_nested_settings_read_well() -> None:
    assert number(-1.234, 1, signed=True) == "\N{MINUS SIGN}1.2"
    assert number(None) == "\N{EN DASH}"
    nested = {"a": {"b": {"c": {"d": {"e": 1}}}}, "list": [1, 2], "name": "x" * 999}
    lines = dict(flat(nested))
    assert lines["a.b.c.d"] == '{"e": 1}'
    assert lines["list"] == "[1, 2]"
    assert len(lines["name"]) < 500
