"""A reconstruction that can be watched: the film of its iterates, and its curves.

The first iterates are there within seconds. Where a strength has to be chosen first, a few steps at
a middling one are shown meanwhile.
"""

from __future__ import annotations

import hashlib
import io
import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch.nn.functional as F
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from proxmatch._internal.files import csv_text
from proxmatch.app import recipe
from proxmatch.app.denoisers import AUTO, PLAIN, Denoisers, Ready, fitted
from proxmatch.app.jobs import Job
from proxmatch.app.limits import LIMITS
from proxmatch.app.pages import Dropped, Page, busiest, smaller
from proxmatch.data import encode_image
from proxmatch.denoisers import ProximalDenoiser, shipped
from proxmatch.denoisers.checkpoint import packed
from proxmatch.errors import InputError
from proxmatch.learning.start import nearest_first
from proxmatch.metrics import psnr, relative_gap, ssim
from proxmatch.pnp import Status, Watched, pnp_pgd, stronger
from proxmatch.problems import PROBLEMS, Problem, make_problem
from proxmatch.problems.catalog import entry, image_side, reduction
from proxmatch.reconstruction.any_size import Builder
from proxmatch.transforms import choose_strength

#: Steps of the first look.
PREVIEW = 6
#: Steps, crops and their side for comparing denoisers, and how many are compared: the ones that
#: remove noise best from the crops.
TRIED, CROPS, SIDE, NEAREST = 20, 2, 64, 2

Value = bool | int | float | str


class Wish(BaseModel):
    """What a page asks for."""

    model_config = ConfigDict(extra="forbid")

    picture: str = Field(max_length=64)  # id of the picture
    simulate: bool = True  # it is clean and is damaged first; else it is damaged already
    #: The longest side that a clean picture is made smaller to; None to leave it.
    side: int | None = Field(256, ge=64, le=1024)
    problem: str = Field("deblurring", max_length=64)  # name of the inverse problem
    options: dict[str, Value] = Field(default_factory=dict, max_length=12)
    denoiser: str = Field(AUTO, max_length=64)  # its name, or auto
    strength: float | None = Field(None, gt=0, le=1)  # None for the usual one
    #: A denoiser to which the mismatch is measured.
    reference: str | None = Field(None, max_length=64)
    iterations: int = Field(40, ge=1, le=LIMITS.iterations)  # PnP steps


@dataclass(frozen=True)
class Prepared:
    """A picture, its measurements and their problem."""

    picture: bytes  # the PNG file that the commands start from
    truth: Tensor | None  # (1, C, H, W), if it is known
    y: Tensor  # measurements
    problem: Problem  # what made them
    build: Builder  # the same problem for measurements of another size
    key: tuple[Any, ...]  # names the problem

    @property
    def channels(self) -> int:
        """Number of channels of the images."""
        return self.problem.img_size[0]


def offered() -> list[dict[str, Any]]:
    """The problems whose measurements are pictures, with the options that are not files."""
    return [
        {
            "name": name,
            "title": known.title,
            "options": [
                {
                    "name": option.name,
                    "help": option.help,
                    "default": option.default,
                    "whole": option.read is int,
                    "text": option.read is str,
                }
                for option in known.options.values()
                if _plain(option)
            ],
        }
        for name, known in sorted(PROBLEMS.items())
        if known.pictures and not any(option.required for option in known.options.values())
    ]


def _plain(option: Any) -> bool:
    """Whether an option is a number or a word, not a file; without eta."""
    return option.read in (int, float, str) and option.name != "eta"


def options_of(problem: str, given: Mapping[str, Value]) -> dict[str, Any]:
    """The options of a problem that is offered, as a page sends them; none of them is a file."""
    known = entry(problem)
    if problem not in {each["name"] for each in offered()}:
        raise InputError(f"{problem} is for the command line")
    read: dict[str, Any] = {}
    for key, value in given.items():
        if key not in known.options or not _plain(known.options[key]):
            raise InputError(f"{problem} has no option {key!r}")
        try:
            read[key] = known.options[key].read(str(value))
        except ValueError:
            raise InputError(f"{key} cannot be {value!r}") from None
    return read


