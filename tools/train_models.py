"""Train the denoisers that ship with proxmatch.

    python tools/train_models.py --data DATA --runs RUNS [NAME ...]

DATA holds ``bsds/``, ``celeba/`` and ``brecahad/``, each in its published layout; RUNS gets a
folder a model, from which an interrupted training goes on. The finished model goes to
``src/proxmatch/weights/NAME`` in half precision, with its card (``config.json``, under ``record``).
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from proxmatch.data import ImageDomain
from proxmatch.denoisers import save
from proxmatch.learning import train
from proxmatch.learning.progress import bar
from proxmatch.learning.settings import PRESETS, Preset

WEIGHTS = Path(__file__).parents[1] / "src" / "proxmatch" / "weights"
#: Side of the pictures that the crops of a training are cut from, and of those of the card.
SIZE = 128


@dataclass(frozen=True)
class Data:
    """Images to train on.

    Attributes:
        train: folder under DATA, and its split if the folder holds several.
        validation: the same, of the images that the card is measured on.
        source: what they are.
        licence: of the images; the weights are given under the same terms of use.
        steps: optimiser steps of the families that are trained, by their names.
        channels: 3, or 1 for grey.
    """

    train: tuple[str, str | None]
    validation: tuple[str, str | None]
    source: str
    licence: str
    steps: dict[str, int]
    channels: int = 3


BSDS = Data(
    ("bsds/train", None),
    ("bsds/validation", None),
    "BSDS500, 400 photographs, none of them in BSD68 (Arbelaez et al., 2011)",
    "non-commercial research only",
    {"gs": 12_000, "lpn": 8_000, "ridge": 1_200},
)
DOMAINS = {
    "photographs": BSDS,
    "grey": Data(
        BSDS.train,
        BSDS.validation,
        f"{BSDS.source}, in grey",
        BSDS.licence,
        {"gs": 7_500, "lpn": 5_000, "ridge": 2_000},
        1,
    ),
    "faces": Data(
        ("celeba", "train"),
        ("celeba", "validation"),
        "CelebA, aligned faces, 128 x 128 centre crops (Liu et al., 2015)",
        "non-commercial research only",
        {"gs": 7_500, "lpn": 6_000},
    ),
    "histology": Data(
        ("brecahad", "train"),
        ("brecahad", "validation"),
        "BreCaHAD, H&E breast histopathology (Aksac et al., 2019)",
        "CC BY 4.0",
        {"gs": 4_000, "lpn": 4_000},
    ),
}
NAMES = [f"{family}-{domain}" for domain, data in DOMAINS.items() for family in data.steps]
#: The committed settings of a family.
SETTINGS = {"gs": "gs-scaled", "lpn": "lpn-scaled", "ridge": "ridge"}
#: Held-out crops that a card is measured on.
CARD = 16


def preset_of(name: str) -> Preset:
    """The committed settings of a model."""
    family, domain = name.split("-")
    data, preset = DOMAINS[domain], PRESETS[SETTINGS[family]]
    return preset.model_copy(
        update={
            "model": preset.model.model_copy(update={"channels": data.channels}),
            "settings": preset.settings.model_copy(update={"steps": data.steps[family]}),
        }
    )


def main() -> None:
    """Train the models that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES, choices=[*NAMES, []], metavar="NAME")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True)
    args = parser.parse_args()
    for name in args.names:
        data, preset = DOMAINS[name.split("-")[1]], preset_of(name)
        images, held_out = (
            ImageDomain(args.data / folder, SIZE, split=split, channels=data.channels)  # type: ignore[arg-type]
            for folder, split in (data.train, data.validation)
        )
        places = range(0, len(held_out), max(1, len(held_out) // CARD))
        validation = held_out.tensor(places[:CARD])
        with bar(preset.settings.steps, name) as on_step:
            result = train(preset, images, args.runs / name, validation=validation, on_step=on_step)
        result.model.record |= {
            "source": data.source,
            "licence": data.licence,
            "validation_data": held_out.describe(),
        }
        save(result.model.half(), WEIGHTS / name)


if __name__ == "__main__":
    main()
