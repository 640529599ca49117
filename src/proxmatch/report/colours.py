"""One colour, dash and marker for each method, in every curve, table and picture of the page.

The colours are Okabe and Ito's, which colour-blind readers tell apart. A control has the colour of
what it controls, and another dash and marker.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

GREY, ORANGE, SKY, GREEN, BLUE, RED, PURPLE = (
    "#7F7F7F",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
)
INK = "ink"  # black on white, white on black


@dataclass(frozen=True)
class Style:
    """How a method looks.

    Attributes:
        label: its name in a sentence.
        colour: ``#rrggbb``, or ``ink`` for that of the text.
        dash: of its line, in pixels; empty for a solid one.
        marker: circle, square, diamond, triangle or cross.
        filled: the marker.
        control: a row that tells a cause from a coincidence: not drawn until asked for.
    """

    label: str
    colour: str
    dash: str = ""
    marker: str = "circle"
    filled: bool = True
    control: bool = False


METHODS = {
    "source": Style("source", GREY, marker="square"),
    "reference": Style("reference", INK, marker="diamond"),
    "mse": Style("MSE", RED),
    "pm": Style("PM", BLUE),
    "adapm": Style("AdaPM", SKY),
    "aligned": Style("aligned", GREEN, "6 3", "triangle"),
    "auto": Style("auto", GREEN, marker="diamond"),
    "none": Style("no denoiser", GREY, "2 3", "cross"),
    "wiener": Style("Wiener filter", PURPLE, "2 3", "cross"),
    "tv": Style("total variation", PURPLE, "7 3 2 3", "square", False),
    "l1": Style("L1", ORANGE, "6 3", "triangle", control=True),
    "scaled-mse": Style("MSE, scaled", ORANGE, "2 3", "square", control=True),
    "mse-clip": Style("MSE, clipped", RED, "5 3", "circle", False, True),
    "pm-clip": Style("PM, clipped", BLUE, "5 3", "circle", False, True),
}
_OTHER = (("8 3", "triangle"), ("3 2", "square"), ("8 3 2 3", "diamond"), ("1 3", "cross"))


def styles(methods: Iterable[str]) -> dict[str, Style]:
    """The style of each method, in the order of the paper's rows.

    A method that is not known has the colour of the one its name begins with (``pm-late`` that of
    ``pm``), or else purple, and a dash of its own.
    """
    found = set(methods)
    known = {name: METHODS[name] for name in METHODS if name in found}
    strangers = sorted(found - METHODS.keys())
    return known | {name: _stranger(name, i) for i, name in enumerate(strangers)}


def _stranger(name: str, index: int) -> Style:
    dash, marker = _OTHER[index % len(_OTHER)]
    base = METHODS.get(name.split("-")[0], Style(name, PURPLE))
    return replace(base, label=name, dash=dash, marker=marker, filled=False, control=True)
