"""Panels of pictures: the domains, reconstructions with an enlarged region, and budgets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from proxmatch._internal.palette import ORANGE
from proxmatch.experiments.collect import Line, ReconstructionScores
from proxmatch.experiments.drawn import Drawn
from proxmatch.experiments.strips import opened
from proxmatch.methods import PROPOSED, title

Pixels = np.ndarray[Any, np.dtype[np.uint8]]


class StripIndex:
    """The pictures of an experiment.

    Args:
        out: its folder.
        found: its reconstructions, for the PSNR beside a picture.
    """

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
    album: StripIndex, problem: str, families: Sequence[str], n: int, source: str = "extreme"
) -> Drawn | None:
    """Degraded, source, MSE, PM, reference and truth, with an enlarged region below each."""
    image = album.images[0]
    rows: list[list[tuple[str, Pixels, float | None]]] = []
    for family in families:
        row: list[tuple[str, Pixels, float | None]] = [
            ("degraded", album.degraded(problem, image), None)
        ]
        wanted = (("source", 0, source), ("mse", n, source), (PROPOSED[family], n, source),
                  ("aligned", 1, source), ("auto", n, source), ("reference", 0, ""))  # fmt: skip
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
    figure, lines = _grid(rows, zoom=True)
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
    album: StripIndex, problem: str, family: str, budgets: Sequence[int], source: str = "extreme"
) -> Drawn | None:
    """What the proposed method reconstructs with more and more adaptation images."""
    rows = []
    for image in album.images[:2]:
        row: list[tuple[str, Pixels, float | None]] = [
            ("degraded", album.degraded(problem, image), None)
        ]
        for n in budgets:
            shown = album.last(
                family=family, source=source, method=PROPOSED[family], n=n, problem=problem,
                image=image,
            )  # fmt: skip
            if shown is not None:
                row.append((f"n = {n}", *shown))
        row.append(("truth", album.truth(image), None))
        if len(row) > 2:
            rows.append(row)
    if not rows:
        return None
    figure, lines = _grid(rows, zoom=True)
    name = title(PROPOSED[family], family)
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


def _grid(
    rows: Sequence[Sequence[tuple[str, Pixels, float | None]]], zoom: bool
) -> tuple[Figure, list[Line]]:
    columns = max(map(len, rows))
    each = 2 if zoom else 1
    figure = Figure(figsize=(1.45 * columns, (1.5 * each + 0.3) * len(rows)), layout="constrained")
    grid = figure.subplots(each * len(rows), columns, squeeze=False)
    lines: list[Line] = []
    for axis in grid.flat:
        axis.axis("off")
    for number, row in enumerate(rows):
        box = _region(row[-1][1])
        for column, (name, image, psnr) in enumerate(row):
            axis = grid[each * number][column]
            axis.imshow(image, interpolation="nearest")
            axis.set_title(name + ("" if psnr is None else f"\n{psnr:.1f} dB"), fontsize=8)
            lines.append({"row": number, "shown": name, "psnr": psnr and round(psnr, 2)})
            if zoom:
                top, left, side = box
                axis.add_patch(
                    Rectangle((left - 0.5, top - 0.5), side, side, fill=False, ec=ORANGE, lw=1.4)
                )
                below = grid[each * number + 1][column]
                below.imshow(image[top : top + side, left : left + side], interpolation="nearest")
    return figure, lines


def _region(truth: Pixels) -> tuple[int, int, int]:
    """Top, left and side of the third of an image that has the most detail near its center."""
    gray = truth.mean(2)
    detail = np.abs(np.diff(gray, axis=0))[:, :-1] + np.abs(np.diff(gray, axis=1))[:-1]
    size = len(truth)
    side = max(4, size // 3)
    places = [
        (top, left)
        for top in range(size // 8, size - side - size // 8 + 1, max(1, side // 4))
        for left in range(size // 8, size - side - size // 8 + 1, max(1, side // 4))
    ] or [(0, 0)]
    top, left = max(places, key=lambda p: detail[p[0] : p[0] + side, p[1] : p[1] + side].sum())
    return top, left, side
