"""Saving and loading proximal denoisers: safetensors for the weights, JSON for everything else.

A checkpoint is a folder with ``model.safetensors`` and ``config.json``. Nothing in it is ever
unpickled. Loading checks that names, shapes and dtypes are those the configuration asks for, that
every number is finite, and that an LPN is convex.

A transformed denoiser (:mod:`proxmatch.transforms`) is stored as the weights of its core and, in
the configuration, the transforms around it from the inside out. That is format version 2; a
denoiser without transforms is written as version 1, which older versions can read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import safetensors
import safetensors.torch
import torch
from pydantic import BaseModel, ConfigDict, Field, StrictInt, ValidationError
from torch import Tensor, nn

from proxmatch._internal.files import write_together
from proxmatch.denoisers import families
from proxmatch.denoisers.base import ProximalDenoiser
from proxmatch.errors import (
    CheckpointError,
    ConvexityError,
    FutureFormatError,
    InputError,
    UnsafeCheckpointError,
)

FORMAT_VERSION = 2
WEIGHTS, CONFIG = "model.safetensors", "config.json"
PRECISIONS = {torch.float32, torch.float64}
#: Keys that were spelled differently in early checkpoints.
SPELLED = {"centre": "center", "colours": "colors", "licence": "license", "optimiser": "optimizer"}


class Transform(BaseModel):
    """One transform of ``config.json``."""

    model_config = ConfigDict(extra="forbid")

    kind: str  # its name in proxmatch.transforms.TRANSFORMS
    settings: dict[str, Any]  # its arguments
    record: dict[str, Any] = {}  # how it was chosen


class Checkpoint(BaseModel):
    """The contents of ``config.json``."""

    model_config = ConfigDict(extra="forbid")

    format: Literal["proxmatch"]
    version: StrictInt = Field(ge=1)  # of the format
    family: str  # one of proxmatch.denoisers.families.FAMILIES
    architecture: dict[str, Any]  # fields of the configuration of that family
    weights: str  # SHA-256 of the weights file, so that the two files cannot be mixed up
    record: dict[str, Any] = {}  # how the weights came about: data, settings, versions, results
    #: What is done to the denoiser, in this order.
    transforms: list[Transform] = Field([], max_length=64)


def save(denoiser: ProximalDenoiser, folder: str | Path) -> Path:
    """Write a denoiser to a folder.

    No file is ever half written, and a write that was interrupted between the two files is noticed
    when they are loaded.

    Args:
        denoiser: of any family, with any transforms around it.
        folder: made if it does not exist; an earlier checkpoint in it is replaced.

    Example:
        >>> from proxmatch.denoisers import LPN, LPNConfig
        >>> denoiser = LPN(LPNConfig(channels=1, size=8, hidden=4, features=3, strides=(2,)))
        >>> load(save(denoiser, "mine")).channels
        1
    """
    files = packed(denoiser)
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_together(folder, files)
    except OSError as error:
        raise CheckpointError(f"cannot write a checkpoint to {folder}: {error}") from error
    return folder


def packed(denoiser: ProximalDenoiser) -> dict[str, bytes]:
    """The files that :func:`save` writes, by name."""
    if not isinstance(denoiser, ProximalDenoiser):
        raise CheckpointError(
            f"{type(denoiser).__name__} is not a denoiser of proxmatch; to save a network of your "
            "own, save GradientStep.of(network)"
        )
    denoiser, transforms = _unwrapped(denoiser)
    name = families.name_of(denoiser)
    if name is None:
        raise CheckpointError(
            f"{type(denoiser).__name__} is not a family that can be saved; to save a network of "
            "your own, save GradientStep.of(network)"
        )
    try:
        architecture = denoiser.configuration()
    except ValidationError as error:
        raise CheckpointError(f"the model cannot be saved: {explain(error)}") from error
    state = {name: t.detach().cpu().contiguous() for name, t in denoiser.state_dict().items()}
    for constrained in denoiser.constrained():
        state[constrained] = state[constrained].clamp(min=0)
    _check_finite(state, "the model to be saved")
    content = safetensors.torch.save(state)
    config = Checkpoint(
        format="proxmatch",
        version=2 if transforms else 1,
        family=name,
        architecture=architecture.model_dump(mode="json"),
        weights=hashlib.sha256(content).hexdigest(),
        record=denoiser.record,
        transforms=transforms,
    )
    hidden = None if transforms else {"transforms"}
    try:
        content_of = config.model_dump(mode="json", exclude=hidden)
        text = json.dumps(content_of, indent=2, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"the record of the model holds what JSON cannot: {error}") from error
    return {WEIGHTS: content, CONFIG: text.encode()}


def load(
    source: str | Path,
    *,
    network: nn.Module | Callable[[], nn.Module] | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
) -> ProximalDenoiser:
    """Read a denoiser from a folder, or by the name of a model that comes with proxmatch.

    Args:
        source: a folder written by :func:`save`, or one of :func:`shipped`.
        network: for a gradient-step denoiser around a network of your own class: such a network,
            which is copied, or a function that makes one. Its weights come from the file.
        device: where to put it.
        dtype: what to convert it to; as saved by default.

    Example:
        >>> load("gs-faces").channels
        3
    """
    folder = _find(source)
    files = {name: _content(folder / name) for name in (CONFIG, WEIGHTS)}
    return unpacked(files, folder, network=network, device=device, dtype=dtype)


def unpacked(
    files: Mapping[str, bytes],
    folder: Path,
    *,
    network: nn.Module | Callable[[], nn.Module] | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
) -> ProximalDenoiser:
    """The opposite of :func:`packed`; the rest is as in :func:`load`."""
    config = _read_config(files[CONFIG], folder / CONFIG)
    with torch.inference_mode(False):
        state = _read_weights(files[WEIGHTS], folder / WEIGHTS, config.weights)
        own = deepcopy(network) if isinstance(network, nn.Module) else network and network()
        parts = {} if own is None else {"network": own}
        denoiser = build(
            _architecture(config, folder / CONFIG), state, str(folder / WEIGHTS), **parts
        )
        denoiser.record = config.record
        denoiser = _wrapped(denoiser, config.transforms, folder / CONFIG)
    denoiser.to(device=device, dtype=dtype).eval()
    return denoiser


def shipped(*, quick: bool = False) -> list[str]:
    """Names of the models that come with proxmatch.

    Args:
        quick: leave out the families whose D is solved for.

    Example:
        >>> "gs-faces" in shipped()
        True
    """
    root = resources.files("proxmatch") / "weights"
    if not root.is_dir():
        return []
    configs = {e.name: e / CONFIG for e in root.iterdir() if (e / CONFIG).is_file()}
    if quick:
        told = {name: json.loads(config.read_bytes()) for name, config in configs.items()}
        return sorted(n for n, one in told.items() if not families.family(one["family"]).solved)
    return sorted(configs)


def build(
    config: BaseModel, state: dict[str, Tensor], origin: str, **parts: nn.Module
) -> ProximalDenoiser:
    """A denoiser with given weights, after checking names, shapes, finiteness and convexity.

    Args:
        config: its layout.
        state: weights by parameter name; half precision becomes float32.
        origin: where they come from, for the error messages.
        parts: what a configuration cannot hold, see :func:`proxmatch.denoisers.families.new`.
    """
    try:
        with torch.device("meta"):  # nothing is allocated, or drawn, before it is known to fit
            denoiser = families.new(config, **parts)
    except (InputError, RuntimeError, TypeError) as error:
        raise CheckpointError(f"{origin} does not fit its configuration: {error}") from error
    wanted = denoiser.state_dict()
    missing, foreign = sorted(wanted.keys() - state.keys()), sorted(state.keys() - wanted.keys())
    if missing or foreign:
        raise CheckpointError(
            f"{origin} does not fit its configuration: "
            + "; ".join(
                f"{what} {_some(names)}"
                for what, names in (("missing", missing), ("unknown", foreign))
                if names
            )
        )
    for name, t in state.items():
        if t.shape != wanted[name].shape:
            raise CheckpointError(
                f"{origin}: {name} has shape {tuple(t.shape)}, the configuration asks for "
                f"{tuple(wanted[name].shape)}"
            )
    counts = {name for name, t in wanted.items() if not t.is_floating_point()}  # of batches
    dtypes = {t.dtype for name, t in state.items() if name not in counts}
    if len(dtypes) != 1 or not dtypes <= {*PRECISIONS, torch.float16, torch.bfloat16}:
        raise CheckpointError(f"{origin}: expected one floating-point dtype, found {dtypes}")
    if not dtypes <= PRECISIONS:
        state = {name: t if name in counts else t.float() for name, t in state.items()}
    _check_finite(state, origin)
    negative = [name for name in denoiser.constrained() if bool((state[name] < 0).any())]
    if negative:
        raise ConvexityError(
            f"{origin}: {_some(negative)} must be nonnegative for the network to be convex; "
            "if they were trained with clipping, clip them at zero and save again"
        )
    denoiser.load_state_dict(state, assign=True)
    denoiser.to(memory_format=denoiser.memory_format)
    return denoiser


def _unwrapped(denoiser: ProximalDenoiser) -> tuple[ProximalDenoiser, list[Transform]]:
    """The core of a chain of transforms, and the transforms from the inside out."""
    chain: Any = denoiser.chain
    return denoiser.core, [
        Transform(kind=t.kind, settings=t.settings, record=t.record) for t in chain
    ]


def fingerprint(denoiser: ProximalDenoiser) -> str:
    """A hash of what decides D: weights, layout and transforms, but not the record."""
    heart, transforms = _unwrapped(denoiser)
    config = getattr(heart, "config", None)
    about = {
        "kind": type(heart).__name__,
        "sigma": heart.sigma,
        "config": config.model_dump(mode="json") if isinstance(config, BaseModel) else None,
        "transforms": [t.model_dump(mode="json", exclude={"record"}) for t in transforms],
    }
    return digest_of(denoiser.state_dict(), json.dumps(about, sort_keys=True))


def digest_of(state: Mapping[str, Tensor], about: str = "") -> str:
    """A hash of weights by name, and of what else is said about them."""
    digest = hashlib.sha256(about.encode())
    for name, t in state.items():
        digest.update(f"{name} {tuple(t.shape)}".encode())
        digest.update(t.detach().cpu().float().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def _wrapped(
    denoiser: ProximalDenoiser, transforms: Sequence[Transform], path: Path
) -> ProximalDenoiser:
    """The opposite of :func:`_unwrapped`."""
    from proxmatch.transforms import TRANSFORMS

    for number, transform in enumerate(transforms):
        where = f"{path}: transform {number + 1}"
        if transform.kind not in TRANSFORMS:
            raise CheckpointError(
                f"{where}: no transform {transform.kind!r}; there are {', '.join(TRANSFORMS)}"
            )
        try:
            denoiser = TRANSFORMS[transform.kind](denoiser, **transform.settings)
        except (InputError, TypeError, ValueError, OverflowError) as error:
            raise CheckpointError(f"{where}, {transform.kind}: {error}") from error
        denoiser.record = transform.record
    return denoiser


def _find(source: str | Path) -> Path:
    folder = Path(source)
    if isinstance(source, str) and source in shipped():
        if (folder / CONFIG).is_file():
            raise CheckpointError(
                f"{source} is both a model that comes with proxmatch and a folder here; write "
                f"./{source} for the folder, or call it something else"
            )
        with resources.as_file(resources.files("proxmatch") / "weights" / source) as path:
            return path
    if folder.is_file():
        raise CheckpointError(
            f"{folder} is a file; load() reads the folders that save() writes. Convert a published "
            "checkpoint with import_checkpoint()"
        )
    if not folder.is_dir():
        names = shipped()
        raise CheckpointError(
            f"{source}: no such folder, and no such model among {', '.join(names) or 'none'}"
        )
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder} is not a checkpoint: it has no {name}")
    return folder


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def _read_config(content: bytes, path: Path) -> Checkpoint:
    try:
        raw = json.loads(content.decode(), object_hook=_respelled)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(raw, dict) or raw.get("format") != "proxmatch":
        raise CheckpointError(f"{path} is not the configuration of a proxmatch model")
    version = raw.get("version")
    if isinstance(version, int | float) and version > FORMAT_VERSION:
        raise FutureFormatError(
            f"{path} has format version {version}, this proxmatch reads up to {FORMAT_VERSION}; "
            "upgrade proxmatch"
        )
    try:
        return Checkpoint.model_validate(raw)
    except ValidationError as error:
        raise CheckpointError(f"{path}: {explain(error)}") from error


def _respelled(entry: dict[str, Any]) -> dict[str, Any]:
    return {SPELLED.get(key, key): value for key, value in entry.items()}


def _architecture(config: Checkpoint, path: Path) -> BaseModel:
    try:
        return families.config_of(config.family).model_validate(config.architecture)
    except InputError as error:
        raise CheckpointError(f"{path}: {error}") from error
    except ValidationError as error:
        raise CheckpointError(f"{path}: architecture: {explain(error)}") from error


def _read_weights(content: bytes, path: Path, digest: str) -> dict[str, Tensor]:
    try:
        state: dict[str, Tensor] = safetensors.torch.load(content)
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        if content[:2] == b"PK" or content[:1] == b"\x80":
            raise UnsafeCheckpointError(
                f"{path} is a pickle, not a safetensors file; it was not loaded"
            ) from error
        raise CheckpointError(
            f"{path} is truncated or not a safetensors file ({error}); save the model again"
        ) from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise CheckpointError(
            f"{path} is not the file that its {CONFIG} was written with; save the model again"
        )
    return state


def _check_finite(state: dict[str, Tensor], origin: str) -> None:
    bad = [name for name, t in state.items() if not bool(torch.isfinite(t).all())]
    if bad:
        raise CheckpointError(f"{origin}: {_some(bad)} hold NaN or infinity")


def _some(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def explain(error: ValidationError) -> str:
    """What pydantic found wrong, on one line."""
    return "; ".join(
        f"{'.'.join(str(part) for part in e['loc']) or 'value'}: "
        f"{'there is no such setting' if e['type'] == 'extra_forbidden' else e['msg']}"
        for e in error.errors(include_url=False)
    )


def joined(found: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """What the weights say and what the caller adds; neither may contradict the other."""
    both = sorted(found.keys() & settings.keys())
    if both:
        raise InputError(f"{', '.join(both)} follow from the weights; leave them out")
    return {**found, **settings}
