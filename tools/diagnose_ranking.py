"""Does the score of ``diagnose`` without a reference rank denoisers like their true gap?

    python tools/diagnose_ranking.py --faces DIR --histology DIR --photographs DIR [--images 8]

For each domain, the six shipped denoisers {lpn, gs} x {histology, photographs, faces} are diagnosed
on images of the domain's validation split, without a reference; the true gap is that to the shipped
denoiser of the same family and of the domain. Prints the table, and Spearman's rank correlation of
the two for each domain and problem.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from scipy.stats import spearmanr

import proxmatch as pm
from proxmatch._internal.files import write_together

FAMILIES, DOMAINS = ("lpn", "gs"), ("histology", "photographs", "faces")
DOWNSCALE = {"histology": 2}
SIZE = 64


def main() -> None:
    """Measure the domains whose folders are given."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in DOMAINS:
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--iterations", type=int)
    parser.add_argument("--out", type=Path, help="folder for diagnose-ranking.json")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for domain in DOMAINS:
        folder = getattr(args, domain)
        if folder is not None:
            rows += measure(domain, folder, args.images, args.iterations)
    ranks = correlations(rows)
    show(rows, ranks)
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
        content = json.dumps({"rows": rows, "spearman": ranks}, indent=1) + "\n"
        write_together(args.out, {"diagnose-ranking.json": content.encode()})


def measure(domain: str, folder: Path, number: int, iterations: int | None) -> list[dict[str, Any]]:
    """Score and true gap of the six denoisers on one domain, for both problems."""
    opened = pm.ImageDomain(folder, SIZE, split="validation", downscale=DOWNSCALE.get(domain, 1))
    places = torch.linspace(0, len(opened) - 1, number).round().long().tolist()
    images = opened.tensor(places)
    rows = []
    for problem in (pm.gaussian_deblurring(SIZE), pm.super_resolution(SIZE)):
        for family in FAMILIES:
            reference = pm.load(f"{family}-{domain}")
            for source in DOMAINS:
                model = pm.load(f"{family}-{source}")
                # The reference is only measured beside: it has no influence on the score.
                found = pm.diagnose(model, images, problem, reference, iterations=iterations)
                named = {"domain": domain, "problem": problem.name, "model": f"{family}-{source}"}
                measured = {"gap": found.gap, "score": found.score}
                rows.append({**named, **measured, "verdict": str(found.verdict)})
    return rows


def correlations(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Spearman's rank correlation of score and gap, for each domain and problem."""
    found: dict[str, float] = {}
    for key in dict.fromkeys((row["domain"], row["problem"]) for row in rows):
        chosen = [row for row in rows if (row["domain"], row["problem"]) == key]
        rho = spearmanr([r["score"] for r in chosen], [r["gap"] for r in chosen]).statistic
        found[", ".join(key)] = float(rho)
    return found


def show(rows: list[dict[str, Any]], ranks: dict[str, float]) -> None:
    """All rows, and the correlations."""
    table = Table()
    for name in rows[0]:
        table.add_column(name)
    for row in rows:
        table.add_row(*(f"{v:.4f}" if isinstance(v, float) else v for v in row.values()))
    console = Console()
    console.print(table)
    for key, rho in ranks.items():
        console.print(f"{key}: Spearman {rho:.3f}", highlight=False)


if __name__ == "__main__":
    main()
