"""One color, dash and marker for each method, in every curve, table and picture of the page.

A control has the color of what it controls, and another dash and marker.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from proxmatch._internal.palette import BLUE, BROWN, GRAY, GREEN, ORANGE, PINK, RED, SKY

INK = "ink"  # black on white, white on black


@dataclass(frozen=True)
class Style:
    """How a method looks.

    Attributes:
        label: its name in a sentence.
        color: ``#rrggbb``, or ``ink`` for that of the text.
        dash: of its line, in pixels; empty for a solid one.
        marker: circle, square, diamond, triangle or cross.
        filled: the marker.
        control: a row that tells a cause from a coincidence: not drawn until asked for.
    """

    label: str
    color: str
    dash: str = ""
    marker: str = "circle"
    filled: bool = True
    control: bool = False


METHODS = {
    "source": Style("source", GRAY, "2 3", "square"),
    "reference": Style("reference", INK, "9 3", "diamond"),
    "mse": Style("MSE", BLUE),
    "pm": Style("PM", RED, marker="square"),
    "adapm": Style("AdaPM", RED, marker="diamond"),
    "aligned": Style("aligned", GREEN, marker="triangle"),
    "auto": Style("auto", PINK, marker="diamond"),
    "none": Style("no denoiser", BROWN, "2 3", "cross"),
    "wiener": Style("Wiener filter", BROWN, "8 3 2 3", "square", False),
    "tv": Style("total variation", BROWN, "5 3", "triangle", False),
    "l1": Style("L1", ORANGE, "8 3 2 3", "triangle", control=True),
    "scaled-mse": Style("MSE, PM's gradient scale", SKY, "8 3 2 3", "triangle", control=True),
    "mse-clip": Style("MSE, clipped", BLUE, "5 3", "circle", False, True),
    "pm-clip": Style("PM, clipped", RED, "5 3", "square", False, True),
    "mse-unclipped": Style("MSE, unclipped", BLUE, "2 3", "cross", control=True),
    "mse-penalty": Style("MSE + penalty", BLUE, "5 3", "diamond", False, True),
    "mse-best": Style("MSE, stopped", BLUE, "2 3", "triangle", False, True),
    "pm-best": Style("PM, stopped", RED, "2 3", "triangle", False, True),
    "adapm-best": Style("AdaPM, stopped", RED, "2 3", "diamond", False, True),
}
_OTHER = (("8 3", "triangle"), ("3 2", "square"), ("8 3 2 3", "diamond"), ("1 3", "circle"))


def styles(methods: Iterable[str]) -> dict[str, Style]:
    """The style of each method, in the order of the paper's rows.

    A method that is not known has the color of the one its name begins with (``pm-late`` that of
    ``pm``), or else brown, and a dash of its own.
    """
    found = set(methods)
    known = {name: METHODS[name] for name in METHODS if name in found}
    strangers = sorted(found - METHODS.keys())
    return known | {name: _stranger(name, i) for i, name in enumerate(strangers)}


def _stranger(name: str, index: int) -> Style:
    dash, marker = _OTHER[index % len(_OTHER)]
    base = METHODS.get(name.split("-")[0], Style(name, BROWN))
    return replace(base, label=name, dash=dash, marker=marker, filled=False, control=True)
