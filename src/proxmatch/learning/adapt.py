"""Adapt a denoiser to a few images, and know whether it helped."""

from __future__ import annotations

import copy
import hashlib
import math
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor

from proxmatch.data import FewShot
from proxmatch.denoisers import LPN, GradientStep, ProximalDenoiser
from proxmatch.errors import AdaptationWarning, InputError
from proxmatch.learning.assess import Assessment, assess
from proxmatch.learning.engine import Check, RunStatus, run
from proxmatch.learning.hold_out import HoldOut, hold_out
from proxmatch.learning.settings import Optimiser, Penalty, TrainingSettings
from proxmatch.learning.sources import pairs
from proxmatch.learning.train import default_problems, versions
from proxmatch.losses import Constant, GammaSchedule, Geometric
from proxmatch.problems import Problem

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Method = Literal["mse", "l1", "pm", "scaled-mse", "adapm"]
Select = Literal["best", "last"]

#: What ``select="best"`` may lose on one problem for the sake of another, in dB.
LEEWAY = 0.05


@dataclass(frozen=True)
class Evidence:
    """What an adaptation did, on pixels that had no influence on it.

    Attributes:
        before: figures of the denoiser that was given.
        after: figures of the one that is returned.
    """

    before: Assessment
    after: Assessment

    @property
    def gains(self) -> dict[str, float]:
        """Mean gain in reconstruction PSNR, in dB, by problem."""
        after, before = self.after.reconstruction, self.before.reconstruction
        return {name: float((after[name] - before[name]).mean()) for name in after}

    @property
    def gain(self) -> float:
        """The mean of these."""
        return sum(self.gains.values()) / len(self.gains)

    def __str__(self) -> str:
        parts = [
            f"{name} {float(b.mean()):.2f} -> {float(self.after.reconstruction[name].mean()):.2f}"
            for name, b in self.before.reconstruction.items()
        ]
        parts += [
            f"denoising at {level:g} {float(b.mean()):.2f} -> "
            f"{float(self.after.denoising[level].mean()):.2f}"
            for level, b in self.before.denoising.items()
        ]
        parts.append(f"L {self.before.lipschitz:.2f} -> {self.after.lipschitz:.2f}")
        return f"held-out PSNR in dB: {', '.join(parts)}"


@dataclass(frozen=True)
class AdaptationResult:
    """An adapted denoiser.

    Attributes:
        model: the adapted denoiser; the one that was given is as it was.
        status: how the run ended.
        step: after how many steps its weights were taken.
        history: the log: loss, gamma, gradient norm, saturation, checks.
        evidence: that it helped, or that it did not; None when nothing was held out.
        saturated: share of the logged steps at which proximal matching had lost more than 95 % of
            its gradient; None for other losses.
    """

    model: ProximalDenoiser
    status: RunStatus
    step: int
    history: list[dict[str, Any]]
    evidence: Evidence | None
    saturated: float | None


