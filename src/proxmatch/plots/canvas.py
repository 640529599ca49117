"""Figures: new ones through pyplot, so that notebooks and ``plt.show()`` have them, and as HTML."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of a size in inches.

    Example:
        >>> [float(side) for side in new_figure(4, 3).get_size_inches()]
        [4.0, 3.0]
    """
    import matplotlib.pyplot as plt

    return plt.figure(figsize=(width, height), layout="constrained")


def encoded(figure: Figure, dpi: int = 100) -> str:
    """A figure as an ``<img>`` that holds its picture.

    Example:
        >>> encoded(new_figure(1, 1))[:31]
        '<img src="data:image/png;base64'
    """
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=dpi)
    data = base64.b64encode(file.getvalue()).decode("ascii")
    return f'<img src="data:image/png;base64,{data}" alt="">'
