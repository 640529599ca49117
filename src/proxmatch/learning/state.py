"""The state of a run as one safetensors file, replaced atomically: always a complete one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from proxmatch._internal.files import write_together
from proxmatch.errors import CheckpointError

FILE = "state.safetensors"


@dataclass(frozen=True)
class State:
    """Where a run stands."""

    step: int  # steps done
    settings: dict[str, Any]  # of the run, as JSON values; a run continues with these and no others
    #: Parameters under model., the optimizer's under optimizer., and others.
    tensors: dict[str, Tensor]
    facts: dict[str, Any]  # what else the run remembers, JSON values

    def part(self, prefix: str) -> dict[str, Tensor]:
        """The tensors under ``prefix.``, without it."""
        start = f"{prefix}."
        return {
            name.removeprefix(start): t
            for name, t in self.tensors.items()
            if name.startswith(start)
        }


def capture(
    step: int,
    settings: dict[str, Any],
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    others: dict[str, Tensor] | None = None,
    facts: dict[str, Any] | None = None,
) -> State:
    """The state of a model, its optimizers and what else is given after ``step`` steps."""
    tensors = dict(others or {})
    tensors |= {f"model.{name}": t for name, t in model.state_dict().items()}
    for i, (parameter, kept_for_it) in enumerate(_parameters(optimizers)):
        for key, value in kept_for_it.get(parameter, {}).items():
            tensors[f"optimizer.{i}.{key}"] = torch.as_tensor(value)
    # Copies: on a CPU these would be the very tensors that the training changes.
    kept = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    return State(step, settings, kept, facts or {})


def restore(state: State, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """Put a state back where :func:`capture` took it from."""
    model.load_state_dict(state.part("model"))
    for optimizer in optimizers:
        optimizer.state.clear()
    for i, (parameter, kept_for_it) in enumerate(_parameters(optimizers)):
        for key, value in state.part(f"optimizer.{i}").items():
            place = value if key == "step" else value.to(parameter)
            kept_for_it[parameter][key] = place.clone()


def write(state: State, folder: Path, beside: dict[str, bytes]) -> None:
    """Write a state and files beside it; what was there stays until all are whole and on disk."""
    header = {"step": str(state.step)}
    header |= {
        name: json.dumps(value, sort_keys=True)
        for name, value in (("settings", state.settings), ("facts", state.facts))
    }
    content = safetensors.torch.save(state.tensors, metadata=header)
    try:
        write_together(folder, {**beside, FILE: content})
    except OSError as error:
        raise CheckpointError(
            f"cannot write {folder / FILE}: {error}; the run can be resumed from the previous "
            "checkpoint"
        ) from error


def read(folder: Path) -> State | None:
    """The state in a folder, or None if there is none."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return State(
            int(header["step"]),
            json.loads(header["settings"]),
            tensors,
            json.loads(header["facts"]),
        )
    except (OSError, safetensors.SafetensorError, KeyError, ValueError) as error:
        raise CheckpointError(
            f"{path} is truncated or foreign ({error}); remove it to start again"
        ) from error


def _parameters(
    optimizers: Sequence[torch.optim.Optimizer],
) -> list[tuple[Tensor, dict[Tensor, Any]]]:
    """Every parameter, and the states among which its own is found."""
    return [
        (p, optimizer.state)
        for optimizer in optimizers
        for group in optimizer.param_groups
        for p in group["params"]
    ]
