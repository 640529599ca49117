"""The records of an experiment: what it writes to its folder, and what its page reads there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from proxmatch._internal.files import write_json, write_together

Verdict = Literal["holds", "does not hold", "undecided"]
#: What several claims of one verdict are said to do.
VERDICTS: dict[Verdict, str] = {
    "holds": "hold",
    "does not hold": "do not hold",
    "undecided": "undecided",
}
#: The kind of source denoiser of the paper's tables and figures.
SOURCE = "extreme"
#: The relaxation t of a row, and what to call it.
RELAXATIONS = {"paper": "t = 1", "chosen": "t chosen"}
#: Kinds of claims, the first part of their ids, and what to call each.
CLAIMS = {
    "source-far-below-reference": "The source denoiser ends far below the reference",
    "proposed-beats-mse-psnr": "Proximal matching reaches a higher PSNR than MSE",
    "proposed-beats-mse-ssim": "Proximal matching reaches a higher SSIM than MSE",
    "proposed-beats-mse-gap": "Proximal matching comes closer to the reference than MSE",
    "proposed-above-mse-at-all-iterations": "Proximal matching is above MSE at every iteration",
    "mse-below-source": "MSE with so few images ends below the source it started from",
    "proposed-above-source": "Proximal matching with one image ends above the source",
    "proposed-smaller-lipschitz": "Proximal matching keeps L smaller than MSE does",
    "gain-above-ten": "The gain over MSE exceeds 10 dB in severe settings",
    "gain-largest-with-few": "The gain over MSE is largest with few images",
    "largest-step": "Where more images help most",
    "lower-gap-higher-psnr": "Lower mismatch goes with higher PSNR",
}


def plain_family(name: str) -> str:
    """Baselines belong to no family: they stand beside the rows of every one.

    Example:
        >>> plain_family("baseline"), plain_family("lpn")
        ('', 'lpn')
    """
    return "" if name == "baseline" else name


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


Number = Annotated[float | None, BeforeValidator(_finite)]
Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else str(value))]
Family = Annotated[Text, AfterValidator(plain_family)]


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """What a number was measured for, but for the adaptation set and the image."""

    family: str = ""  # lpn, gs or baseline
    source: str = ""  # kind of the source denoiser
    method: str = ""  # name of the row
    n: int = 0  # number of adaptation images; 0 for rows that use none
    problem: str = ""  # name of the inverse problem
    relaxation: str = "paper"  # one of RELAXATIONS


@dataclass(frozen=True)
class Label:
    """What a cell is called in tables: a setting, as far as there is one, and a set.

    It has no influence on the result.
    """

    family: str = ""
    source: str = ""
    method: str = ""
    n: int = 0
    set: int = 0
    problem: str = ""
    relaxation: str = ""

    def __str__(self) -> str:
        which = [f"n = {self.n}", f"set {self.set}"] if self.n else []
        parts = [self.family, self.source, self.method, *which, self.problem, self.relaxation]
        return ", ".join(part for part in parts if part)

    @property
    def setting(self) -> Setting:
        """All but the set."""
        return Setting(self.family, self.source, self.method, self.n, self.problem, self.relaxation)

    def columns(self) -> dict[str, Any]:
        """The columns of the tables."""
        return asdict(self)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Count(_Part):
    """Cells of a run."""

    done: int = 0
    planned: int = 0


class Manifest(_Part):
    """How the run was made, ``manifest.json``."""

    scale: Text = ""
    created: Text = ""
    minutes: Number = None
    peak_memory_mb: Number = None
    settings: dict[str, Any] = Field(default_factory=dict)
    seeds: dict[str, Any] = Field(default_factory=dict)
    versions: dict[str, Any] = Field(default_factory=dict)
    data: dict[str, Any] = Field(default_factory=dict)
    models: dict[str, Any] = Field(default_factory=dict)
    thinned: list[str] = Field(default_factory=list)
    cells: Count = Count()
    sets: dict[str, Any] = Field(default_factory=dict)
    device: Text = ""
    workers: int | None = None
    core_minutes: Number = None

    @property
    def run(self) -> dict[str, Any]:
        """What is known of the machine."""
        names = ("device", "workers", "minutes", "core_minutes", "peak_memory_mb")
        return {
            name: getattr(self, name) for name in names if getattr(self, name) not in ("", None)
        }

    @property
    def command(self) -> str:
        """The command that repeats the run."""
        source = self.data.get("source")
        embedded = isinstance(source, dict) and "embedded" in source
        words = ["proxmatch reproduce", self.scale]
        words += [] if embedded else ["--source DIR", "--target DIR"]
        words.append("--out DIR")
        for name in ("seed", "max_steps", "max_images"):
            if isinstance(value := self.settings.get(name), int) and value:
                words.append(f"--{name.replace('_', '-')} {value}")
        return " ".join(words)


class DriverRecord(_Part):
    """The effect of one control on a claim."""

    control: Text
    effect: Number = None
    low: Number = None
    high: Number = None
    says: Text = ""
    images: int | None = None
    sets: int | None = None


class ClaimRecord(_Part):
    """One statement of the paper, tested: an element of ``claims.json``."""

    id: Text = ""
    statement: Text
    paper: Text = ""
    family: Text = ""
    source: Text = ""
    problem: Text = ""
    n: Annotated[int, BeforeValidator(lambda value: value or 0)] = 0
    threshold: Number = None
    effect: Number = None
    low: Number = None
    high: Number = None
    unit: Text = ""
    verdict: Verdict
    drivers: list[DriverRecord] = Field(default_factory=list)
    images: int | None = None
    sets: int | None = None


class Figure(_Part):
    """A picture of ``figures/``, as ``figures/index.json`` describes it."""

    name: str
    title: Text = ""
    caption: Text = ""
    alt: Text = ""


class Strip(_Part):
    """A reconstruction: z_k above, x_k below, one column per frame."""

    family: Family = ""
    source: Text = ""
    method: str
    n: int = 0
    set: int = 0
    problem: str
    relaxation: Text = "paper"
    image: Text
    file: str

    @property
    def setting(self) -> Setting:
        """All but the adaptation set and the image."""
        return Setting(self.family, self.source, self.method, self.n, self.problem, self.relaxation)


class Pictures(_Part):
    """``pictures/index.json``: files relative to the experiment's folder."""

    size: int = Field(gt=0, le=1024)
    frames: list[int] = Field(min_length=1, max_length=200)
    images: list[Text] = Field(default_factory=list)
    problems: list[str] = Field(default_factory=list)
    entries: list[Strip] = Field(default_factory=list)
    truth: dict[str, str] = Field(default_factory=dict)
    degraded: dict[str, dict[str, str]] = Field(default_factory=dict)


