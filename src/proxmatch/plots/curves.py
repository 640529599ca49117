"""Curves along the iterations, scores of candidates, and trials of strengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from proxmatch._internal.palette import BLUE, GRAY, RED
from proxmatch.errors import InputError
from proxmatch.plots.canvas import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_curves(
    curves: Mapping[str, Tensor], *, warm: int = 0, figure: Figure | None = None
) -> Figure:
    """Draw curves, one panel each: the mean over the images, and each image in gray.

    Args:
        curves: ``(B, K)`` by title; NaN is left out. A title that ends in ``(log)`` has a
            logarithmic axis.
        warm: number of steps of the warm start, which are shaded.
        figure: to draw into; a new one by default.

    Example:
        >>> import torch
        >>> figure = plot_curves({"PSNR, dB": torch.tensor([[20.0, 25.0, 27.0]])})
        >>> figure.axes[0].get_title()
        'PSNR, dB'
    """
    if not curves:
        raise InputError("nothing was recorded to plot: pass truth=..., or record=('residual',)")
    figure = figure or new_figure(3.6 * len(curves), 2.8)
    for axis, (title, values) in zip(
        figure.subplots(1, len(curves), squeeze=False)[0], curves.items(), strict=True
    ):
        steps = list(range(values.shape[1]))
        values = values.detach().cpu().double()
        for row in values[:50]:
            axis.plot(steps, row.tolist(), color=GRAY, alpha=0.5, lw=0.8)
        if len(values) > 1:
            axis.plot(steps, values.nanmean(0).tolist(), color=RED, lw=2)
        else:
            axis.lines[0].set(color=RED, alpha=1.0, linewidth=2)
        if warm:
            axis.axvspan(0, warm, color=GRAY, alpha=0.12, lw=0)
        axis.set(xlabel="iteration k", title=title.removesuffix("(log)").strip())
        if title.endswith("(log)") and bool((values > 0).any()):
            axis.set_yscale("log")
    return figure


def plot_scores(
    scores: Mapping[str, float],
    *,
    chosen: str | None = None,
    label: str = "PSNR, dB",
    figure: Figure | None = None,
) -> Figure:
    """Draw one bar per candidate.

    Args:
        scores: by name.
        chosen: the one that is drawn in color.
        label: of the axis.
        figure: to draw into; a new one by default.

    Example:
        >>> figure = plot_scores({"source": 25.3, "adapted": 30.8}, chosen="adapted")
        >>> [float(bar.get_width()) for bar in figure.axes[0].patches]
        [30.8, 25.3]
    """
    if not scores:
        raise InputError("nothing was compared, so that there is nothing to plot")
    figure = figure or new_figure(6.0, 0.5 + 0.36 * len(scores))
    axis = figure.subplots()
    names = list(scores)[::-1]
    values = [scores[name] for name in names]
    axis.barh(names, values, color=[RED if name == chosen else BLUE for name in names])
    low, high = min(values), max(values)
    room = max(0.2 * (high - low), 0.5)
    axis.set(xlim=(low - room, high + room), xlabel=label)
    for place, value in enumerate(values):
        axis.annotate(
            f"{value:.2f}", (value, place), (3, 0), textcoords="offset points", va="center"
        )
    return figure


def plot_trials(
    strengths: Sequence[float],
    scores: Sequence[float],
    *,
    chosen: int,
    label: str,
    figure: Figure | None = None,
) -> Figure:
    """Draw how well each strength did.

    Args:
        strengths: that were tried.
        scores: PSNR of each, in dB.
        chosen: number of the one that was taken.
        label: what the strength is.
        figure: to draw into; a new one by default.

    Example:
        >>> figure = plot_trials([1.0, 0.5], [28.0, 30.0], chosen=1, label="t")
        >>> figure.axes[0].get_xlabel()
        't'
    """
    figure = figure or new_figure(4.2, 2.8)
    axis = figure.subplots()
    axis.semilogx(strengths, scores, "o", color=BLUE)
    axis.semilogx([strengths[chosen]], [scores[chosen]], "o", color=RED, ms=10)
    axis.set(xlabel=label, ylabel="PSNR, dB")
    return figure
