"""Converting published checkpoints: the official LPN, Prox-PnP / GSPnP and deepinv's GSDRUNet.

They are PyTorch files, that is pickles. They are read with ``weights_only=True``, which builds
tensors and plain containers and refuses everything else, so no code in a file can run.
"""

from __future__ import annotations

import pickle
from argparse import Namespace
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from pydantic import ValidationError
from torch import Tensor

from proxmatch.denoisers.base import ProximalDenoiser
from proxmatch.denoisers.checkpoint import build, explain
from proxmatch.denoisers.gradient_step import GradientStepConfig
from proxmatch.denoisers.lpn import LPNConfig
from proxmatch.errors import CheckpointError, InputError, UnsafeCheckpointError

Kind = Literal["lpn-official", "prox-pnp", "gsdrunet"]

#: Where the weights of a gradient-step file live, in Prox-PnP, GSPnP and deepinv alike.
GS_PREFIX = "student_grad.model."


def import_checkpoint(file: str | Path, kind: Kind, **settings: Any) -> ProximalDenoiser:
    """Convert a published checkpoint. Sizes are read off the weights.

    Args:
        file: ``model.pt`` of learned-proximal-networks (``lpn-official``), a Lightning ``.ckpt`` of
            Prox-PnP or GSPnP (``prox-pnp``), or a state dict of deepinv's GSDRUNet (``gsdrunet``).
        kind: which of these.
        settings: what the weights do not tell, as fields of the configuration: ``beta``,
            ``alpha`` (twice the published one), ``sigma``, ``activation``, ``lipschitz``.
    """
    if kind not in get_args(Kind):
        raise InputError(f"unknown kind {kind!r}; choose one of {', '.join(get_args(Kind))}")
    state = tensors_of(Path(file))
    convert = _official_lpn if kind == "lpn-official" else _gradient_step
    try:
        model = convert(state, str(file), settings)
    except ValidationError as error:
        raise InputError(f"{file}: {explain(error)}") from error
    model.record = {"imported": {"kind": kind}}
    model.eval()
    return model


def tensors_of(file: Path) -> dict[str, Tensor]:
    """The state dict of a PyTorch file, by name; nothing else in it is made use of.

    Raises:
        CheckpointError: there is none.
        UnsafeCheckpointError: the file holds more than tensors and plain containers.
    """
    return _tensors(_read(file), file)


def _read(file: Path) -> Any:
    try:
        with torch.serialization.safe_globals([Namespace]):
            return torch.load(file, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise CheckpointError(f"{file}: no such file") from error
    except pickle.UnpicklingError as error:
        with file.open("rb") as opened:
            if opened.read(1) not in (b"P", b"\x80"):  # neither an archive nor a pickle
                raise CheckpointError(f"{file} is not a PyTorch file") from error
        raise UnsafeCheckpointError(
            f"{file} holds more than tensors and plain containers; it was not loaded. If you trust "
            "it, load it yourself and save its state dict alone with torch.save"
        ) from error
    except Exception as error:  # whatever a damaged pickle makes of the reader
        raise CheckpointError(f"{file} is truncated or not a PyTorch file: {error}") from error


def _tensors(content: Any, file: Path) -> dict[str, Tensor]:
    for key in ("model_state_dict", "state_dict"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not content:
        raise CheckpointError(f"{file} holds no state dict")
    for name, t in content.items():
        if not isinstance(t, Tensor) or t.layout != torch.strided:
            raise CheckpointError(f"{file}: {name!r} is not a dense tensor; this is no state dict")
    return {str(name): t for name, t in content.items()}


def _shape(state: dict[str, Tensor], name: str, origin: str) -> torch.Size:
    if name not in state or state[name].dim() != 4:
        raise CheckpointError(f"{origin} has no {name}: it is a checkpoint of another kind")
    return state[name].shape


def _official_lpn(
    state: dict[str, Tensor], origin: str, settings: dict[str, Any]
) -> ProximalDenoiser:
    hidden, channels = _shape(state, "lin.0.weight", origin)[:2]
    features = _shape(state, "lin.6.weight", origin)[0]
    found = {"hidden": hidden, "channels": channels, "features": features}
    return build(LPNConfig.official(**_joined(found, settings)), state, origin)


def _joined(found: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """What the weights tell and what the caller adds; neither may contradict the other."""
    both = sorted(found.keys() & settings.keys())
    if both:
        raise InputError(f"{', '.join(both)} follow from the weights; leave them out")
    return {**found, **settings}


def _gradient_step(
    state: dict[str, Tensor], origin: str, settings: dict[str, Any]
) -> ProximalDenoiser:
    weights = {
        name.removeprefix(GS_PREFIX): t for name, t in state.items() if name.startswith(GS_PREFIX)
    }
    if not weights:
        raise CheckpointError(f"{origin} has no weights under {GS_PREFIX}: another kind?")
    widths = [_shape(weights, f"m_down{i}.0.res.0.weight", origin)[0] for i in (1, 2, 3)]
    widths.append(_shape(weights, "m_up3.0.weight", origin)[0])
    down = {
        name.split(".")[1] for name in weights if name.startswith("m_down1.") and ".res." in name
    }
    blocks = len(down)
    channels = _shape(weights, "m_tail.weight", origin)[0]
    found = {"widths": tuple(widths), "blocks": blocks, "channels": channels}
    config = GradientStepConfig.drunet(**_joined(found, settings))
    return build(config, {f"network.{name}": t for name, t in weights.items()}, origin)
