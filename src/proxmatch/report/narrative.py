"""The story in ten seconds: degraded, plain methods, source, adapted, reference, truth."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from proxmatch.methods import METHODS
from proxmatch.records import Pictures, Setting
from proxmatch.report import wording
from proxmatch.report.album import Album, crop
from proxmatch.report.digest import Digest
from proxmatch.report.summary import Denoiser
from proxmatch.report.table_views import order_relaxations

ADAPTED = ("pm", "adapm", "auto", "aligned", "mse")
OURS = "auto"  # shown in place of the paper's method where it is the best
BASELINES = ("wiener", "tv")  # the plain methods that are shown beside the learned prior
RIVALS = ("mse", "pm", "adapm")  # what the paper compares; told where there are no pictures
SHOTS = 5  # the number of images in the story, or the nearest to it


@dataclass(frozen=True)
class Chapter:
    """One of the pictures."""

    key: str  # degraded, wiener, tv, source, adapted, reference or truth; or one of the rivals
    label: str  # what it is
    mean: float | None  # PSNR over all test images, in dB
    position: float | None  # of the mean between the lowest and the highest of all, in percent
    picture: str | None  # data URI


@dataclass(frozen=True)
class Narrative:
    """The story and its starting point; the reader can choose another one."""

    denoiser: Denoiser  # family and source
    problem: str
    method: str  # how it was adapted
    n: int  # number of images it was adapted with
    chose: str  # what auto returned, joined by "or" where sets differ; empty for other methods
    relaxation: str  # of the adapted denoiser; source and reference are shown as they are
    image: str  # the one that is shown, if there are pictures
    #: PSNR in dB by method: source, adapted, reference, wiener, tv, none; and alike, the reference
    #: with the relaxation of the adapted denoiser, if that is a different one.
    means: dict[str, float]
    #: The pictures, in the order of the story; or else the means, lowest first.
    stages: tuple[Chapter, ...]

    @property
    def pictured(self) -> bool:
        """Whether there is a picture to show."""
        return any(stage.picture for stage in self.stages)


def tell(
    digest: Digest,
    pictures: Pictures | None,
    album: Album | None,
    work: Iterable[Mapping[str, str]] = (),
) -> Narrative | None:
    """The story of the first problem and denoiser that have an adapted row; None without one."""
    cells, looks = digest.cells, digest.looks
    strips = [] if album is None else album.strips
    settings = [s.setting for s, _ in strips] or [cell.setting for cell in cells]
    for block in digest.blocks:
        adapted = [s for s in settings if block.has(s) and s.method in ADAPTED]
        if adapted:
            known = {cell.setting: cell.psnr for cell in cells if cell.psnr is not None}
            start = _start(adapted, known)
            break
    else:
        return None
    every = [cell.setting for cell in cells]
    roles = {
        "adapted": start,
        "source": _as_it_is("source", every, block, start),
        "reference": _as_it_is("reference", every, block, start),
        "none": _beside("none", every, block, start),
        "alike": _beside("reference", every, block, start),
        **{name: _as_it_is(name, every, block, start) for name in BASELINES},
    }
    rivals = () if strips else tuple(name for name in RIVALS if name != start.method)
    roles |= {
        name: _as_it_is(name, [s for s in every if s.n == start.n], block, start) for name in rivals
    }
    means = {name: known[role] for name, role in roles.items() if role in known}
    if roles["alike"] == roles["reference"]:
        means.pop("alike", None)
    image = next((s.image for s, _ in strips if s.setting == start), "")
    shots = f"n = {start.n}" if start.n else ""
    labels = {
        "degraded": "degraded",
        **{name: METHODS[name].label for name in BASELINES},
        "source": "source denoiser",
        **{name: wording.context(METHODS[name].label, shots) for name in rivals},
        "adapted": wording.context(looks[start.method].label, shots),
        "reference": "reference",
        "truth": "truth",
    }
    shown: dict[str, str] = {}
    if album is not None and pictures is not None:
        shown = _shown(album, pictures, block, start, image)
    told = [means[key] for key in labels if key in means]
    low, width = min(told, default=0.0), max(told, default=1.0) - min(told, default=0.0) or 1.0
    place = {key: round(100 * (value - low) / width, 1) for key, value in means.items()}
    stages = [
        Chapter(key, label, means.get(key), place.get(key), shown.get(key))
        for key, label in labels.items()
        if key not in (*BASELINES, *rivals) or key in means or key in shown
    ]
    if not shown:
        stages.sort(key=lambda stage: math.inf if stage.mean is None else stage.mean)
    return Narrative(
        denoiser=block,
        problem=start.problem,
        method=start.method,
        n=start.n,
        chose=_chosen(start, work),
        relaxation=start.relaxation,
        image=image,
        means=means,
        stages=tuple(stages),
    )


def _start(adapted: list[Setting], known: dict[Setting, float]) -> Setting:
    """Ours if no other adaptation with as many images is better there, else the paper's."""
    theirs = min(adapted, key=_preference)
    ours = [s for s in adapted if s.method == OURS and s.problem == theirs.problem and s in known]
    if not ours:
        return theirs
    best = min(ours, key=lambda s: (abs(s.n - SHOTS), -known[s]))
    rivals = [s for s in known if s.method in ADAPTED and s.family == best.family]
    rivals = [s for s in rivals if (s.problem, s.n) == (best.problem, best.n)]
    return best if known[best] >= max(known[s] for s in rivals) else theirs


