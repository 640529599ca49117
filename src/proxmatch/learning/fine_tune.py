"""Fine-tuning: the weights of a denoiser, trained on a few images."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from proxmatch._internal.hardware import bfloat16_is_fast
from proxmatch._internal.provenance import versions
from proxmatch._internal.randomness import fingerprint
from proxmatch.denoisers import ProximalDenoiser, checkpoint
from proxmatch.errors import AdaptationWarning, InputError
from proxmatch.learning.assess import Assessment, assess
from proxmatch.learning.engine import Check, run
from proxmatch.learning.evidence import LEEWAY, AdaptationResult, Evidence
from proxmatch.learning.frame import around, core, inside
from proxmatch.learning.hold_out import HoldOut, hold_out
from proxmatch.learning.query_points import along_trajectory
from proxmatch.learning.settings import (
    Augmentation,
    Levels,
    Optimizer,
    Penalty,
    TrainingSettings,
    TrajectoryInputs,
)
from proxmatch.learning.sources import pairs
from proxmatch.losses import Constant, FromData, Geometric
from proxmatch.methods import Method, chosen
from proxmatch.problems import Problem

if TYPE_CHECKING:
    from lightning_fabric import Fabric

#: Side of the windows that a denoiser of any image size is trained on.
CROP = 64
#: Level at which a denoiser of all levels is measured.
ASSESSED = 0.05

Select = Literal["best", "last"]


def fine_tune(
    denoiser: ProximalDenoiser,
    images: Sequence[Tensor],
    settings: TrainingSettings,
    *,
    problems: Sequence[Problem],
    size: int,
    select: Select = "best",
    draws: int | None = None,
    held_out: bool = True,
    folder: str | Path | None = None,
    fabric: Fabric | None = None,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
) -> AdaptationResult:
    """Train a copy of a denoiser on images; see :func:`proxmatch.learning.adapt`.

    Args:
        denoiser: of a family that can be trained; if it is aligned, it is trained in that frame.
        images: clean, ``(C, H, W)`` each.
        settings: of the training.
        problems: that decide what is best, and whose trajectories are followed if the settings ask
            for it; of images of ``size``.
        size: side of the windows.
        select: ``best`` or ``last`` weights.
        draws: noise draws for each image; None for new noise each time.
        held_out: keep a part of the images to measure on.
        folder: for the state and the log.
        fabric: where and in what precision.
        on_step: called with the step and its loss.

    Example:
        >>> import torch
        >>> from proxmatch.denoisers import LPN, LPNConfig
        >>> source = LPN(LPNConfig(size=8, hidden=4, features=3, strides=(2,), channels=1))
        >>> found = fine_tune(source, [torch.zeros(1, 8, 8)], TrainingSettings(steps=2), size=8,
        ...                   problems=[], select="last", held_out=False)
        >>> found.step, str(found.status)
        (2, 'completed')
    """
    if select == "best" and not held_out:
        raise InputError("select='best' needs held-out images; use select='last'")
    split = hold_out(images, size) if held_out else None
    training = images if split is None else split.training
    adapted = copy.deepcopy(denoiser)
    network = core(adapted)
    before = check = None
    if split is not None:
        before = look(adapted, split, problems, settings)
        check = _checker(adapted, before, split, problems, settings)
    about = {
        "images": fingerprint(images),
        "source": checkpoint.fingerprint(denoiser),
        "draws": draws,
        "held_out": held_out,
        "size": size,
        "problems": [problem.describe() for problem in problems],
    }
    # Query points of a problem are as large as its images.
    whole = bool(network.native_size) or settings.trajectory is not None
    crop = size if whole else min(size, CROP)
    source = pairs(training, crop, draws)
    if settings.trajectory is not None:
        source = along_trajectory(source, adapted, problems)
    result = run(
        network,
        inside(adapted, source),
        settings,
        folder,
        fabric=fabric,
        check=check,
        about=about,
        on_step=on_step,
    )
    step = result.steps
    if select == "best" and result.best is not None:
        network.load_state_dict(result.best)
        step = result.best_step or 0
    network.lipschitz = None  # it was the source's
    evidence = None
    if before is not None and split is not None:
        after = look(adapted, split, problems, settings)
        evidence = Evidence(before, after, split.owners, split.whole)
        if network.penalized:
            network.lipschitz = round(evidence.after.lipschitz, 4)
        _speak(evidence, step)
    lost = [line["saturation"] > 0.95 for line in result.history if "saturation" in line]
    network.record = {
        **core(denoiser).record,
        "adapted": {
            **about,
            "number": len(images),
            "select": select,
            "step": step,
            "settings": settings.model_dump(mode="json"),
            "status": str(result.status),
            "minutes": round(result.seconds / 60, 2),
            "versions": versions(),
            "before": before and before.means(),
            "after": evidence and evidence.after.means(),
        },
    }
    saturated = sum(lost) / len(lost) if lost else None
    if saturated is not None and saturated > 0.5:
        warnings.warn(
            f"proximal matching had no gradient left at {100 * saturated:.0f} % of the steps: "
            "gamma is far below the error; use a larger one, or the schedule FromData",
            AdaptationWarning,
            stacklevel=4,  # to who calls adapt
        )
    return AdaptationResult(adapted, result.status, step, result.history, evidence, saturated)


def adaptation_settings(
    denoiser: ProximalDenoiser, method: str | Method, inputs: int, **changes: Any
) -> TrainingSettings:
    """The settings of the paper's methods: everything but the loss is the same for all of them.

    Denoisers of all noise levels are trained gently (:func:`gentle_settings`), whatever the loss.

    Args:
        denoiser: decides the noise level, the number of steps and gamma.
        method: see :func:`proxmatch.learning.adapt`.
        inputs: how many different inputs there are, N M.
        changes: of single settings.

    Example:
        >>> from proxmatch.denoisers import LPN, LPNConfig
        >>> settings = adaptation_settings(LPN(LPNConfig.compact()), "pm", 20)
        >>> settings.loss, settings.steps
        ('pm', 1000)
    """
    way = method if isinstance(method, Method) else chosen(method)
    if way.role != "adapted":
        raise InputError(f"{way.name} has no settings: it does not fine-tune by itself")
    network = core(denoiser)
    recipe = network.recipe
    if way.penalty and not network.penalized:
        raise InputError(f"{way.name} has a penalty, which is for gradient-step denoisers")
    penalty = Penalty(iterations=5) if way.penalty else None
    if network.conditional:
        told = gentle_settings(denoiser, inputs, loss=way.loss, penalty=penalty).model_dump()
        every = max(1, told["steps"] // recipe.looks)
        told |= {"check_every": every, "checkpoint_every": every}
        told["optimizer"] |= way.optimizer
        return TrainingSettings.model_validate({**told, **changes})
    batch = 4
    gamma = Geometric() if recipe.gamma is None else Constant(gamma=recipe.gamma)
    steps = max(200, math.ceil(recipe.epochs * inputs / batch))
    every = max(1, steps // recipe.looks)
    defaults: dict[str, Any] = {
        "loss": way.loss,
        "gamma": gamma,
        "noise": denoiser.sigma or ASSESSED,
        "steps": steps,
        "batch": batch,
        "optimizer": Optimizer.model_validate(
            {
                "rate": 1e-3,
                "betas": (0.9, 0.999),
                "warmup": 0,
                "final": 1,
                "clip": recipe.clip,
                **way.optimizer,
            }
        ),
        "penalty": penalty,
        "check_every": every,
        "checkpoint_every": every,
    }
    return TrainingSettings.model_validate({**defaults, **changes})


def gentle_settings(denoiser: ProximalDenoiser, number: int, **changes: Any) -> TrainingSettings:
    """A short training on a few images: averaged, and augmented where necessary.

    Denoisers of all noise levels are trained by proximal matching, with a gamma from the errors; on
    one face it was level with MSE (``results/adaptation``). Their convolutions are in bfloat16
    where the device is fast at it. Those of one level have augmented images, query points of the
    reconstructions among the inputs, and the penalty where L < 1 is not kept by a choice of
    strength.

    Args:
        denoiser: decides rate, batch and number of steps.
        number: of images.
        changes: of single settings.

    Example:
        >>> from proxmatch import load
        >>> gentle_settings(load("gs-faces"), 1).steps, gentle_settings(load("gs-faces"), 5).steps
        (300, 600)
    """
    network = core(denoiser)
    recipe = network.recipe
    if network.conditional:
        steps = 300 if number < 5 else 600
        defaults: dict[str, Any] = {
            "loss": "pm",
            "gamma": FromData(),
            "noise": Levels.of(network.levels),
            "batch": 4,
            "optimizer": Optimizer(rate=5e-4, warmup=30, final=0.05, clip=1.0),
            "mixed": network.mixable and bfloat16_is_fast(next(network.parameters()).device),
        }
    else:
        steps = recipe.steps[number >= 5]
        defaults = {
            "noise": (0.05, 0.15),
            "batch": recipe.batch,
            "optimizer": Optimizer(rate=recipe.rate, final=0.05, clip=recipe.clip or 0.02),
            "augmentation": Augmentation(),
            "trajectory": TrajectoryInputs(),
            "penalty": Penalty(iterations=5) if network.penalized else None,
        }
    defaults |= {"steps": steps, "averaging": 0.98, "check_every": steps, "checkpoint_every": 100}
    return TrainingSettings.model_validate({**defaults, **changes})


def look(
    denoiser: ProximalDenoiser,
    split: HoldOut,
    problems: Sequence[Problem],
    settings: TrainingSettings,
    iterations: int = 40,
) -> Assessment:
    """The figures of a denoiser on what was held out."""
    noise = settings.noise
    if isinstance(noise, Levels):
        noise = ASSESSED
    elif isinstance(noise, tuple):
        noise = noise[1]
    return assess(
        denoiser,
        split.crops,
        problems,
        noise=(noise,),
        first=split.first,
        iterations=iterations,
        seed=settings.seed,
    )


def _checker(
    adapted: ProximalDenoiser,
    before: Assessment,
    split: HoldOut,
    problems: Sequence[Problem],
    settings: TrainingSettings,
) -> Callable[[ProximalDenoiser], Check]:
    def check(network: ProximalDenoiser) -> Check:
        now = look(around(adapted, network), split, problems, settings, iterations=20)
        gains = Evidence(before, now, split.owners, split.whole)
        sound = min(gains.gains.values()) >= -LEEWAY
        return Check(gains.gain if sound else None, {"held_out": now.means()})

    return check


def _speak(evidence: Evidence, step: int) -> None:
    if evidence.worse:
        advice = "try select='best', fewer steps, more images or another method"
        message = f"this adaptation made things worse: {evidence}; {advice}"
    elif step == 0:
        message = "no step of the adaptation was better than the source, which is returned as it is"
    else:
        return
    warnings.warn(message, AdaptationWarning, stacklevel=5)
