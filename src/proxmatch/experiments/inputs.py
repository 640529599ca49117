"""The images of the experiment: checked before any long work, then handed to every worker."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from proxmatch._internal.randomness import fingerprint
from proxmatch.data import ImageDomain, embedded, few_shot
from proxmatch.data.embedded import LARGEST
from proxmatch.data.layouts import Split
from proxmatch.errors import DataError, InputError
from proxmatch.experiments.scales import Scale

SAMPLES = 16
#: Of the embedded photographs the one that is shown, if it is tested on: the motorcycle.
SHOWN = 31


@dataclass(frozen=True, eq=False)
class Inputs:
    """Images in memory."""

    test: Tensor  # to be measured and reconstructed, (N, C, H, W)
    ids: tuple[str, ...]  # their names
    #: Images to adapt to, by the number of the set, (n, C, H, W): sets of fewer images are the
    #: first of these.
    sets: dict[int, Tensor]
    names: dict[int, tuple[str, ...]]  # their names, by set
    samples: Tensor  # some of the source domain, to show

    def to_bytes(self) -> bytes:
        """As safetensors."""
        text = json.dumps({"ids": self.ids, "names": {str(k): v for k, v in self.names.items()}})
        tensors = {
            "test": self.test.contiguous(),
            "samples": self.samples.contiguous(),
            "text": torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8),
            **{f"set/{number}": images.contiguous() for number, images in self.sets.items()},
        }
        content: bytes = safetensors.torch.save(tensors)
        return content

    @classmethod
    def from_bytes(cls, content: bytes) -> Inputs:
        """From :meth:`to_bytes`."""
        tensors = safetensors.torch.load(content)
        text = json.loads(tensors["text"].numpy().tobytes())
        sets = {int(k[4:]): v for k, v in tensors.items() if k.startswith("set/")}
        names = {int(k): tuple(v) for k, v in text["names"].items()}
        return cls(tensors["test"], tuple(text["ids"]), sets, names, tensors["samples"])


@dataclass(frozen=True, eq=False)
class Data:
    """What was found in the folders."""

    inputs: Inputs  # the images in memory
    record: dict[str, Any]  # what there is, with fingerprints, for the manifest
    folders: dict[str, Path]  # to train on, by source and target; none for the embedded domains
    embedded: dict[str, str]  # names of the embedded domains, when no folders are given


def look(scale: Scale, source: str | Path | None, target: str | Path | None) -> Data:
    """Open the domains and check that they hold what the scale needs.

    Args:
        scale: how many images of what size.
        source: folder of the images the source denoisers know; its training split is used.
        target: folder of the images to adapt to (validation split), to test on (test split) and
            to train the reference on (training split).

    Raises:
        InputError: only one folder is given.
        DataError: a folder is missing, or has too few images.
    """
    if (source is None) != (target is None):
        raise InputError("give both --source and --target, or neither for the embedded domains")
    largest = max(scale.sets.values())
    if source is None or target is None:
        return _embedded(scale, largest)
    known = _open(source, scale.size, "train", scale.source_downscale)
    few = _open(target, scale.size, "validation", scale.target_downscale)
    test = _open(target, scale.size, "test", scale.target_downscale)
    _enough(len(few), largest, "validation", target, "to adapt to")
    _enough(len(test), scale.test_images, "test", target, "to test on")
    step = 1 if test.crop == "center" else len(test) // scale.test_images
    places = range(0, len(test), step)[: scale.test_images]
    drawn = {k: few_shot(few, n, 1000 * scale.seed + k) for k, n in scale.sets.items()}
    shown = range(0, len(known), max(1, len(known) // SAMPLES))[:SAMPLES]
    inputs = Inputs(
        test.tensor(places),
        tuple(test.name(index) for index in places),
        {k: shot.images for k, shot in drawn.items()},
        {k: shot.names for k, shot in drawn.items()},
        known.tensor(shown),
    )
    train = _open(target, scale.size, "train", scale.target_downscale)
    record = {
        "source": known.describe(),
        "target": {
            "train": train.describe(),
            "validation": few.describe(),
            "test": test.describe() | {"used": scale.test_images},
        },
    }
    return Data(inputs, record, {"source": Path(source), "target": Path(target)}, {})


def _embedded(scale: Scale, largest: int) -> Data:
    if scale.size > LARGEST:
        raise InputError(
            f"embedded crops have at most {LARGEST} x {LARGEST} pixels, {scale.name} needs "
            f"{scale.size} x {scale.size}: give --source and --target, or take quick"
        )
    known, domain = embedded("histology", scale.size), embedded("photographs", scale.size)
    where = "the embedded photographs"
    _enough(len(domain.adaptation), largest, "adaptation", where, "to adapt to")
    _enough(len(domain.test), scale.test_images, "test", where, "to test on")
    number = len(domain.test)
    places = [round(i * number / scale.test_images) for i in range(scale.test_images)]
    places.sort(key=lambda place: place != SHOWN)
    drawn = {k: few_shot(domain, n, 1000 * scale.seed + k) for k, n in scale.sets.items()}
    inputs = Inputs(
        domain.test[places],
        tuple(f"photographs@{index}" for index in places),
        {k: shot.images for k, shot in drawn.items()},
        {k: shot.names for k, shot in drawn.items()},
        known.adaptation[:SAMPLES],
    )
    record = {
        "source": {"embedded": known.name, "fingerprint": known.fingerprint},
        "target": {
            "embedded": domain.name,
            "fingerprint": domain.fingerprint,
            "used": scale.test_images,
        },
    }
    return Data(inputs, record, {}, {"source": known.name, "target": domain.name})


def first(images: Tensor, count: int) -> dict[str, Any]:
    """How many images of a batch are used, and which, for the address of a cell."""
    return {"count": count, "fingerprint": fingerprint(list(images[:count]))}


def _open(folder: str | Path, size: int, split: Split, downscale: int) -> ImageDomain:
    try:
        return ImageDomain(folder, size, split=split, downscale=downscale, cache_bytes=2**28)
    except DataError as error:
        raise DataError(f"{error} (split {split}, downscale {downscale})") from error


def _enough(found: int, wanted: int, split: str, where: Sequence[str] | object, use: str) -> None:
    if found < wanted:
        raise DataError(
            f"{where} has {found} image(s) {use} (split {split}), {wanted} are needed: give a "
            "larger folder, or a smaller scale"
        )
