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

import torch

from proxmatch.data import ImageDomain
from proxmatch.denoisers import ProximalDenoiser, load, save
from proxmatch.learning import train
from proxmatch.learning.engine import RunStatus
from proxmatch.learning.progress import bar
from proxmatch.learning.settings import PRESETS, Preset

WEIGHTS = Path(__file__).parents[1] / "src" / "proxmatch" / "weights"
#: Side of the pictures that the crops of a training are cut from, and of those of the card.
SIZE = 128
#: Held-out crops that a card is measured on.
CARD = 16


@dataclass(frozen=True)
class Data:
    """Images to train on.

    Attributes:
        train: folder under DATA, and its split if the folder holds several.
        validation: the same, of the images that the card is measured on.
        source: what they are.
        license: of the images; the weights are given under the same terms of use.
        channels: 3, or 1 for gray.
    """

    train: tuple[str, str | None]
    validation: tuple[str, str | None]
    source: str
    license: str
    channels: int = 3


@dataclass(frozen=True)
class Model:
    """How a model is trained.

    Attributes:
        domain: a name of :data:`DOMAINS`.
        preset: the committed settings.
        steps: of the optimizer.
        start: the shipped model that it starts from; None for random weights.
        gentle: factor of the preset's rates.
    """

    domain: str
    preset: str
    steps: int
    start: str | None = None
    gentle: float = 1.0


BSDS = Data(
    ("bsds/train", None),
    ("bsds/validation", None),
    "BSDS500, 400 photographs, none of them in BSD68 (Arbelaez et al., 2011)",
    "non-commercial research only",
)
DOMAINS = {
    "photographs": BSDS,
    "grey": Data(BSDS.train, BSDS.validation, f"{BSDS.source}, in gray", BSDS.license, 1),
    "faces": Data(
        ("celeba", "train"),
        ("celeba", "validation"),
        "CelebA, aligned faces, 128 x 128 center crops (Liu et al., 2015)",
        "non-commercial research only",
    ),
    "histology": Data(
        ("brecahad", "train"),
        ("brecahad", "validation"),
        "BreCaHAD, H&E breast histopathology (Aksac et al., 2019)",
        "CC BY 4.0",
    ),
}
MODELS = {
    "gs-photographs": Model("photographs", "gs-scaled", 9_500),
    "gs-grey": Model("grey", "gs-scaled", 2_500, start="gs-photographs", gentle=0.4),
    "gs-faces": Model("faces", "gs-scaled", 3_000, start="gs-photographs", gentle=0.4),
    "gs-histology": Model("histology", "gs-scaled", 5_000),
    "lpn-photographs": Model("photographs", "lpn-scaled", 6_000),
    "lpn-grey": Model("grey", "lpn-scaled", 3_000),
    "lpn-faces": Model("faces", "lpn-scaled", 2_000, start="lpn-photographs", gentle=0.5),
    "lpn-histology": Model("histology", "lpn-scaled", 3_000),
    "ridge-photographs": Model("photographs", "ridge", 1_200),
    "ridge-grey": Model("grey", "ridge", 2_000),
}


def preset_of(model: Model) -> Preset:
    """The committed settings of a model."""
    preset = PRESETS[model.preset]
    channels = DOMAINS[model.domain].channels
    optimizer = preset.settings.optimizer
    rates = {"rate": optimizer.rate, "matrices": optimizer.matrices}
    slower = {name: rate and model.gentle * rate for name, rate in rates.items()}
    settings = {"steps": model.steps, "optimizer": optimizer.model_copy(update=slower)}
    return preset.model_copy(
        update={
            "model": preset.model.model_copy(update={"channels": channels}),
            "settings": preset.settings.model_copy(update=settings),
        }
    )


def trained(name: str, data_folder: Path, runs: Path) -> ProximalDenoiser:
    """A model after its training, with its card."""
    plan = MODELS[name]
    data, preset = DOMAINS[plan.domain], preset_of(plan)
    images, held_out = (
        ImageDomain(data_folder / folder, SIZE, split=split, channels=data.channels)  # type: ignore[arg-type]
        for folder, split in (data.train, data.validation)
    )
    places = range(0, len(held_out), max(1, len(held_out) // CARD))
    validation = held_out.tensor(places[:CARD])
    start = None if plan.start is None else load(plan.start)
    with bar(preset.settings.steps, name) as on_step:
        result = train(
            preset, images, runs / name, start=start, validation=validation, on_step=on_step
        )
    if result.run.status is not RunStatus.COMPLETED:
        raise SystemExit(f"the training of {name} ended as {result.run.status}: nothing is shipped")
    result.denoiser.record |= {
        "source": data.source,
        "license": data.license,
        "validation_data": held_out.describe(),
    }
    return result.denoiser


def main() -> None:
    """Train the models that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = list(MODELS)
    parser.add_argument("names", nargs="*", default=names, choices=[*names, []], metavar="NAME")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in args.names:
        save(trained(name, args.data, args.runs).half(), WEIGHTS / name)


if __name__ == "__main__":
    main()
