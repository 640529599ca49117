"""The paper's inequalities along runs of the experiment: one certificate per problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from proxmatch._internal.files import write_together
from proxmatch.denoisers import ProximalDenoiser
from proxmatch.experiments.cells import Cell, Outcome, Store
from proxmatch.experiments.collect import Line, csv_lines
from proxmatch.experiments.drawn import figure_files
from proxmatch.problems import Problem
from proxmatch.theory import certify
from proxmatch.theory.figure import draw


def certificate(
    denoisers: Mapping[str, ProximalDenoiser],
    measurements: Tensor,
    problem: Problem,
    reference: ProximalDenoiser,
) -> Outcome:
    """Certify runs against the reference, in float64 on their device: JSON, figure and numbers."""
    found = certify(denoisers, measurements, problem, reference=reference)
    files = figure_files(draw(found), "certificate")
    told: dict[str, Any] = found.to_dict()
    lines: list[Line] = [
        {"denoiser": name, "image": image, "k": k, "curve": curve, "value": value}
        for name, run in told["runs"].items()
        for curve, images in run["curves"].items()
        for image, values in enumerate(images)
        for k, value in enumerate(values)
    ]
    files["certificate.csv"] = csv_lines(("denoiser", "image", "k", "curve", "value"), lines)
    shares = {name: run["share"] for name, run in told["runs"].items()}
    return Outcome({"status": "completed", "shares": shares, "certificate": told}, files)


def write(out: Path, cells: Sequence[Cell], store: Store) -> list[dict[str, str]]:
    """Write the finished figures beside the others, and describe them."""
    entries = []
    for cell in cells:
        if cell.key not in store:
            continue
        outcome = store.read(cell.key)
        name = f"certificate-{cell.label.problem}"
        files = {f"{name}{Path(file).suffix}": c for file, c in outcome.files.items()}
        write_together(out / "figures", files)
        shares = ", ".join(
            f"{who} {'none apply' if s is None else f'{100 * s:.2f} %'}"
            for who, s in outcome.result["shares"].items()
        )
        entries.append(
            {
                "name": name,
                "title": f"{cell.label.problem.capitalize()}: stationarity under its bound",
                "caption": "Mean of |grad F*|^2 along runs (black: median and range over images) "
                "under the bound of Theorem 3.1: its mismatch floor (orange) and its optimization "
                f"term (blue). Share of all inequalities that hold: {shares}.",
                "alt": f"Log-log charts of stationarity and its bound for {cell.label.problem}, "
                f"one panel per denoiser. Inequalities that hold: {shares}.",
            }
        )
    return entries
