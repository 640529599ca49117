"""What the demo is about: the pictures, the damage, the denoisers, and how much is done."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Picture:
    """A picture that comes with scikit-image.

    Attributes:
        name: of its function in ``skimage.data``.
        zoom: the detail to look at: top, left and side, as shares of the shorter side.
    """

    name: str
    zoom: tuple[float, float, float]


@dataclass(frozen=True)
class Setup:
    """One demo.

    Attributes:
        pictures: to be reconstructed, whole.
        others: names of the pictures that crops are taken from.
        reduce: factor by which all of them are made smaller first, with an area filter.
        problem: name of the inverse problem; what it measures is a picture of the same size.
        options: of the problem, as on the command line.
        damage: how the problem leaves a picture, as adjectives.
        wrong: a denoiser of another domain.
        known: what that one was trained on.
        right: one of this domain.
        crops: of each of the other pictures.
        size: their side.
        steps: of the adaptation.
        iterations: PnP steps.
        judged: of the crops, how many strengths are compared on.
        measured: measure L of the adapted denoiser along its runs on these, and keep t L < 1
            there. The others have the L of their cards.
        certified: query points of a run at which J_D is looked at.
        lanczos: iterations with which it is.
        seed: of everything that is random.
    """

    pictures: tuple[Picture, ...] = (
        Picture("astronaut", (0.02, 0.30, 0.34)),
        Picture("cat", (0.24, 0.42, 0.50)),
    )
    others: tuple[str, ...] = ("coffee", "rocket", "stereo_motorcycle")
    reduce: int = 2
    problem: str = "deblurring"
    options: tuple[str, ...] = ()
    damage: str = "blurred and noisy"
    wrong: str = "gs-histology"
    known: str = "tissue under a microscope"
    right: str = "gs-photographs"
    crops: int = 2
    size: int = 64
    steps: int = 300
    iterations: int = 40
    judged: int = 3
    measured: bool = True
    certified: int = 2
    lanczos: int = 20
    seed: int = 0


#: At most three minutes on two cores.
REAL = Setup()
#: The same with next to no work in it: whether everything runs, not what is true.
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
