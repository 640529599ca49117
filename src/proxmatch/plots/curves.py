"""Curves along the iterations, scores of candidates, and trials of strengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

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


def plot_losses(history: Sequence[Mapping[str, Any]], *, figure: Figure | None = None) -> Figure:
    """Draw the loss of a training along its steps.

    Args:
        history: lines of its log.
        figure: to draw into; a new one by default.

    Example:
        >>> figure = plot_losses([{"step": 10, "loss": 0.5}, {"step": 20, "loss": 0.3}])
        >>> figure.axes[0].lines[0].get_xdata()
        [10, 20]
    """
    found = [entry for entry in history if "loss" in entry]
    if not found:
        raise InputError("no loss was logged, so that there is nothing to plot")
    figure = figure or new_figure(4.2, 2.8)
    axis = figure.subplots()
    axis.plot([e["step"] for e in found], [e["loss"] for e in found], color=RED, lw=2)
    axis.set(xlabel="step", ylabel="loss")
    return figure


def plot_ranges(
    low: Tensor,
    high: Tensor,
    *,
    residuals: tuple[Tensor, Tensor],
    label: str,
    figure: Figure | None = None,
) -> Figure:
    """Draw an interval for each image, zero and one marked.

    Args:
        low: lower ends, ``(B,)``.
        high: upper ends, ``(B,)``.
        residuals: how far off the lower and the upper ends may be, ``(B,)`` each.
        label: of the axis.
        figure: to draw into; a new one by default.

    Example:
        >>> import torch
        >>> ends, none = torch.tensor([0.4]), torch.zeros(1)
        >>> figure = plot_ranges(ends, ends + 0.5, residuals=(none, none), label="eigenvalues")
        >>> figure.axes[0].get_xlabel()
        'eigenvalues'
    """
    figure = figure or new_figure(5.0, 0.8 + 0.3 * len(low))
    axis = figure.subplots()
    places = list(range(len(low)))
    ends = [each.detach().cpu().double().tolist() for each in (low, high)]
    axis.hlines(places, *ends, color=BLUE, lw=3)
    for values, off in zip(ends, residuals, strict=True):
        spread = off.detach().cpu().double().tolist()
        axis.errorbar(values, places, xerr=spread, fmt="o", color=BLUE, capsize=3)
    for line in (0, 1):
        axis.axvline(line, color=GRAY, ls="--", lw=1)
    axis.set(xlabel=label, ylabel="image", yticks=places)
    axis.invert_yaxis()
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
