"""One step-based loop for training and adaptation, on Lightning Fabric.

The images, the noise and the directions of a step are functions of the seed and the step
(:mod:`proxmatch.learning.sources`), and everything else that a step depends on is in the state that
is written. So a run that was killed continues as if it had not been, and several processes that
share a batch do what one would have done.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from proxmatch._internal.randomness import generator_of
from proxmatch.denoisers import GradientStep, ProximalDenoiser
from proxmatch.denoisers.gradient_step import SIGMA
from proxmatch.errors import CheckpointError, InputError
from proxmatch.learning import state as states
from proxmatch.learning.muon import Muon, is_matrix
from proxmatch.learning.settings import Levels, Optimizer, Penalty, TrainingSettings
from proxmatch.learning.sources import Batch, Source
from proxmatch.losses import (
    absolute_error,
    contractivity_penalty,
    loss_named,
    squared_error,
    top_direction,
)

if TYPE_CHECKING:
    from lightning_fabric import Fabric

LOG = "log.jsonl"


class RunStatus(StrEnum):
    """How a run ended."""

    COMPLETED = "completed"
    NOT_FINITE = "not finite"


@dataclass(frozen=True)
class Check:
    """The result of a check in the middle of a run.

    Attributes:
        score: the higher the better; None if this model is not to be chosen at all.
        facts: for the log, JSON values.
    """

    score: float | None
    facts: dict[str, Any]


@dataclass(frozen=True)
class RunResult:
    """What a run left behind.

    Attributes:
        denoiser: the one that was given, trained.
        status: how it ended; with ``not finite`` the weights are the last good ones.
        steps: steps done, over all interrupted parts.
        skipped: steps left out in this part because their loss was not finite.
        history: the lines of the log, of all parts.
        best: the weights of the highest score, if the run was checked.
        best_step: after how many steps.
        seconds: spent, over all interrupted parts up to their last checkpoints.
    """

    denoiser: ProximalDenoiser
    status: RunStatus
    steps: int
    skipped: int
    history: list[dict[str, Any]]
    best: dict[str, Tensor] | None
    best_step: int | None
    seconds: float


def run(
    denoiser: ProximalDenoiser,
    source: Source,
    settings: TrainingSettings,
    folder: str | Path | None,
    *,
    fabric: Fabric | None = None,
    check: Callable[[ProximalDenoiser], Check] | None = None,
    about: dict[str, Any] | None = None,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
) -> RunResult:
    """Train a denoiser, continuing from the last checkpoint in the folder if there is one.

    Args:
        denoiser: trained in place.
        source: of the images.
        settings: of the run.
        folder: for the state and the log, made if it does not exist; None to keep nothing.
        fabric: where, by how many processes, in single or double precision; one process on this
            device by default. What is logged also goes to its loggers.
        check: looks at the model before the first step, every ``settings.check_every`` steps and at
            the end.
        about: what else decides the run, JSON values; a run continues with the same and no other.
        on_step: called with the step and its loss, for a progress bar.

    Raises:
        CheckpointError: the folder holds a run with other settings, or cannot be written.
        InputError: a penalty for a denoiser that has none.

    Example:
        >>> from proxmatch.denoisers import LPN, LPNConfig
        >>> from proxmatch.learning.sources import pairs
        >>> denoiser = LPN(LPNConfig(size=8, hidden=4, features=3, strides=(2,), channels=1))
        >>> source = pairs([torch.zeros(1, 8, 8), torch.ones(1, 8, 8)], 8, draws=1)
        >>> run(denoiser, source, TrainingSettings(steps=2, batch=2), "run").steps
        2
    """
    if fabric is None:
        fabric = one_process(next(denoiser.parameters()).device)
    denoiser.to(fabric.device)
    _check(denoiser, settings, fabric)
    going = _Run(denoiser, settings, _made(folder), fabric, check, about or {})
    start = going.resume()
    if start == 0:
        going.look(0)
    denoiser.train()
    step = start
    while step < settings.steps:
        batch = share(source(step, settings), fabric.global_rank, fabric.world_size, denoiser)
        loss = going.step(step, batch)
        step += 1
        if not going.sound(step):
            step = going.rewind(step)
            continue
        if loss is not None:
            on_step(step, loss)
        elif going.in_a_row >= settings.patience:
            return going.abandoned()
        elif step < settings.steps:  # the end of a run is still recorded
            continue
        going.record(step)
    return going.finished(RunStatus.COMPLETED, settings.steps)


class _Run:
    """A run in progress: what a step changes, and what is written of it.

    Whether a step was finite decides whether it counts, but to look makes the host wait for the
    device. Away from the CPU the steps between two lines of the log are therefore made without
    looking, and where one of them was not finite, they are made again one by one from the last
    checkpoint, as a run that was killed would make them.
    """

    def __init__(
        self,
        denoiser: ProximalDenoiser,
        settings: TrainingSettings,
        folder: Path | None,
        fabric: Fabric,
        check: Callable[[ProximalDenoiser], Check] | None,
        about: dict[str, Any],
    ) -> None:
        self.denoiser, self.settings, self.folder = denoiser, settings, folder
        self.fabric, self.check = fabric, check
        self.told = {**settings.model_dump(mode="json"), **about}
        self.optimizers = _optimizers(denoiser, settings.optimizer)
        self.mean: AveragedModel | None = None
        if settings.averaging is not None:
            rule = get_ema_multi_avg_fn(settings.averaging)  # type: ignore[no-untyped-call]
            self.mean = AveragedModel(denoiser, multi_avg_fn=rule)
        self.wrapped, *self.wrapped_optimizers = fabric.setup(
            denoiser, *self.optimizers, move_to_device=False
        )
        self.memory, self.began = _Memory(), time.monotonic()
        self.good = self._captured(0)  # the last checkpoint
        here = next(denoiser.parameters()).device.type == "cpu"
        #: Steps up to which each is looked at before it counts.
        self.careful = settings.steps if here else 0
        self.unseen: list[Tensor] = []  # loss and norm of the gradient of steps not looked at yet
        self.log: list[dict[str, Any]] = []  # its lines, of all parts
        self.skipped: set[int] = set()  # steps left out because their loss was not finite
        self.in_a_row = 0  # of these, the last ones
        self.facts: dict[str, Any] = {}  # to log about the last step

    def resume(self) -> int:
        """Go back to the last checkpoint in the folder, if there is one; the steps done."""
        if self.folder is None:
            return 0
        found = _resume(self.folder, self.told, self.denoiser, self.optimizers)
        if found is None:
            return 0
        self.memory = _Memory.read(found)
        self.began -= self.memory.seconds
        self._restore_mean(found)
        self.log = _open_log(self.folder / LOG, found.step)
        self.good = found
        return found.step

    def look(self, step: int) -> None:
        """Have the denoiser checked, as it would be returned now."""
        if self.check is None:
            return
        shown = self.mean.module if self.mean is not None else self.denoiser
        assert isinstance(shown, ProximalDenoiser)  # noqa: S101
        shown.eval()
        seen = self.check(shown)
        shown.train()
        self.log.append({"step": step, "score": seen.score, **seen.facts})
        self.memory.consider(seen.score, step, shown)

    def step(self, step: int, batch: Batch) -> float | None:
        """One step of the optimizers.

        Returns:
            Its loss, or the last known one; None if it was not finite and left out.
        """
        settings, fabric = self.settings, self.fabric
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * schedule(settings, step)
        loss, facts = objective(
            self.wrapped, self.denoiser, batch, settings, step, fabric, self.memory.directions
        )
        clip = settings.optimizer.clip
        norm = _gradient(fabric, loss, self.denoiser, clip and clip * facts["scale"])
        self.unseen.append(torch.stack([_mean(fabric, loss), norm.to(loss)]))
        last = self.facts.get("loss", math.nan), self.facts.get("gradient", math.nan)
        self.facts = {"loss": last[0], "gradient": last[1], **facts}
        if step < self.careful and not self._seen():
            self.skipped.add(step)
            self.in_a_row += 1
            return None
        self.in_a_row = 0
        for wrapped_optimizer in self.wrapped_optimizers:
            wrapped_optimizer.step()
        self.denoiser.project_()
        if self.mean is not None:
            self.mean.update_parameters(self.denoiser)
        return float(self.facts["loss"])

    def _seen(self) -> bool:
        """Whether all steps were finite; the one place where the host waits for the device."""
        found = {name: v for name, v in self.facts.items() if isinstance(v, Tensor)}
        values = torch.cat(
            [*self.unseen, torch.stack([v.detach() for v in found.values()])]
        ).tolist()
        steps, facts = values[: 2 * len(self.unseen)], values[2 * len(self.unseen) :]
        self.unseen.clear()
        self.facts |= {
            "loss": steps[-2],
            "gradient": steps[-1],
            **dict(zip(found, facts, strict=True)),
        }
        return all(map(math.isfinite, steps))

    def sound(self, done: int) -> bool:
        """Whether the steps since the last look were finite, when it is time to look."""
        settings = self.settings
        often = (settings.log_every, settings.check_every, settings.checkpoint_every)
        due = done == settings.steps or any(done % number == 0 for number in often)
        return not (due and self.unseen) or self._seen()

    def rewind(self, done: int) -> int:
        """Go back to the last checkpoint, to be careful from there on; the steps done there."""
        self._return_to(self.good)
        self.careful = done
        return self.good.step

    def record(self, done: int) -> None:
        """Log, check and save, when it is time to."""
        settings, last = self.settings, done == self.settings.steps
        if not self.in_a_row and (done % settings.log_every == 0 or last):
            self.log.append({"step": done, **self.facts})
            self.fabric.log_dict(self.facts, step=done)
        if done % settings.check_every == 0 or last:
            self.look(done)
        self.memory.seconds = time.monotonic() - self.began
        if done % settings.checkpoint_every == 0 or last:
            self.good = self._captured(done)
            lines = "".join(json.dumps(line) + "\n" for line in self.log)
            if self.folder is not None and self.fabric.is_global_zero:
                states.write(self.good, self.folder, {LOG: lines.encode()})

    def abandoned(self) -> RunResult:
        """The last good weights of a run that was not finite for too long."""
        self._return_to(self.good)
        return self.finished(RunStatus.NOT_FINITE, self.good.step)

    def _return_to(self, good: states.State) -> None:
        states.restore(good, self.denoiser, self.optimizers)
        self._restore_mean(good)
        self.memory.directions = _Memory.read(good).directions
        self.log = [line for line in self.log if line["step"] <= good.step]
        self.in_a_row = 0  # the last step of a checkpoint counted

    def finished(self, status: RunStatus, steps: int) -> RunResult:
        """What the run left behind."""
        self.denoiser.eval()
        if self.mean is not None:
            self.denoiser.load_state_dict(self.mean.module.state_dict())
        memory = self.memory
        return RunResult(
            self.denoiser,
            status,
            steps,
            len(self.skipped),
            self.log,
            memory.best,
            memory.best_step,
            memory.seconds,
        )

    def _captured(self, done: int) -> states.State:
        told = self.memory.written(self.mean)
        return states.capture(done, self.told, self.denoiser, self.optimizers, *told)

    def _restore_mean(self, found: states.State) -> None:
        if self.mean is not None:
            self.mean.load_state_dict(found.part("mean"))


def _made(folder: str | Path | None) -> Path | None:
    if folder is None:
        return None
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(f"cannot make the folder {folder}: {error}") from error
    return folder


def _check(denoiser: ProximalDenoiser, settings: TrainingSettings, fabric: Fabric) -> None:
    """Refuse what cannot be trained."""
    if settings.penalty is not None and not denoiser.penalized:
        raise InputError("the contractivity penalty is for gradient-step denoisers")
    if settings.mixed and not denoiser.mixable:
        raise InputError(
            f"{type(denoiser).__name__} has no cheaper evaluation to train with; leave out 'mixed'"
        )
    precision = fabric.strategy.precision.precision
    if precision not in ("32-true", "64-true"):
        raise InputError(
            f"precision {precision!r} rounds the images before the denoiser sees them, by as much "
            "as it has to remove, and D is no longer the gradient of h; take '32-true' (on a GPU "
            "with torch.set_float32_matmul_precision('high'))"
        )
    if settings.batch % fabric.world_size:
        raise InputError(
            f"a batch of {settings.batch} cannot be shared by {fabric.world_size} processes"
        )


@dataclass
class _Memory:
    """What a run remembers beside weights and optimizer.

    Attributes:
        directions: of the penalty, by the key of their input.
        best: weights of the highest score.
    """

    directions: dict[int, Tensor] = field(default_factory=dict)
    best: dict[str, Tensor] | None = None
    best_step: int | None = None
    best_score: float | None = None
    seconds: float = 0.0

    def consider(self, score: float | None, step: int, denoiser: ProximalDenoiser) -> None:
        if score is not None and (self.best_score is None or score > self.best_score):
            self.best_step, self.best_score = step, score
            self.best = {
                name: t.detach().cpu().clone() for name, t in denoiser.state_dict().items()
            }

    def written(self, mean: AveragedModel | None) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = {f"direction.{key}": v for key, v in self.directions.items()}
        tensors |= {f"mean.{name}": t for name, t in (mean.state_dict() if mean else {}).items()}
        tensors |= {f"best.{name}": t for name, t in (self.best or {}).items()}
        facts = (self.best_step, self.best_score, self.seconds)
        return tensors, dict(zip(("best_step", "best_score", "seconds"), facts, strict=True))

    @classmethod
    def read(cls, state: states.State) -> _Memory:
        directions = {int(key): v for key, v in state.part("direction").items()}
        return cls(directions, state.part("best") or None, **state.facts)


def _optimizers(denoiser: ProximalDenoiser, settings: Optimizer) -> list[torch.optim.Optimizer]:
    """Adam, and Muon for the convolutions inside the network if there is a rate for them."""
    inner: list[torch.nn.Parameter] = []
    if settings.matrices is not None:
        inner = [p for p in denoiser.parameters() if is_matrix(p)]
    others = [p for p in denoiser.parameters() if not any(p is q for q in inner)]
    found: list[torch.optim.Optimizer] = [torch.optim.Adam(others, betas=settings.betas)]
    found += [Muon(inner, decay=settings.decay)] if inner else []
    for optimizer, peak in zip(found, (settings.rate, settings.matrices), strict=False):
        optimizer.param_groups[0]["peak"] = peak
    return found


def schedule(settings: TrainingSettings, step: int) -> float:
    """The fraction of its peak that a rate has: linear warm-up times a cosine to ``final``.

    A penalty that sets in later begins a second stage, with a smaller rate and its own cosine.
    """
    optimizer, penalty = settings.optimizer, settings.penalty
    progress = step / max(settings.steps - 1, 1)
    begin = penalty.begin if penalty is not None and penalty.begin > 0 else 1.0
    rate = min(1.0, (step + 1) / max(optimizer.warmup, 1))
    if penalty is not None and 0 < penalty.begin <= progress:
        rate, progress = rate * penalty.restart, (progress - begin) / (1 - begin)
    else:
        progress = min(1.0, progress / begin)
    cosine = (1 + math.cos(math.pi * progress)) / 2
    return rate * (optimizer.final + (1 - optimizer.final) * cosine)


def share(batch: Batch, rank: int, processes: int, denoiser: ProximalDenoiser) -> Batch:
    """The part of a batch that one process works on, where its model is.

    Query points have the model's sigma; where it has none, any level will do.
    """
    mine = slice(rank, None, processes)
    place = next(denoiser.parameters())
    keys = None if batch.keys is None else batch.keys[mine]
    level = None
    if batch.level is not None:
        level = batch.level[mine].to(place).nan_to_num(denoiser.sigma or SIGMA)
    return Batch(batch.noisy[mine].to(place), batch.clean[mine].to(place), keys, level)


def objective(
    forward: Callable[..., Tensor],
    denoiser: ProximalDenoiser,
    batch: Batch,
    settings: TrainingSettings,
    step: int,
    fabric: Fabric,
    directions: dict[int, Tensor],
) -> tuple[Tensor, dict[str, Any]]:
    """The loss of a batch, per pixel where that makes sense, and what to log about it.

    The weight of the penalty and the bound on the gradient are in units of the squared error per
    pixel: where the loss has the scale 1 / (2 gamma^2), they get it too.
    The directions of the penalty are found again from those kept in ``directions``, and kept there.
    """
    progress = step / max(settings.steps - 1, 1)
    clean, n = batch.clean, batch.clean[0].numel()
    denoiser.mixed = settings.mixed
    try:
        output = forward(batch.noisy, batch.level)
    finally:
        denoiser.mixed = False
    value = None if settings.mixed else output.detach()
    if (weight := _balance(settings, batch)) is not None:
        output, clean = weight * output, weight * clean
    residual = _gathered(fabric, (squared_error(output.detach(), clean) / n).sqrt())
    named = loss_named(settings.loss)
    gamma = settings.gamma(progress, residual) if named.scaled else None
    scale = 1.0 if gamma is None else 1 / (2 * gamma**2)
    facts: dict[str, Any] = {"rms": residual.mean(), "scale": scale}
    if gamma is None:  # the first stage of a loss with a scale is L1
        error = absolute_error if named.scaled else named.value
        loss = error(output, clean).mean() / n
    else:
        loss = named.value(output, clean, gamma).mean()
        facts |= {"gamma": gamma, "saturation": -(-scale * residual**2).expm1().mean()}
    penalty = settings.penalty
    if penalty is not None and isinstance(denoiser, GradientStep) and progress >= penalty.begin:
        v = _directions(denoiser, batch, value, penalty, settings.seed, step, fabric, directions)
        excess = contractivity_penalty(denoiser, batch.noisy, v, penalty.limit, batch.level)
        loss = loss + scale * penalty.weight * excess.mean()
        largest = _gathered(fabric, excess.detach()).max().sqrt()
        facts["contractivity"] = penalty.limit + largest  # only what is above is known
    return loss, facts


def _balance(settings: TrainingSettings, batch: Batch) -> Tensor | None:
    """What the error of each image is multiplied with before it is squared, ``(B, 1, 1, 1)``."""
    law = settings.noise
    if not isinstance(law, Levels) or law.balance == 0 or batch.level is None:
        return None
    return (batch.level**law.balance + 1e-3).rsqrt().view(-1, 1, 1, 1)


def _directions(
    denoiser: GradientStep,
    batch: Batch,
    value: Tensor | None,
    penalty: Penalty,
    seed: int,
    step: int,
    fabric: Fabric,
    kept: dict[int, Tensor],
) -> Tensor:
    """Directions of large curvature at the inputs, from those kept for them or from chance.

    With D of the inputs as ``value``, where the training has evaluated it exactly.
    """
    fresh = torch.randn(
        (len(batch.noisy) * fabric.world_size, *batch.noisy.shape[1:]),
        generator=generator_of(seed, step, "directions"),
    )[fabric.global_rank :: fabric.world_size].to(batch.noisy)
    keys = batch.keys or (None,) * len(fresh)
    start = torch.stack(
        [v if key is None else kept.get(key, v).to(v) for key, v in zip(keys, fresh, strict=True)]
    )
    v = top_direction(
        denoiser,
        batch.noisy,
        start,
        iterations=penalty.iterations,
        shift=penalty.shift,
        sigma=batch.level,
        value=value,
    )
    if batch.keys is not None:
        numbers: Sequence[int] = batch.keys
        if fabric.world_size > 1:
            numbers = _gathered(fabric, torch.tensor(batch.keys, device=v.device)).tolist()
        for key, direction in zip(numbers, _gathered(fabric, v), strict=True):
            kept[key] = direction.clone()
    return v


def _gathered(fabric: Fabric, t: Tensor) -> Tensor:
    """The rows of all processes."""
    if fabric.world_size == 1:
        return t
    rows: Any = fabric.all_gather(t)
    gathered: Tensor = rows.flatten(0, 1)
    return gathered


def _mean(fabric: Fabric, loss: Tensor) -> Tensor:
    """The loss over all processes."""
    if fabric.world_size == 1:
        return loss.detach()
    total = fabric.all_reduce(loss.detach(), reduce_op="mean")
    return total if isinstance(total, Tensor) else loss.new_tensor(math.nan)


def _gradient(
    fabric: Fabric, loss: Tensor, denoiser: ProximalDenoiser, clip: float | None
) -> Tensor:
    """Fill in the gradient, bounded by ``clip``; its norm before that."""
    denoiser.zero_grad()
    fabric.backward(loss)
    return torch.nn.utils.clip_grad_norm_(denoiser.parameters(), clip or math.inf)


def one_process(device: torch.device) -> Fabric:
    """One process on a device, also on those that Fabric has no name for (XPU)."""
    from lightning_fabric import Fabric
    from lightning_fabric.strategies.single_device import SingleDeviceStrategy

    if device.type == "cpu":
        return Fabric(accelerator="cpu", devices=1)
    if device.type in ("cuda", "mps"):
        devices = 1 if device.index is None else [device.index]
        return Fabric(accelerator=device.type, devices=devices)
    return Fabric(accelerator="cpu", strategy=SingleDeviceStrategy(device))


def _resume(
    folder: Path,
    told: dict[str, Any],
    denoiser: ProximalDenoiser,
    optimizers: Sequence[torch.optim.Optimizer],
) -> states.State | None:
    found = states.read(folder)
    if found is None:
        return None
    if found.settings != told:
        names = sorted(told.keys() | found.settings.keys())
        changed = [k for k in names if found.settings.get(k) != told.get(k)]
        raise CheckpointError(
            f"{folder} holds a run with other settings ({', '.join(changed)}); "
            "choose another folder, or remove this one"
        )
    try:
        states.restore(found, denoiser, optimizers)
    except (RuntimeError, KeyError) as error:
        raise CheckpointError(f"{folder} holds a run of another model: {error}") from error
    return found


def _open_log(file: Path, start: int) -> list[dict[str, Any]]:
    """The lines up to the checkpoint; what came after it is done again."""
    if start == 0 or not file.exists():
        return []
    lines = (json.loads(line) for line in file.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line["step"] <= start]
