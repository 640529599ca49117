"""Whole pictures of many kinds: is a result ever below its start, and does it show a grid?

Strengths are chosen on crops of validation photographs for the color pictures, and of other X-rays
for the X-rays: none of the pictures here has any influence on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from proxmatch._internal.randomness import fingerprint
from proxmatch.data.embedded import embedded_picture
from proxmatch.data.images import image_files, read_file
from proxmatch.experiments.studies.priors import (
    CHOSEN_ON,
    at_strength,
    fitting,
    identity_of,
    images_of,
    label_of,
    problem_of,
)
from proxmatch.experiments.studies.study import Study, Work, grouped, markdown
from proxmatch.metrics import psnr
from proxmatch.pnp import pnp_pgd

PROBLEMS = ("deblurring", "super-resolution", "inpainting 70")
#: Pictures that come with scikit-image; then folders of pictures, and how many of each.
EMBEDDED = ("astronaut", "chelsea", "coffee")
FOLDERS = {"kodak24": (5, 3), "satellite": (3, 3), "xray": (3, 1)}
#: Pictures are cut to multiples of this, and to this many pixels a side.
MULTIPLE, LARGEST = 8, 512
#: Distances between the lines of a grid that are looked for.
PERIODS = (2, 4, 8, 32)
#: Whose images strengths are chosen on, by the number of channels, and the side of their crops.
CHOSEN, SIDE = {3: "photographs", 1: "xray"}, 128


def pictures(work: Work) -> dict[str, int]:
    """The pictures, by name, and their channels."""
    found = dict.fromkeys(EMBEDDED, 3)
    for folder, (number, channels) in FOLDERS.items():
        files = image_files([work.data / folder])
        chosen = [files[round(i * len(files) / number)] for i in range(number)]
        found |= {f"{folder}/{file.relative_to(work.data / folder)}": channels for file in chosen}
    return found


def picture(name: str, channels: int, work: Work) -> Tensor:
    """One of them, ``(C, H, W)`` in [0, 1]."""
    if name in EMBEDDED:
        pixels = embedded_picture(name, 1)
    else:
        pixels = read_file(work.data / name, channels).pixels
    height, width = (min(n, LARGEST) // MULTIPLE * MULTIPLE for n in pixels.shape[1:])
    top, left = (pixels.shape[1] - height) // 2, (pixels.shape[2] - width) // 2
    return pixels[:, top : top + height, left : left + width].contiguous()


def plan(work: Work) -> list[dict[str, Any]]:
    """A cell for each problem, number of channels and denoiser."""
    there = pictures(work)
    return [
        {
            "channels": channels,
            "domain": CHOSEN[channels],
            "problem": problem,
            "prior": label_of(model),
            "model": model,
            "identity": identity_of(model),
            "pictures": [name for name, number in there.items() if number == channels],
            "seed": work.seed,
        }
        for channels in (3, 1)
        for problem in PROBLEMS
        for model in fitting(list(work.models), channels)
    ]


@torch.no_grad()
def compute(settings: Mapping[str, Any], work: Work) -> dict[str, Any]:
    """PSNR of every picture at the start and at the end, and the grid of its error."""
    channels, seed = settings["channels"], settings["seed"]
    crops = _chosen_on(settings, work)
    problem = problem_of(settings["problem"], channels)
    denoiser, about = at_strength(settings["model"], crops, problem, seed=seed)
    rows, pixels = {}, []
    for name in settings["pictures"]:
        x = picture(name, channels, work)[None]
        pixels.append(x[0])
        here = problem_of(settings["problem"], channels, (x.shape[2], x.shape[3]))
        y = here.measure(x, seed=seed)
        run = pnp_pgd(denoiser, y, here, record=())
        rows[name] = {
            "start": round(float(psnr(here.initial(y), x)), 4),
            "psnr": round(float(psnr(run.images, x)), 4),
            "grid": round(grid(run.images[0] - x[0]), 3),
            "checkerboard": round(checkerboard(run.images[0] - x[0]), 3),
            "status": str(run.status[0]),
        }
    return {"rows": rows, "data": fingerprint(pixels), **about}


def _chosen_on(settings: Mapping[str, Any], work: Work) -> Tensor:
    """Crops that a strength is chosen on, ``(N, C, 128, 128)``, of none of the pictures."""
    domain = settings["domain"]
    if domain not in FOLDERS:
        return images_of(domain, "validation", work, CHOSEN_ON, SIDE)[0]
    names = [str(file.relative_to(work.data)) for file in image_files([work.data / domain])]
    others = [name for name in names if name not in settings["pictures"]]
    crops = []
    for name in others[:: max(1, len(others) // CHOSEN_ON)][:CHOSEN_ON]:
        x = picture(name, settings["channels"], work)
        top, left = ((n - SIDE) // 2 for n in x.shape[1:])
        crops.append(x[:, top : top + SIDE, left : left + SIDE])
    return torch.stack(crops)


def grid(error: Tensor) -> float:
    """How much more an error ``(C, H, W)`` jumps along some lines of a grid than between them.

    For every distance between lines of :data:`PERIODS`, every place of the lines and both
    directions: the mean jump across them over the mean over all places; the largest of these.
    One without a grid has little more than 1.
    """
    found = []
    for image in (error, error.transpose(1, 2)):
        jumps = image.diff(dim=2).abs().mean((0, 1))
        for period in PERIODS:
            whole = jumps[: len(jumps) // period * period].view(-1, period).mean(0)
            found.append(float(whole.max() / whole.mean()))
    return max(found)


def checkerboard(error: Tensor) -> float:
    """How much of an error image alternates from pixel to pixel in both directions.

    The mean square of its mixed differences over that of white noise of the same size: 1 for white
    noise, below for smoother errors, 4 for nothing but a checkerboard.
    """
    mixed = error.diff(dim=1).diff(dim=2)
    return float(mixed.square().mean() / (4 * error.square().mean()))


def tables(cells: Sequence[Mapping[str, Any]]) -> str:
    """One row per picture, one column per problem and denoiser: start -> end."""
    parts = []
    for problem, some in grouped(cells, "problem").items():
        for channels, here in grouped(some, "channels").items():
            rows = [
                [
                    name,
                    f"{here[0]['rows'][name]['start']:.2f}",
                    *(f"{c['rows'][name]['psnr']:.2f}" for c in here),
                    *(f"{c['rows'][name]['grid']:.2f}" for c in here),
                ]
                for name in here[0]["rows"]
            ]
            priors = [cell["prior"] for cell in here]
            header = [f"{problem}, {channels} channel(s)", "start", *priors]
            parts.append(markdown([*header, *(f"grid, {p}" for p in priors)], rows))
    below = sum(r["psnr"] < r["start"] for cell in cells for r in cell["rows"].values())
    total = sum(len(cell["rows"]) for cell in cells)
    most = max(r["checkerboard"] for cell in cells for r in cell["rows"].values())
    parts.append(
        f"Results below their start: {below} of {total}. Largest share of a checkerboard in an "
        f"error: {most:.2f} (white noise has 1, a checkerboard 4)."
    )
    return "\n\n".join(parts)


WHOLE = Study("whole", "Whole pictures, PSNR in dB", plan, compute, tables)
