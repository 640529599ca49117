"""Train a denoiser on a folder of images, and measure the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from proxmatch._internal.provenance import versions
from proxmatch._internal.randomness import fingerprint, generator_of
from proxmatch.data import HeldImages, ImageDomain, open_images
from proxmatch.denoisers import ProximalDenoiser, new, save
from proxmatch.denoisers.gradient_step import SIGMA
from proxmatch.errors import InputError
from proxmatch.learning.assess import Assessment, assess
from proxmatch.learning.engine import RunResult, run
from proxmatch.learning.fine_tune import CROP
from proxmatch.learning.settings import PRESETS, Levels, Optimizer, Preset, TrainingSettings
from proxmatch.learning.sources import stream, windows
from proxmatch.plots.shown import ShownTraining
from proxmatch.pnp import checked_count
from proxmatch.problems import Problem, gaussian_deblurring, super_resolution
from proxmatch.transforms import color_statistics

if TYPE_CHECKING:
    from lightning_fabric import Fabric

COLOR_SAMPLE = 512
#: Steps of a short training that starts from a denoiser.
SHORT = 1000


@dataclass(frozen=True, repr=False)
class TrainingResult(ShownTraining):
    """A trained denoiser.

    Attributes:
        denoiser: with its card in ``denoiser.record``.
        run: how the training went.
        validation: its figures on images that it was not trained on, if there were any.
    """

    denoiser: ProximalDenoiser
    run: RunResult
    validation: Assessment | None


def train(
    preset: str | Preset | ProximalDenoiser,
    domain: ImageDomain | Any,
    folder: str | Path,
    *,
    settings: TrainingSettings | None = None,
    steps: int | None = None,
    start: ProximalDenoiser | None = None,
    validation: Tensor | None = None,
    problems: Sequence[Problem] | None = None,
    fabric: Fabric | None = None,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
) -> TrainingResult:
    """Train a denoiser, or continue a training that was interrupted.

    Args:
        preset: one of ``PRESETS``, or your own; or a denoiser to start from, such as
            ``GradientStep.of(network)``, which is copied and trained at its levels
            (:func:`continued`).
        domain: images to train on, at least as large as the preset's crops: an
            :class:`ImageDomain`, a folder, or images in any form of
            :mod:`proxmatch.data.any_form`.
        folder: gets the state and the log of the run, and the denoiser in ``model/``.
        settings: in place of the preset's.
        steps: how many, in place of those of the settings.
        start: a denoiser whose weights it starts from (:meth:`ProximalDenoiser.inherit_`); from
            scratch by default.
        validation: images for the card, ``(B, C, H, W)``, as large as those of the deployment.
        problems: for the card; deblurring and super-resolution by default.
        fabric: where and in what precision.
        on_step: called with the step and its loss.

    Example:
        >>> from PIL import Image
        >>> from proxmatch.denoisers import LPNConfig
        >>> Image.new("RGB", (16, 16)).save("black.png")
        >>> layout = LPNConfig(size=16, hidden=4, features=3, strides=(2,), sigma=0.1)
        >>> preset = Preset(model=layout, size=16, settings=TrainingSettings(steps=2, noise=0.1))
        >>> result = train(preset, ImageDomain(".", 16), "run")
        >>> result.run.steps
        2
    """
    own = preset if isinstance(preset, ProximalDenoiser) else None
    if own is not None:
        domain = open_images(domain, own.native_size or CROP, own.channels)
        preset = continued(own, domain.size)
    else:
        preset = _named(preset)
        domain = open_images(domain, preset.size, preset.channels)
    settings = settings or preset.settings
    if steps is not None:
        settings = settings.model_copy(update={"steps": checked_count(steps, name="steps")})
    if domain.size < preset.size:
        raise InputError(
            f"the preset trains on {preset.size} x {preset.size} crops, the domain has "
            f"{domain.size} x {domain.size} ones; open it with size={preset.size}"
        )
    if domain.channels != preset.channels:
        raise InputError(
            f"the preset is for {preset.channels} channel(s), the domain has "
            f"{domain.channels}; open it with channels={preset.channels}"
        )
    if validation is not None and problems is None:
        _, channels, *size = validation.shape
        problems = default_problems((size[0], size[1]), channels)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        denoiser = new(preset.model) if own is None else deepcopy(own)
    about = {"data": domain.fingerprint}
    if own is not None:
        about["start"] = fingerprint(list(own.parameters()))
    if start is not None:
        denoiser.inherit_(start)
        about["start"] = fingerprint(list(start.parameters()))
    draw = windows(domain.sample, preset.size) if domain.size > preset.size else domain.sample
    result = run(
        denoiser, stream(draw), settings, folder, fabric=fabric, about=about, on_step=on_step
    )
    denoiser.record = {
        "data": domain.describe(),
        "colors": colors(domain, settings.seed),
        "model": preset.model.model_dump(mode="json"),
        "crop": preset.size,
        "settings": settings.model_dump(mode="json"),
        "status": str(result.status),
        "minutes": round(result.seconds / 60, 1),
        "threads": torch.get_num_threads(),
        "versions": versions(),
    }
    begun = own if start is None else start
    if begun is not None:
        denoiser.record["start"] = {"weights": about["start"], **begun.record}
    found = None
    if validation is not None:
        found = assess(denoiser, validation, problems or (), noise=(0.05, 0.025, 0.1))
        denoiser.record["validation"] = found.means()
        if denoiser.penalized:
            denoiser.lipschitz = round(found.lipschitz, 4)
    save(denoiser, Path(folder) / "model")
    return TrainingResult(denoiser, result, found)


def continued(denoiser: ProximalDenoiser, size: int) -> Preset:
    """How the training of a given denoiser continues: its layout, a short run at its levels.

    Args:
        denoiser: to start from.
        size: side of the images there are; crops are 64 x 64 if these are larger.

    Raises:
        InputError: it has no weights to train, or transforms around it.
    """
    if denoiser.chain or not denoiser.trainable:
        raise InputError(
            f"a {type(denoiser).__name__} is not trained; train a network of your own as "
            "GradientStep.of(network, smooth=True), and a transformed denoiser's core"
        )
    several = denoiser.conditional or denoiser.levels is not None
    noise: Any = Levels.of(denoiser.levels or (0.01, 0.2)) if several else denoiser.sigma or SIGMA
    settings = TrainingSettings(
        noise=noise, steps=SHORT, batch=4, optimizer=Optimizer(rate=1e-4, warmup=50, clip=1.0)
    )
    layout: Any = denoiser.configuration()
    return Preset.model_construct(
        model=layout, size=denoiser.native_size or min(CROP, size), settings=settings
    )


def default_problems(size: tuple[int, int], channels: int) -> list[Problem]:
    """The paper's two inverse problems."""
    return [gaussian_deblurring(size, channels=channels), super_resolution(size, channels=channels)]


def colors(domain: ImageDomain | HeldImages, seed: int) -> dict[str, Any]:
    """Mean and covariance of the training colors, which an alignment needs."""
    sample = domain.sample(COLOR_SAMPLE, generator_of(seed, "colors"))
    return color_statistics(sample).to_json()


def _named(preset: Any) -> Preset:
    if isinstance(preset, Preset):
        return preset
    if callable(preset):
        raise InputError(
            f"a {type(preset).__name__} is not trained as it is: train a network as "
            "GradientStep.of(network, smooth=True), or name a preset"
        )
    if preset not in PRESETS:
        raise InputError(f"no preset {preset!r}; there are {', '.join(PRESETS)}")
    return PRESETS[preset]
