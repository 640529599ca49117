"""Modalities on real gray pictures: gray and lifted models against total variation and Wiener.

Whole X-rays, and crops of electron microscopy at half its resolution. Tomography measures the
picture, MRI the same with a smooth phase, so that it is complex; PSNR of MRI is that of the
magnitudes. The start is filtered back-projection for tomography and the zero-filled image for MRI.
Every prior is at the strength that did best on other pictures of the domain. A color model is
lifted (:mod:`proxmatch.transforms.lifted`). The first :data:`CERTIFIED` plain steps of a learned
prior on the first picture are certified, with the prior itself as the reference.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch import Tensor

from proxmatch._internal.randomness import fingerprint
from proxmatch.data import ImageDomain, encode_image, image_files, read_image
from proxmatch.experiments.studies.priors import at_strength, cell_of
from proxmatch.experiments.studies.study import Study, Work, grouped, markdown
from proxmatch.metrics import psnr
from proxmatch.pnp import pnp_pgd
from proxmatch.problems import Problem, make_problem
from proxmatch.theory import certify

SIZE = 64
#: Folder, and the factor by which its pictures are reduced before a crop; None for whole pictures.
DOMAINS: dict[str, tuple[str, int | None]] = {
    "x-ray": ("xray", None),
    "microscopy": ("microscopy", 2),
}
PROBLEMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "tomography 20": ("tomography", ("views=20",)),
    "tomography 60": ("tomography", ("views=60",)),
    "MRI 4 x": ("mri", ("acceleration=4",)),
    "Poisson denoising": ("poisson-denoising", ()),
    "Poisson deblurring": ("poisson-deblurring", ("peak=200",)),
    "deblurring": ("deblurring", ()),
    "super-resolution": ("super-resolution", ()),
    "inpainting 70": ("inpainting", ("keep=0.3",)),
}
BASELINES = ("tv", "wiener")
#: Pictures that strengths are chosen on, and test pictures unless another number is asked for.
CHOSEN_ON, TESTED = 2, 4
#: Steps that are certified, after the warm start.
CERTIFIED = 5
#: How much the pictures of the page are enlarged.
ENLARGED = 2


def plan(work: Work) -> list[dict[str, Any]]:
    """A cell for each domain, problem and prior."""
    return [
        cell_of(prior, work, work.images or TESTED, domain=domain, problem=problem)
        for domain in DOMAINS
        for problem in PROBLEMS
        for prior in (*BASELINES, *work.models)
    ]


@cache
def pictures(domain: str, data: Path, count: int) -> tuple[Tensor, Tensor, str]:
    """Pictures to choose on, test pictures, and a fingerprint of all."""
    folder, reduced = DOMAINS[domain]
    number = count + CHOSEN_ON
    if reduced is None:
        files = image_files([data / folder])
        every = torch.stack([_whole(files[round(i * len(files) / number)]) for i in range(number)])
    else:
        found = ImageDomain(data / folder, SIZE, crop="center", channels=1, downscale=reduced)
        every = found.tensor(round(i * len(found) / number) for i in range(number))
    return every[:CHOSEN_ON], every[CHOSEN_ON:], fingerprint([every])


def _whole(file: Path) -> Tensor:
    """The largest square in the middle of a picture, reduced to ``(1, SIZE, SIZE)``."""
    x = read_image(file, channels=1)
    side = min(x.shape[1:])
    top, left = ((n - side) // 2 for n in x.shape[1:])
    return F.interpolate(x[None, :, top : top + side, left : left + side], SIZE, mode="area")[0]


def with_phase(x: Tensor) -> Tensor:
    """Real and imaginary part, ``(B, 2, H, W)``, of images with a smooth phase; both in [0, 1]."""
    along = torch.linspace(-1, 1, x.shape[-1])
    phase = 0.6 * torch.sin(2 * along[None, :] + along[:, None]) + 0.7
    return torch.cat([x * phase.cos(), x * phase.sin()], dim=1)


def magnitude(x: Tensor) -> Tensor:
    """Of complex images; others as they are."""
    return x.norm(dim=1, keepdim=True) if x.shape[1] == 2 else x


@torch.no_grad()
def compute(settings: Mapping[str, Any], work: Work) -> dict[str, Any]:
    """PSNR of every picture, at the start and at the end, and the first one."""
    kind, options = PROBLEMS[settings["problem"]]
    chosen_on, test, data = pictures(settings["domain"], work.data, settings["images"])
    if kind == "mri":
        chosen_on, test = with_phase(chosen_on), with_phase(test)
    problem = make_problem(kind, SIZE, options, channels=test.shape[1])
    denoiser, about = at_strength(settings["model"], chosen_on, problem, seed=settings["seed"])
    y = problem.measure(test, seed=settings["seed"])
    start = problem.initial(y)
    run = pnp_pgd(denoiser, y, problem, record=(), on_divergence="ignore")
    x = magnitude(test)
    first = {"truth": x, "start": magnitude(start), "result": magnitude(run.images)}
    return {
        "psnr": [round(v, 4) for v in psnr(magnitude(run.images), x).tolist()],
        "start": [round(v, 4) for v in psnr(magnitude(start), x).tolist()],
        "status": [str(status) for status in run.status],
        "pictures": {
            name: base64.b64encode(encode_image(images[0].clamp(0, 1), bits=8)).decode()
            for name, images in first.items()
        },
        "data": data,
        "solver": problem.describe(),
        "certified": None
        if settings["model"] in BASELINES
        else _certified(denoiser, y[:1], problem),
        **about,
    }


def _certified(denoiser: Any, y: Tensor, problem: Problem) -> float:
    """The share of the inequalities that hold along the run."""
    warm = problem.warm_steps(problem.iterations)
    found = certify(
        {"itself": denoiser},
        y,
        problem,
        reference=denoiser,
        iterations=warm + CERTIFIED,
        warm=warm,
        local=(),
    )
    return found.runs["itself"].share


def tables(cells: Sequence[Mapping[str, Any]]) -> str:
    """One table per domain."""
    parts = []
    for domain, here in grouped(cells, "domain").items():
        priors, problems = list(grouped(here, "prior")), grouped(here, "problem")
        rows = []
        for problem, some in problems.items():
            found = {cell["prior"]: cell for cell in some}
            one = next(iter(found.values()))
            scores = [_score(found.get(prior)) for prior in priors]
            margins = [f"{c['margin']:.2f}" for c in found.values() if c["margin"] is not None]
            shares = [f"{c['certified']:.0%}" for c in found.values() if c["margin"] is not None]
            start = f"{np.mean(one['start']):.2f}"
            rows.append([problem, start, *scores, ", ".join(margins), ", ".join(shares)])
        header = [f"{domain}, {len(here[0]['psnr'])} pictures", "start", *priors, *LEARNED]
        parts.append(markdown(header, rows))
        parts += [f"![{domain}, {name}]({_file(domain, name)})" for name in problems]
    return "\n\n".join(parts)


#: Columns about the learned priors, in their order.
LEARNED = ("t L", "inequalities that hold")


def _score(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return ""
    diverged = cell["status"].count("diverged")
    return f"{np.mean(cell['psnr']):.2f}" + (f" ({diverged} diverged)" if diverged else "")


def sheets(cells: Sequence[Mapping[str, Any]]) -> dict[str, bytes]:
    """The first test picture of each domain and problem: truth, start, and every prior."""
    found: dict[str, bytes] = {}
    for (domain, problem), here in grouped(cells, "domain", "problem").items():
        shown = {name: here[0]["pictures"][name] for name in ("truth", "start")}
        shown |= {cell["prior"]: cell["pictures"]["result"] for cell in here}
        side = SIZE * ENLARGED
        sheet = Image.new("L", (side * len(shown), side + 14), 255)
        for i, (name, content) in enumerate(shown.items()):
            picture = Image.open(io.BytesIO(base64.b64decode(content))).convert("L")
            sheet.paste(picture.resize((side, side), Image.Resampling.NEAREST), (i * side, 14))
            ImageDraw.Draw(sheet).text((i * side + 2, 1), name, fill=0)
        buffer = io.BytesIO()
        sheet.save(buffer, "png", optimize=True)
        found[_file(domain, problem)] = buffer.getvalue()
    return found


def _file(domain: str, problem: str) -> str:
    return f"{domain}-{problem}.png".lower().replace(" ", "-")


MODALITIES = Study(
    "modalities",
    "Gray pictures and other modalities, mean PSNR in dB",
    plan,
    compute,
    tables,
    code=("theory",),
    pictures=sheets,
)
