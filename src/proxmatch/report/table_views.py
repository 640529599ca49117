"""The main table: one for each problem and denoiser, a row for each method and n."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markupsafe import Markup

from proxmatch.report.method_styles import Style
from proxmatch.report.summary import Denoiser, Summary

COLUMNS = (
    ("best_psnr", "best iterate", "dB", 2),
    ("ssim", "SSIM", "", 3),
    ("gap", "gap", "%", 1),
    ("lipschitz", "L", "", 2),
)


@dataclass(frozen=True)
class TableRow:
    """A method at one n."""

    method: str  # its key
    style: Style  # its name and color
    n: int  # number of images it was adapted with; 0 when it uses none
    at: dict[str, Summary]  # its cell under each relaxation, by name
    #: Of its PSNR under the first relaxation on the table's scale, in percent.
    position: float | None
    best: bool  # whether it has the highest PSNR of the methods with the same n
    always: bool  # whether it is shown whatever n is asked for


@dataclass(frozen=True)
class TableView:
    """All rows of one problem and denoiser."""

    problem: str
    denoiser: Denoiser  # family and source
    #: Cells of the first are shown in full, of the others only the PSNR.
    relaxations: tuple[str, ...]
    rows: tuple[TableRow, ...]  # by n, then in the order of the methods
    shots: tuple[int, ...]  # the n that occur, without 0
    scale: tuple[float, float]  # the PSNR at the ends of the scale, in dB

    @property
    def columns(self) -> list[tuple[str, str, str, int]]:
        """Attribute, title, unit and digits of what was measured besides the PSNR."""
        cells = [row.at[self.relaxations[0]] for row in self.rows if self.relaxations[0] in row.at]
        return [c for c in COLUMNS if any(getattr(cell, c[0]) is not None for cell in cells)]


def tables(
    cells: list[Summary], blocks: list[Denoiser], looks: dict[str, Style]
) -> list[TableView]:
    """The tables that have rows, problem by problem."""
    problems = dict.fromkeys(cell.setting.problem for cell in cells)
    relaxations = order_relaxations(cell.setting.relaxation for cell in cells)
    made = []
    for problem in problems:
        of_problem = [cell for cell in cells if cell.setting.problem == problem]
        scale = _scale(of_problem)
        for block in blocks:
            mine = [cell for cell in of_problem if block.has(cell.setting)]
            if mine:
                rows = _rows(mine, relaxations, looks, scale)
                shots = tuple(sorted({row.n for row in rows if row.n}))
                made.append(TableView(problem, block, relaxations, rows, shots, scale))
    return made


def order_relaxations(names: Iterable[str]) -> tuple[str, ...]:
    """The names of relaxations, that of the paper first."""
    found = dict.fromkeys(names)
    return tuple(sorted(found, key=lambda name: name != "paper"))


def markdown(text: str) -> Markup:
    """A table of ``tables/`` as HTML: no raw HTML, links or pictures come through."""
    parser = MarkdownIt("js-default").disable(["link", "image", "autolink", "reference"])
    tokens = parser.parse(text)
    for token in tokens:
        if token.type.startswith("heading"):
            token.tag = "h4"  # below the headings of the page
        if token.attrs.pop("style", ""):  # the page's policy has no room for styles
            token.attrs["class"] = "num"
    html: str = parser.renderer.render(tokens, parser.options, {})
    return Markup(html)  # noqa: S704  the parser escapes


def _scale(cells: list[Summary]) -> tuple[float, float]:
    known = [cell.psnr for cell in cells if cell.psnr is not None]
    return (min(known, default=0.0), max(known, default=1.0))


def _rows(
    cells: list[Summary],
    relaxations: tuple[str, ...],
    looks: dict[str, Style],
    scale: tuple[float, float],
) -> tuple[TableRow, ...]:
    found: dict[tuple[int, str], dict[str, Summary]] = {}
    for cell in cells:
        key = (cell.setting.n, cell.setting.method)
        found.setdefault(key, {})[cell.setting.relaxation] = cell
    order = {name: place for place, name in enumerate(looks)}
    top: dict[int, float] = {}
    for (n, method), at in found.items():
        value = _first(at, relaxations)
        if n and value is not None and not _lone(method, cells):
            top[n] = max(value, top.get(n, value))
    width = scale[1] - scale[0] or 1.0
    rows = []
    for (n, method), at in sorted(found.items(), key=lambda item: (item[0][0], order[item[0][1]])):
        value = _first(at, relaxations)
        position = None if value is None else round(100 * (value - scale[0]) / width, 1)
        always = not n or _lone(method, cells)
        best = not always and value is not None and value == top[n]
        rows.append(TableRow(method, looks[method], n, at, position, best, always))
    return tuple(rows)


def _lone(method: str, cells: list[Summary]) -> bool:
    """Whether a method is a baseline that was measured at one n only."""
    found = {(c.setting.family, c.setting.n) for c in cells if c.setting.method == method}
    return len(found) == 1 and not next(iter(found))[0]


def _first(at: dict[str, Summary], relaxations: tuple[str, ...]) -> float | None:
    cell = at.get(relaxations[0])
    return None if cell is None else cell.psnr
