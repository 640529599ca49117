"""Tables as text and as HTML, and a tuple of rows that prints as one."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Protocol, TypeVar


class Line(Protocol):
    """Something that can be a line of a table."""

    def cells(self) -> dict[str, str]:
        """Text by column."""


R = TypeVar("R", bound=Line, covariant=True)


class Rows(tuple[R, ...]):
    """A tuple of rows that prints as a table, and shows as one in a notebook."""

    __slots__ = ()

    def __str__(self) -> str:
        return text_table(*self._parts())

    def _repr_html_(self) -> str:
        return html_table(*self._parts())

    def _parts(self) -> tuple[list[str], list[list[str]]]:
        found = [row.cells() for row in self]
        head = list(dict.fromkeys(name for cells in found for name in cells))
        return head, [[cells.get(name, "") for name in head] for cells in found]


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns lined up, numbers to the right.

    Example:
        >>> print(text_table(["name", "PSNR"], [["a", "29.1"], ["total", "8.25"]]))
        name   PSNR
        a      29.1
        total  8.25
    """
    widths = [max(len(line[i]) for line in (head, *rows)) for i in range(len(head))]
    right = [all(_number(row[i]) for row in rows) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        parts = (
            cell.rjust(width) if to_the_right else cell.ljust(width)
            for cell, width, to_the_right in zip(cells, widths, right, strict=True)
        )
        return "  ".join(parts).rstrip()

    return "\n".join(line(each) for each in (head, *rows))


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of HTML; texts are escaped.

    Example:
        >>> html_table(["PSNR"], [["30.1"]])
        '<table><thead><tr><th>PSNR</th></tr></thead><tbody><tr><td>30.1</td></tr></tbody></table>'
    """
    first = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{first}</tr></thead><tbody>{lines}</tbody></table>"


def _number(text: str) -> bool:
    if not text:
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True
