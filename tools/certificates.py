"""Certificates of the shipped denoisers on faces: source, adapted by MSE and by PM, reference.

    python tools/certificates.py FAMILY PROBLEM --data DATA --out results/certificates

FAMILY is ``lpn`` or ``gs``, PROBLEM ``deblurring`` or ``super-resolution``; DATA holds ``celeba/``.
The histology denoiser is adapted to five validation faces, last weights, as in the paper; every
inequality is then checked along the reconstructions of test faces. Writes a JSON file with every
row, curve and setting, the table, and the figure.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import torch
from rich.console import Console

import proxmatch as pm
from proxmatch.errors import ProxmatchWarning
from proxmatch.files import write_together
from proxmatch.learning.train import versions
from proxmatch.theory import draw

SIZE, NUMBER, SET = 64, 5, 0


def main() -> None:
    """Certify one family on one problem."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family", choices=["lpn", "gs"])
    parser.add_argument("problem", choices=["deblurring", "super-resolution"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--iterations", type=int, default=40)
    args = parser.parse_args()
    started = time.monotonic()
    adaptation, test = (
        pm.ImageDomain(args.data / "celeba", SIZE, split=split) for split in ("validation", "test")
    )
    builders = {"deblurring": pm.gaussian_deblurring, "super-resolution": pm.super_resolution}
    problem = builders[args.problem](SIZE)
    source, reference = (pm.load(f"{args.family}-{domain}") for domain in ("histology", "faces"))
    images = pm.few_shot(adaptation, NUMBER, SET)
    matching = "pm" if args.family == "lpn" else "adapm"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ProxmatchWarning)
        adapted = {
            method: pm.adapt(source, images, method, select="last", problem=problem).model
            for method in ("mse", matching)
        }
        certificate = pm.certify(
            {"source": source, **adapted, "reference": reference},
            reference,
            problem,
            problem.measure(test.tensor(range(args.images))),
            iterations=args.iterations,
        )
    table = certificate.table()
    console = Console(record=True, width=160)
    console.print(table)
    name = f"{args.family} {args.problem}"
    content = {
        "settings": {
            "adaptation": images.names,
            "images": args.images,
            "iterations": args.iterations,
            "minutes": round((time.monotonic() - started) / 60, 1),
            "threads": torch.get_num_threads(),
            "versions": versions(),
            "test": test.describe(),
        },
        **certificate.to_dict(),
    }
    args.out.mkdir(parents=True, exist_ok=True)
    write_together(
        args.out,
        {
            f"{name}.json": (json.dumps(content) + "\n").encode(),
            f"{name}.txt": console.export_text().encode(),
        },
    )
    draw(certificate).savefig(args.out / f"{name}.png", dpi=110, bbox_inches="tight")


if __name__ == "__main__":
    main()
