"""Iterates as small pictures: one strip per image, z_k above x_k, one column per frame."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from proxmatch._internal.files import write_json, write_together
from proxmatch.data import encode_image
from proxmatch.experiments.cells import Cell, Store
from proxmatch.experiments.inputs import Inputs
from proxmatch.experiments.plan import FRAMES
from proxmatch.experiments.scales import Scale
from proxmatch.pnp import Denoise, pnp_pgd
from proxmatch.problems import Problem


def strips(
    denoiser: Denoise,
    measurements: Tensor,
    problem: Problem,
    frames: Sequence[int],
    iterations: int | None = None,
) -> list[Tensor]:
    """Reconstruct, and lay out the iterates of each image: ``(C, 2 H, F W)`` each."""
    run = pnp_pgd(
        denoiser,
        measurements,
        problem,
        record=("iterates",),
        iterations=iterations,
        on_divergence="ignore",
    )
    if run.iterates is None or run.queries is None:
        raise ValueError("the iterates were not recorded")
    found = []
    for x, z, last in zip(run.iterates, run.queries, run.iterations.tolist(), strict=True):
        at = [min(frame, last) for frame in frames]
        above = [x[0] if k == 0 else z[k - 1] for k in at]
        below = [x[k] for k in at]
        found.append(torch.cat([torch.cat(above, -1), torch.cat(below, -1)], -2))
    return found


def opened(file: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The pixels of a picture that was written here, ``(H, W, 3)``."""
    with Image.open(file, formats=("PNG",)) as image:
        return np.asarray(image.convert("RGB"))


def write(
    out: Path,
    scale: Scale,
    inputs: Inputs,
    cells: Sequence[Cell],
    store: Store,
    problems: dict[str, Problem],
) -> None:
    """Gather the strips that are there in ``pictures/``, with an index."""
    folder = out / "pictures"
    folder.mkdir(exist_ok=True)
    ids = inputs.ids[: scale.picture_images]
    truth = inputs.test[: len(ids)]
    files: dict[str, bytes] = {}

    def keep(content: bytes) -> str:
        name = f"{hashlib.sha256(content).hexdigest()[:16]}.png"
        files[name] = content
        return f"pictures/{name}"

    entries = []
    for cell in cells:
        if cell.key not in store:
            continue
        strips_of = store.read(cell.key).files
        for place, image in enumerate(ids):
            entry = {**cell.label.columns(), "image": image}
            entries.append({**entry, "file": keep(strips_of[f"{place}.png"])})
    degraded = {}
    for name, problem in problems.items() if ids else ():
        start = problem.initial(problem.measure(truth, ids=ids, seed=scale.seed))
        degraded[name] = {i: keep(encode_image(x)) for i, x in zip(ids, start, strict=True)}
    index = {
        "size": scale.size,
        "frames": [k for k in FRAMES if k <= scale.iterations],
        "images": list(ids),
        "problems": list(problems),
        "entries": entries,
        "truth": {i: keep(encode_image(x)) for i, x in zip(ids, truth, strict=True)},
        "degraded": degraded,
        "domains": {
            "source": [keep(encode_image(x)) for x in inputs.samples[:8]],
            "target": [keep(encode_image(x)) for x in inputs.test[:8]],
        },
    }
    write_together(folder, {name: c for name, c in files.items() if not (folder / name).exists()})
    write_json(folder, "index.json", index)
