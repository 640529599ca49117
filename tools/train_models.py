"""Train the denoisers that ship with proxmatch.

    python tools/train_models.py --data DATA --runs RUNS [--last] [NAME ...]

DATA holds ``bsds/``, ``celeba/`` and ``brecahad/``, each in its published layout; RUNS gets a
folder for each stage of a model, from which an interrupted training continues. The finished model
goes to ``src/proxmatch/weights/NAME`` in half precision, with its card (``config.json``, under
``record``). With ``--last`` only the last stage is run, from the weights that ship.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from proxmatch.data import ImageDomain
from proxmatch.denoisers import ProximalDenoiser, load, save
from proxmatch.learning import train
from proxmatch.learning.engine import RunStatus
from proxmatch.learning.progress import bar
from proxmatch.learning.settings import PRESETS, Levels, Preset

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
        license: of the images; the weights are given under the same terms of use, and under those
            of the images that the model they start from was trained on.
        channels: 3, or 1 for gray.
    """

    train: tuple[str, str | None]
    validation: tuple[str, str | None]
    source: str
    license: str
    channels: int = 3


@dataclass(frozen=True)
class Stage:
    """One run of the optimizer, with its own warm-up and cosine.

    Attributes:
        steps: of the optimizer.
        gentle: factor of the preset's rates.
        crop: side of the crops; the preset's if None.
        batch: crops a step; the preset's if None.
        seed: of the images and the noise; another one for every stage.
        mixed: whether convolutions are in bfloat16.
        power: of the noise levels, the smaller the more often large ones; the preset's if None.
        blocks: residual blocks at each scale; the preset's if None. Further ones than the stage
            before had begin as the identity.
    """

    steps: int
    gentle: float = 1.0
    crop: int | None = None
    batch: int | None = None
    seed: int = 0
    mixed: bool = False
    power: float | None = None
    blocks: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Model:
    """How a model is trained.

    Attributes:
        domain: a name of :data:`DOMAINS`.
        preset: the committed settings.
        stages: one after the other.
        start: the shipped model that the first stage starts from; None for random weights.
        card: held-out crops that its card is measured on.
    """

    domain: str
    preset: str
    stages: tuple[Stage, ...]
    start: str | None = None
    card: int = 16


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
#: A long second stage: larger crops, half the rates.
LONGER = Stage(11_000, gentle=0.5, crop=80, batch=3, seed=1)
#: A third one: crops as wide as the network looks, and large levels more often.
WIDER = Stage(18_000, gentle=0.5, crop=128, batch=2, seed=2, mixed=True, power=1.0)
#: The same with twice the crops a step, and with more blocks at the coarse scales. ``gs-faces``
#: started from the ``gs-photographs`` before this stage.
DEEPER = replace(WIDER, steps=14_000, batch=4, seed=3, blocks=(1, 2, 3))
#: A short one with large batches and small steps.
FINISH = replace(DEEPER, steps=1_500, gentle=0.15, batch=8, seed=4)
MODELS = {
    "gs-photographs": Model("photographs", "gs-scaled", (Stage(9_500), LONGER, DEEPER)),
    "gs-grey": Model(
        "grey",
        "gs-scaled",
        (replace(DEEPER, steps=8_000),),
        start="gs-photographs",
    ),
    "gs-faces": Model(
        "faces",
        "gs-scaled",
        (
            Stage(3_000, gentle=0.4),
            Stage(9_000, gentle=0.5, crop=80, batch=3, seed=1),
            WIDER,
            replace(DEEPER, steps=5_000, gentle=0.4),
            FINISH,
        ),
        start="gs-photographs",
    ),
    "gs-histology": Model("histology", "gs-scaled", (Stage(9_000, mixed=True, blocks=(1, 2, 3)),)),
    "lpn-photographs": Model("photographs", "lpn-scaled", (Stage(5_000),)),
    "lpn-grey": Model("grey", "lpn-scaled", (Stage(2_500),)),
    "lpn-faces": Model("faces", "lpn-scaled", (Stage(1_500, gentle=0.5),), start="lpn-photographs"),
    "lpn-histology": Model("histology", "lpn-scaled", (Stage(2_500),)),
    "ridge-photographs": Model(
        "photographs", "ridge", (Stage(1_500, crop=48, mixed=True),), card=4
    ),
    "ridge-grey": Model("grey", "ridge", (Stage(1_500, crop=48, mixed=True),), card=4),
}


def preset_of(model: Model, stage: Stage) -> Preset:
    """The committed settings of a stage of a model."""
    preset = PRESETS[model.preset]
    channels = DOMAINS[model.domain].channels
    layout = {"channels": channels} | ({"blocks": stage.blocks} if stage.blocks else {})
    optimizer = preset.settings.optimizer
    rates = {"rate": optimizer.rate, "matrices": optimizer.matrices}
    slower = {name: rate and stage.gentle * rate for name, rate in rates.items()}
    noise = preset.settings.noise
    if stage.power is not None:
        assert isinstance(noise, Levels)  # noqa: S101
        noise = noise.model_copy(update={"power": stage.power})
    settings = {
        "noise": noise,
        "steps": stage.steps,
        "batch": stage.batch or preset.settings.batch,
        "seed": stage.seed,
        "mixed": stage.mixed,
        "optimizer": optimizer.model_copy(update=slower),
    }
    return preset.model_copy(
        update={
            "model": preset.model.model_copy(update=layout),
            "size": stage.crop or preset.size,
            "settings": preset.settings.model_copy(update=settings),
        }
    )


def trained(name: str, data_folder: Path, runs: Path, *, last: bool = False) -> ProximalDenoiser:
    """A model after its training, with its card; with ``last``, its last stage alone."""
    plan = MODELS[name]
    data = DOMAINS[plan.domain]
    images, held_out = (
        ImageDomain(data_folder / folder, SIZE, split=split, channels=data.channels)  # type: ignore[arg-type]
        for folder, split in (data.train, data.validation)
    )
    places = range(0, len(held_out), max(1, len(held_out) // plan.card))
    validation = held_out.tensor(places[: plan.card])
    begin = name if last else plan.start
    denoiser = None if begin is None else load(begin)
    first = len(plan.stages) - 1 if last else 0
    for number, stage in enumerate(plan.stages[first:], first):
        preset = preset_of(plan, stage)
        with bar(preset.settings.steps, f"{name}, stage {number + 1}") as on_step:
            result = train(
                preset,
                images,
                runs / name / str(number),
                start=denoiser,
                validation=validation,
                on_step=on_step,
            )
        if result.run.status is not RunStatus.COMPLETED:
            raise SystemExit(
                f"the training of {name} ended as {result.run.status}: nothing is shipped"
            )
        denoiser = result.denoiser
        denoiser.record |= {
            "source": data.source,
            "license": data.license,
            "validation_data": held_out.describe(),
        }
    assert denoiser is not None  # noqa: S101
    return denoiser


def main() -> None:
    """Train the models that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = list(MODELS)
    parser.add_argument("names", nargs="*", default=names, choices=[*names, []], metavar="NAME")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--last", action="store_true", help="only the last stage of each")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in args.names:
        save(trained(name, args.data, args.runs, last=args.last).half(), WEIGHTS / name)


if __name__ == "__main__":
    main()