def _chosen(start: Setting, work: Iterable[Mapping[str, str]]) -> str:
    """What ``auto`` chose for a setting, in each of its sets; empty where that is not known."""
    key = {
        "family": start.family,
        "source": start.source,
        "method": start.method,
        "n": str(start.n),
        "problem": start.problem,
        "kind": "adaptation",
    }
    said = (
        row.get("status") or ""
        for row in work
        if all(row.get(name) == value for name, value in key.items())
    )
    found = {text.removeprefix("chose ") for text in said if text.startswith("chose ")}
    return " or ".join(sorted(found))


def _preference(setting: Setting) -> tuple[bool, int, float]:
    """Smaller is better: the paper's relaxation, its method, and few images."""
    return (setting.relaxation != "paper", ADAPTED.index(setting.method), abs(setting.n - SHOTS))


def _as_it_is(
    method: str, settings: Iterable[Setting], block: Denoiser, start: Setting
) -> Setting | None:
    """A row that is not adapted, to go with the start: at t = 1 if known, and with a similar n."""
    found = [s for s in settings if block.has(s) and s.method == method]
    found = [s for s in found if s.problem == start.problem]
    order = order_relaxations(s.relaxation for s in found)
    return min(found, key=lambda s: (order.index(s.relaxation), abs(s.n - start.n)), default=None)


def _beside(
    method: str, settings: Iterable[Setting], block: Denoiser, start: Setting
) -> Setting | None:
    """A row of the start's problem and relaxation."""
    wanted = (method, start.problem, start.relaxation)
    found = (s for s in settings if (s.method, s.problem, s.relaxation) == wanted)
    return next((s for s in found if block.has(s)), None)


def _shown(
    album: Album, pictures: Pictures, block: Denoiser, start: Setting, image: str
) -> dict[str, str]:
    """Data URIs of the stages that have a picture: the last x_k of each strip."""
    shown: dict[str, str] = {}
    if image in album.truth:
        shown["truth"] = album.files[album.truth[image]]
    if image in album.degraded.get(start.problem, {}):
        shown["degraded"] = album.files[album.degraded[start.problem][image]]
    last, size = len(pictures.frames) - 1, pictures.size
    strips = {s.setting: place for s, place in reversed(album.strips) if s.image == image}
    roles = {"adapted": start} | {
        name: _as_it_is(name, strips, block, start) for name in ("source", "reference", *BASELINES)
    }
    for key, role in roles.items():
        if role is not None:
            shown[key] = crop(album.files[strips[role]], last, 1, size)
    return shown
