"""One color, marker and line for a method, in every figure.

Markers and line styles tell methods apart without any color.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxmatch._internal.palette import BLACK, BLUE, BROWN, GRAY, GREEN, ORANGE, PINK, RED, SKY


@dataclass(frozen=True)
class CurveStyle:
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
    "source": CurveStyle(GRAY, "x", ":"),
    "reference": CurveStyle(BLACK, "*", "--"),
    "mse": CurveStyle(BLUE, "o"),
    "pm": CurveStyle(RED, "s"),
    "adapm": CurveStyle(RED, "s"),
    "l1": CurveStyle(ORANGE, "v", "-."),
    "scaled-mse": CurveStyle(SKY, "^", "-."),
    "mse-clip": CurveStyle(BLUE, "<", "--"),
    "pm-clip": CurveStyle(RED, ">", "--"),
    "mse-unclipped": CurveStyle(BLUE, "1", ":"),
    "mse-penalty": CurveStyle(BLUE, "D", "--"),
    "mse-best": CurveStyle(BLUE, "p", ":"),
    "pm-best": CurveStyle(RED, "P", ":"),
    "adapm-best": CurveStyle(RED, "P", ":"),
    "aligned": CurveStyle(GREEN, "h"),
    "auto": CurveStyle(PINK, "d"),
    "none": CurveStyle(BROWN, "+", ":"),
    "wiener": CurveStyle(BROWN, "X", "-."),
    "tv": CurveStyle(BROWN, "2", "--"),
}
