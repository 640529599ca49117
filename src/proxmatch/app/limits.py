"""How much one page may ask for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds of the app.

    Attributes:
        upload: bytes of a file.
        pixels: of a file; more are refused before anything is decoded.
        damaged: pixels of a damaged picture, which is not made smaller.
        pictures: kept for a page; the oldest are forgotten.
        pages: open at once; the one that was silent for longest is forgotten.
        runs: kept for a page.
        waiting: jobs of a page that wait or run.
        iterations: of a reconstruction.
        frames: longest side of a picture of the film.
    """

    upload: int = 25_000_000
    pixels: int = 25_000_000
    damaged: int = 1_100_000
    pictures: int = 24
    pages: int = 16
    runs: int = 8
    waiting: int = 3
    iterations: int = 200
    frames: int = 640


LIMITS = Limits()
