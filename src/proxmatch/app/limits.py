"""How much one page may ask for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds of the app."""

    upload: int = 25_000_000  # bytes of a file
    pixels: int = 25_000_000  # of a file; more are refused before anything is decoded
    damaged: int = 1_100_000  # pixels of a damaged picture, which is not made smaller
    pictures: int = 24  # kept for a page; the oldest are forgotten
    kept: int = 200_000_000  # bytes of their files together; more are refused
    adapted: int = 25_000_000  # pixels that are adapted to
    pages: int = 16  # open at once; the one that was silent for longest is forgotten
    runs: int = 8  # kept for a page
    waiting: int = 3  # jobs of a page that wait or run
    iterations: int = 200  # of a reconstruction
    frames: int = 640  # longest side of a picture of the film


LIMITS = Limits()
