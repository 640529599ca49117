"""Panels of pictures: the domains, reconstructions with an enlarged region, and budgets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from proxmatch.experiments.collect import Line, ReconstructionScores
from proxmatch.experiments.drawn import Drawn
from proxmatch.experiments.strips import opened
from proxmatch.methods import FAMILIES, title
from proxmatch.plots import plot_images
from proxmatch.records import SOURCE

Pixels = np.ndarray[Any, np.dtype[np.uint8]]


class StripIndex:
    """The pictures of an experiment."""

    def __init__(self, out: Path, found: Sequence[ReconstructionScores]) -> None:
        self.out = out
        self.index: dict[str, Any] = json.loads((out / "pictures" / "index.json").read_text())
        self.images: list[str] = self.index["images"]
        self._entries = {self._key(e): e["file"] for e in self.index["entries"]}
        self._psnr = {
            self._key({**r.label.columns(), "image": name}): float(value)
            for r in found
            for name, value in zip(r.ids, r.values["psnr"], strict=True)
        }

    @staticmethod
    def _key(entry: Mapping[str, Any]) -> tuple[Any, ...]:
        names = ("family", "source", "method", "n", "set", "problem", "relaxation", "image")
        return tuple(entry[name] for name in names)

    def last(self, **which: Any) -> tuple[Pixels, float | None] | None:
        """The last iterate of an entry, ``(H, W, 3)``, and its PSNR."""
        key = self._key({"set": 0, "relaxation": "paper", **which})
        if key not in self._entries:
            return None
        strip, size = opened(self.out / self._entries[key]), self.index["size"]
        return strip[size:, -size:], self._psnr.get(key)

    def degraded(self, problem: str, image: str) -> Pixels:
        """Where the iteration starts."""
        return opened(self.out / self.index["degraded"][problem][image])

    def truth(self, image: str) -> Pixels:
        """The true image."""
        return opened(self.out / self.index["truth"][image])

    def domain(self, name: str) -> list[Pixels]:
        """Samples of the source or the target."""
        return [opened(self.out / file) for file in self.index["domains"][name]]


def domains(album: StripIndex) -> Drawn:
    """Samples of both domains."""
    rows = {name: album.domain(name) for name in ("source", "target")}
    columns = max(map(len, rows.values()))
    figure = Figure(figsize=(1.05 * columns + 0.5, 2.5), layout="constrained")
    grid = figure.subplots(2, columns, squeeze=False)
    for line, (name, images) in zip(grid, rows.items(), strict=True):
        for axis in line:
            axis.axis("off")
        for axis, image in zip(line, images, strict=False):
            axis.imshow(image)
        line[0].set_title(name, loc="left", fontsize=10)
    lines: list[Line] = [
        {"domain": name, "file": file}
        for name, files in album.index["domains"].items()
        for file in files
    ]
    return Drawn(
        "domains",
        "The two domains",
        "Images of the source domain, which the source denoisers were trained on, and of the "
        "target domain, which they meet.",
        "Two rows of small images: one of the source domain, one of the target domain.",
        figure,
        lines,
    )


def reconstructions(
    album: StripIndex, problem: str, families: Sequence[str], n: int
) -> Drawn | None:
    """Degraded, source, MSE, PM, reference and truth, with an enlarged region below each."""
    image = album.images[0]
    rows: list[list[tuple[str, Pixels, float | None]]] = []
    for family in families:
        row: list[tuple[str, Pixels, float | None]] = [
            ("degraded", album.degraded(problem, image), None)
        ]
        proposed = FAMILIES[family].proposed
        wanted = (("source", 0, SOURCE), ("mse", n, SOURCE), (proposed, n, SOURCE),
                  ("aligned", 1, SOURCE), ("auto", n, SOURCE), ("reference", 0, ""))  # fmt: skip
        for method, number, kind in wanted:
            shown = album.last(
                family=family, source=kind, method=method, n=number, problem=problem, image=image,
                relaxation="chosen" if method == "auto" else "paper",
            )  # fmt: skip
            if shown is not None:
                note = f", n = {number}" if number else ""
                row.append((title(method, family) + note, *shown))
        row.append(("truth", album.truth(image), None))
        if len(row) > 3:
            rows.append(row)
    if not rows:
        return None
    figure, lines = _grid(rows)
    return Drawn(
        f"{problem}-reconstructions",
        f"{problem.capitalize()}: reconstructions",
        f"One test image, last iterates at t = 1 (auto: as it chose), adaptation set 0, n = {n}; "
        "PSNR in dB. The boxes mark the regions enlarged below.",
        f"Reconstructions of one image in {problem}: "
        + "; ".join(f"{line['shown']} {line['psnr']} dB" for line in lines if line["psnr"]),
        figure,
        lines,
    )


def across_budgets(
    album: StripIndex, problem: str, family: str, budgets: Sequence[int]
) -> Drawn | None:
    """What the proposed method reconstructs with more and more adaptation images."""
    rows, proposed = [], FAMILIES[family].proposed
    for image in album.images[:2]:
        row: list[tuple[str, Pixels, float | None]] = [
            ("degraded", album.degraded(problem, image), None)
        ]
        for n in budgets:
            shown = album.last(
                family=family, source=SOURCE, method=proposed, n=n, problem=problem,
                image=image,
            )  # fmt: skip
            if shown is not None:
                row.append((f"n = {n}", *shown))
        row.append(("truth", album.truth(image), None))
        if len(row) > 2:
            rows.append(row)
    if not rows:
        return None
    figure, lines = _grid(rows)
    name = title(proposed, family)
    return Drawn(
        f"{problem}-{family}-budgets",
        f"{problem.capitalize()}: {name} across adaptation budgets",
        f"Test images reconstructed by {name} with n adaptation images (set 0, t = 1, last "
        "iterate).",
        f"Reconstructions by {name} in {problem}: "
        + "; ".join(f"{line['shown']} {line['psnr']} dB" for line in lines if line["psnr"]),
        figure,
        lines,
    )


def _grid(rows: Sequence[Sequence[tuple[str, Pixels, float | None]]]) -> tuple[Figure, list[Line]]:
    """A line of pictures per row, each picture with a detail below."""
    columns = max(map(len, rows))
    figure = Figure(figsize=(1.45 * columns, 3.3 * len(rows)), layout="constrained")
    lines: list[Line] = []
    for number, (row, part) in enumerate(
        zip(rows, figure.subfigures(len(rows), 1, squeeze=False)[:, 0], strict=True)
    ):
        shown = {}
        for name, image, psnr in row:
            title = name if psnr is None else f"{name}\n{psnr:.1f} dB"
            shown[title] = torch.from_numpy(image / 255).movedim(2, 0)
            lines.append({"row": number, "shown": name, "psnr": psnr and round(psnr, 2)})
        plot_images(shown, figure=part)
    return figure, lines
