"""Images side by side, each with a detail below."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor

from proxmatch._internal.palette import ORANGE
from proxmatch.errors import InputError
from proxmatch.plots.canvas import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Top, left and side of a detail, in pixels.
Box = tuple[int, int, int]


def plot_images(
    images: Mapping[str, Tensor], *, zoom: Box | bool = True, figure: Figure | None = None
) -> Figure:
    """Draw images side by side.

    Args:
        images: ``(C, H, W)`` in [0, 1] by title, C one or three; values outside are clipped.
            Images of another size than the last one are shown without a detail.
        zoom: a detail of each is drawn below it: top, left and side in pixels; True for the
            busiest square of the last image; False for none.
        figure: to draw into; a new one by default.

    Example:
        >>> import torch
        >>> from matplotlib.figure import Figure
        >>> drawn = plot_images({"a": torch.rand(3, 16, 16)}, figure=Figure())
        >>> len(drawn.axes)
        2
    """
    from matplotlib.patches import Rectangle

    if not images:
        raise InputError("there are no images to plot; give at least one")
    last = list(images.values())[-1]
    size = last.shape[1:]
    box = _busiest(last) if zoom is True else zoom or None
    if box is not None and not (
        0 <= box[0] <= size[0] - box[2] and 0 <= box[1] <= size[1] - box[2] and box[2] > 0
    ):
        raise InputError(f"the detail {box} is not inside the image of {size[1]} x {size[0]}")
    rows, wide = (1 if box is None else 2), 2.4
    tall = wide * size[0] / size[1]
    heights = (tall,) if box is None else (tall, wide)
    figure = figure or new_figure(wide * len(images), sum(heights) + 0.45)
    grid = figure.subplots(rows, len(images), squeeze=False, height_ratios=heights)
    narrow = figure.bbox.width < 2 * figure.dpi * len(images)
    for axis in grid.flat:
        axis.axis("off")
    for column, (title, image) in enumerate(images.items()):
        if image.ndim != 3 or image.shape[0] not in (1, 3):
            raise InputError(f"{title!r} should be (1 or 3, H, W), it is {tuple(image.shape)}")
        pixels = image.detach().cpu().float().clamp(0, 1).permute(1, 2, 0).numpy()
        look = {"cmap": "gray", "vmin": 0.0, "vmax": 1.0} if pixels.shape[2] == 1 else {}
        grid[0][column].imshow(pixels, **look)
        grid[0][column].set_title(title, fontsize=8 if narrow else 10)
        if box is None or image.shape[1:] != size:
            continue
        top, left, side = box
        grid[0][column].add_patch(
            Rectangle((left - 0.5, top - 0.5), side, side, fill=False, ec=ORANGE, lw=1.5)
        )
        grid[1][column].imshow(
            pixels[top : top + side, left : left + side], interpolation="nearest", **look
        )
    return figure


def _busiest(image: Tensor) -> Box | None:
    """The square of a third of the shorter side with the highest contrast; None if tiny."""
    side = min(image.shape[1:]) // 3
    if side < 4:
        return None
    step = max(1, side // 2)
    cells = image.detach().float().mean(0).unfold(0, side, step).unfold(1, side, step)
    number = int(cells.std((-2, -1)).argmax())
    return step * (number // cells.shape[1]), step * (number % cells.shape[1]), side
