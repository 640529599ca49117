"""Curves: PSNR and gap against n, PSNR against iterations, PSNR against gap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from proxmatch._internal.palette import BLACK
from proxmatch.experiments.bootstrap import Array
from proxmatch.experiments.collect import Line, ReconstructionScores
from proxmatch.experiments.drawn import Drawn
from proxmatch.experiments.findings import Contrast, Findings
from proxmatch.methods import FAMILIES, INK, METHODS, family_label, title
from proxmatch.records import SOURCE, Setting

DASHES = ("-", "--", "-.", ":")
#: The looks of methods in matplotlib's words.
MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle": "^", "cross": "x"}
LINES: dict[str, Any] = {
    "solid": "-",
    "dashed": "--",
    "long": (0, (9, 3)),
    "dotted": ":",
    "dashdot": "-.",
}


def budgets(
    evidence: Findings, problem: str, families: Sequence[str], numbers: Sequence[int]
) -> Drawn:
    """PSNR above, gap below, against n; one column per family; bars are intervals of 95 %."""
    figure = Figure(figsize=(3.6 * len(families) + 0.6, 5.6), layout="constrained")
    grid = figure.subplots(2, len(families), squeeze=False, sharex=True)
    lines: list[Line] = []
    places = {n: place for place, n in enumerate(numbers)}
    handles: dict[str, Any] = {}
    for column, family in enumerate(families):
        for row, (value, label) in enumerate((("psnr", "PSNR in dB"), ("gap", "gap in %"))):
            axis = grid[row][column]
            for method in ("mse", FAMILIES[family].proposed, "aligned"):
                points = [
                    (n, _mean(evidence, Setting(family, SOURCE, method, n, problem), value))
                    for n in numbers
                ]
                known = [(n, c) for n, c in points if c is not None]
                if not known:
                    continue
                center = np.array([c.found.effect for _, c in known])
                ends = np.array([(c.found.low, c.found.high) for _, c in known]).T
                handles[_name(method)] = axis.errorbar(
                    [places[n] for n, _ in known], center, np.abs(ends - center), capsize=3,
                    lw=1.6, ms=5, **drawn_as(method),
                )  # fmt: skip
                lines += [_line(family, method, n, value, c) for n, c in known]
            for method in ("source", "reference"):
                kind = SOURCE if method == "source" else ""
                one = _mean(evidence, Setting(family, kind, method, 0, problem), value)
                if one is None or (value == "gap" and method == "reference"):
                    continue
                look = {k: v for k, v in drawn_as(method).items() if not k.startswith("marker")}
                handles[method] = axis.axhline(one.found.effect, lw=1.4, **look)
                lines.append(_line(family, method, 0, value, one))
            if value == "gap":
                axis.set_yscale("log")
                _plain(axis.yaxis)
                axis.set_xlabel("adaptation images n")
            else:
                axis.set_title(family_label(family))
            axis.set_ylabel(label if column == 0 else "")
            axis.set_xticks(range(len(numbers)), [str(n) for n in numbers])
            axis.set_xlim(-0.3, len(numbers) - 0.7)
            axis.grid(alpha=0.3)
    _legend(figure, handles)
    return Drawn(
        f"{problem}-budgets",
        f"{problem.capitalize()}: PSNR and gap against the number of adaptation images",
        "Mean over test images and adaptation sets at t = 1, last iterate, with intervals of 95 % "
        "over both. Dotted: the source; dashed: the reference of the same family.",
        f"Line charts of PSNR and gap against n for {problem}: " + _spoken(lines),
        figure,
        lines,
    )


def trajectories(
    found: Sequence[ReconstructionScores],
    evidence: Findings,
    problems: Sequence[str],
    numbers: Sequence[int],
    family: str,
) -> Drawn:
    """Mean PSNR against the iteration for MSE and PM, and final PSNR against the gap."""
    proposed = FAMILIES[family].proposed
    figure = Figure(figsize=(10.4, 3.1 * len(problems)), layout="constrained")
    grid = figure.subplots(len(problems), 3, squeeze=False)
    lines: list[Line] = []
    for row, problem in enumerate(problems):
        grid[row][1].sharey(grid[row][0])
        for column, method in enumerate(("mse", proposed)):
            axis = grid[row][column]
            for place, n in enumerate(numbers):
                curve = _curve(found, Setting(family, SOURCE, method, n, problem))
                if curve is None:
                    continue
                axis.plot(
                    curve, color=drawn_as(method)["color"], ls=DASHES[place % 4], lw=1.7,
                    alpha=0.45 + 0.55 * (place + 1) / len(numbers), label=f"n = {n}",
                )  # fmt: skip
                lines += [
                    {"panel": "trajectory", "problem": problem, "method": method, "n": n,
                     "iteration": k, "psnr": float(v)}
                    for k, v in enumerate(curve)
                ]  # fmt: skip
            axis.set_title(title(method, family) if row == 0 else "")
            axis.set_xlabel("iteration")
            axis.grid(alpha=0.3)
            if axis.get_legend_handles_labels()[0]:
                axis.legend(fontsize=8, frameon=False)
        grid[row][0].set_ylabel(f"{problem}\nmean PSNR in dB")
        lines += _scatter(grid[row][2], found, family, problem, proposed)
        grid[row][2].set_title("final PSNR against mean gap" if row == 0 else "")
        grid[row][2].set(xscale="log", xlabel="gap in %", ylabel="PSNR in dB")
        _plain(grid[row][2].xaxis)
        grid[row][2].grid(alpha=0.3)
    return Drawn(
        f"{family}-trajectories",
        f"{family_label(family)}: trajectories, and PSNR against gap",
        "Left and middle: mean PSNR of the iterates over test images and adaptation sets, t = 1. "
        "Right: one point per cell (method, n, set); the number is n.",
        f"Line charts of PSNR against the iteration for {family_label(family)}, and a scatter plot "
        "of final PSNR against gap.",
        figure,
        lines,
    )


def _scatter(
    axis: Any, found: Sequence[ReconstructionScores], family: str, problem: str, proposed: str
) -> list[Line]:
    lines: list[Line] = []
    seen: dict[str, Any] = {}
    for r in found:
        label = r.label
        if (label.family, label.problem, label.relaxation) != (family, problem, "paper"):
            continue
        if label.method not in ("mse", proposed, "source") or label.source != SOURCE:
            continue
        gap = r.values["gap"]
        if not np.isfinite(gap).any():
            continue
        x, y = float(np.nanmean(gap)), float(r.values["psnr"].mean())
        look = drawn_as(label.method) | {"linestyle": ""}
        (seen[label.method],) = axis.plot(x, y, ms=6, **look)
        if label.n:
            axis.annotate(str(label.n), (x, y), fontsize=7, xytext=(4, 2),
                          textcoords="offset points")  # fmt: skip
        lines.append({"panel": "scatter", "problem": problem, "method": label.method,
                      "n": label.n, "set": label.set, "psnr": y, "gap": x})  # fmt: skip
    if seen:
        names = [title(method, family) for method in seen]
        axis.legend(seen.values(), names, fontsize=8, frameon=False)
    return lines


def drawn_as(method: str) -> dict[str, Any]:
    """Color, marker and line of a method, for matplotlib's ``plot``."""
    row = METHODS[method]
    color = BLACK if row.color == INK else row.color
    return {
        "color": color,
        "marker": MARKERS[row.marker],
        "markerfacecolor": color if row.filled else "none",
        "linestyle": LINES[row.line],
    }


