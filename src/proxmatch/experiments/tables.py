"""Tables 2 and 3 of the paper beside its own numbers, and the main table with every row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from proxmatch.experiments.collect import Line, ReconstructionScores, csv_lines, markdown
from proxmatch.experiments.paper import reported
from proxmatch.methods import BASELINE, FAMILIES, METHODS, family_label, title
from proxmatch.records import SOURCE, Setting

if TYPE_CHECKING:
    from rich.table import Table as RichTable

NUMBERS = {"deblurring": "table2", "super-resolution": "table3"}
#: What a problem is called where there is little room.
SHORT = {"deblurring": "deblur", "super-resolution": "SR"}


@dataclass(frozen=True)
class Value:
    """A mean with the standard deviation over test images (and sets)."""

    mean: float
    std: float | None  # None where there is none
    digits: int  # to print

    def __str__(self) -> str:
        mean = f"{self.mean:.{self.digits}f}"
        return mean if self.std is None else f"{mean} ± {self.std:.{self.digits}f}"

    def latex(self) -> str:
        """As siunitx reads it."""
        mean = f"{self.mean:.{self.digits}f}"
        return mean if self.std is None else f"{mean}({self.std:.{self.digits}f})"


Entry = Value | str | None


@dataclass(frozen=True)
class Table:
    """A table that can be printed anywhere."""

    name: str  # of its files
    title: str  # above it
    columns: tuple[str, ...]  # heads; numbers stand in those after the first texts
    groups: tuple[tuple[str, tuple[tuple[Entry, ...], ...]], ...]  # a heading, and its lines
    note: str  # below it
    texts: int = 2  # how many columns hold text

    def markdown(self) -> str:
        """For a page or a README."""
        rows: list[list[str]] = []
        for heading, lines in self.groups:
            rows.append([f"*{heading}*"] + [""] * (len(self.columns) - 1))
            rows += [["-" if e is None else str(e) for e in line] for line in lines]
        table = markdown(self.columns, rows, len(self.columns) - self.texts)
        return f"**{self.title}**\n\n{table}\n\n{self.note}\n"

    def latex(self) -> str:
        """For a paper, with the packages booktabs and siunitx (version 3)."""
        widths = [_format([row[i] for _, rows in self.groups for row in rows], column)
                  for i, column in enumerate(self.columns)]  # fmt: skip
        spec = "".join("l" if i < self.texts else widths[i] for i in range(len(self.columns)))
        heads = [
            _tex(c) if i < self.texts else f"{{{_tex(c)}}}" for i, c in enumerate(self.columns)
        ]
        lines = [
            "% \\usepackage{booktabs, siunitx}",
            "\\begin{table}",
            "\\centering",
            f"\\caption{{{_tex(self.title)}. {_tex(self.note)}}}",
            f"\\label{{tab:{self.name}}}",
            "\\sisetup{uncertainty-mode = separate, table-align-uncertainty = true}",
            f"\\begin{{tabular}}{{@{{}}{spec}@{{}}}}",
            "\\toprule",
            " & ".join(heads) + r" \\",
        ]
        for heading, rows in self.groups:
            lines.append("\\midrule")
            lines.append(f"\\multicolumn{{{len(self.columns)}}}{{@{{}}l}}{{\\textit{{"
                         f"{_tex(heading)}}}}} \\\\")  # fmt: skip
            lines += [
                " & ".join(_latex_entry(e, i < self.texts) for i, e in enumerate(row)) + r" \\"
                for row in rows
            ]
        return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", "\\end{table}", ""])

    def rich(self) -> RichTable:
        """For the screen."""
        from rich.table import Table as RichTable

        table = RichTable(title=self.title, caption=self.note)
        for i, column in enumerate(self.columns):
            head = column.replace(", ", "\n").replace("paper's ", "paper's\n")
            table.add_column(head, justify="left" if i < self.texts else "right", no_wrap=True)
        for heading, rows in self.groups:
            table.add_section()
            table.add_row(f"[italic]{heading}[/]")
            for row in rows:
                table.add_row(*("-" if e is None else str(e) for e in row))
        return table

    def csv(self) -> bytes:
        """Means and standard deviations as numbers."""
        columns = ["group", *self.columns[: self.texts]]
        for column in self.columns[self.texts :]:
            columns += [column, f"{column}, std"]
        lines = []
        for heading, rows in self.groups:
            for row in rows:
                line: Line = {"group": heading}
                for column, entry in zip(self.columns, row, strict=True):
                    if isinstance(entry, Value):
                        line[column] = round(entry.mean, 6)
                        line[f"{column}, std"] = None if entry.std is None else round(entry.std, 6)
                    else:
                        line[column] = entry
                lines.append(line)
        return csv_lines(columns, lines)


def paper_table(
    found: Sequence[ReconstructionScores], problem: str, budgets: Sequence[int]
) -> Table:
    """Table 2 or 3: the paper's rows at t = 1, and its numbers."""
    groups = []
    for family, known in FAMILIES.items():
        wanted = [("source", 0), ("reference", 0)]
        wanted += [(method, n) for n in budgets for method in ("mse", known.proposed)]
        rows: list[tuple[Entry, ...]] = []
        for method, n in wanted:
            cells = _cells(found, Setting(family, SOURCE, method, n, problem))
            if not cells:
                continue
            said = reported().get((problem, family, method, n))
            ours = [_value(cells, *what) for what in _COLUMNS]
            theirs: list[Entry] = [None] * 4
            if said is not None:
                pairs = zip((said.psnr, said.ssim, said.gap), (2, 1, 2), strict=True)
                theirs = [Value(*pair, digits) for pair, digits in pairs]
                theirs.append(None if said.lipschitz is None else Value(said.lipschitz, None, 2))
            rows.append((title(method, family), str(n) if n else "-", *ours, *theirs))
        if rows:
            groups.append((f"{known.label} proximal denoiser", tuple(rows)))
    heads = ("PSNR", "SSIM 1e-2", "gap %", "L")
    return Table(
        NUMBERS.get(problem, problem),
        f"{problem.capitalize()}: here, and in the paper",
        ("method", "n", *heads, *(f"paper's {head}" for head in heads)),
        tuple(groups),
        "Mean ± standard deviation over test images and adaptation sets (the paper: 100 images, "
        "one set). t = 1, last iterate, no clipping for LPN; PSNR in dB, gap to the reference of "
        f"the same family averaged over the iterations. {_how_many(found, problem)}",
    )


