"""What each open page has: its pictures, its adapted denoisers and its jobs. All in memory."""

from __future__ import annotations

import secrets
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from proxmatch.app.jobs import Job
from proxmatch.app.limits import LIMITS, Limits
from proxmatch.data import encode_image, read_file
from proxmatch.data.embedded import embedded_picture
from proxmatch.data.images import Bits
from proxmatch.denoisers import ProximalDenoiser
from proxmatch.errors import DataError, InputError

#: Pictures that come with scikit-image.
EMBEDDED = ("astronaut", "cat", "coffee", "rocket", "stereo_motorcycle", "immunohistochemistry")
#: Longest side of a thumbnail.
THUMB = 160


@dataclass(frozen=True)
class Dropped:
    """A picture to work on."""

    name: str  # of its file, or of an embedded one
    pixels: Tensor  # (1 or 3, H, W) in [0, 1]
    bits: Bits = 8  # a channel, in the file


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
    with tempfile.TemporaryDirectory(prefix="proxmatch-app-") as folder:
        path = Path(folder) / "upload"
        path.write_bytes(content)
        file = read_file(path, most=limits.pixels)
    pixels = file.pixels
    if min(pixels.shape[1:]) < 16:
        height, width = pixels.shape[1:]
        raise DataError(f"{width} x {height} pixels: a picture is at least 16 on a side")
    if bool((pixels == pixels[:1]).all()):
        pixels = pixels[:1].clone()  # gray stays gray
    return Dropped(_short(name), pixels, file.bits)


def embedded(name: str) -> Dropped:
    """One of the pictures that come with the app."""
    if name not in EMBEDDED:
        raise InputError(f"there is no picture {name!r}")
    return Dropped(name, embedded_picture(name, 1))


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


def crops_of(pictures: list[Dropped], size: int, side: int | None) -> list[Tensor]:
    """Pictures in color to adapt to, ``(3, H, W)`` each."""
    found = []
    for picture in pictures:
        pixels = smaller(picture.pixels, side)
        if min(pixels.shape[1:]) < size:
            raise InputError(f"{picture.name} is too small: at least {size} x {size} pixels")
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
