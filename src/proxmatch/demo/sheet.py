"""A sheet for each picture: damaged, reconstructed in several ways and true, each with a detail."""

from __future__ import annotations

from matplotlib.figure import Figure

from proxmatch.demo.story import Story
from proxmatch.demo.web_page import LOOKS
from proxmatch.plots import plot_images, rendered

DPI = 120
SHOWN = ("wiener", "tv", "wrong", "adapted", "right")


def sheet(story: Story, number: int) -> bytes:
    """The sheet of one picture as a PNG file."""
    scene = story.scenes[number]
    shown = {"measured": scene.measured}
    for row in map(story.row, SHOWN):
        shown[f"{LOOKS[row.key].label}\n{row.psnr[number]:.2f} dB"] = row.images[number]
    shown["truth"] = scene.truth
    height, width = scene.truth.shape[1:]
    wide = 2.3
    figure = Figure((wide * len(shown), wide * (1 + height / width) + 0.7), layout="constrained")
    plot_images(shown, zoom=scene.about.detail(height, width), figure=figure)
    return rendered(figure, "png", dpi=DPI)
