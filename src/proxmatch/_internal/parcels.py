"""Python objects on their way to a process that does not have the same devices.

Ray shows each worker its own GPU alone, as ``cuda:0``: what lies on ``cuda:1`` could not be read
there. So tensors travel as those of the CPU, and are put on the receiver's device.
"""

from __future__ import annotations

import io
import pickle
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

CPU = torch.device("cpu")
_receiver: ContextVar[torch.device] = ContextVar("_receiver", default=CPU)


@dataclass(frozen=True)
class Parcel:
    """An object on its way."""

    content: bytes
    sender: torch.device  # where its tensors were; the CPU if all of them were there


def packed(thing: Any) -> Parcel:
    """Pack an object; where Ray is installed, also functions without a name."""
    seen: list[torch.device] = []

    class Pickler(_pickler()):  # type: ignore[misc]
        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, torch.device) and obj.type != "cpu":
                return _there, ()
            if isinstance(obj, Tensor) and obj.device.type != "cpu":
                seen.append(obj.device)
                learned = isinstance(obj, nn.Parameter)
                return _put, (obj.detach().cpu(), learned, obj.requires_grad)
            known = getattr(super(), "reducer_override", None)
            return NotImplemented if known is None else known(obj)

    file = io.BytesIO()
    Pickler(file).dump(thing)
    return Parcel(file.getvalue(), seen[0] if seen else CPU)


def unpacked(parcel: Parcel, receiver: torch.device | None = None) -> Any:
    """The object, on the receiver's device; by default the first of the sender's kind."""
    if receiver is None:
        receiver = torch.empty(0, device=parcel.sender.type).device
    before = _receiver.set(receiver)
    try:
        return pickle.loads(parcel.content)  # noqa: S301  # of this run's own processes
    finally:
        _receiver.reset(before)


def _pickler() -> Any:
    try:
        return import_module("ray.cloudpickle").CloudPickler
    except ImportError:
        return pickle.Pickler


def _there() -> torch.device:
    return _receiver.get()


def _put(numbers: Tensor, learned: bool, trained: bool) -> Tensor:
    moved = numbers.to(_receiver.get())
    return nn.Parameter(moved, trained) if learned else moved.requires_grad_(trained)