def adapt(
    model: ProximalDenoiser,
    images: Tensor | Sequence[Tensor] | FewShot,
    method: Method = "pm",
    *,
    select: Select = "best",
    settings: TrainingSettings | None = None,
    draws: int | Literal["auto"] | None = "auto",
    problems: Sequence[Problem] | None = None,
    held_out: bool = True,
    size: int | None = None,
    folder: str | Path | None = None,
    fabric: Fabric | None = None,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
) -> AdaptationResult:
    """Fine-tune a denoiser on a few clean images of a new domain.

    Args:
        model: the source; it is not changed.
        images: clean images in [0, 1], ``(N, C, H, W)``, or ``(C, H, W)`` each.
        method: ``pm`` is proximal matching, ``adapm`` with the contractivity penalty (GS-AdaPM);
            ``mse``, ``l1`` and ``scaled-mse`` are what they are compared with.
        select: ``best`` returns the weights of the best held-out reconstructions, those of the
            source if none were better; ``last`` those after the last step, as in the paper.
        settings: in place of :func:`adaptation_settings`; they decide, whatever ``method`` says.
        draws: noise draws for each image, the same in every epoch; None for new noise each time;
            by default 4 for up to 10 images, else 1.
        problems: that decide what is best; the paper's two by default.
        held_out: keep a part of the images to measure on (see :mod:`proxmatch.learning.hold_out`);
            without it there is no evidence, and ``select`` must be ``last``.
        size: side of the windows; by default that of the LPN, or 64.
        folder: for the state and the log, so that an interrupted adaptation can go on; by default
            nothing is kept.
        fabric: where and in what precision.
        on_step: told the step and its loss.

    Raises:
        InputError: something that does not fit.

    Warns:
        AdaptationWarning: it made things worse, or nothing better was found.
    """
    if select not in get_args(Select):
        raise InputError(f"select is 'best' or 'last', not {select!r}")
    if select == "best" and not held_out:
        raise InputError("select='best' needs held-out images; take select='last'")
    given = _checked(images, model)
    size = size or _window(model, given)
    split = hold_out(given, size) if held_out else None
    training = given if split is None else split.training
    if draws == "auto":
        draws = 4 if len(training) <= 10 else 1
    if settings is None:
        settings = adaptation_settings(model, method, len(training) * (draws or 1))
    adapted = copy.deepcopy(model)
    before = check = None
    if split is None:
        problems = ()
    else:
        problems = problems or default_problems((size, size), model.channels)
        before = _look(adapted, split, problems, settings)
        check = _checker(before, split, problems, settings)
    about = {
        "images": fingerprint(given),
        "source": fingerprint(list(model.state_dict().values())),
        "draws": draws,
        "held_out": held_out,
        "size": size,
    }
    with tempfile.TemporaryDirectory() as temporary:
        result = run(
            adapted,
            pairs(training, size, draws),
            settings,
            folder or temporary,
            fabric=fabric,
            check=check,
            about=about,
            on_step=on_step,
        )
    step = result.steps
    if select == "best" and result.best is not None:
        adapted.load_state_dict(result.best)
        step = result.best_step or 0
    if isinstance(adapted, GradientStep):
        adapted.lipschitz = None  # it was the source's
    evidence = None
    if before is not None and split is not None:
        evidence = Evidence(before, _look(adapted, split, problems, settings))
        if isinstance(adapted, GradientStep):
            adapted.lipschitz = round(evidence.after.lipschitz, 4)
        _speak(evidence, step, select)
    lost = [line["saturation"] > 0.95 for line in result.history if "saturation" in line]
    adapted.record = {
        **model.record,
        "adapted": {
            **about,
            "number": len(given),
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
            "gamma is far below the error; take a larger one, or the schedule FromData",
            AdaptationWarning,
            stacklevel=2,
        )
    return AdaptationResult(adapted, result.status, step, result.history, evidence, saturated)


def adaptation_settings(
    model: ProximalDenoiser, method: Method, inputs: int, **changes: Any
) -> TrainingSettings:
    """The settings of a method: everything but the loss is the same for all of them.

    Args:
        model: decides the noise level, the number of steps and gamma.
        method: see :func:`adapt`.
        inputs: how many different inputs there are, N M.
        changes: of single settings.
    """
    if method not in get_args(Method):
        raise InputError(f"no method {method!r}; there are {', '.join(get_args(Method))}")
    gradient_step = isinstance(model, GradientStep)
    if method == "adapm" and not gradient_step:
        raise InputError("adapm is proximal matching with a penalty for gradient-step denoisers")
    batch = 4
    gamma: GammaSchedule = Constant(gamma=0.025) if gradient_step else Geometric()
    epochs = 20 if gradient_step else 200  # the paper's
    steps = max(200, math.ceil(epochs * inputs / batch))
    every = max(1, steps // (10 if gradient_step else 20))  # a look at a GS takes longer
    defaults: dict[str, Any] = {
        "loss": "pm" if method == "adapm" else method,
        "gamma": gamma,
        "noise": model.sigma or 0.05,
        "steps": steps,
        "batch": batch,
        "optimiser": Optimiser(
            rate=1e-3, betas=(0.9, 0.999), warmup=0, final=1, clip=0.02 if gradient_step else None
        ),
        "penalty": Penalty(iterations=5) if method == "adapm" else None,
        "check_every": every,
        "checkpoint_every": every,
    }
    return TrainingSettings.model_validate({**defaults, **changes})


def fingerprint(tensors: Sequence[Tensor]) -> str:
    """Number and hash of what the tensors hold."""
    digest = hashlib.sha256()
    for t in tensors:
        digest.update(str(tuple(t.shape)).encode())
        digest.update(t.detach().cpu().float().contiguous().numpy().tobytes())
    return f"{len(tensors)}-{digest.hexdigest()[:16]}"


def _checked(images: Tensor | Sequence[Tensor] | FewShot, model: ProximalDenoiser) -> list[Tensor]:
    given = list(images.images if isinstance(images, FewShot) else images)
    if not given:
        raise InputError("there are no images to adapt to; give at least one")
    for number, image in enumerate(given):
        if not isinstance(image, Tensor) or image.ndim != 3 or image.shape[0] != model.channels:
            shape = tuple(image.shape) if isinstance(image, Tensor) else type(image).__name__
            raise InputError(
                f"image {number} should be ({model.channels}, height, width), it is {shape}"
            )
        if not image.is_floating_point() or not bool(torch.isfinite(image).all()):
            raise InputError(f"image {number} must hold finite floating-point numbers in [0, 1]")
        low, high = image.aminmax()
        if low < -0.5 or high > 1.5:
            raise InputError(
                f"image {number} runs from {float(low):.3g} to {float(high):.3g}: scale it to "
                "[0, 1] (divide 8-bit images by 255)"
            )
    return [image.detach().cpu().float() for image in given]


def _window(model: ProximalDenoiser, images: Sequence[Tensor]) -> int:
    if isinstance(model, LPN) and model.config.size is not None:
        return model.config.size
    return min(64, *(min(image.shape[1:]) for image in images))


def _look(
    model: ProximalDenoiser,
    split: HoldOut,
    problems: Sequence[Problem],
    settings: TrainingSettings,
    iterations: int = 40,
) -> Assessment:
    noise = settings.noise if isinstance(settings.noise, float) else settings.noise[1]
    return assess(
        model.eval(),
        split.crops,
        problems,
        noise=(noise,),
        first=split.first,
        iterations=iterations,
    )


def _checker(
    before: Assessment, split: HoldOut, problems: Sequence[Problem], settings: TrainingSettings
) -> Callable[[ProximalDenoiser], Check]:
    def check(model: ProximalDenoiser) -> Check:
        now = _look(model, split, problems, settings, iterations=20)
        gains = Evidence(before, now)
        sound = min(gains.gains.values()) >= -LEEWAY
        return Check(gains.gain if sound else None, {"held_out": now.means()})

    return check


def _speak(evidence: Evidence, step: int, select: Select) -> None:
    if evidence.gain < 0 or min(evidence.gains.values()) < -LEEWAY:
        advice = "try select='best', fewer steps, more images or another method"
        message = f"this adaptation made things worse: {evidence}; {advice}"
    elif step == 0:
        message = "no step of the adaptation was better than the source, which is returned as it is"
    else:
        return
    warnings.warn(message, AdaptationWarning, stacklevel=3)
