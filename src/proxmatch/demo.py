"""The first honest thing: degrade embedded pictures, reconstruct them, and say how good it is.

Photographs are blurred or downsampled and reconstructed by PnP-PGD with denoisers trained on
histology (the wrong prior) and on photographs (the right one), for both families, beside gradient
steps without any denoiser.
"""

from __future__ import annotations

import io
import json
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import torch
from torch import Tensor

from proxmatch.data import embedded
from proxmatch.denoisers import load
from proxmatch.files import write_together
from proxmatch.pnp import PnPResult, pnp_pgd
from proxmatch.problems import Problem, gaussian_deblurring, super_resolution

IMAGES, SHOWN, SEED = 8, 1, 0
FAMILIES = {"lpn": "LPN", "gs": "GS"}


@dataclass(frozen=True)
class Row:
    """One line of the demo's table; lists hold one value an image.

    Attributes:
        problem: name of the problem.
        family: LPN or GS, or empty without a denoiser.
        trained_on: domain the denoiser was trained on.
        psnr_start: of x_0, in dB.
        psnr: of the last iterate, in dB.
        psnr_best: of the best iterate, in dB.
        gap: relative distance to the denoiser of the same family that was trained on photographs,
            mean over the iterations; None for that one itself and without a denoiser.
        status: how each image ended.
    """

    problem: str
    family: str
    trained_on: str
    psnr_start: list[float]
    psnr: list[float]
    psnr_best: list[float]
    gap: list[float] | None
    status: list[str]


@dataclass(frozen=True)
class Demo:
    """What a run of the demo produced.

    Attributes:
        rows: the table.
        pictures: one image of each problem: what is shown under each title.
        files: what was written.
    """

    rows: list[Row]
    pictures: dict[str, dict[str, Tensor]]
    files: list[Path]


def run(out: Path, progress: Callable[[str], None] = lambda _: None) -> Demo:
    """Run the demo and write ``demo.png``, ``demo.md`` and ``demo.json`` to a folder.

    Args:
        out: made if it does not exist.
        progress: told what is being done.
    """
    out.mkdir(parents=True, exist_ok=True)
    domain = embedded("photographs")
    chosen = torch.linspace(0, len(domain.test) - 1, IMAGES).long()
    truth = domain.test[chosen]
    rows: list[Row] = []
    pictures: dict[str, dict[str, Tensor]] = {}
    for problem in (gaussian_deblurring(64), super_resolution(64)):
        y = problem.measure(truth, seed=SEED)
        progress(f"{problem.name}: no denoiser")
        plain = pnp_pgd(y, problem, lambda z, _: z, truth=truth)
        rows.append(_row(problem, "", "-", plain))
        shown = {"measured": problem.initial(y), "no denoiser": plain.reconstruction}
        for key, family in FAMILIES.items():
            target = load(f"{key}-photographs")
            for trained_on, denoiser, reference in (
                ("histology", load(f"{key}-histology"), target),
                ("photographs", target, None),
            ):
                progress(f"{problem.name}: {family} trained on {trained_on}")
                result = pnp_pgd(y, problem, denoiser, reference=reference, truth=truth)
                rows.append(_row(problem, family, trained_on, result))
                shown[f"{family}, {trained_on}"] = result.reconstruction
        shown["truth"] = truth
        pictures[problem.name] = {title: images[SHOWN] for title, images in shown.items()}
    record = {
        "images": IMAGES,
        "seed": SEED,
        "domain": domain.name,
        "fingerprint": domain.fingerprint,
        "versions": {name: version(name) for name in ("proxmatch", "torch", "deepinv")},
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "rows": [asdict(row) for row in rows],
    }
    contents = {
        "demo.png": _draw(pictures),
        "demo.md": markdown(rows).encode(),
        "demo.json": (json.dumps(record, indent=1) + "\n").encode(),
    }
    write_together(out, contents)
    files = [out / name for name in contents]
    return Demo(rows, pictures, files)


def cells(row: Row) -> list[str]:
    """One row of the table as text."""
    best = _mean(row.psnr_best)
    stopped = sum(status == "diverged" for status in row.status)
    return [
        row.problem,
        row.family or "none",
        row.trained_on,
        f"{_mean(row.psnr_start):.2f}",
        f"{_mean(row.psnr):.2f}" + (f" ({stopped} div.)" if stopped else ""),
        f"{best:.2f}",
        "-" if row.gap is None else f"{100 * _mean(row.gap):.1f} %",
    ]


HEADER = ["problem", "denoiser", "trained on", "start", "last", "best", "gap"]


def markdown(rows: list[Row]) -> str:
    """The table in Markdown."""
    lines = [HEADER, ["---"] * len(HEADER), *(cells(row) for row in rows)]
    note = (
        f"\nMean PSNR in dB of {IMAGES} embedded photographs, 64 x 64: at the start, at the last "
        "of 40 iterations of PnP-PGD and at the best one. "
        "Gap: relative distance to the denoiser of the same family trained on photographs.\n"
    )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n" + note


def _row(problem: Problem, family: str, trained_on: str, result: PnPResult) -> Row:
    if result.psnr is None:
        raise ValueError("the demo measures against the truth")
    return Row(
        problem=problem.name,
        family=family,
        trained_on=trained_on,
        psnr_start=result.psnr[:, 0].tolist(),
        psnr=[float(v[~v.isnan()][-1]) for v in result.psnr],
        psnr_best=result.psnr.nan_to_num(-1).amax(1).tolist(),
        gap=None if result.gap is None else result.gap.nanmean(1).tolist(),
        status=[str(s) for s in result.status],
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _draw(pictures: dict[str, dict[str, Tensor]]) -> bytes:
    """The pictures side by side, as a PNG file."""
    from matplotlib.figure import Figure

    from proxmatch.metrics import psnr

    columns = len(next(iter(pictures.values())))
    figure = Figure(figsize=(1.75 * columns, 2.15 * len(pictures)), layout="constrained")
    axes = figure.subplots(len(pictures), columns, squeeze=False)
    for line, (problem, shown) in zip(axes, pictures.items(), strict=True):
        for axis, (title, image) in zip(line, shown.items(), strict=True):
            axis.imshow(image.clamp(0, 1).permute(1, 2, 0).numpy(), interpolation="nearest")
            quality = float(psnr(image[None], shown["truth"][None]))
            dB = "" if title == "truth" else f"\n{quality:.1f} dB"
            axis.set_title(title + dB, fontsize=8)
            axis.set_xticks([])
            axis.set_yticks([])
        line[0].set_ylabel(problem, fontsize=9)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=160)
    return file.getvalue()
