"""One colour, marker and line for a method, in every figure.

Markers and line styles tell methods apart without any colour.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxmatch.palette import BLACK, BLUE, BROWN, GREEN, GREY, ORANGE, PINK, RED, SKY


@dataclass(frozen=True)
class Style:
    """How a method is drawn.

    Attributes:
        color: of lines and markers.
        marker: of points.
        linestyle: of lines.
    """

    color: str
    marker: str
    linestyle: str = "-"

    @property
    def options(self) -> dict[str, str]:
        """For matplotlib's ``plot``."""
        return {"color": self.color, "marker": self.marker, "linestyle": self.linestyle}


STYLES = {
    "source": Style(GREY, "x", ":"),
    "reference": Style(BLACK, "*", "--"),
    "mse": Style(BLUE, "o"),
    "pm": Style(RED, "s"),
    "adapm": Style(RED, "s"),
    "l1": Style(ORANGE, "v", "-."),
    "scaled-mse": Style(SKY, "^", "-."),
    "mse-clip": Style(BLUE, "<", "--"),
    "pm-clip": Style(RED, ">", "--"),
    "mse-unclipped": Style(BLUE, "1", ":"),
    "mse-penalty": Style(BLUE, "D", "--"),
    "mse-best": Style(BLUE, "p", ":"),
    "pm-best": Style(RED, "P", ":"),
    "adapm-best": Style(RED, "P", ":"),
    "aligned": Style(GREEN, "h"),
    "auto": Style(PINK, "d"),
    "none": Style(BROWN, "+", ":"),
    "wiener": Style(BROWN, "X", "-."),
    "tv": Style(BROWN, "2", "--"),
}