def main_table(found: Sequence[ReconstructionScores], problems: Sequence[str]) -> Table:
    """Every row at t = 1 and with the chosen relaxation: mean PSNR, and its range over the sets."""
    groups = []
    kinds = dict.fromkeys((r.label.family, r.label.source or SOURCE) for r in found)
    for family, source in kinds:
        heading = family_label(family) + ("" if source == SOURCE else f", {source} source")
        rows = []
        for method in METHODS:
            budgets = sorted({r.label.n for r in found if r.label.method == method})
            for n in budgets:
                entries: list[Entry] = []
                sets: set[int] = set()
                images: set[int] = set()
                for problem in problems:
                    for relaxation in ("paper", "chosen"):
                        cells = _cells(
                            found, Setting(family, source, method, n, problem, relaxation)
                        )
                        sets |= {r.label.set for r in cells}
                        images |= {len(r.ids) for r in cells}
                        entries.append(_spread(cells))
                if any(e is not None for e in entries) and not (
                    method == "reference" and source != SOURCE
                ):
                    name = title(method, family)
                    counted = " / ".join(str(number) for number in sorted(images, reverse=True))
                    rows.append((name, str(n) if n else "-", str(len(sets)), counted, *entries))
        if rows:
            groups.append((heading, tuple(rows)))
    heads = [f"{p}, {t}" for p in problems for t in ("t = 1", "chosen")]
    return Table(
        "main",
        "Mean PSNR of the last iterate in dB",
        ("method", "n", "sets", "images", *heads),
        tuple(groups),
        "± is half the range of the means over the adaptation sets, where there are several. "
        "Images: at t = 1 / chosen, where these differ; rows with fewer have the first ones. "
        "Chosen: the relaxation t D + (1 - t) Id (the stopping point, the filter's noise level, "
        "the weight of TV) that did best on the adaptation images, by the same rule for every row; "
        "rows without adaptation images use those of set 0.",
        texts=4,
    )


def overview(found: Sequence[ReconstructionScores], problems: Sequence[str]) -> Table:
    """The rows of the paper, ours and the baselines, in 80 columns: PSNR and gap.

    The means of a family are over the images that all its rows have.
    """
    groups, counts = [], []
    for family in (*FAMILIES, BASELINE):
        kept = [m for m in METHODS if not _is_control(m, family)]
        own = [r for r in found if r.label.family == family and r.label.method in kept]
        own = _on_shared([r for r in own if r.label.source in ("", SOURCE)])
        rows: list[tuple[Entry, ...]] = []
        for method in kept:
            for n in sorted({r.label.n for r in own if r.label.method == method}):
                entries: list[Entry] = []
                for problem in problems:
                    plain, chosen = (
                        _cells(own, Setting(family, SOURCE, method, n, problem, relaxation))
                        for relaxation in ("paper", "chosen")
                    )
                    entries += [_mean(plain, "psnr", 2), _mean(chosen, "psnr", 2)]
                    entries.append(_mean(plain, "gap", 1))
                rows.append((title(method, family), str(n) if n else "-", *entries))
        if rows:
            groups.append((family_label(family), tuple(rows)))
            counts.append(f"{family_label(family)} {len(own[0].ids)}")
    what = ("t = 1", "chosen", "gap %")
    heads = [f"{SHORT.get(p, p)}, {value}" for p in problems for value in what]
    named = " and ".join(f"{p} ({SHORT[p]})" if p in SHORT else p for p in problems)
    return Table(
        "overview",
        named[:1].upper() + named[1:],
        ("method", "n", *heads),
        tuple(groups),
        "Mean PSNR of the last iterate in dB; chosen: with the relaxation t that did best on the "
        "adaptation images; gap: to the reference of the same family, at t = 1. Test images, the "
        f"same for all rows of a kind: {', '.join(counts)}.",
    )


