"""The numbers of the paper, transcribed from its Tables 2 and 3 (``paper.csv`` beside this file).

Mean and standard deviation over its 100 test images; SSIM and gap in units of 10^-2.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True)
class Reported:
    """One line of a table of the paper; None where it has no number."""

    psnr: tuple[float, float | None]  # in dB, mean and standard deviation
    ssim: tuple[float, float | None]  # in 10^-2, mean and standard deviation
    gap: tuple[float, float | None]  # in 10^-2, mean and standard deviation
    lipschitz: float | None  # L
    where: str  # table and row


@cache
def reported() -> dict[tuple[str, str, str, int], Reported]:
    """All lines, by (problem, family, method, n)."""
    text = (resources.files("proxmatch.experiments") / "paper.csv").read_text("utf-8")
    found = {}
    for line in csv.DictReader(text.splitlines()):
        pair = {
            name: (float(line[name]), float(line[f"{name}_std"]) if line[f"{name}_std"] else None)
            for name in ("psnr", "ssim", "gap")
        }
        key = (line["problem"], line["family"], line["method"], int(line["n"]))
        constant = float(line["lipschitz"]) if line["lipschitz"] else None
        found[key] = Reported(pair["psnr"], pair["ssim"], pair["gap"], constant, line["where"])
    return found
