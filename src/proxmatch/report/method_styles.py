"""How each method looks in every curve, table and picture of the page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from proxmatch._internal.palette import BROWN
from proxmatch.methods import METHODS, LineStyle, Marker, Method

#: Dashes and gaps in pixels.
DASHES: dict[LineStyle, str] = {
    "solid": "",
    "dashed": "5 3",
    "long": "9 3",
    "dotted": "2 3",
    "dashdot": "8 3 2 3",
}
_OTHER: tuple[tuple[str, Marker], ...] = (
    ("8 3", "triangle"),
    ("3 2", "square"),
    ("8 3 2 3", "diamond"),
    ("1 3", "circle"),
)


@dataclass(frozen=True)
class Style:
    """How a method looks."""

    label: str  # its name in a sentence
    color: str  # #rrggbb, or ink for that of the text
    dash: str = ""  # of its line, in pixels; empty for a solid one
    marker: str = "circle"  # circle, square, diamond, triangle or cross
    filled: bool = True  # the marker
    control: bool = False  # whether it is a control, which is not drawn until asked for


def styles(methods: Iterable[str]) -> dict[str, Style]:
    """The style of each method: the paper's rows first, then the baselines, then the controls.

    A method that is not known has the color of the one its name begins with (``pm-late`` that of
    ``pm``), or else brown, and a dash of its own.
    """
    found = set(methods)
    order = sorted(METHODS.values(), key=lambda method: bool(method.control))
    known = {method.name: _style(method) for method in order if method.name in found}
    strangers = sorted(found - METHODS.keys())
    return known | {name: _stranger(name, i) for i, name in enumerate(strangers)}


def _style(method: Method) -> Style:
    return Style(
        method.label,
        method.color,
        DASHES[method.line],
        method.marker,
        method.filled,
        bool(method.control),
    )


def _stranger(name: str, index: int) -> Style:
    dash, marker = _OTHER[index % len(_OTHER)]
    like = METHODS.get(name.split("-")[0])
    base = Style(name, BROWN) if like is None else _style(like)
    return replace(base, label=name, dash=dash, marker=marker, filled=False, control=True)
