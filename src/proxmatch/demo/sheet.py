"""A sheet for each picture: damaged, reconstructed in several ways and true, each with a detail."""

from __future__ import annotations

import io

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Rectangle
from torch import Tensor

from proxmatch._internal.palette import ORANGE
from proxmatch.demo.setup import Picture
from proxmatch.demo.story import Story

DPI = 120
SHOWN = ("wiener", "tv", "wrong", "adapted", "right")
TITLES = {
    "wiener": "Wiener filter",
    "tv": "total variation",
    "wrong": "wrong denoiser",
    "adapted": "adapted",
    "right": "right denoiser",
}


def detail(about: Picture, height: int, width: int) -> tuple[int, int, int]:
    """Top, left and side of the detail of a picture of so many pixels, within it."""
    short = min(height, width)
    top, left, side = (round(share * short) for share in about.zoom)
    side = max(1, min(side, short))
    return min(top, height - side), min(left, width - side), side


def sheet(story: Story, number: int) -> bytes:
    """The sheet of one picture as a PNG file."""
    scene = story.scenes[number]
    columns: list[tuple[str, float | None, Tensor]] = [("measured", None, scene.measured)]
    for key in SHOWN:
        row = story.row(key)
        columns.append((TITLES[key], row.psnr[number], row.images[number]))
    columns.append(("truth", None, scene.truth))
    height, width = scene.truth.shape[1:]
    top, left, side = detail(scene.about, height, width)
    wide, inch = 2.3, 0.35
    tall = wide * height / width
    figure = Figure(
        figsize=(wide * len(columns), tall + wide + 2 * inch),
        layout=ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.02, wspace=0.02, hspace=0.02),
    )
    grid = figure.subplots(2, len(columns), squeeze=False, height_ratios=(tall, wide))
    for axis in grid.flat:
        axis.axis("off")
    for column, (name, psnr, image) in enumerate(columns):
        pixels = image.clamp(0, 1).permute(1, 2, 0).numpy()
        above, below = grid[0][column], grid[1][column]
        above.imshow(pixels)
        title = name if psnr is None else f"{name}\n{psnr:.2f} dB"
        above.set_title(title, fontsize=12, fontweight="bold" if name == "adapted" else None)
        box = Rectangle((left - 0.5, top - 0.5), side, side, fill=False, ec=ORANGE, lw=1.5)
        above.add_patch(box)
        below.imshow(pixels[top : top + side, left : left + side], interpolation="nearest")
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DPI)
    return file.getvalue()
