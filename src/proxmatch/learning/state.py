"""The state of a run as one safetensors file, replaced atomically: whole, or the one before."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from proxmatch.errors import CheckpointError
from proxmatch.files import write_together

FILE = "state.safetensors"


@dataclass(frozen=True)
class State:
    """Where a run stands.

    Attributes:
        step: steps done.
        settings: of the run, as JSON values; a run goes on with these and no others.
        tensors: parameters under ``model.``, the optimiser's under ``optimiser.``.
    """

    step: int
    settings: dict[str, Any]
    tensors: dict[str, Tensor]


def capture(
    step: int, settings: dict[str, Any], model: nn.Module, optimiser: torch.optim.Optimizer
) -> State:
    """The state of a model and its optimiser after ``step`` steps."""
    tensors = {f"model.{name}": t for name, t in model.state_dict().items()}
    for i, parameter in enumerate(_parameters(optimiser)):
        for key, value in optimiser.state.get(parameter, {}).items():
            tensors[f"optimiser.{i}.{key}"] = torch.as_tensor(value)
    return State(step, settings, {k: t.detach().cpu().contiguous() for k, t in tensors.items()})


def restore(state: State, model: nn.Module, optimiser: torch.optim.Optimizer) -> None:
    """Put a state back where :func:`capture` took it from."""
    names = [name for name in state.tensors if name.startswith("model.")]
    model.load_state_dict({name.removeprefix("model."): state.tensors[name] for name in names})
    for i, parameter in enumerate(_parameters(optimiser)):
        for name, value in state.tensors.items():
            if name.startswith(f"optimiser.{i}."):
                key = name.split(".", 2)[2]
                place = value if key == "step" else value.to(parameter)
                optimiser.state[parameter][key] = place.clone()


def write(state: State, folder: Path) -> None:
    """Write a state; what was there before stays until the new one is whole and on disk."""
    header = {"step": str(state.step), "settings": json.dumps(state.settings, sort_keys=True)}
    try:
        write_together(folder, {FILE: safetensors.torch.save(state.tensors, metadata=header)})
    except OSError as error:
        raise CheckpointError(f"cannot write {folder / FILE}: {error}") from error


def read(folder: Path) -> State | None:
    """The state in a folder, or None if there is none."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return State(int(header["step"]), json.loads(header["settings"]), tensors)
    except (OSError, safetensors.SafetensorError, KeyError, ValueError) as error:
        raise CheckpointError(
            f"{path} is truncated or foreign ({error}); remove it to start again"
        ) from error


def _parameters(optimiser: torch.optim.Optimizer) -> list[Tensor]:
    return [p for group in optimiser.param_groups for p in group["params"]]
