"""Everything that decides a training run, as data: YAML in and out, unknown keys refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializeAsAny,
    ValidationError,
    field_validator,
    model_validator,
)

from proxmatch.denoisers import GradientStepConfig, LPNConfig, ScaledLPNConfig
from proxmatch.denoisers.checkpoint import explain
from proxmatch.denoisers.families import FAMILIES, family
from proxmatch.errors import InputError
from proxmatch.losses import LOSSES, GammaSchedule, Geometric
from proxmatch.losses.schedules import Positive


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Optimizer(_Settings):
    """Adam with warm-up and a cosine to ``final`` times the rate.

    Attributes:
        rate: learning rate.
        matrices: learning rate of the convolutions between hidden layers, which are then trained
            by Muon (:mod:`proxmatch.learning.muon`); None for Adam.
        decay: of the weights of these convolutions: a step takes this times their rate off them.
        betas: of Adam.
        warmup: steps over which the rate rises linearly.
        final: fraction of the rate at the end; 1 for a constant rate.
        clip: bound on the norm of the whole gradient, of a squared error per pixel; None for none.
    """

    rate: Positive = 1e-3
    matrices: Positive | None = None
    decay: float = Field(0.0, ge=0, allow_inf_nan=False)
    betas: tuple[float, float] = (0.9, 0.99)
    warmup: int = Field(20, ge=0)
    final: float = Field(0.01, ge=0, le=1)
    clip: Positive | None = None


class Levels(_Settings):
    """Noise levels drawn for every image: low + (high - low) u^power, u uniform in [0, 1].

    Attributes:
        low: smallest level.
        high: largest level.
        power: above 1, small levels are more frequent.
        balance: the squared error at level s counts 1 / (s^balance + 0.001), so that no level
            drowns the others; 0 for plain squared errors.
    """

    low: Positive = 0.003
    high: Positive = 0.25
    power: Positive = 1.5
    balance: float = Field(1.5, ge=0)

    @classmethod
    def of(cls, levels: tuple[float, float] | None) -> Levels:
        """From the smallest to the largest level that a denoiser is for, if they are known."""
        return cls() if levels is None else cls(low=levels[0], high=levels[1])


class Penalty(_Settings):
    """The contractivity penalty of gradient-step denoisers.

    Attributes:
        limit: L_max.
        weight: lambda_con, for a squared error per pixel. With ten times as much, and no bound on
            the gradient (``Optimizer.clip``), the denoiser forgets how to denoise.
        iterations: power iterations a step; fewer than 10 miss the worst directions of new images.
        shift: of the power iteration.
        begin: progress of the training at which it sets in, in [0, 1).
        restart: the rate then follows a second cosine, which starts at this fraction of it.
    """

    limit: Positive = 0.85
    weight: Positive = 1.0
    iterations: int = Field(15, ge=1)
    shift: float = 0.3
    begin: float = Field(0.0, ge=0, lt=1)
    restart: Positive = 0.25


class Augmentation(_Settings):
    """Random changes of the clean images, so that a few of them go further.

    Attributes:
        share: of the images that are changed; the others are left as they are.
        rotation: largest angle, in degrees.
        zoom: smallest and largest magnification.
        shift: largest shift, as a fraction of the side. What comes in is the mirror image.
        contrast: smallest and largest factor about the mean color.
        brightness: largest offset.
        colors: e in the color matrix Id + e N, N of standard normal entries.
        gamma: largest absolute logarithm of an exponent.
        blending: largest weight of another image of the batch.
    """

    share: float = Field(0.75, ge=0, le=1)
    rotation: float = Field(20.0, ge=0, le=180)
    zoom: tuple[Positive, Positive] = (0.8, 1.6)
    shift: float = Field(0.25, ge=0, le=1)
    contrast: tuple[Positive, Positive] = (0.6, 1.3)
    brightness: float = Field(0.15, ge=0, le=1)
    colors: float = Field(0.12, ge=0)
    gamma: float = Field(0.3, ge=0)
    blending: float = Field(0.0, ge=0, le=1)


class TrajectoryInputs(_Settings):
    """Inputs from where the denoiser is used: query points z_k of PnP-PGD.

    Attributes:
        share: of every batch.
        refresh: steps after which they are computed again, with the current denoiser.
        images: number of images whose query points are kept at a time, for each problem.
    """

    share: float = Field(0.25, gt=0, le=1)
    refresh: int = Field(50, ge=1)
    images: int = Field(8, ge=1)


class TrainingSettings(_Settings):
    """One training run.

    Attributes:
        loss: a name of :data:`proxmatch.losses.LOSSES`: ``mse``, ``pm``, ...
        gamma: schedule of gamma, for losses that have a scale.
        noise: standard deviation of the noise; two numbers for a uniform draw between them;
            :class:`Levels` for networks of all levels.
        steps: optimizer steps.
        batch: images per step, over all processes together.
        optimizer: of the weights.
        penalty: contractivity penalty, for gradient-step denoisers.
        augmentation: of the clean images.
        trajectory: query points of PnP-PGD among the inputs; only an adaptation has problems.
        averaging: a, if the weights that are checked and returned are a running mean, in which
            those of k steps ago count a^k; None for the weights of the last step.
        mixed: train with the cheaper, less exact evaluation of a denoiser. In a gradient-step
            network convolutions are then in bfloat16, while weights, images and the penalty stay
            in single precision: nearly twice as fast on a processor with instructions for it,
            slower on others. A denoiser that is solved for is solved less exactly.
        seed: of the images, the noise and the directions, which are new at each step.
        checkpoint_every: steps between checkpoints.
        check_every: steps between two checks of the model, if it is checked.
        log_every: steps between lines of the log.
        patience: steps in a row with a loss that is not finite before the run gives up.
    """

    loss: str = "mse"
    gamma: GammaSchedule = Geometric()
    noise: Positive | tuple[Positive, Positive] | Levels = 0.07
    steps: int = Field(1000, ge=1)
    batch: int = Field(8, ge=1)
    optimizer: Optimizer = Optimizer()
    penalty: Penalty | None = None
    augmentation: Augmentation | None = None
    trajectory: TrajectoryInputs | None = None
    averaging: float | None = Field(None, gt=0, lt=1)
    mixed: bool = False
    seed: int = Field(0, ge=0)
    checkpoint_every: int = Field(200, ge=1)
    check_every: int = Field(50, ge=1)
    log_every: int = Field(10, ge=1)
    patience: int = Field(20, ge=1)

    @field_validator("loss")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in LOSSES:
            raise ValueError(f"there are {', '.join(LOSSES)}")
        return name

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if isinstance(self.noise, tuple) and self.noise[0] > self.noise[1]:
            raise ValueError("noise: the first level must not be above the second")
        if isinstance(self.noise, Levels) and self.noise.low > self.noise.high:
            raise ValueError("noise: low must not be above high")
        refresh = self.trajectory and self.trajectory.refresh
        if refresh and self.checkpoint_every % refresh:
            raise ValueError(
                f"checkpoint_every: must be a multiple of trajectory.refresh ({refresh}), so that "
                "a resumed run finds its query points again"
            )
        return self

    @classmethod
    def from_yaml(cls, file: str | Path) -> TrainingSettings:
        """Read settings; what is not given keeps its default."""
        try:
            content = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
            raise InputError(f"{file} cannot be read as YAML: {error}") from error
        try:
            return cls.model_validate({} if content is None else content)
        except ValidationError as error:
            raise InputError(f"{file}: {explain(error)}") from error

    def to_yaml(self) -> str:
        """The settings as YAML, defaults included."""
        text: str = yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)
        return text


class Preset(_Settings):
    """A denoiser and how it is trained.

    Attributes:
        model: layout of the denoiser: the configuration of a family.
        size: side of the training crops.
        settings: of the training.
    """

    model: SerializeAsAny[BaseModel]
    size: int
    settings: TrainingSettings

    @property
    def channels(self) -> int:
        """Of the images that the denoiser is for."""
        found: int = self.model.channels  # type: ignore[attr-defined]
        return found


def _preset(model: BaseModel, size: int, sigma: float, **settings: Any) -> Preset:
    noise = settings.pop("noise", sigma)
    return Preset(
        model=model.model_copy(update={"sigma": sigma}),
        size=size,
        settings=TrainingSettings(noise=noise, **settings),
    )


#: The compact ones are sized for a CPU. The paper's leave learning rates, noise levels and sizes
#: unsaid: theirs are those of the published code of each family. Families may bring their own.
PRESETS: dict[str, Preset] = {
    "lpn-compact": _preset(
        LPNConfig.compact(), 64, 0.07, steps=12_000, optimizer=Optimizer(rate=1e-2)
    ),
    "lpn-compact-128": _preset(
        LPNConfig.compact(size=128), 128, 0.07, steps=8_000, optimizer=Optimizer(rate=1e-2)
    ),
    "gs-compact": _preset(
        GradientStepConfig.compact(),
        32,
        0.05,
        steps=6_400,
        optimizer=Optimizer(rate=2e-3, clip=0.02),
        penalty=Penalty(begin=0.88),
    ),
    "gs-scaled": _preset(
        GradientStepConfig.scaled(levels=(0.003, 0.25), blocks=(1, 1, 2), leak=0.1, contrast=0.25),
        64,
        0.05,
        noise=Levels(),
        steps=15_000,
        batch=4,
        optimizer=Optimizer(rate=1e-3, matrices=2e-3, decay=1.0, warmup=100, final=0.02, clip=1.0),
        averaging=0.997,
    ),
    "lpn-scaled": _preset(
        ScaledLPNConfig(levels=(0.003, 0.25)),
        64,
        0.05,
        noise=Levels(),
        steps=14_000,
        batch=4,
        optimizer=Optimizer(rate=3e-3, warmup=100, final=0.02, clip=1.0),
        augmentation=Augmentation(
            share=0.5,
            rotation=0,
            zoom=(1, 1),
            shift=0,
            contrast=(0.2, 1.2),
            brightness=0.3,
            colors=0,
            gamma=0,
        ),
        averaging=0.997,
    ),
    "lpn-paper": _preset(
        LPNConfig.official(),
        128,
        0.05,
        loss="pm",
        gamma={"kind": "staged"},
        steps=40_000,
        batch=64,
        optimizer=Optimizer(rate=1e-3, betas=(0.9, 0.999), final=0.1),
    ),
    "gs-paper": _preset(
        GradientStepConfig.drunet(),
        128,
        0.05,
        noise=(1e-3, 50 / 255),
        steps=1_000_000,
        batch=16,
        optimizer=Optimizer(rate=1e-4, betas=(0.9, 0.999), final=0.06, clip=1e-2),
        penalty=Penalty(limit=0.9, weight=1e-3, iterations=50, begin=0.99),
    ),
}
PRESETS |= {
    name: Preset.model_validate(told)
    for each in FAMILIES
    for name, told in family(each).presets.items()
}
