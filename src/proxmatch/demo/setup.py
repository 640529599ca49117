"""What the demo is about: the pictures, the damage, the denoisers, and how much is done."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Picture:
    """A picture that comes with scikit-image."""

    name: str  # of its function in skimage.data
    #: The detail to look at: top, left and side, as shares of the shorter side.
    zoom: tuple[float, float, float]

    def detail(self, height: int, width: int) -> tuple[int, int, int]:
        """Top, left and side of the detail in a picture of this size."""
        short = min(height, width)
        top, left, side = (round(share * short) for share in self.zoom)
        side = max(1, min(side, short))
        return min(top, height - side), min(left, width - side), side


@dataclass(frozen=True)
class Setup:
    """One demo."""

    #: To be reconstructed, whole.
    pictures: tuple[Picture, ...] = (
        Picture("astronaut", (0.02, 0.30, 0.34)),
        Picture("cat", (0.24, 0.42, 0.50)),
    )
    #: Names of the pictures that crops are taken from.
    others: tuple[str, ...] = ("coffee", "rocket", "stereo_motorcycle")
    reduce: int = 2  # factor by which all of them are made smaller first, with an area filter
    #: Name of the inverse problem; what it measures is a picture of the same size.
    problem: str = "deblurring"
    options: tuple[str, ...] = ()  # of the problem, as on the command line
    damage: str = "blurred and noisy"  # how the problem leaves a picture, as adjectives
    wrong: str = "gs-histology"  # a denoiser of another domain
    known: str = "tissue under a microscope"  # what that one was trained on
    right: str = "gs-photographs"  # one of this domain
    crops: int = 2  # of each of the other pictures
    size: int = 64  # their side
    steps: int = 300  # of the adaptation
    iterations: int = 40  # PnP steps
    judged: int = 3  # of the crops, how many strengths are compared on
    #: Measure L of the adapted denoiser along its runs on these, and keep t L < 1 there. The others
    #: have the L of their cards.
    measured: bool = True
    certified: int = 2  # query points of a run at which J_D is looked at
    lanczos: int = 20  # iterations with which it is
    seed: int = 0  # of everything that is random


#: At most three minutes on two cores.
REAL = Setup()
#: Almost no work: it shows that everything runs; its numbers mean nothing.
TINY = replace(
    REAL,
    others=REAL.others[:2],
    reduce=8,
    crops=1,
    size=32,
    steps=2,
    iterations=3,
    measured=False,
    certified=1,
    lanczos=3,
)
