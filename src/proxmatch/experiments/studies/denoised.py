"""Denoising at 15, 25 and 50 of 255: crops of four domains, whole photographs; in dB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from proxmatch._internal.randomness import fingerprint, generator_of
from proxmatch.baselines import TotalVariation
from proxmatch.data.images import image_files, read_file
from proxmatch.denoisers import ProximalDenoiser
from proxmatch.denoisers.tiles import tiled
from proxmatch.experiments.studies.priors import (
    CHOSEN_ON,
    DOMAINS,
    cell_of,
    fitting,
    images_of,
    prior_of,
)
from proxmatch.experiments.studies.study import Study, Work, grouped, markdown, mean_and_interval
from proxmatch.metrics import psnr

LEVELS = (15, 25, 50)
#: Sets of whole pictures: folder and channels.
WHOLE = {"CBSD68": ("cbsd68", 3), "Kodak24": ("kodak24", 3), "BSD68": ("cbsd68", 1)}
#: Sets of 128 x 128 center crops. Total variation is beside the models there.
CROPS = ("faces", "histology", "photographs", "gray")
#: Weights of total variation to choose from, in units of the noise level; steps of its solver.
WEIGHTS, STEPS = tuple(0.3 * 1.2**k for k in range(12)), 200


def plan(work: Work) -> list[dict[str, Any]]:
    """A cell for each set and denoiser of its channels."""
    sets = {**{name: DOMAINS[name].channels for name in CROPS}}
    sets |= {name: channels for name, (_, channels) in WHOLE.items()}
    return [
        cell_of(model, work, work.images, domain=domain)
        for domain, channels in sets.items()
        if (models := fitting(list(work.models), channels))
        for model in (*models, *(["tv"] if domain in CROPS else []))
    ]


@torch.no_grad()
def compute(settings: Mapping[str, Any], work: Work) -> dict[str, Any]:
    """PSNR of every image at every level."""
    pictures = _pictures(settings["domain"], work.data, settings["images"])
    denoiser = _denoiser(settings, work)
    found: dict[str, list[float]] = {str(level): [] for level in LEVELS}
    for i, x in enumerate(pictures):
        noise = torch.randn(x.shape, generator=generator_of(settings["seed"], "noise", i))
        for level in LEVELS:
            out = denoiser((x + level / 255 * noise)[None], level / 255)
            found[str(level)].append(round(float(psnr(out, x[None])), 4))
    return {"psnr": found, "data": fingerprint(pictures)}


def _denoiser(settings: Mapping[str, Any], work: Work) -> Any:
    """A prior, in tiles; or total variation with the best weight on validation images."""
    if settings["model"] != "tv":
        denoiser = prior_of(settings["model"])
        return tiled(denoiser) if isinstance(denoiser, ProximalDenoiser) else denoiser
    clean, _ = images_of(settings["domain"], "validation", work, CHOSEN_ON)
    noise = torch.randn(clean.shape, generator=generator_of(settings["seed"], "validation"))

    @cache
    def best(level: float) -> TotalVariation:
        tried = [TotalVariation(level * weight, STEPS) for weight in WEIGHTS]
        return max(tried, key=lambda tv: float(psnr(tv(clean + level * noise), clean).mean()))

    return lambda x, level: best(level)(x)


@cache
def _pictures(domain: str, data: Path, count: int | None) -> list[Tensor]:
    """The test pictures of a set, ``(C, H, W)`` each, evenly spread if not all."""
    if domain in CROPS:
        return list(images_of(domain, "test", Work(data, ()), count)[0])
    folder, channels = WHOLE[domain]
    files = image_files([data / folder])
    number = min(count or len(files), len(files))
    chosen = [files[round(i * len(files) / number)] for i in range(number)]
    return [read_file(file, channels).pixels for file in chosen]


def tables(cells: Sequence[Mapping[str, Any]]) -> str:
    """One table per set of images: the mean and its interval."""
    parts = []
    for domain, here in grouped(cells, "domain").items():
        rows = [
            [
                cell["prior"],
                *(mean_and_interval(v, sign="") for v in cell["psnr"].values()),
                str(len(cell["psnr"]["25"])),
            ]
            for cell in here
        ]
        header = [domain, *(f"{level}/255" for level in LEVELS), "images"]
        parts.append(markdown(header, rows))
    return "\n\n".join(parts)


DENOISING = Study("denoising", "Denoising, mean PSNR in dB [95 %]", plan, compute, tables)
