"""Figures: new ones through pyplot, so that notebooks and ``plt.show()`` have them, and as HTML."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Any

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


def rendered(figure: Figure, format: str, **options: Any) -> bytes:
    """The contents of a file of a figure; the options are those of ``savefig``.

    Example:
        >>> rendered(new_figure(1, 1), "png", dpi=20)[1:4]
        b'PNG'
    """
    file = io.BytesIO()
    figure.savefig(file, format=format, **options)
    return file.getvalue()


def encoded(figure: Figure) -> str:
    """A figure as an ``<img>`` that holds its picture.

    Example:
        >>> encoded(new_figure(1, 1))[:31]
        '<img src="data:image/png;base64'
    """
    data = base64.b64encode(rendered(figure, "png", dpi=100)).decode("ascii")
    return f'<img src="data:image/png;base64,{data}" alt="">'
