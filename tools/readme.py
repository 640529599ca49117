"""The pictures and tables of README.md and docs/index.rst, from pictures and committed results.

    python tools/readme.py picture   # writes docs/readme.jpg: two minutes on one core
    python tools/readme.py figure    # writes docs/adaptation.png from results
    python tools/readme.py tables    # writes the tables of both pages from results

A test compares the tables with the results.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

ROOT = Path(__file__).parents[1]
README, HOME = ROOT / "README.md", ROOT / "docs" / "index.rst"
PICTURE, FIGURE = ROOT / "docs" / "readme.jpg", ROOT / "docs" / "adaptation.png"
PRIORS = ROOT / "results" / "priors" / "reconstruction" / "cells"
ADAPTATION = ROOT / "results" / "adaptation" / "cells"
#: Rows of the table of priors, and what they are called.
ROWS = {
    "wiener": "Wiener filter of five faces",
    "tv": "total variation",
    "ffdnet": "FFDNet (no proximal map)",
    "gs-photographs": "`gs-photographs`",
    "gs-faces": "`gs-faces`",
}
PROBLEMS = ("deblurring", "super-resolution")
#: Images of the adaptations that are shown.
FEW = 5


def _cells(folder: Path) -> list[dict[str, Any]]:
    found = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))]
    return [{**cell["settings"], **cell} for cell in found]


@dataclass(frozen=True)
class Table:
    """What stands between two marks."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """For README.md."""
        rule = ("---",) * len(self.head)
        return "".join(f"| {' | '.join(row)} |\n" for row in (self.head, rule, *self.rows))

    def rst(self) -> str:
        """For docs/index.rst."""
        lines = [", ".join(row) for row in self.rows]
        head = f".. csv-table::\n   :header: {', '.join(self.head)}\n\n"
        return head + "".join(f"   {line}\n" for line in lines) + "\n"


def priors() -> Table:
    """Mean PSNR in dB of the test faces, the best of a column in bold."""
    found: dict[tuple[str, str], float] = {}
    for cell in _cells(PRIORS):
        if cell["domain"] == "faces":
            found[cell["prior"], cell["problem"]] = mean(cell["psnr"])
    best = {p: max(found[row, p] for row in ROWS) for p in PROBLEMS}

    def text(row: str, problem: str) -> str:
        value = f"{found[row, problem]:.2f}"
        return f"**{value}**" if found[row, problem] == best[problem] else value

    rows = tuple((name, *(text(row, p) for p in PROBLEMS)) for row, name in ROWS.items())
    return Table(("PSNR in dB", "deblurring", "super-resolution x 4"), rows)


def shifts() -> dict[str, list[list[list[float]]]]:
    """Of each shift and cell, adapted to five images: PSNR of each test image, by column.

    The columns: before, adapted, Wiener filter, total variation. Sets of images of which cells are
    missing are left out, so that each shift counts alike.
    """
    found: dict[str, list[list[list[float]]]] = {}
    cells = [c for c in _cells(ADAPTATION) if c.get("n") == FEW and c.get("source", "all") != "all"]
    sizes = Counter(cell["set"] for cell in cells)
    for cell in cells:
        if sizes[cell["set"]] < max(sizes.values()):
            continue
        keys = (next(iter(cell["psnr"])), cell["chosen"], "Wiener", "total variation")
        name = f"`{cell['source']}` to {cell['target']}"
        found.setdefault(name, []).append([cell["psnr"][key] for key in keys])
    return dict(sorted(found.items()))


def adaptation() -> Table:
    """Mean PSNR in dB over the problems of each shift, adapted to five images."""
    rows = []
    for name, cells in shifts().items():
        columns = [mean(map(mean, values)) for values in zip(*cells, strict=True)]
        shown = [f"**{v:.2f}**" if v == max(columns) else f"{v:.2f}" for v in columns]
        rows.append((name, *shown))
    head = ("five images", "before", "adapted", "Wiener filter", "total variation")
    return Table(head, tuple(rows))


def figure() -> None:
    """The same images as :func:`adaptation`: PSNR above the better plain method of each cell."""
    import numpy as np
    from matplotlib.figure import Figure

    from proxmatch._internal.palette import BLACK, GRAY, PINK
    from proxmatch.experiments.bootstrap import Resampling, interval

    rows = list(reversed(shifts().items()))
    drawn = Figure(figsize=(8, 0.42 * len(rows) + 1), layout="constrained")
    axes = drawn.subplots()
    looks = {"before, at its best strength": (GRAY, "s", 0.12), "adapted": (PINK, "D", -0.12)}
    for column, (label, (color, marker, shift)) in enumerate(looks.items()):
        for place, (_, cells) in enumerate(rows):
            gains = np.concatenate([np.subtract(c[column], max(c[2:], key=mean)) for c in cells])
            draw = Resampling.draw(1, len(gains), 2000, "readme")
            at = interval(float(gains.mean()), draw.means(gains[None]))
            ends = [[at.effect - at.low], [at.high - at.effect]]
            axes.errorbar(
                at.effect, place + shift, xerr=ends, color=color, marker=marker, capsize=2,
                label=label if place == 0 else None,
            )  # fmt: skip
    axes.axvline(0, color=BLACK, linewidth=1)
    axes.set_yticks(range(len(rows)), [name.replace("`", "") for name, _ in rows])
    axes.set_xlabel("PSNR in dB above the better of Wiener filter and total variation, 95 % range")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(left=False)
    drawn.legend(frameon=False, loc="outside upper center", ncols=2)
    drawn.savefig(FIGURE, dpi=110, metadata={"Software": None})


#: What makes each table, by the name in its marks.
TABLES = {"priors": priors, "adaptation": adaptation}


def with_tables(text: str, markdown: bool = True) -> str:
    """A page with each table between its two marks, which are comments."""
    left, right = ("<!-- ", " -->\n") if markdown else (".. ", "\n\n")
    for name, make in TABLES.items():
        begin, end = f"{left}{name}{right}", f"{left}end of {name}{right}"
        if begin in text:
            before, rest = text.split(begin)
            table = make().markdown() if markdown else make().rst()
            text = before + begin + table + end + rest.split(end)[1]
    return text


def picture() -> None:
    """Astronaut, blurred and noisy: a Wiener filter, total variation, gs-photographs, the truth.

    Strengths are chosen on crops of other pictures, alike for all three.
    """
    import torch
    from matplotlib.figure import Figure

    import proxmatch as pm
    from proxmatch.baselines import total_variation, wiener_filter
    from proxmatch.demo.pictures import crops, whole
    from proxmatch.plots import plot_images

    x = whole("astronaut", 2)[None]
    others = ("coffee", "rocket", "stereo_motorcycle")
    few = torch.cat([crops(whole(name, 2), 64, 1) for name in others])
    problem, small = (pm.gaussian_deblurring(side) for side in (256, 64))
    y = problem.measure(x)
    chosen: dict[str, Any] = {
        "Wiener filter": wiener_filter(few, small),
        "total variation": total_variation(few, small),
        "gs-photographs": pm.choose_strength(pm.load("gs-photographs"), few, small, measured=False),
    }
    images = {"measured": y[0]}
    for name, tuned in chosen.items():
        result = pm.pnp_pgd(tuned.denoiser, y, problem, truth=x)
        assert result.psnr is not None  # noqa: S101
        images[f"{name}, {float(result.psnr[0, -1]):.1f} dB"] = result.images[0]
    images["truth"] = x[0]
    figure = Figure(figsize=(12.5, 5.4), layout="constrained")
    plot_images(images, zoom=(2, 76, 88), figure=figure)
    figure.savefig(PICTURE, dpi=100, pil_kwargs={"quality": 88})


def main() -> None:
    """Write what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("picture", "figure", "tables"))
    what = parser.parse_args().what
    if what == "picture":
        picture()
    elif what == "figure":
        figure()
    else:
        for page, markdown in ((README, True), (HOME, False)):
            text = with_tables(page.read_text(encoding="utf-8"), markdown)
            page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
