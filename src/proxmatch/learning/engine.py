"""One step-based loop for training and adaptation, on Lightning Fabric.

The images, the noise and the directions of step k are functions of (seed, k) and nothing else. So
every method that is compared sees the same ones, a run that was killed goes on as if it had not
been, and several processes that share a batch do what one would have done.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from proxmatch.denoisers import LPN, GradientStep, ProximalDenoiser
from proxmatch.errors import CheckpointError, InputError
from proxmatch.files import write_together
from proxmatch.learning import state as states
from proxmatch.learning.settings import Optimiser, TrainingSettings
from proxmatch.losses import (
    absolute_error,
    contractivity_penalty,
    proximal_matching,
    saturation,
    scaled_squared_error,
    squared_error,
    top_direction,
)

if TYPE_CHECKING:
    from lightning_fabric import Fabric

LOG = "log.jsonl"
Draw = Callable[[int, torch.Generator], Tensor]


class RunStatus(StrEnum):
    """How a run ended."""

    COMPLETED = "completed"
    NOT_FINITE = "not finite"


@dataclass(frozen=True)
class RunResult:
    """What a run left behind.

    Attributes:
        model: the trained denoiser, the one that was given.
        status: how it ended; with ``not finite`` the weights are the last good ones.
        steps: steps done, over all interrupted parts.
        skipped: steps left out in this part because their loss was not finite.
        history: the lines of the log, of all parts.
    """

    model: ProximalDenoiser
    status: RunStatus
    steps: int
    skipped: int
    history: list[dict[str, Any]]


def run(
    model: ProximalDenoiser,
    draw: Draw,
    settings: TrainingSettings,
    folder: str | Path,
    *,
    fabric: Fabric | None = None,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
) -> RunResult:
    """Train a denoiser, going on from the last checkpoint in the folder if there is one.

    Args:
        model: trained in place.
        draw: ``(count, generator) -> (count, C, H, W)``, clean images as a pure function of these.
        settings: of the run.
        folder: for the state and the log; made if it does not exist.
        fabric: where and in what precision; one process on this device by default.
        on_step: told the step and its loss, for a progress bar.

    Raises:
        CheckpointError: the folder holds a run with other settings.
        InputError: a penalty for a denoiser that has none.
    """
    if settings.penalty is not None and not isinstance(model, GradientStep):
        raise InputError("the contractivity penalty is for gradient-step denoisers")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    fabric = fabric or _one_process(model)
    if settings.batch % fabric.world_size:
        raise InputError(
            f"a batch of {settings.batch} cannot be shared by {fabric.world_size} processes"
        )
    optimiser: torch.optim.Optimizer = torch.optim.Adam(
        model.parameters(), lr=settings.optimiser.rate, betas=settings.optimiser.betas
    )
    wrapped, wrapped_optimiser = fabric.setup(model, optimiser)
    told = settings.model_dump(mode="json")
    first = states.capture(0, told, model, optimiser)
    start = _resume(folder, told, model, optimiser)
    log = _open_log(folder / LOG, start)
    skipped, in_a_row = 0, 0
    status = RunStatus.COMPLETED
    model.train()
    for step in range(start, settings.steps):
        progress = step / max(settings.steps - 1, 1)
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(settings.optimiser, step, settings.steps)
        noisy, clean = batch(draw, settings, step, model)
        mine = slice(fabric.global_rank, None, fabric.world_size)
        loss, facts = objective(wrapped, model, noisy[mine], clean[mine], settings, step, progress)
        value = _mean(fabric, loss)
        size = _gradient(fabric, loss, model, settings.optimiser.clip)
        if not (math.isfinite(value) and math.isfinite(size)):
            skipped, in_a_row = skipped + 1, in_a_row + 1
            if in_a_row >= settings.patience:
                status = RunStatus.NOT_FINITE
                break
            continue
        in_a_row = 0
        wrapped_optimiser.step()
        if isinstance(model, LPN):
            model.project_()
        on_step(step + 1, value)
        done = step + 1
        if done % settings.log_every == 0 or done == settings.steps:
            log.append({"step": done, "loss": value, "gradient": size, **facts})
        if fabric.is_global_zero and (
            done % settings.checkpoint_every == 0 or done == settings.steps
        ):
            _write_log(folder / LOG, log)
            states.write(states.capture(done, told, model, optimiser), folder)
    model.eval()
    steps = settings.steps
    if status is RunStatus.NOT_FINITE:
        last = states.read(folder)
        steps = 0 if last is None else last.step
        states.restore(last or first, model, optimiser)
    return RunResult(model, status, steps, skipped, [line for line in log if line["step"] <= steps])


def learning_rate(optimiser: Optimiser, step: int, steps: int) -> float:
    """The rate of a step: linear warm-up times a cosine down to ``final``."""
    rise = min(1.0, (step + 1) / max(optimiser.warmup, 1))
    cosine = (1 + math.cos(math.pi * step / max(steps - 1, 1))) / 2
    return optimiser.rate * rise * (optimiser.final + (1 - optimiser.final) * cosine)


def generator_of(seed: int, step: int, what: str) -> torch.Generator:
    """A generator that depends on these alone, the same on every machine."""
    digest = hashlib.blake2b(f"{seed}/{step}/{what}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


def batch(
    draw: Draw, settings: TrainingSettings, step: int, model: ProximalDenoiser
) -> tuple[Tensor, Tensor]:
    """The noisy and the clean images of a step, on the device of the model."""
    clean = draw(settings.batch, generator_of(settings.seed, step, "images"))
    generator = generator_of(settings.seed, step, "noise")
    noise = torch.randn(clean.shape, generator=generator, dtype=clean.dtype)
    if isinstance(settings.noise, tuple):
        low, high = settings.noise
        level = low + (high - low) * torch.rand(len(clean), 1, 1, 1, generator=generator)
    else:
        level = torch.full((len(clean), 1, 1, 1), settings.noise)
    place = next(model.parameters())
    return (clean + level * noise).to(place), clean.to(place)


def objective(
    forward: Callable[..., Tensor],
    model: ProximalDenoiser,
    noisy: Tensor,
    clean: Tensor,
    settings: TrainingSettings,
    step: int,
    progress: float,
) -> tuple[Tensor, dict[str, Any]]:
    """The loss of a batch, per pixel where that makes sense, and what to log about it."""
    n = clean[0].numel()
    output = forward(noisy)
    residual = (squared_error(output.detach(), clean) / n).sqrt()
    facts: dict[str, Any] = {"rms": float(residual.mean())}
    gamma = settings.gamma(progress, residual) if settings.loss in ("pm", "scaled-mse") else None
    if settings.loss == "mse":
        loss = squared_error(output, clean).mean() / n
    elif gamma is None:  # L1, also as the first stage of proximal matching
        loss = absolute_error(output, clean).mean() / n
    else:
        matching = proximal_matching if settings.loss == "pm" else scaled_squared_error
        loss = matching(output, clean, gamma).mean()
        facts |= {"gamma": gamma, "saturation": float(saturation(output, clean, gamma).mean())}
    penalty = settings.penalty
    if penalty is not None and isinstance(model, GradientStep) and progress >= penalty.begin:
        start = torch.randn(noisy.shape, generator=generator_of(settings.seed, step, "directions"))
        v = top_direction(
            model, noisy, start.to(noisy), iterations=penalty.iterations, shift=penalty.shift
        )
        excess = contractivity_penalty(model, noisy, v, penalty.limit)
        loss = loss + penalty.weight * excess.mean()
        facts["contractivity"] = float((excess.detach().sqrt() + penalty.limit).max())
    return loss, facts


def _mean(fabric: Fabric, loss: Tensor) -> float:
    """The loss over all processes."""
    total = fabric.all_reduce(loss.detach(), reduce_op="mean")
    return float(total) if isinstance(total, Tensor) else math.nan


def _gradient(fabric: Fabric, loss: Tensor, model: ProximalDenoiser, clip: float | None) -> float:
    """Fill in the gradient, bounded by ``clip``; its norm before that."""
    model.zero_grad()
    fabric.backward(loss)
    return float(torch.nn.utils.clip_grad_norm_(model.parameters(), clip or math.inf))


def _one_process(model: ProximalDenoiser) -> Fabric:
    from lightning_fabric import Fabric

    device = next(model.parameters()).device
    accelerator = "cuda" if device.type == "cuda" else "cpu"
    return Fabric(accelerator=accelerator, devices=1)


def _resume(
    folder: Path,
    told: dict[str, Any],
    model: ProximalDenoiser,
    optimiser: torch.optim.Optimizer,
) -> int:
    found = states.read(folder)
    if found is None:
        return 0
    if found.settings != told:
        changed = sorted(k for k in told if found.settings.get(k) != told[k])
        raise CheckpointError(
            f"{folder} holds a run with other settings ({', '.join(changed)}); "
            "choose another folder, or remove this one"
        )
    try:
        states.restore(found, model, optimiser)
    except (RuntimeError, KeyError) as error:
        raise CheckpointError(f"{folder} holds a run of another model: {error}") from error
    return found.step


def _open_log(file: Path, start: int) -> list[dict[str, Any]]:
    """The lines up to the checkpoint; what came after it is done again."""
    if start == 0 or not file.exists():
        return []
    lines = (json.loads(line) for line in file.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line["step"] <= start]


def _write_log(file: Path, lines: list[dict[str, Any]]) -> None:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    write_together(file.parent, {file.name: text.encode()})
