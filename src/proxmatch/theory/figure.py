"""A certificate as a picture: stationarity under its bound, and what the bound is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from proxmatch._internal.palette import BLACK, BLUE, ORANGE, RED, SKY
from proxmatch.theory.certificate import Certificate, Run
from proxmatch.theory.inequalities import Constants

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(*certificates: Certificate) -> Figure:
    """One row of panels per certificate, one panel per denoiser; medians over the images.

    The running average of |grad F*(x_k)|^2 is the line with the band of all images. The areas are
    the bound of Theorem 3.1: the floor C_1 mean d^2, and C_0 / t on top of it. The dashed line is
    the bound with the sharp constants. The right axis has d_k.
    """
    from matplotlib.figure import Figure

    columns = max(len(c.runs) for c in certificates)
    figure = Figure(
        figsize=(3.3 * columns + 0.8, 3.1 * len(certificates) + 0.5), layout="constrained"
    )
    grid = figure.subplots(len(certificates), columns, squeeze=False, sharex=True)
    handles: dict[str, Any] = {}
    for line, certificate in zip(grid, certificates, strict=True):
        parts = [_parts(run, certificate.infimum) for run in certificate.runs.values()]
        low, high = _limits([p["stationarity"] for p in parts], [p["bound"] for p in parts])
        peak = 1.1 * max(float(p["mismatch"].nan_to_num(0).max()) for p in parts)
        right = []
        for axis, name, part in zip(line, certificate.runs, parts, strict=False):
            axis.set(yscale="log", xscale="log", ylim=(low, high), title=name)
            last = len(part["floor"])
            axis.set_xlim(1, last)
            axis.set_xticks([t for t in (1, 2, 5, 10, 20, 40, 100, 300, 1000) if t <= last])
            axis.minorticks_off()
            axis.xaxis.set_major_formatter("{x:g}")
            right.append(_panel(axis, part, low, peak, handles))
        for axis in line[len(parts) :]:
            axis.set_visible(False)
        for axis in line[1:]:
            axis.tick_params(labelleft=False)
        for axis in right[:-1]:
            axis.tick_params(labelright=False)
        line[0].set_ylabel(
            f"{certificate.problem}\n" + r"mean $\|\nabla F_\star(x_k)\|^2$, $k\leq t$"
        )
        right[-1].set_ylabel(r"mismatch $d_k$", color=RED)
    for axis in grid[-1]:
        axis.set_xlabel("iterations t")
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside lower center",
        ncols=min(5, columns + 1),
        frameon=False,
    )
    return figure


def _parts(run: Run, infimum: Tensor) -> dict[str, Tensor]:
    """Curves over t, ``(K,)``; the stationarity of each image, ``(B, K)``."""
    path = run.path
    t = torch.arange(1, path.mismatch.shape[1] + 1, dtype=torch.float64)
    square = (path.mismatch**2).cumsum(1) / t
    paper, sharp = Constants.paper(path), Constants.sharp(path)
    floor = (paper.mismatch * square).nanmedian(0).values
    bound = (paper.decrease * -infimum[:, None] / t + paper.mismatch * square).nanmedian(0).values
    tight = (sharp.decrease * -infimum[:, None] / t + sharp.mismatch * square).nanmedian(0).values
    return {
        "stationarity": (path.stationarity[:, 1:] ** 2).cumsum(1) / t,
        "floor": floor,
        "bound": bound,
        "sharp": tight,
        "mismatch": path.mismatch.nanmedian(0).values,
    }


def _panel(
    axis: Any, part: dict[str, Tensor], low: float, peak: float, handles: dict[str, Any]
) -> Any:
    t = torch.arange(1, len(part["floor"]) + 1).tolist()
    floor = part["floor"].nan_to_num(0).clamp_min(low)
    handles[r"bound: mismatch floor $C_1\,\overline{d^2}$"] = axis.fill_between(
        t, low, floor, color=ORANGE, alpha=0.45, linewidth=0
    )
    handles[r"bound: optimization $C_0/t$"] = axis.fill_between(
        t, floor, part["bound"], color=SKY, alpha=0.45, linewidth=0
    )
    (handles["bound, sharp constants"],) = axis.plot(
        t, part["sharp"], color=BLUE, linestyle="--", lw=1.2
    )
    every = part["stationarity"]
    if not bool(every.isnan().all()):
        known = every[~every.isnan().all(1)]
        axis.fill_between(
            t, known.nan_to_num(float("inf")).amin(0), known.nan_to_num(0).amax(0),
            color=BLACK, alpha=0.18, linewidth=0,
        )  # fmt: skip
    (handles["measured, median and range"],) = axis.plot(
        t, every.nanmedian(0).values, color=BLACK, lw=2
    )
    other = axis.twinx()
    (handles[r"mismatch $d_k$ (right axis)"],) = other.plot(
        t, part["mismatch"], color=RED, linestyle=":", lw=1.8
    )
    other.set_ylim(0, peak or 1)
    other.tick_params(axis="y", colors=RED)
    return other


def _limits(measured: list[Tensor], bounds: list[Tensor]) -> tuple[float, float]:
    values = [v[v > 0] for v in (*measured, *bounds)]
    low = min((float(v.min()) for v in values if len(v)), default=1e-6)
    high = max((float(v.max()) for v in values if len(v)), default=1.0)
    return low / 3, high * 2
