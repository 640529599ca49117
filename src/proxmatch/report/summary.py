"""From rows for each image and iteration to the numbers that the page shows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import TypeVar

from proxmatch.records import ImageRow, IterationRow, Setting

K = TypeVar("K")
R = TypeVar("R")


@dataclass(frozen=True)
class Summary:
    """A setting's means over its test images and adaptation sets."""

    setting: Setting  # what was measured
    t: float | None  # mean relaxation
    psnr: float | None  # of the last iterate, in dB
    spread: float | None  # standard deviation of the PSNR over the images, as in the paper's tables
    best_psnr: float | None  # of the best iterate, in dB
    ssim: float | None  # of the last iterate
    gap: float | None  # proximal mismatch, in percent
    lipschitz: float | None  # L
    images: int  # how many
    sets: tuple[tuple[float | None, float | None], ...]  # PSNR and gap of each adaptation set


NOTHING = Summary(Setting(), None, None, None, None, None, None, None, images=0, sets=())


@dataclass(frozen=True)
class Curve:
    """A setting's means over images along the iterations: mean and range over its sets."""

    setting: Setting
    iterations: tuple[int, ...]
    psnr: tuple[float | None, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    sets: int


@dataclass(frozen=True, order=True)
class Denoiser:
    """A family trained on a source: one block of rows of the paper's tables."""

    family: str
    source: str

    def has(self, setting: Setting) -> bool:
        """Whether a setting is one of its rows; settings without a family are in every block."""
        return setting.family in ("", self.family) and setting.source in ("", self.source)


def denoisers(settings: Iterable[Setting]) -> list[Denoiser]:
    """The blocks in the order they first appear."""
    pairs = dict.fromkeys((s.family, s.source) for s in settings)
    full = [pair for pair in pairs if all(pair)] or [pair for pair in pairs if any(pair)]
    return [Denoiser(*pair) for pair in full or pairs]


def cells(rows: Iterable[ImageRow]) -> list[Summary]:
    """One cell per setting, in the order they first appear."""
    return [_cell(setting, group) for setting, group in _groups(rows, lambda r: r.setting)]


def curves(rows: Iterable[IterationRow]) -> list[Curve]:
    """One curve per setting, in the order they first appear."""
    return [_curve(setting, group) for setting, group in _groups(rows, lambda r: r.setting)]


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of the known values; None if there are none."""
    known = [v for v in values if v is not None]
    return fmean(known) if known else None


def _cell(setting: Setting, rows: list[ImageRow]) -> Summary:
    of_images = [mean(r.psnr for r in group) for _, group in _groups(rows, lambda r: r.image)]
    known = [v for v in of_images if v is not None]
    return Summary(
        setting=setting,
        t=mean(r.t for r in rows),
        psnr=mean(r.psnr for r in rows),
        spread=pstdev(known) if len(known) > 1 else None,
        best_psnr=mean(r.best_psnr for r in rows),
        ssim=mean(r.ssim for r in rows),
        gap=mean(r.gap for r in rows),
        lipschitz=mean(r.lipschitz for r in rows),
        images=len(of_images),
        sets=tuple(
            (mean(r.psnr for r in group), mean(r.gap for r in group))
            for _, group in _groups(rows, lambda r: r.set)
        ),
    )


def _curve(setting: Setting, rows: list[IterationRow]) -> Curve:
    groups = sorted(_groups(rows, lambda r: r.iteration), key=lambda pair: pair[0])
    psnr = [[r.psnr for r in group if r.psnr is not None] for _, group in groups]
    return Curve(
        setting=setting,
        iterations=tuple(k for k, _ in groups),
        psnr=tuple(mean(values) for values in psnr),
        low=tuple(min(values, default=None) for values in psnr),
        high=tuple(max(values, default=None) for values in psnr),
        sets=len({r.set for r in rows}),
    )


def _groups(rows: Iterable[R], key: Callable[[R], K]) -> Iterator[tuple[K, list[R]]]:
    found: dict[K, list[R]] = defaultdict(list)
    for row in rows:
        found[key(row)].append(row)
    yield from found.items()