def prepared(wish: Wish, picture: Dropped) -> Prepared:
    """Damage a clean picture, or take a damaged one as it is."""
    known, read = entry(wish.problem), options_of(wish.problem, wish.options)
    pixels = picture.pixels
    if known.channels is not None and len(pixels) != known.channels:
        pixels = pixels.expand(known.channels, -1, -1)
    channels = len(pixels)

    def build(size: tuple[int, int]) -> Problem:
        return make_problem(
            wish.problem,
            image_side(wish.problem, size, read),
            read,
            channels=channels,
            iterations=wish.iterations,
        )

    named = (wish.problem, tuple(sorted(read.items())))
    if not wish.simulate:
        if pixels[0].numel() > LIMITS.damaged:
            raise InputError(
                f"a damaged picture is not made smaller; crop it to {LIMITS.damaged:,} pixels, or "
                "use the command line"
            )
        content = encode_image(pixels, bits=picture.bits)
        problem = build((pixels.shape[1], pixels.shape[2]))
        return Prepared(content, None, pixels[None].contiguous(), problem, build, named)
    pixels = smaller(pixels, wish.side)
    factor = reduction(wish.problem, read)
    height, width = (n // factor * factor for n in pixels.shape[1:])
    pixels = pixels[:, :height, :width].contiguous()
    problem = build((height // factor, width // factor))
    content = encode_image(pixels)
    truth = pixels[None]
    y = problem.measure(truth, ids=[hashlib.sha256(content).hexdigest()])
    return Prepared(content, truth, y, problem, build, named)


def reconstruct(job: Job, wish: Wish, picture: Dropped, page: Page, denoisers: Denoisers) -> None:
    """Do what the page asked for; ``job`` is told on the way."""
    job.begin("measuring")
    scene = prepared(wish, picture)
    size = scene.problem.img_size[1:]
    if scene.truth is not None:
        job.show("truth", encode_image(scene.truth[0]))
    job.show("measured", encode_image(displayed(scene.y, size)))
    job.tell(width=size[1], height=size[0], has_truth=scene.truth is not None)
    ready = _ready(job, wish, scene, page, denoisers)
    reference = None
    if wish.reference is not None:
        at = None if wish.strength is None else ready.strength
        base = denoisers.load(wish.reference, page)
        usual = at is None or not base.conditional
        reference = (
            denoisers.usual(wish.reference, page, scene.channels, scene.build, scene.key)
            if usual
            else denoisers.at(wish.reference, page, scene.channels, at)
        )
    job.tell(denoiser=ready.name, strength=ready.strength, told=ready.told, preview=False)
    job.begin(f"reconstructing with {PLAIN.get(ready.name, ready.name)}")
    job.again()
    steps = wish.iterations
    image, status = watch(job, scene, ready.denoiser, steps, reference and reference.denoiser)
    job.show("result", encode_image(image[0], bits=picture.bits))
    facts: dict[str, Any] = {"ended": str(status)}
    if scene.truth is not None:
        start = scene.problem.initial(scene.y)
        facts |= {
            "psnr": round(float(psnr(image, scene.truth)), 2),
            "ssim": round(float(ssim(image, scene.truth)), 3),
            "start": round(float(psnr(start, scene.truth)), 2),
        }
    command, python = recipe.lines(wish, ready, scene.channels)
    job.tell(**facts, command=command, python=python)
    bundle = _bundle(job, scene, ready, command, python)
    with job.lock:
        job.files["proxmatch.zip"] = bundle


def _ready(job: Job, wish: Wish, scene: Prepared, page: Page, denoisers: Denoisers) -> Ready:
    """The denoiser at its strength; a first look comes before a search."""
    channels = scene.channels
    if wish.denoiser == AUTO:
        known = (*page.denoisers, *shipped(quick=True))
        names = [name for name in known if denoisers.load(name, page).conditional]
        if not names:
            raise InputError("there is no denoiser of many levels to choose from; name one")
        first = next((n for n in names if n == "gs-photographs"), names[0])
        image = _look(job, scene, denoisers.middling(first, page, channels))
        return _nearest(job, scene, image, names, page, denoisers)
    if wish.strength is not None or wish.denoiser == "none":
        return denoisers.at(wish.denoiser, page, channels, wish.strength)
    if not denoisers.known(wish.denoiser, page, channels, scene.key):
        _look(job, scene, denoisers.middling(wish.denoiser, page, channels))
        job.begin(f"choosing the strength of {PLAIN.get(wish.denoiser, wish.denoiser)}")
    return denoisers.usual(wish.denoiser, page, channels, scene.build, scene.key)


def _look(job: Job, scene: Prepared, ready: Ready) -> Tensor:
    """A few steps, to have something to show."""
    job.tell(denoiser=ready.name, told=ready.told, preview=True)
    job.begin(f"a first look with {PLAIN.get(ready.name, ready.name)}")
    job.again()
    return watch(job, scene, ready.denoiser, PREVIEW, None)[0]


def _nearest(
    job: Job, scene: Prepared, image: Tensor, names: list[str], page: Page, denoisers: Denoisers
) -> Ready:
    """The denoiser that does best where the problem is simulated on this very picture.

    Its first reconstruction, halved, stands for clean images (see
    :mod:`proxmatch.transforms.strength`).
    """
    small = F.avg_pool2d(image.clamp(0, 1), 2)[0]
    side = min(SIDE, *small.shape[1:])
    problem = None
    for trial in (side, side // 2, side // 4):
        try:
            problem = scene.build((trial, trial))
        except InputError:
            continue
        if problem.img_size[1:] == (side, side):
            break
    if problem is None or problem.img_size[1:] != (side, side):
        return denoisers.usual(names[-1], page, scene.channels, scene.build, scene.key)
    crops = busiest(small, side, CROPS)
    bases = {name: fitted(denoisers.load(name, page), scene.channels) for name in names}
    found, table = [], []
    for name in list(nearest_first(bases, crops))[:NEAREST]:
        job.begin(f"trying {name} on this picture")
        tuned = choose_strength(bases[name], crops, problem, measured=False, iterations=TRIED)
        found.append((tuned.chosen.psnr, name, tuned))
        table.append({"name": name, "score": round(tuned.chosen.psnr, 2)})
        job.tell(tried=table)
    _, name, tuned = max(found, key=lambda each: each[0])
    chosen = tuned.chosen
    told = f"level {chosen.sigma:.3g}, t {chosen.strength:.2g}"
    return Ready(name, tuned.denoiser, chosen.sigma, told, False)


def watch(
    job: Job, scene: Prepared, denoiser: Any, steps: int, reference: Any
) -> tuple[Tensor, Status]:
    """PnP-PGD, each iterate shown as it comes; the last one, ``(1, C, H, W)``, and how it ended."""
    y, problem, truth = scene.y, scene.problem, scene.truth
    before = problem.initial(y)

    def tell(x: Tensor, gap: float | None) -> None:
        nonlocal before
        change = float((x - before).norm() / x.norm().clamp_min(1e-12))
        values = {
            "fit": _finite(math.sqrt(max(0.0, 2 * float(problem.fidelity(x, y)) / y.numel()))),
            "change": _finite(change),
        }
        if truth is not None:
            values["psnr"] = _finite(float(psnr(x, truth)))
        if reference is not None:
            values["mismatch"] = _finite(gap)
        job.add(frame(x[0]), values)
        before = x

    tell(before, None)

    def told(z: Tensor, x: Tensor, factor: float) -> None:
        job.look()
        known = None if reference is None else stronger(reference, factor)(z, None)
        tell(x, None if known is None else float(relative_gap(x, known)))

    run = pnp_pgd(Watched(denoiser, told), y, problem, record=(), iterations=steps)
    return run.images, run.status[0]


def _finite(value: float | None) -> float | None:
    return round(value, 5) if value is not None and math.isfinite(value) else None


def frame(image: Tensor) -> bytes:
    """A picture of the film: a JPEG file, made smaller if it is large."""
    height, width = image.shape[1:]
    pixels = image.nan_to_num(0.0).clamp(0, 1)
    if max(height, width) > LIMITS.frames:
        scale = LIMITS.frames / max(height, width)
        size = (round(height * scale), round(width * scale))
        pixels = F.interpolate(pixels[None], size, mode="area")[0]
    array = pixels.mul(255).round().permute(1, 2, 0).numpy().astype(np.uint8)
    file = io.BytesIO()
    picture = Image.fromarray(array[..., 0] if array.shape[2] == 1 else array)
    picture.save(file, format="jpeg", quality=92)
    return file.getvalue()


def displayed(y: Tensor, size: tuple[int, int]) -> Tensor:
    """Measurements as a picture of the size of the image, ``(C, H, W)``."""
    if y.shape[-2:] == size:
        return y[0]
    return F.interpolate(y, size, mode="nearest")[0]


def _bundle(job: Job, scene: Prepared, ready: Ready, command: str, python: str) -> bytes:
    """The ZIP file: pictures, curves, the denoiser at its strength, and how to do it again."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("picture.png", scene.picture)
        for name in ("measured", "result"):
            archive.writestr(f"{name}.png", job.pictures[name])
        archive.writestr("curves.csv", curves_csv(job.curves))
        archive.writestr("command.sh", f"{command}\n")
        archive.writestr("again.py", f"{python}\n")
        if isinstance(ready.denoiser, ProximalDenoiser) and ready.name != "none":
            for part, content in packed(ready.denoiser).items():
                archive.writestr(f"denoiser/{part}", content)
    return file.getvalue()


def curves_csv(curves: dict[str, list[float | None]]) -> str:
    """The curves as a table, one row per iterate."""
    names = sorted(curves)
    rows = enumerate(zip(*(curves[name] for name in names), strict=True))
    return csv_text(["iteration", *names], ([k, *row] for k, row in rows))
