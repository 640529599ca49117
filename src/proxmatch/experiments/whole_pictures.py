"""Whole embedded pictures, reconstructed by the rows of an experiment: the head of its page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from proxmatch.data import encode_image
from proxmatch.experiments.cells import Cell, Outcome, Store
from proxmatch.experiments.work import measured_whole
from proxmatch.methods import METHODS, title
from proxmatch.records import (
    Label,
    WholePicture,
    WholePictures,
    WholeView,
    plain_family,
    write_whole,
)

#: Rows that are shown beside the adapted ones.
ENDS = {"source": "source denoiser", "reference": "reference"}


def write(out: Path, cells: Sequence[Cell], store: Store, families: Sequence[str]) -> None:
    """Write what there is of the first family that has an adapted row; nothing without one."""
    done = [(cell.label, store.read(cell.key)) for cell in cells if cell.key in store]
    for family in families:
        rows = [row for row in done if plain_family(row[0].family) in ("", family)]
        adapted = [row for row in rows if row[0].n and row[0].family == family]
        if adapted:
            break
    else:
        return
    rows.sort(key=lambda row: _place(row[0]))
    best, found = max(adapted, key=lambda row: _mean(row[1]))
    settings = cells[0].settings
    scenes, files = [], {}
    for name in settings["whole"]:
        problem, truth, y = measured_whole(name, settings)
        views = [_view(name, "measured", "measured", None)]
        files[views[0].file] = encode_image(problem.initial(y)[0])
        for label, outcome in rows:
            key = "adapted" if label == best else f"{label.method}-{label.n}"
            views.append(_view(name, key, _called(label), outcome.result["psnr"][name]))
            files[views[-1].file] = outcome.files[f"{name}.png"]
        views.append(_view(name, "truth", "truth", None))
        files[views[-1].file] = encode_image(truth[0])
        height, width = truth.shape[2:]
        side = min(height, width) // 3
        detail = (height // 12, (width - side) // 2, side)
        scenes.append(WholePicture(name=name, label=name, detail=detail, views=views))
    means = {label.method: _mean(outcome) for label, outcome in rows if label != best}
    known = [f"{ENDS[name]} {means[name]:.1f} dB" for name in ENDS if name in means]
    plain = [f"{METHODS[n].label} {means[n]:.1f} dB" for n in ("wiener", "tv") if n in means]
    says = [
        f"Whole pictures, {settings['problem']}: every denoiser at the strength that did best on "
        "the adaptation images, which were cut from the left halves of such pictures.",
        f"{_called(best)}: {_mean(found):.1f} dB. {', '.join(known).capitalize()}.",
    ]
    if plain:
        says.append(f"Without a learned prior: {', '.join(plain)}.")
    write_whole(out, WholePictures(says=says, scenes=scenes), files)


def _mean(outcome: Outcome) -> float:
    values = outcome.result["psnr"].values()
    return float(sum(values) / len(values))


def _place(label: Label) -> tuple[int, int, int]:
    """Plain methods, the source, what became of it, the reference."""
    kind = {"source": 1, "reference": 3}.get(label.method, 2)
    learned = bool(plain_family(label.family))
    return kind if learned else 0, list(METHODS).index(label.method), label.n


def _called(label: Label) -> str:
    if not plain_family(label.family):
        return METHODS[label.method].label
    name = ENDS.get(label.method) or title(label.method, label.family)
    return f"{name}, n = {label.n}" if label.n else name


def _view(name: str, key: str, label: str, psnr: float | None) -> WholeView:
    return WholeView(key=key, label=label, psnr=psnr, file=f"{name}-{key}.png")
