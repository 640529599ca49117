"""Adaptation to a few images: what ``adapt`` returns, beside all that it tried.

Images to adapt to come from the validation split of a domain (or every other picture, where nothing
was trained on it), those that are reported on from its test split. Strengths, filters and weights
are all made from the same few images. The windows of an adaptation have 64 x 64 pixels, the test
images 128 x 128. With ``n`` zero there is no clean image, only :data:`MEASURED` measurements of
128 x 128 images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor

from proxmatch.data import ImageDomain, few_shot
from proxmatch.denoisers import ProximalDenoiser
from proxmatch.diagnosis import LOSSES, Grade, diagnose
from proxmatch.errors import InputError
from proxmatch.experiments.studies.priors import (
    BASELINES,
    at_strength,
    cell_of,
    identity_of,
    label_of,
    prior_of,
    problem_of,
)
from proxmatch.experiments.studies.study import Study, Work, grouped, markdown, mean_and_interval
from proxmatch.learning import adapt
from proxmatch.learning.assess import compared
from proxmatch.learning.auto import VARIATION, WIENER, tiles
from proxmatch.metrics import psnr
from proxmatch.pnp import Denoise, pnp_pgd
from proxmatch.problems import Problem

#: Side of the windows that are adapted to, and of the test images.
WINDOW, SIZE = 64, 128
NUMBERS, SETS = (1, 5, 25, 50, 0), (0, 1, 2)
#: Measurements that are adapted to where there is no clean image.
MEASURED = 20
PROBLEMS = ("deblurring", "super-resolution", "inpainting 70")
#: Test images by default, and windows that the strength of a prior is chosen on.
TESTED, CHOSEN_ON = 8, 4


@dataclass(frozen=True)
class Target:
    """A domain to adapt to."""

    folder: str  # of its pictures
    split: bool = True  # whether its own splits are taken; else every other picture is for testing
    reference: str | None = None  # the shipped denoiser that was trained on it
    channels: Literal[1, 3] = 3  # of its images
    downscale: int = 1  # of its pictures before a crop
    most: int = 50  # images to adapt to, of the published data


TARGETS = {
    "faces": Target("celeba", reference="gs-faces"),
    "histology": Target("brecahad", reference="gs-histology"),
    "satellite": Target("satellite", split=False, most=35),
    "microscopy": Target("microscopy", split=False, channels=1, downscale=2, most=15),
    "x-ray": Target("xray", split=False, channels=1, downscale=4, most=10),
}
#: What is adapted to what.
SHIFTS = (
    ("gs-histology", "faces"),
    ("gs-photographs", "histology"),
    ("gs-photographs", "satellite"),
    ("gs-photographs", "faces"),
    ("gs-faces", "histology"),
    ("all", "satellite"),
    ("gs-grey", "microscopy"),
    ("gs-grey", "x-ray"),
)


def plan(work: Work) -> list[dict[str, Any]]:
    """A cell for each shift, problem and set of images, for each prior as it is and diagnosed."""
    common = {"images": work.images or TESTED, "steps": work.steps, "seed": work.seed}
    shifts: list[dict[str, Any]] = [
        {"source": source, "target": target, "problem": problem, "n": n, "set": chosen, **common}
        for n in NUMBERS
        for chosen in SETS
        for problem in PROBLEMS
        for source, target in SHIFTS
        if (n or MEASURED) <= TARGETS[target].most
    ]
    for cell in shifts:
        names = _sources(cell["source"], work)
        cell["identity"] = [identity_of(name) for name in names]
    priors, diagnoses = [], []
    for problem in PROBLEMS:
        for target, about in TARGETS.items():
            hand = [name for name in work.models if _channels(name) == about.channels]
            where = {"target": target, "problem": problem}
            for prior in (*(name for name in BASELINES if name != "none"), *hand):
                cell = cell_of(prior, work, common["images"], **where)
                priors.append(cell | {"n": 5, "set": 0, **common})
            beside = {"at_hand": hand, "identities": [identity_of(name) for name in hand]}
            told = {**where, **beside, **common}
            diagnoses += [{"diagnosed": label_of(name), **told} for name in hand]
    return [*shifts, *priors, *diagnoses]


def compute(settings: Mapping[str, Any], work: Work) -> dict[str, Any]:
    """PSNR of the test images for every candidate or for one prior, or a diagnosis."""
    number, seed, problem = settings.get("n", 5), settings["seed"], settings["problem"]
    chosen, count = settings.get("set", 0), settings["images"]
    few, test, data = _images(settings["target"], work.data, number or MEASURED, chosen, count)
    small, large = (problem_of(problem, few.shape[1], size) for size in (WINDOW, SIZE))
    if "source" not in settings:
        windows = tiles(list(few), WINDOW)
        windows = windows[:: -(-len(windows) // CHOSEN_ON)]
    if "diagnosed" in settings:
        name = settings["diagnosed"]
        hand = {label_of(one): prior_of(one) for one in settings["at_hand"]}
        told = diagnose({name: hand[name]}, windows, small, sources=hand, seed=seed).to_dict()
        kept = ("verdict", "loss", "interval", "best", "standings", "untried")
        return {**{key: told[key] for key in kept}, "data": data}
    if "prior" in settings:
        denoiser, about = at_strength(settings["model"], windows, small, seed=seed)
        return {"psnr": _quality(denoiser, large, test, seed), "data": data, **about}
    found = adapt(
        {name: prior_of(name) for name in _sources(settings["source"], work)},
        few if number else None,
        small if number else large,
        measurements=None if number else large.measure(few, seed=seed),
        steps=settings["steps"],
        seed=seed,
    )
    winner = next(tried for tried in found.table if tried.chosen)
    tested = found.tried if number else {winner.name: found.denoiser}
    quality = {name: _quality(one, large, test, seed) for name, one in tested.items()}
    result = {
        "psnr": quality,
        "chosen": winner.name,
        "learned": winner.kind != WIENER,
        "nearest": found.source,
        "nearness": found.nearness,
        "strength": {one.name: [one.strength, one.sigma, one.margin] for one in found.table},
        "held_out": {one.name: round(one.score, 4) for one in found.table},
        "data": data,
    }
    if found.evidence is None:
        return result
    after, before = quality[winner.name], quality[found.table[0].name]
    return result | {
        "gain": round(found.evidence.gain, 4),
        "interval": [round(v, 4) for v in found.evidence.interval],
        "true_gain": round(float(np.mean(after) - np.mean(before)), 4),
    }


@torch.no_grad()
def _quality(denoiser: Denoise, problem: Problem, test: Tensor, seed: int) -> list[float]:
    run = pnp_pgd(compared(denoiser), problem.measure(test, seed=seed), problem, record=())
    found: list[float] = psnr(run.images, test).tolist()
    return [round(v, 4) for v in found]


def _sources(source: str, work: Work) -> list[str]:
    """The names of the denoisers that a shift starts from; with ``all``, those of the study."""
    if source != "all":
        return [source]
    return [
        name
        for name in work.models
        if _channels(name) == 3 and isinstance(prior_of(name), ProximalDenoiser)
    ]


def _channels(prior: str) -> int | None:
    """The number of channels that a prior takes; None for any."""
    if prior in BASELINES:
        return None
    return getattr(prior_of(prior), "channels", 3)


@cache
def _images(
    target: str, data: Path, n: int, chosen: int, count: int
) -> tuple[Tensor, Tensor, list[str]]:
    """Images to adapt to and to test on, and the fingerprints of their folders."""
    about = TARGETS[target]
    if about.split:
        adaptation, tested = (
            ImageDomain(data / about.folder, SIZE, split=split) for split in ("validation", "test")
        )
        few = few_shot(adaptation, n, chosen).images
        places = range(len(tested))
    else:
        adaptation = tested = ImageDomain(
            data / about.folder,
            SIZE,
            crop="center",
            channels=about.channels,
            downscale=about.downscale,
        )
        order = few_shot(adaptation, len(adaptation), chosen).indices
        even = [i for i in order if i % 2 == 0]
        if len(even) < n:
            raise InputError(f"{about.folder} has {len(even)} pictures to adapt to, not {n}")
        few = adaptation.tensor(even[:n])
        places = range(1, len(tested), 2)
    number = min(count, len(places))
    test = tested.tensor([places[round(i * len(places) / number)] for i in range(number)])
    return few, test, [adaptation.fingerprint, tested.fingerprint]


def tables(cells: Sequence[Mapping[str, Any]]) -> str:
    """What each row reaches, what ``auto`` gains, what its evidence and verdicts are worth."""
    shifts = [cell for cell in cells if "source" in cell]
    priors = [cell for cell in cells if "prior" in cell]
    diagnoses = [cell for cell in cells if "diagnosed" in cell]
    verdicts = _verdicts(diagnoses, priors)
    parts = [_reached(shifts, priors), _gains(shifts), _evidence(shifts), verdicts]
    return "\n\n".join(part for part in parts if part)


def _role(name: str, cell: Mapping[str, Any]) -> str:
    """A candidate by its role, whatever source it was made from."""
    bare = name.rpartition(", ")[2]
    if bare != "relaxed" or name in ("relaxed", f"{cell['nearest']}, relaxed"):
        return bare
    return "another source, relaxed"


def _reached(shifts: Sequence[Mapping[str, Any]], priors: Sequence[Mapping[str, Any]]) -> str:
    columns = (
        "source", "relaxed", "fine-tuned + relaxed", "half fine-tuned + relaxed", "blended", "auto",
        "Wiener", "total variation",
    )  # fmt: skip
    others = list(dict.fromkeys(cell["prior"] for cell in priors if cell["prior"] not in BASELINES))
    at_hand = {(cell["target"], cell["problem"], cell["prior"]): cell for cell in priors}
    rows = []
    groups = grouped(shifts, "source", "target", "problem", "n")
    for (source, target, problem, n), group in groups.items():
        row = [f"{source} -> {target}", problem, str(n or "none"), str(len(group))]
        for column in columns:
            found = [
                float(np.mean(values))
                for cell in group
                for name, values in cell["psnr"].items()
                if (name == cell["chosen"] if column == "auto" else _role(name, cell) == column)
                if n or column == "auto"  # from measurements alone, nothing else was kept
            ]
            row.append(f"{np.mean(found):.2f}" if found else "")
        for prior in others:
            known = at_hand.get((target, problem, prior))
            mark = " (ref.)" if TARGETS[target].reference == prior else ""
            row.append("" if known is None else f"{np.mean(known['psnr']):.2f}{mark}")
        rows.append(row)
    if not rows:
        return ""
    header = ["shift", "problem", "n", "sets", "as it is", "at its strength", *columns[2:], *others]
    return markdown(header, rows)


def _gains(shifts: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for n, here in sorted(grouped([cell for cell in shifts if cell["n"]], "n").items()):
        gains = []
        for cell in here:
            plain = [cell["psnr"][name] for name in (WIENER, VARIATION)]
            gains.append(np.subtract(cell["psnr"][cell["chosen"]], max(plain, key=np.mean)))
        means = [float(gain.mean()) for gain in gains]
        rows.append(
            [
                str(n),
                str(len(here)),
                mean_and_interval(np.concatenate(gains).tolist()),
                f"{min(means):+.2f}",
                f"{sum(cell['learned'] for cell in here)} of {len(here)}",
            ]
        )
    header = ["n", "cells", "auto above the better of Wiener and TV, dB [95 %]", "worst cell"]
    return markdown([*header, "a learned prior is returned"], rows) if rows else ""


def _evidence(shifts: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for n, here in sorted(grouped([cell for cell in shifts if cell["n"]], "n").items()):
        inside = [c["interval"][0] <= c["true_gain"] <= c["interval"][1] for c in here]
        bias = [cell["gain"] - cell["true_gain"] for cell in here]
        width = [cell["interval"][1] - cell["interval"][0] for cell in here]
        rows.append(
            [
                str(n),
                f"{sum(inside)} of {len(here)}",
                f"{np.mean(bias):+.2f}",
                f"{np.abs(bias).max():.2f}",
                f"{np.mean(width):.2f}",
            ]
        )
    header = ["n", "true gain in the interval", "bias, dB", "largest error", "mean width"]
    return markdown(header, rows) if rows else ""


def _verdicts(diagnoses: Sequence[Mapping[str, Any]], priors: Sequence[Mapping[str, Any]]) -> str:
    """The loss that ``diagnose`` tells from the few images, and that behind all on test images."""
    reached: dict[tuple[str, str], dict[str, float]] = {}
    for cell in priors:
        here = reached.setdefault((cell["target"], cell["problem"]), {})
        here[cell["prior"]] = float(np.mean(cell["psnr"]))
    found = []  # verdict, told loss, true loss
    for cell in diagnoses:
        here = reached.get((cell["target"], cell["problem"]), {})
        if cell["diagnosed"] in here:
            loss = max(here.values()) - here[cell["diagnosed"]]
            found.append((cell["verdict"], cell["loss"], loss))
    if not found:
        return ""
    _, told, true = zip(*found, strict=True)
    agreement = float(spearmanr(told, true).statistic) if len(told) > 2 else float("nan")
    promised = {
        Grade.MATCHED: (0.0, LOSSES[0]),
        Grade.MISMATCHED: (0.0, np.inf),
        Grade.BADLY: (LOSSES[1], np.inf),
    }
    rows = []
    for verdict, (low, high) in promised.items():
        losses = [loss for said, _, loss in found if said == verdict]
        if losses:
            kept = sum(low <= t <= high for t in losses)
            rows.append(
                [str(verdict), str(len(losses)), str(kept), f"{np.mean(losses):.2f}",
                 f"{min(losses):.2f} to {max(losses):.2f}"]
            )  # fmt: skip
    header = ["diagnose says", "pairs", "true on test images", "loss there, dB", "range"]
    note = f"Spearman of the told and the true loss over {len(told)} pairs: {agreement:.2f}."
    return f"{markdown(header, rows)}\n\n{note}"


ADAPTATION = Study(
    "adaptation",
    "Adaptation to a few images, mean PSNR in dB on test images of 128 x 128",
    plan,
    compute,
    tables,
    code=("learning", "diagnosis"),
)