def _plain(axis: Any) -> None:
    """1, 2, 5, 10, ... on a logarithmic axis, in plain numbers."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def _mean(evidence: Findings, arm: Setting, value: str) -> Contrast | None:
    return evidence.contrast([arm], value, lambda means: means[0], f"mean {arm} {value}")


def _line(family: str, method: str, n: int, value: str, contrast: Contrast) -> Line:
    where = {"family": family, "method": method, "n": n, "value": value}
    found = contrast.found
    numbers = {"mean": found.effect, "low": found.low, "high": found.high}
    return {**where, **numbers, "sets": contrast.sets, "images": contrast.images}


def _curve(found: Sequence[ReconstructionScores], wanted: Setting) -> Array | None:
    curves = [r.result["means"]["psnr"] for r in found if r.label.setting == wanted]
    return np.mean(np.array(curves, dtype=np.float64), 0) if curves else None


def _name(method: str) -> str:
    return {"mse": "MSE", "pm": "PM / AdaPM", "adapm": "PM / AdaPM"}.get(method, method)


#: Inches from which a figure has room for all names of a legend in one line.
WIDE = 6.0


def _legend(figure: Figure, handles: dict[str, Any]) -> None:
    if handles:
        columns = 6 if figure.get_figwidth() > WIDE else 3
        figure.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=columns,
            frameon=False,
        )  # fmt: skip


def _spoken(lines: Sequence[Line]) -> str:
    parts = [
        f"{family_label(line['family'])} {line['method']} {line['mean']:.1f} dB at n = {line['n']}"
        for line in lines
        if line["value"] == "psnr" and line["n"]
    ]
    return "; ".join(parts) + "."
