"""What alignment, relaxation and `auto` do on other domains, beside the baselines: the tables.

    python tools/beyond_table.py STUDY --data DATA --out results/beyond [--family lpn|gs]
    python tools/beyond_table.py STUDY --out results/beyond --table

DATA holds ``brecahad/``, ``celeba/`` and ``cbsd68/``. STUDY is one of ``faces``, ``harder``,
``shifts``, ``ablation`` and ``blind``. Every cell (a problem, a number of images, a set of them) is
a JSON file with the PSNR of each test image, and is computed once: an interrupted table goes on
where it stopped. Adaptation images come from the validation split, test images from the test split;
nothing is chosen on the latter.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import proxmatch as pm
from proxmatch._internal.files import write_together
from proxmatch._internal.provenance import versions
from proxmatch.baselines import Identity, total_variation, wiener_filter
from proxmatch.errors import ProxmatchWarning
from proxmatch.learning import adapt, adaptation_settings, fine_tune, gentle_settings
from proxmatch.pnp import Denoise
from proxmatch.problems import Problem, inpainting, motion_deblurring
from proxmatch.transforms import Symmetrized, align, choose_strength

SIZE = 64
FOLDERS = {"faces": ("celeba", 1), "histology": ("brecahad", 2), "photographs": ("cbsd68", 1)}
SETS = (0, 1, 2)
MEASUREMENTS = 20


@dataclass(frozen=True)
class Cell:
    """What one file is about.

    Attributes:
        family: of the denoiser, ``lpn`` or ``gs``.
        source: domain it was trained on.
        target: domain it is used in.
        problem: name of the inverse problem.
        number: of adaptation images.
        set: which ones.
    """

    family: str
    source: str
    target: str
    problem: str
    number: int
    set: int

    @property
    def file(self) -> str:
        """Its name."""
        return (
            f"{self.family} {self.source} to {self.target}, {self.problem}, "
            f"n {self.number}, set {self.set}.json"
        )


@dataclass(frozen=True)
class Scene:
    """What the methods of a cell work with.

    Attributes:
        source: the denoiser that is given.
        reference: one trained on the target domain.
        problem: to be solved.
        images: for the adaptation, ``(N, C, H, W)``.
        test: true images, ``(B, C, H, W)``.
    """

    source: pm.ProximalDenoiser
    reference: pm.ProximalDenoiser
    problem: Problem
    images: Tensor
    test: Tensor


Maker = Callable[[Scene], Denoise]


def problems(names: str) -> dict[str, Problem]:
    """The problems of a study."""
    if names == "harder":
        return {
            "blur 2, noise 0.02": pm.gaussian_deblurring(
                SIZE, kernel_size=13, kernel_sigma=2.0, noise=0.02
            ),
            "motion blur": motion_deblurring(SIZE, noise=0.02),
            "inpainting 70 %": inpainting(SIZE, keep=0.3),
        }
    return {
        "deblurring": pm.gaussian_deblurring(SIZE),
        "super-resolution": pm.super_resolution(SIZE),
    }


def paper(method: Any) -> Maker:
    """Fine-tuning as in the paper, last weights."""

    def make(scene: Scene) -> Denoise:
        settings = adaptation_settings(scene.source, method, 4 * len(scene.images))
        return fine_tune(
            scene.source,
            list(scene.images),
            settings,
            problems=[scene.problem],
            size=SIZE,
            select="last",
            draws=4,
            held_out=False,
        ).denoiser

    return make


def gentle(*, aligned: bool = True, **changes: Any) -> Maker:
    """The fine-tuning of `auto`, with something changed."""

    def make(scene: Scene) -> Denoise:
        start = align(scene.source, scene.images) if aligned else scene.source
        return fine_tune(
            start,
            list(scene.images),
            gentle_settings(scene.source, len(scene.images), **changes),
            problems=[scene.problem],
            size=SIZE,
            select="last",
            held_out=False,
        ).denoiser

    return make


def aligned(scene: Scene) -> pm.ProximalDenoiser:
    """Colors changed, nothing trained."""
    return align(scene.source, scene.images)


#: Denoisers that are tried as they are (t = 1) and relaxed with the t chosen on the images.
LEARNED: dict[str, Maker] = {
    "source": lambda scene: scene.source,
    "aligned": aligned,
    "reference": lambda scene: scene.reference,
}
#: What has a strength of its own, chosen on the images.
BASELINES: dict[str, Callable[[Scene], tuple[Denoise, float]]] = {
    "no denoiser": lambda scene: (Identity(), 0.0),
    "total variation": lambda scene: _tuned(total_variation(scene.images, scene.problem)),
    "Wiener": lambda scene: _tuned(wiener_filter(scene.images, scene.problem)),
}
#: What each part of the recipe adds; and what the paper's methods get from the same help.
ABLATION: dict[str, Maker] = {
    "MSE": paper("mse"),
    "PM": paper("pm"),
    "aligned": aligned,
    "aligned, symmetrized": lambda scene: Symmetrized(aligned(scene), "flips"),
    "full recipe, MSE": gentle(),
    "full recipe, PM": gentle(loss="pm"),
    "without alignment": gentle(aligned=False),
    "without augmentation": gentle(augmentation=None),
    "without trajectory": gentle(trajectory=None),
    "without averaging": gentle(averaging=None),
}


def _tuned(found: Any) -> tuple[Denoise, float]:
    return found.denoiser, found.chosen.strength


def evaluate(denoiser: Denoise, scene: Scene) -> dict[str, Any]:
    """PSNR of the last and the best iterate of each test image."""
    run = pm.pnp_pgd(denoiser, scene.problem.measure(scene.test), scene.problem, truth=scene.test)
    assert run.psnr is not None  # noqa: S101
    last = run.psnr.gather(1, run.iterations[:, None])[:, 0]
    best = run.psnr.nan_to_num(-1).amax(1)
    return {"last": _rounded(last), "best": _rounded(best)}


def _rounded(values: Tensor) -> list[float]:
    return [round(float(v), 3) for v in values]


def compare(
    scene: Scene, study: str, known: dict[Any, dict[str, Any]], found: dict[str, Any]
) -> dict[str, Any]:
    """Every row of a cell.

    Args:
        scene: of the cell.
        study: which rows.
        known: what was measured before of denoisers that do not depend on the images; added to.
        found: rows that are there already; added to.
    """

    def measured(name: str, denoiser: Denoise, t: float) -> dict[str, Any]:
        if name not in ("source", "reference"):
            return evaluate(denoiser, scene)
        key = (name, t)
        if key not in known:
            known[key] = evaluate(denoiser, scene)
        return known[key]

    learned = {"ablation": ABLATION, "shifts": {"source": LEARNED["source"]}}
    for name, maker in learned.get(study, LEARNED).items():
        if f"{name}, relaxed" in found:
            continue
        started = time.perf_counter()
        denoiser = maker(scene)
        made = time.perf_counter() - started
        found[name] = {"t": 1.0, "seconds": made, **measured(name, denoiser, 1.0)}
        started = time.perf_counter()
        relaxed = choose_strength(denoiser, scene.images, scene.problem)  # type: ignore[arg-type]
        seconds, t = made + time.perf_counter() - started, relaxed.chosen.strength
        found[f"{name}, relaxed"] = {
            "t": t,
            "seconds": seconds,
            **measured(name, relaxed.denoiser, t),
        }
    if study == "ablation":
        return found
    for name, build in BASELINES.items():
        if name in found:
            continue
        started = time.perf_counter()
        denoiser, strength = build(scene)
        seconds = time.perf_counter() - started
        found[name] = {"t": strength, "seconds": seconds, **evaluate(denoiser, scene)}
    if "auto" in found:
        return found
    started = time.perf_counter()
    result = adapt(scene.source, scene.images, problem=scene.problem)
    found["auto"] = {
        "seconds": time.perf_counter() - started,
        "tried": {c.name: {**c.scores, "chosen": c.chosen} for c in result.table},
        **evaluate(result.denoiser, scene),
    }
    return found


def from_measurements(scene: Scene, unseen: Tensor) -> dict[str, Any]:
    """Adaptation to measurements of images that are never shown."""
    started = time.perf_counter()
    y = scene.problem.measure(unseen, seed=1)
    result = adapt(scene.source, measurements=y, problem=scene.problem)
    return {
        "seconds": time.perf_counter() - started,
        "tried": {c.name: {**c.scores, "chosen": c.chosen} for c in result.table},
        **evaluate(result.denoiser, scene),
    }


def cells(study: str, family: str) -> Iterator[Cell]:
    """The cells of a study."""
    shifts = [("histology", "faces")]
    if study == "shifts":
        shifts = [("faces", "histology"), ("photographs", "histology"), ("faces", "photographs")]
    for set_ in SETS:
        for number in (1, 5) if (study, family) == ("faces", "lpn") else (1,):
            for source, target in shifts:
                for name in problems(study):
                    yield Cell(family, source, target, name, number, set_)


def places(domain: pm.ImageDomain, count: int) -> list[int]:
    """Which images are tested: the first, or from all pictures alike where they have many crops."""
    if domain.describe()["crop"] == "center":
        return list(range(count))
    return [number * len(domain) // count for number in range(count)]


def fill(args: argparse.Namespace) -> None:
    """Compute what is missing."""
    folder = args.out / args.study
    folder.mkdir(parents=True, exist_ok=True)
    named = problems(args.study)
    known: dict[Any, dict[Any, dict[str, Any]]] = {}
    for cell in cells(args.study, args.family):
        rows: dict[str, Any] = {}
        if (folder / cell.file).exists():
            rows = json.loads((folder / cell.file).read_text())["rows"]
            if not args.again or args.again not in rows:
                continue
            del rows[args.again]
        place, downscale = FOLDERS[cell.target]
        domains = {
            split: pm.ImageDomain(args.data / place, SIZE, split=split, downscale=downscale)
            for split in ("validation", "test")
        }
        chosen = pm.few_shot(domains["validation"], cell.number, cell.set)
        count = min(args.test_images, len(domains["test"]))
        scene = Scene(
            pm.load(f"{cell.family}-{cell.source}"),
            pm.load(f"{cell.family}-{cell.target}"),
            named[cell.problem],
            chosen.images,
            domains["test"].tensor(places(domains["test"], count)),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ProxmatchWarning)
            if args.study == "blind":
                unseen = pm.few_shot(domains["validation"], MEASUREMENTS, 100 + cell.set).images
                rows["20 measurements"] = from_measurements(scene, unseen)
                rows["n = 1, aligned, relaxed"] = compare_one(scene)
            else:
                same = known.setdefault((cell.source, cell.target, cell.problem), {})
                rows = compare(scene, args.study, same, rows)
        content = {
            "images": chosen.names,
            "test": domains["test"].describe() | {"used": count},
            "versions": versions(),
            "threads": torch.get_num_threads(),
            "rows": rows,
        }
        write_together(folder, {cell.file: (json.dumps(content) + "\n").encode()})


def compare_one(scene: Scene) -> dict[str, Any]:
    """Alignment and relaxation from one clean image, beside the measurements."""
    started = time.perf_counter()
    relaxed = choose_strength(aligned(scene), scene.images, scene.problem)
    seconds = time.perf_counter() - started
    return {"t": relaxed.chosen.strength, "seconds": seconds, **evaluate(relaxed.denoiser, scene)}


def interval(values: np.ndarray[Any, Any], draws: int = 2000) -> tuple[float, float]:
    """95 % of the means over resampled sets and images, from ``(sets, images)``."""
    chance = np.random.default_rng(0)
    sets, images = values.shape
    means = [
        values[chance.integers(sets, size=sets)][:, chance.integers(images, size=images)].mean()
        for _ in range(draws)
    ]
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


Found = dict[str, list[dict[str, Any]]]  # by problem: the rows of each set


def read(study: str, family: str, folder: Path) -> dict[tuple[str, str, int], Found]:
    """What there is of a study, by source, target and number of images."""
    groups: dict[tuple[str, str, int], Found] = {}
    for cell in cells(study, family):
        if (folder / study / cell.file).exists():
            content = json.loads((folder / study / cell.file).read_text())
            group = groups.setdefault((cell.source, cell.target, cell.number), {})
            group.setdefault(cell.problem, []).append(content["rows"])
    return groups


def table(study: str, family: str, folder: Path) -> str:
    """Mean over sets and images of the last iterate with its interval, and of the best one."""
    lines = []
    for (source, target, number), found in read(study, family, folder).items():
        lines += [f"\n**{family}, {source} to {target}, n = {number}**\n"]
        lines += [
            "| | " + " | ".join(found) + " | seconds |",
            "| --- |" + " --- |" * (len(found) + 1),
        ]
        for row in next(iter(found.values()))[0]:
            texts, seconds = [], []
            for contents in found.values():
                last, best = (
                    np.array([rows[row][what] for rows in contents]) for what in ("last", "best")
                )
                low, high = interval(last)
                strengths = {rows[row].get("t") for rows in contents} - {None, 1.0, 0.0}
                told = f"; {', '.join(f'{t:g}' for t in sorted(strengths))}" if strengths else ""
                texts.append(f"{last.mean():.2f} [{low:.2f}, {high:.2f}] ({best.mean():.2f}{told})")
                seconds += [rows[row]["seconds"] for rows in contents]
            lines.append(f"| {row} | " + " | ".join(texts) + f" | {np.mean(seconds):.0f} |")
    return "\n".join(lines)


#: What a part adds: the row that has it, and the one that lacks it.
ADDED = {
    "alignment in the place of MSE, paper": ("aligned", "MSE"),
    "symmetrization, to alignment": ("aligned, symmetrized", "aligned"),
    "fine-tuning, to alignment": ("full recipe, MSE", "aligned"),
    "alignment, to the full recipe": ("full recipe, MSE", "without alignment"),
    "augmentation": ("full recipe, MSE", "without augmentation"),
    "trajectory inputs": ("full recipe, MSE", "without trajectory"),
    "averaging": ("full recipe, MSE", "without averaging"),
    "PM in the place of MSE, paper": ("PM", "MSE"),
    "PM in the place of MSE, full recipe": ("full recipe, PM", "full recipe, MSE"),
}


def differences(found: Found) -> str:
    """What each part of the recipe adds, paired by image: dB with intervals."""

    def gain(contents: list[dict[str, Any]], have: str, lack: str) -> str:
        gains = [np.subtract(rows[have]["last"], rows[lack]["last"]) for rows in contents]
        low, high = interval(np.array(gains))
        return f"{np.mean(gains):+.2f} [{low:+.2f}, {high:+.2f}]"

    heads = [f"{problem}, {t}" for problem in found for t in ("t = 1", "relaxed")]
    lines = ["\n| what it adds | " + " | ".join(heads) + " |", "| --- |" + " --- |" * len(heads)]
    for name, (have, lack) in ADDED.items():
        pairs = [(have, lack), (f"{have}, relaxed", f"{lack}, relaxed")]
        texts = [gain(contents, *pair) for contents in found.values() for pair in pairs]
        lines.append(f"| {name} | " + " | ".join(texts) + " |")
    last = [f"- | {gain(contents, 'aligned, relaxed', 'aligned')}" for contents in found.values()]
    return "\n".join([*lines, "| relaxation, to alignment | " + " | ".join(last) + " |"])


def main() -> None:
    """Fill in a study, and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", choices=["faces", "harder", "shifts", "ablation", "blind"])
    parser.add_argument("--family", choices=["lpn", "gs"], default="lpn")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--test-images", type=int, default=100)
    parser.add_argument("--again", metavar="ROW", help="compute this row anew where it is")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    if not args.table:
        fill(args)
    print(table(args.study, args.family, args.out))  # noqa: T201
    if args.study == "ablation":
        for found in read(args.study, args.family, args.out).values():
            print(differences(found))  # noqa: T201


if __name__ == "__main__":
    main()
