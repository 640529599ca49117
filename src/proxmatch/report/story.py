"""The story in ten seconds: degraded, source, adapted, reference, truth."""

from __future__ import annotations

from dataclasses import dataclass

from proxmatch.report import words
from proxmatch.report.digest import Digest
from proxmatch.report.pictures import Album, crop
from proxmatch.report.schema import Pictures, Setting
from proxmatch.report.summary import Denoiser

ADAPTED = ("pm", "adapm", "auto", "aligned", "mse")
SHOTS = 5  # the budget the story is told with, or the nearest to it


@dataclass(frozen=True)
class Stage:
    """One of the five pictures.

    Attributes:
        key: degraded, source, adapted, reference or truth.
        label: what it is.
        mean: PSNR over all test images, in dB.
        picture: data URI.
    """

    key: str
    label: str
    mean: float | None
    picture: str | None


@dataclass(frozen=True)
class Story:
    """What is told, and where it starts; the reader may choose another start.

    Attributes:
        denoiser: family and source.
        problem: its name.
        method: that adapted.
        n: number of images it was adapted with.
        relaxation: of all rows.
        image: that is shown, if there are pictures.
        means: PSNR in dB by method: source, adapted, reference, none.
        stages: the five pictures.
    """

    denoiser: Denoiser
    problem: str
    method: str
    n: int
    relaxation: str
    image: str
    means: dict[str, float]
    stages: tuple[Stage, ...]


def tell(digest: Digest, pictures: Pictures | None, album: Album | None) -> Story | None:
    """The story of the first problem and denoiser that have an adapted row; None without one."""
    cells, looks = digest.cells, digest.looks
    strips = [] if album is None else album.strips
    settings = [s.setting for s, _ in strips] or [cell.setting for cell in cells]
    for block in digest.blocks:
        adapted = [s for s in settings if block.has(s) and s.method in ADAPTED]
        if adapted:
            start = min(adapted, key=_preference)
            break
    else:
        return None
    chosen: dict[str, tuple[str, int | None]] = {"adapted": (start.method, start.n)}
    chosen |= {name: (name, None) for name in ("source", "reference", "none")}
    means = {
        name: cell.psnr
        for name, (method, n) in chosen.items()
        for cell in cells
        if _same(cell.setting, block, start, method, n) and cell.psnr is not None
    }
    image = next((s.image for s, _ in strips if _same(s.setting, block, start, None, None)), "")
    shots = f"n = {start.n}" if start.n else ""
    labels = {
        "degraded": "degraded",
        "source": "source denoiser",
        "adapted": words.context(looks[start.method].label, shots),
        "reference": "reference",
        "truth": "truth",
    }
    shown: dict[str, str] = {}
    if album is not None and pictures is not None:
        shown = _shown(album, pictures, block, start, image)
    stages = tuple(
        Stage(key, label, means.get(key), shown.get(key)) for key, label in labels.items()
    )
    return Story(
        block, start.problem, start.method, start.n, start.relaxation, image, means, stages
    )


def _preference(setting: Setting) -> tuple[bool, int, float]:
    """Smaller is better: the paper's relaxation, its method, and few images."""
    return (
        setting.relaxation != "paper",
        ADAPTED.index(setting.method),
        abs(setting.n - SHOTS),
    )


def _same(
    setting: Setting, block: Denoiser, start: Setting, method: str | None, n: int | None
) -> bool:
    return (
        block.has(setting)
        and (setting.problem, setting.relaxation) == (start.problem, start.relaxation)
        and method in (None, setting.method)
        and n in (None, setting.n)
    )


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
    wanted = {"source": ("source", 0), "adapted": (start.method, start.n)}
    wanted["reference"] = ("reference", 0)
    for key, (method, n) in wanted.items():
        for strip, place in album.strips:
            if strip.image == image and _same(strip.setting, block, start, method, n):
                shown[key] = crop(album.files[place], last, 1, size)
                break
    return shown
