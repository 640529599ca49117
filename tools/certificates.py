"""Certificates of the shipped denoisers on faces: source, adapted by MSE and by PM, reference.

    python tools/certificates.py FAMILY PROBLEM --data DATA --parts PARTS --out OUT

FAMILY is ``lpn`` or ``gs``, PROBLEM ``deblurring`` or ``super-resolution``; DATA holds ``celeba/``.
The histology denoiser is adapted to five validation faces, last weights, as in the paper; every
inequality is then checked along the reconstructions of test faces. Writes a JSON file with every
row and setting, the table, and the figure, none of which shows a face.

PARTS keeps the adapted denoisers and what has been measured, a file for each denoiser and four
images, so that a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

import proxmatch as pm
from proxmatch._internal.files import write_together
from proxmatch._internal.provenance import versions
from proxmatch.denoisers import ProximalDenoiser
from proxmatch.errors import ProxmatchWarning
from proxmatch.theory import Certificate, Trajectory, draw, trace
from proxmatch.theory.certificate import LOCAL, joined

SIZE, NUMBER, SET, GROUP = 64, 5, 0, 4
BUILDERS = {"deblurring": pm.gaussian_deblurring, "super-resolution": pm.super_resolution}


def main() -> None:
    """Certify one family on one problem."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family", choices=["lpn", "gs"])
    parser.add_argument("problem", choices=list(BUILDERS))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--parts", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--local", type=int, nargs="*", default=LOCAL, help="k with a local L_H")
    args = parser.parse_args()
    name = f"{args.family} {args.problem}"
    parts: Path = args.parts / f"{name}, {args.iterations} iterations"
    parts.mkdir(parents=True, exist_ok=True)
    validation, test = (
        pm.ImageDomain(args.data / "celeba", SIZE, split=split) for split in ("validation", "test")
    )
    problem = BUILDERS[args.problem](SIZE)
    y = problem.measure(test.tensor(range(args.images)))
    reference = pm.load(f"{args.family}-faces")
    paths: dict[str, tuple[Trajectory, float]] = {}
    for label, denoiser in denoisers(args.family, validation, args.parts):
        measured = []
        for start in range(0, len(y), GROUP):
            some = y[start : start + GROUP]
            part = parts / f"{label} {start}-{start + len(some) - 1}.pt"
            if not part.exists():
                started = time.process_time()
                path = trace(
                    denoiser,
                    some,
                    problem,
                    reference=reference,
                    iterations=args.iterations,
                    local=args.local,
                )
                torch.save((path, time.process_time() - started), part)
            measured.append(torch.load(part, weights_only=False))
        paths[label] = (
            joined([path for path, _ in measured]),
            sum(seconds for _, seconds in measured),
        )
    certificate = Certificate.of(problem.name, paths)
    console = Console(record=True, width=160)
    console.print(certificate.table())
    content = {
        "settings": {
            "adaptation": pm.few_shot(validation, NUMBER, SET).names,
            "images": args.images,
            "iterations": args.iterations,
            "threads": torch.get_num_threads(),
            "versions": versions(),
            "test": test.describe(),
        },
        **{key: summarized(value) for key, value in certificate.to_dict().items()},
    }
    args.out.mkdir(parents=True, exist_ok=True)
    write_together(
        args.out,
        {
            f"{name}.json": (json.dumps(content, indent=1) + "\n").encode(),
            f"{name}.txt": console.export_text().encode(),
        },
    )
    draw(certificate).savefig(args.out / f"{name}.png", dpi=80, bbox_inches="tight")


def denoisers(
    family: str, validation: pm.ImageDomain, parts: Path
) -> Iterator[tuple[str, ProximalDenoiser]]:
    """Source, adapted by MSE and by PM (with the penalty for a GS), reference, by name."""
    source = pm.load(f"{family}-histology")
    yield "source", source
    for method in ("mse", "pm" if family == "lpn" else "adapm"):
        folder = parts / f"{family} {method}"
        if not folder.exists():
            images = pm.few_shot(validation, NUMBER, SET)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ProxmatchWarning)
                found = pm.adapt(source, images, method=method, select="last", held_out=False)
            pm.save(found.denoiser, folder)
        yield method, pm.load(folder)
    yield "reference", pm.load(f"{family}-faces")


def summarized(value: Any) -> Any:
    """JSON values, where a list of one list an image becomes one of [lowest, median, highest]."""
    if isinstance(value, dict):
        return {key: summarized(inner) for key, inner in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], list):
        return [spread(of_images) for of_images in zip(*value, strict=True)]
    return value


def spread(values: tuple[float | None, ...]) -> list[float] | None:
    """Lowest, median and highest, to five digits; None if there is nothing."""
    known = Tensor([v for v in values if v is not None]).double()
    if not len(known):
        return None
    return [float(f"{float(v):.5g}") for v in (known.min(), known.median(), known.max())]


if __name__ == "__main__":
    main()
