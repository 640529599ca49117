"""What each open page has: its pictures, its adapted denoisers and its jobs. All in memory."""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from proxmatch.app.jobs import Job
from proxmatch.app.limits import LIMITS, Limits
from proxmatch.data import encode_image
from proxmatch.data.decoding import MAX_PIXELS
from proxmatch.data.embedded import embedded_picture
from proxmatch.data.images import Bits, decode_image
from proxmatch.denoisers import ProximalDenoiser
from proxmatch.errors import DataError, InputError

#: Pictures that come with scikit-image.
EMBEDDED = ("astronaut", "cat", "coffee", "rocket", "stereo_motorcycle", "immunohistochemistry")
#: Longest side of a thumbnail.
THUMB = 160


@dataclass(frozen=True)
class Dropped:
    """A picture to work on, kept as its file: its pixels take ten times the memory."""

    name: str  # of its file, or of an embedded one
    content: bytes  # of the file
    size: tuple[int, int]  # (H, W)
    bits: Bits = 8  # a channel, in the file

    @property
    def pixels(self) -> Tensor:
        """``(1 or 3, H, W)`` in [0, 1]."""
        return _decoded(self.content)[0]


@dataclass
class Page:
    """An open page."""

    #: What was dropped, by id, oldest first.
    pictures: dict[str, Dropped] = field(default_factory=dict)
    #: What was adapted, by name.
    denoisers: dict[str, ProximalDenoiser] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)  # by id, oldest first


class Pages:
    """All open pages; the one that was silent for longest is forgotten first."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.limits = limits
        self._pages: dict[str, Page] = {}
        self._lock = threading.Lock()

    def open(self) -> tuple[str, list[Job]]:
        """The id of a new page, and the jobs of the pages that were forgotten for it."""
        with self._lock:
            name, gone = secrets.token_urlsafe(16), []
            self._pages[name] = Page()
            while len(self._pages) > self.limits.pages:
                oldest = next(iter(self._pages))
                gone += list(self._pages.pop(oldest).jobs.values())
            return name, gone

    def find(self, name: str) -> Page:
        """A page by its id."""
        with self._lock:
            if name not in self._pages:
                raise InputError("this page is no longer known; load it again")
            page = self._pages[name] = self._pages.pop(name)  # the newest now
            return page

    def keep(self, page: Page, picture: Dropped) -> str:
        """Keep a picture; returns its id."""
        with self._lock:
            name = secrets.token_urlsafe(12)
            newest = list(page.pictures.values())[-(self.limits.pictures - 1) :]
            size = sum(len(each.content) for each in (*newest, picture))
            if size > self.limits.kept:
                raise InputError(
                    f"with {picture.name} the pictures of this page would be {size / 1e6:.0f} MB, "
                    f"more than {self.limits.kept / 1e6:.0f} MB: load the page again, or make them "
                    "smaller"
                )
            page.pictures[name] = picture
            while len(page.pictures) > self.limits.pictures:
                page.pictures.pop(next(iter(page.pictures)))
            return name

    def add(self, page: Page, job: Job) -> None:
        """Keep a job, and forget old ones that have ended."""
        with self._lock:
            if sum(not each.ended for each in page.jobs.values()) >= self.limits.waiting:
                raise InputError("too many jobs are waiting; cancel one, or wait")
            page.jobs[job.id] = job
            ended = [key for key, each in page.jobs.items() if each.ended]
            for key in ended[: max(0, len(page.jobs) - self.limits.runs)]:
                page.jobs.pop(key)


def uploaded(name: str, content: bytes, limits: Limits = LIMITS) -> Dropped:
    """A picture from the bytes of a file, checked by the safe reader."""
    pixels, bits = _decoded(content, limits.pixels)
    height, width = pixels.shape[1:]
    if min(height, width) < 16:
        raise DataError(f"{width} x {height} pixels: a picture is at least 16 on a side")
    return Dropped(_short(name), content, (height, width), bits)


def _decoded(content: bytes, most: int = MAX_PIXELS) -> tuple[Tensor, Bits]:
    """Pixels and bits of the bytes of a file."""
    file = decode_image(content, Path("picture"), most=most)
    gray = bool((file.pixels == file.pixels[:1]).all())
    return (file.pixels[:1].clone() if gray else file.pixels), file.bits


@cache
def embedded(name: str) -> Dropped:
    """One of the pictures that come with the app."""
    if name not in EMBEDDED:
        raise InputError(f"there is no picture {name!r}")
    pixels = embedded_picture(name, 1)
    return Dropped(name, encode_image(pixels), (pixels.shape[1], pixels.shape[2]))


def smaller(pixels: Tensor, side: int | None) -> Tensor:
    """A picture whose longest side is at most ``side``, in steps of 1/255."""
    longest = max(pixels.shape[1:])
    if side is not None and longest > side:
        height, width = (max(16, round(n * side / longest)) for n in pixels.shape[1:])
        small = F.interpolate(
            pixels[None], (height, width), mode="bilinear", antialias=True, align_corners=False
        )
        pixels = small[0].clamp(0, 1)
    return pixels.mul(255).round().div(255)


def thumbnail(picture: Dropped) -> bytes:
    """A small PNG file of a picture."""
    return encode_image(smaller(picture.pixels, THUMB))


def crops_of(
    pictures: list[Dropped], size: int, side: int | None, limits: Limits = LIMITS
) -> list[Tensor]:
    """Pictures in color to adapt to, ``(3, H, W)`` each."""
    found: list[Tensor] = []
    for picture in pictures:
        pixels = smaller(picture.pixels, side)
        if min(pixels.shape[1:]) < size:
            raise InputError(f"{picture.name} is too small: at least {size} x {size} pixels")
        if sum(each[0].numel() for each in found) + pixels[0].numel() > limits.adapted:
            raise InputError(
                f"up to {picture.name} these are more than {limits.adapted:,} pixels: take fewer "
                "pictures, or make them smaller"
            )
        found.append(pixels.expand(3, -1, -1).contiguous())
    return found


def busiest(images: Tensor, size: int, number: int) -> Tensor:
    """Crops of the highest contrast, ``(number or fewer, C, size, size)``."""
    cells = images.unfold(1, size, size).unfold(2, size, size).permute(1, 2, 0, 3, 4).flatten(0, 1)
    order = torch.argsort(cells.flatten(1).std(1), descending=True)
    return cells[order[:number]].contiguous()


def _short(name: str) -> str:
    """The name of a file without folders and control characters, and not too long."""
    plain = "".join(c for c in name.replace("\\", "/").rpartition("/")[2] if c.isprintable())
    return plain[-80:] or "picture"