def _is_control(method: str, family: str) -> bool:
    """Whether a row is neither of the paper's tables nor ours."""
    proposed = {name: known.proposed for name, known in FAMILIES.items()}
    elsewhere = method in proposed.values() and method != proposed.get(family)
    return bool(METHODS[method].control) or elsewhere


def _on_shared(found: Sequence[ReconstructionScores]) -> list[ReconstructionScores]:
    """The same restricted to the images that all of them have."""
    if not found:
        return []
    shared = set(found[0].ids).intersection(*(r.ids for r in found))
    cut = []
    for r in found:
        keep = [i for i, name in enumerate(r.ids) if name in shared]
        values = {name: value[keep] for name, value in r.values.items()}
        curves = None if r.curves is None else r.curves[keep]
        cut.append(replace(r, ids=tuple(r.ids[i] for i in keep), values=values, curves=curves))
    return cut


_COLUMNS = (("psnr", 1.0, 2), ("ssim", 100.0, 1), ("gap", 1.0, 2), ("lipschitz", 1.0, 2))


def _cells(found: Iterable[ReconstructionScores], wanted: Setting) -> list[ReconstructionScores]:
    """Those of a setting; rows without a source are there for every one."""
    return [r for r in found if r.label.setting in (wanted, replace(wanted, source=""))]


def _value(cells: Sequence[ReconstructionScores], name: str, scale: float, digits: int) -> Entry:
    values = np.concatenate([r.values[name] for r in cells]) * scale
    values = values[np.isfinite(values)]
    if not len(values):
        return None
    if name == "lipschitz":
        return Value(float(values.max()), None, digits)
    std = float(values.std(ddof=1)) if len(values) > 1 else None
    return Value(float(values.mean()), std, digits)


def _mean(cells: Sequence[ReconstructionScores], name: str, digits: int) -> Entry:
    found = _value(cells, name, 1.0, digits) if cells else None
    return replace(found, std=None) if isinstance(found, Value) else found


def _spread(cells: Sequence[ReconstructionScores]) -> Entry:
    if not cells:
        return None
    means = [float(r.values["psnr"].mean()) for r in cells]
    half = (max(means) - min(means)) / 2 if len(means) > 1 else None
    return Value(float(np.mean(means)), half, 2)


def _how_many(found: Iterable[ReconstructionScores], problem: str) -> str:
    counts: dict[str, set[int]] = {}
    for r in found:
        label = r.label
        if (label.problem, label.relaxation) == (problem, "paper") and label.family in FAMILIES:
            counts.setdefault(label.family, set()).add(len(r.ids))
    parts = [f"{family_label(f)} {max(c)}" for f, c in counts.items()]
    return f"Test images: {', '.join(parts)}; L: the largest over images and iterations."


def _format(entries: Sequence[Entry], column: str) -> str:
    """The S column that holds some entries."""
    values = [e for e in entries if isinstance(e, Value)]
    if not values:
        return "c"
    digits = max(v.digits for v in values)
    before = max(len(str(int(abs(v.mean)))) for v in values)
    stds = [v.std for v in values if v.std is not None]
    inner = f"({max(len(str(int(s))) for s in stds)}.{digits})" if stds else ""
    return f"S[table-format = {before}.{digits}{inner}]"


def _latex_entry(entry: Entry, text: bool) -> str:
    if entry is None:
        return "{--}"
    if isinstance(entry, Value):
        return entry.latex()
    return _tex(entry) if text else f"{{{_tex(entry)}}}"


def _tex(text: str) -> str:
    for sign, name in (
        ("\\", r"\textbackslash{}"), ("%", r"\%"), ("&", r"\&"), ("_", r"\_"), ("#", r"\#"),
        ("±", r"$\pm$"), ("1e-2", r"($10^{-2}$)"),
    ):  # fmt: skip
        text = text.replace(sign, name)
    return text