class WholeView(_Part):
    """One way to look at a whole picture: measured, reconstructed or true."""

    key: str
    label: Text
    psnr: Number = None
    file: str


class WholePicture(_Part):
    """A whole picture; the detail is its top, left and side in pixels."""

    name: str = Field(pattern=r"^[\w-]+$")
    label: Text
    detail: tuple[int, int, int]
    views: list[WholeView] = Field(min_length=2)


class WholePictures(_Part):
    """``whole/index.json``: whole pictures in several ways, files relative to that folder."""

    says: list[Text] = Field(default_factory=list)
    scenes: list[WholePicture] = Field(min_length=1)


#: The folder of whole pictures, and what it holds beside them.
WHOLE, WHOLE_INDEX = "whole", "index.json"


def write_whole(out: Path, whole: WholePictures, files: Mapping[str, bytes]) -> None:
    """Write whole pictures to their folder, in place of those that are there.

    Args:
        out: folder of a demo or an experiment.
        whole: what there is.
        files: by name.

    Example:
        >>> views = [WholeView(key=k, label=k, file=f"{k}.png") for k in ("measured", "truth")]
        >>> cat = WholePicture(name="cat", label="cat", detail=(0, 0, 8), views=views)
        >>> write_whole(Path(), WholePictures(scenes=[cat]), {v.file: b"" for v in views})
        >>> sorted(file.name for file in Path(WHOLE).iterdir())
        ['index.json', 'measured.png', 'truth.png']
    """
    folder = out / WHOLE
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.png"):
        if old.name not in files:
            old.unlink()
    write_together(folder, dict(files))
    write_json(folder, WHOLE_INDEX, whole.model_dump(mode="json"))


@dataclass(frozen=True, slots=True)
class ImageRow:
    """A row of ``images.csv``; PSNR in dB, gap in per cent."""

    setting: Setting
    set: int
    image: str
    t: float | None
    psnr: float | None
    ssim: float | None
    best_psnr: float | None
    best_iteration: float | None
    gap: float | None
    lipschitz: float | None


#: What is measured of each image.
PER_IMAGE = ("psnr", "ssim", "best_psnr", "best_iteration", "gap", "lipschitz")


@dataclass(frozen=True, slots=True)
class IterationRow:
    """A row of ``iterations.csv``: a mean over images."""

    setting: Setting
    set: int
    iteration: int
    psnr: float | None
