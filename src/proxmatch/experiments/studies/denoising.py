"""Denoising at 15, 25 and 50 of 255, whole pictures where memory allows: PSNR in dB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from proxmatch.data import ImageDomain
from proxmatch.denoisers import ProximalDenoiser
from proxmatch.denoisers.tiles import tiled
from proxmatch.experiments.studies.priors import DOMAINS, fitting, identity_of, label_of, prior_of
from proxmatch.experiments.studies.study import Study, Work, markdown
from proxmatch.metrics import psnr
from proxmatch.randomness import generator_of

LEVELS = (15, 25, 50)
#: Sets of test images, and the size that their pictures are cut to.
SETS = {"faces": 128, "photographs": 256, "histology": 128, "grey": 256}


def plan(work: Work) -> list[dict[str, Any]]:
    """A cell for each set and denoiser of its channels."""
    return [
        {
            "domain": domain,
            "prior": label_of(model),
            "model": model,
            "identity": identity_of(model),
            "size": size,
            "images": work.images,
            "seed": work.seed,
        }
        for domain, size in SETS.items()
        for model in fitting(list(work.models), DOMAINS[domain].channels)
    ]


@torch.no_grad()
def compute(settings: Mapping[str, Any], work: Work) -> dict[str, Any]:
    """PSNR of every image at every level."""
    known = DOMAINS[settings["domain"]]
    folder, split = known.test
    domain = ImageDomain(
        work.data / folder,
        settings["size"],
        split=split,
        crop="centre",
        channels=known.channels,
    )
    number = min(settings["images"] or len(domain), len(domain))
    denoiser = prior_of(settings["model"])
    if isinstance(denoiser, ProximalDenoiser):
        denoiser = tiled(denoiser)
    found: dict[str, list[float]] = {str(level): [] for level in LEVELS}
    for i in range(number):
        x = domain[round(i * len(domain) / number)][None]
        noise = torch.randn(x.shape, generator=generator_of(settings["seed"], "noise", i))
        for level in LEVELS:
            out = denoiser(x + level / 255 * noise, level / 255)
            found[str(level)].append(round(float(psnr(out, x)), 4))
    return {"psnr": found, "data": domain.fingerprint}


def tables(cells: Sequence[Mapping[str, Any]]) -> str:
    """One table a set of images."""
    parts = []
    for domain in dict.fromkeys(cell["domain"] for cell in cells):
        rows = [
            [
                cell["prior"],
                *(f"{sum(v) / len(v):.2f}" for v in cell["psnr"].values()),
                str(len(cell["psnr"]["25"])),
            ]
            for cell in cells
            if cell["domain"] == domain
        ]
        header = [domain, *(f"{level}/255" for level in LEVELS), "images"]
        parts.append(markdown(header, rows))
    return "\n\n".join(parts)


DENOISING = Study("denoising", "Denoising, mean PSNR in dB of center crops", plan, compute, tables)
