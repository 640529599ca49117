"""Source and reference denoisers: taken where they exist, else trained."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from proxmatch.denoisers import ProximalDenoiser, load, shipped
from proxmatch.denoisers.base import SET
from proxmatch.denoisers.checkpoint import CONFIG, WEIGHTS, packed, unpacked
from proxmatch.errors import InputError
from proxmatch.experiments.cells import Outcome
from proxmatch.experiments.inputs import Data
from proxmatch.experiments.scales import Scale
from proxmatch.learning.settings import PRESETS
from proxmatch.records import SOURCE

REFERENCE = "reference"
#: Kinds that are trained in full, as those that come with proxmatch are.
FULL = (SOURCE, REFERENCE)


@dataclass(frozen=True)
class Origin:
    """Where a denoiser comes from."""

    settings: dict[str, Any]  # of its cell
    outcome: Outcome | None = None  # of its cell, where it is taken and not trained


def origin(
    scale: Scale, data: Data, family: str, kind: str, given: Mapping[str, str | Path]
) -> Origin:
    """How a denoiser is obtained.

    In this order: the one that is given; the one that comes with proxmatch and was trained on just
    these images (or, for the embedded domains, on such images); a training.

    Raises:
        InputError: it is neither given nor known, and the scale does not train it.
        CheckpointError: what is given cannot be loaded.
    """
    name = f"{family}/{kind}"
    if name in given:
        return _taken(given[name])
    domain = "target" if kind == REFERENCE else "source"
    if data.embedded:
        if kind not in FULL:
            raise InputError(f"no {name} comes with proxmatch; give folders to train it on")
        return _taken(f"{family}-{data.embedded[domain]}")
    found = data.record["source"] if domain == "source" else data.record["target"]["train"]
    own = scale.families[family]
    if kind in FULL:
        for candidate in shipped():
            if candidate.startswith(f"{family}-") and _fits(candidate, found, own.preset):
                return _taken(candidate)
    if kind not in own.training:
        raise InputError(f"the scale {scale.name} does not train {name}; give it, or leave it out")
    steps = own.training[kind] or PRESETS[own.preset].settings.steps
    settings = {
        "preset": own.preset,
        "steps": min(steps, scale.max_steps or steps),
        "seed": scale.seed,
        "domain": domain,
        "size": scale.size,
        "downscale": found["downscale"],
        "images": found["fingerprint"],
    }
    return Origin(settings)


def restored(outcome: Outcome, device: str = "cpu") -> ProximalDenoiser:
    """The denoiser that a cell left behind."""
    return unpacked(outcome.files, Path("a cell"), device=device)


def _taken(where: str | Path) -> Origin:
    denoiser = load(where)  # any error is raised now
    files = packed(denoiser)
    digest = hashlib.sha256(files[WEIGHTS] + files[CONFIG]).hexdigest()[:16]
    result = {"taken": Path(where).name, "status": "taken", "record": denoiser.record}
    return Origin({"fingerprint": digest}, Outcome(result, files))


def _fits(name: str, found: Mapping[str, Any], preset: str) -> bool:
    """Whether a shipped denoiser has the layout of a preset and was trained on these images."""
    denoiser = load(name)
    if _layout(denoiser.config) != _layout(PRESETS[preset].model):
        return False
    record = denoiser.record.get("data", {})
    return all(record.get(key) == found[key] for key in ("fingerprint", "size", "downscale"))


def _layout(config: BaseModel) -> dict[str, Any]:
    """A configuration without what is only known after a training."""
    return config.model_dump(exclude={*SET, "levels"})
