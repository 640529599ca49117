"""Train the small denoisers that ship with proxmatch.

    python tools/train_models.py --data DATA --runs RUNS [NAME ...]

DATA holds ``brecahad/``, ``celeba/`` and ``cbsd68/``, each in its published layout; RUNS gets a
folder a model, from which an interrupted training goes on. The finished model goes to
``src/proxmatch/weights/NAME``, with its card (``config.json``, under ``record``).
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from proxmatch.data import ImageDomain
from proxmatch.denoisers import save
from proxmatch.learning import train
from proxmatch.learning.progress import bar
from proxmatch.learning.settings import PRESETS

WEIGHTS = Path(__file__).parents[1] / "src" / "proxmatch" / "weights"
SIZE = 64


@dataclass(frozen=True)
class Data:
    """Images to train on.

    Attributes:
        folder: under DATA.
        downscale: factor of the area filter before cropping.
        source: what they are.
        licence: of the images; the weights are given under the same terms of use.
        validation: how many held-out crops the card is measured on.
    """

    folder: str
    downscale: int
    source: str
    licence: str
    validation: int = 50


DOMAINS = {
    "histology": Data(
        "brecahad",
        2,
        "BreCaHAD, H&E breast histopathology (Aksac et al., 2019)",
        "CC BY 4.0",
    ),
    "faces": Data(
        "celeba",
        1,
        "CelebA, aligned faces at half resolution (Liu et al., 2015)",
        "non-commercial research only",
        100,
    ),
    "photographs": Data(
        "cbsd68",
        1,
        "CBSD68, photographs of the Berkeley segmentation data (Martin et al., 2001)",
        "research use",
    ),
}
NAMES = [f"{family}-{domain}" for domain in DOMAINS for family in ("lpn", "gs")]


def main() -> None:
    """Train the models that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES, choices=[*NAMES, []], metavar="NAME")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True)
    args = parser.parse_args()
    for name in args.names:
        family, domain = name.split("-")
        data, preset = DOMAINS[domain], PRESETS[f"{family}-compact"]
        images, held_out = (
            ImageDomain(args.data / data.folder, SIZE, split=split, downscale=data.downscale)
            for split in ("train", "validation")
        )
        places = range(0, len(held_out), max(1, len(held_out) // data.validation))
        validation = held_out.tensor(places[: data.validation])
        with bar(preset.settings.steps, name) as on_step:
            result = train(preset, images, args.runs / name, validation=validation, on_step=on_step)
        result.model.record |= {
            "source": data.source,
            "licence": data.licence,
            "validation_data": held_out.describe(),
        }
        save(result.model, WEIGHTS / name)


if __name__ == "__main__":
    main()
