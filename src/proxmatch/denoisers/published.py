"""Convert published checkpoints: LPN, Prox-PnP, GSDRUNet, plain networks, and families' own kinds.

They are PyTorch files, that is pickles. They are read with ``weights_only=True``, which builds
tensors and plain containers and refuses everything else, so no code in a file can run.
"""

from __future__ import annotations

import pickle
import re
from argparse import Namespace
from pathlib import Path
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ValidationError
from torch import Tensor

from proxmatch.denoisers.base import ProximalDenoiser
from proxmatch.denoisers.checkpoint import build, explain, joined
from proxmatch.denoisers.families import FAMILIES, config_of, family
from proxmatch.denoisers.gradient_step import SIGMA, GradientStep, GradientStepConfig
from proxmatch.denoisers.lpn import LPNConfig
from proxmatch.denoisers.networks import FFDNet, Network
from proxmatch.errors import CheckpointError, InputError, UnsafeCheckpointError

NetworkKind = Literal["ffdnet", "dncnn", "drunet"]
#: Kinds that are read here.
KINDS = (
    "lpn-official",
    "lpn-learned-regularizers",
    "prox-pnp",
    "gsdrunet",
    *get_args(NetworkKind),
)

#: Where the weights are in a gradient-step file, in Prox-PnP, GSPnP and deepinv alike.
GS_PREFIX = "student_grad.model."

#: What the published networks were trained for, which their files do not say.
LEVELS = {"ffdnet": (1e-3, 75 / 255), "drunet": (1e-3, 50 / 255)}
#: The same of a DnCNN with this many layers, which takes no level.
BLIND_LAYERS, BLIND_LEVELS = 20, (1e-3, 55 / 255)

#: Settings of Prox-PnP under which its D is Id - grad g with N a DRUNet.
HYPERPARAMETERS = {
    "model_name": "DRUNET",
    "residual_learning": False,
    "grad_matching": True,
    "sigma_step": False,
    "weight_Ds": 1,
}

State = dict[str, Tensor]


def import_checkpoint(file: str | Path, kind: str, **settings: Any) -> ProximalDenoiser:
    """Convert a published checkpoint to a proximal denoiser. Sizes are read off the weights.

    A plain network (``ffdnet``, ``dncnn``, ``drunet``) is made a gradient-step denoiser, with
    smooth activations in place of ReLU unless ``smooth=False``. It needs a short training before
    it denoises well. :func:`import_network` gives the network as it is.

    Args:
        file: ``model.pt`` of learned-proximal-networks (``lpn-official``); a file of the LPN of
            64 x 64 pixels of LearnedRegularizers (``lpn-learned-regularizers``); a Lightning
            ``.ckpt`` of Prox-PnP or GSPnP (``prox-pnp``); a state dict of deepinv's GSDRUNet
            (``gsdrunet``), or of FFDNet, DnCNN or DRUNet of KAIR or deepinv; or a file of a family
            that reads some itself (:attr:`.ProximalDenoiser.published`).
        kind: which of these; the message about an unknown one lists them all.
        settings: what the weights do not say, as fields of the configuration: ``beta``,
            ``alpha`` (twice the published one), ``sigma``, ``activation``, ``lipschitz``,
            ``smooth``. The activation of a gradient-step file is found out where possible: it is
            the one with which the file denoises.

    Raises:
        CheckpointError: a file that is damaged, or of another kind.
        InputError: settings that contradict the weights, or that are missing.

    Warns:
        NotSmoothWarning: a network with kinks, taken as it is.

    Example:
        >>> import deepinv
        >>> published = deepinv.models.DnCNN(1, 1, depth=3, nf=4, pretrained=None)
        >>> torch.save(published.state_dict(), "dncnn.pth")
        >>> type(import_checkpoint("dncnn.pth", "dncnn", sigma=0.1)).__name__
        'GradientStep'
    """
    homes = {each: name for name in FAMILIES for each in family(name).published}
    if kind not in (*KINDS, *homes):
        raise InputError(f"unknown kind {kind!r}; choose one of {', '.join((*KINDS, *homes))}")
    content = _read(Path(file))
    state, origin = _tensors(content, Path(file)), str(file)
    try:
        if kind in ("lpn-official", "lpn-learned-regularizers"):
            convert = _official_lpn if kind == "lpn-official" else _lpn_of_64
            denoiser = build(*convert(state, origin, settings), origin)
        elif kind in homes:
            found, weights = family(homes[kind]).published[kind](state, origin, settings)
            denoiser = build(config_of(homes[kind])(**found), weights, origin)
        elif kind in ("prox-pnp", "gsdrunet"):
            denoiser = _gradient_step(state, _hyperparameters(content), origin, settings)
        else:
            denoiser = build(*_plain(state, kind, origin, settings), origin)
    except ValidationError as error:
        raise InputError(f"{file}: {explain(error)}") from error
    denoiser.record = {"imported": {"kind": kind}}
    denoiser.eval()
    if isinstance(denoiser, GradientStep):
        denoiser.tell_kinks()
    return denoiser


def import_network(file: str | Path, kind: NetworkKind) -> Network:
    """A published network as it is: a denoiser of deepinv, which is not a proximal map.

    Args:
        file: a state dict of KAIR or deepinv, color or gray.
        kind: ``ffdnet`` (takes the noise level, up to 75/255), ``drunet`` (takes it, up to
            50/255) or ``dncnn`` (takes none).

    Raises:
        CheckpointError: a file that is damaged, or of another kind.

    Example:
        >>> import deepinv
        >>> published = deepinv.models.DnCNN(1, 1, depth=3, nf=4, pretrained=None)
        >>> torch.save(published.state_dict(), "dncnn.pth")
        >>> import_network("dncnn.pth", "dncnn")(torch.zeros(1, 1, 8, 8), 0.1).shape
        torch.Size([1, 1, 8, 8])
    """
    if kind not in get_args(NetworkKind):
        raise InputError(f"unknown kind {kind!r}; choose one of {', '.join(get_args(NetworkKind))}")
    state = _tensors(_read(Path(file)), Path(file))
    denoiser = build(*_plain(state, kind, str(file), {"smooth": None}), str(file))
    network: Network = denoiser.get_submodule("network")
    network.eval()
    return network


# --- reading -------------------------------------------------------------------------------------


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
    except Exception as error:  # a damaged pickle can raise anything
        raise CheckpointError(f"{file} is truncated or not a PyTorch file: {error}") from error


def _tensors(content: Any, file: Path) -> State:
    for key in ("model_state_dict", "state_dict"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not content:
        raise CheckpointError(f"{file} holds no state dict")
    for name, t in content.items():
        if not isinstance(t, Tensor) or t.layout != torch.strided:
            raise CheckpointError(f"{file}: {name!r} is not a dense tensor; this is no state dict")
    return {str(name): t for name, t in content.items()}


def _hyperparameters(content: Any) -> dict[str, Any]:
    """The settings of a training that Lightning kept, if it did."""
    found = content.get("hyper_parameters", {}) if isinstance(content, dict) else {}
    return vars(found) if isinstance(found, Namespace) else found if isinstance(found, dict) else {}


def _shape(state: State, name: str, origin: str) -> torch.Size:
    if name not in state or state[name].dim() != 4:
        raise CheckpointError(f"{origin} has no {name}: it is a checkpoint of another kind")
    return state[name].shape


# --- learned proximal networks -------------------------------------------------------------------


def _official_lpn(state: State, origin: str, settings: dict[str, Any]) -> tuple[BaseModel, State]:
    hidden, channels = _shape(state, "lin.0.weight", origin)[:2]
    features = _shape(state, "lin.6.weight", origin)[0]
    found = {"hidden": hidden, "channels": channels, "features": features}
    return LPNConfig.official(**joined(found, settings)), state


def _lpn_of_64(state: State, origin: str, settings: dict[str, Any]) -> tuple[BaseModel, State]:
    """The LPN of LearnedRegularizers, which sees v = 2 x - 1: D(x) = (grad psi(v) + 1) / 2.

    That is the gradient of psi(2 (x - 1/2)) / 4 + <1/2, x>: our layout around the gray value 1/2,
    with twice the weights that read the image and a quarter of those that read the top layer.
    """
    state = {name.removeprefix("lpn."): t for name, t in state.items()}
    features, hidden, kernel = _shape(state, "lin.6.weight", origin)[:3]
    channels = _shape(state, "lin.0.weight", origin)[1]
    _shape(state, "lin.7.weight", origin)
    if kernel != 8:
        raise CheckpointError(
            f"{origin}: lin.6 has a kernel of {kernel} x {kernel}, not of 8 x 8 as the LPN of "
            "64 x 64 pixels; the variant with average pooling is no network of proxmatch"
        )
    for name, t in state.items():
        if name.endswith("weight") and (name == "lin.0.weight" or name.startswith("res.")):
            state[name] = 2 * t
    state["lin.7.weight"] = state["lin.7.weight"].flatten(1) / 4
    state["lin.7.bias"] = state["lin.7.bias"] / 4
    found = {"hidden": hidden, "channels": channels, "features": features, "size": 64}
    return LPNConfig.official(**joined({**found, "center": 0.5}, settings)), state


# --- gradient-step denoisers ---------------------------------------------------------------------


def _gradient_step(
    state: State, hyper: dict[str, Any], origin: str, settings: dict[str, Any]
) -> ProximalDenoiser:
    for name, wanted in HYPERPARAMETERS.items():
        if hyper.get(name, wanted) != wanted:
            raise CheckpointError(
                f"{origin} was trained with {name} = {hyper[name]}, which makes another denoiser "
                f"than Id - grad g of a DRUNet; only {wanted} can be imported"
            )
    weights = {
        name.removeprefix(GS_PREFIX): t for name, t in state.items() if name.startswith(GS_PREFIX)
    }
    if not weights:
        raise CheckpointError(f"{origin} has no weights under {GS_PREFIX}: another kind?")
    kept = {"s": "S"}.get(str(hyper.get("act_mode")), hyper.get("act_mode"))
    stated = {"activation": kept, **settings} if kept is not None else settings
    if "activation" in stated:
        return build(*_plain(weights, "drunet", origin, {"smooth": None, **stated}), origin)
    tried = [
        build(*_plain(weights, "drunet", origin, {"smooth": None, **stated, **guess}), origin)
        for guess in ({"activation": "E"}, {"activation": "S"})
    ]
    works = [denoiser for denoiser in tried if _denoises(denoiser)]
    if len(works) != 1:
        raise InputError(
            f"{origin} does not tell its activation, and it denoises with {len(works)} of ELU and "
            "softplus; pass activation='E' or activation='S'"
        )
    return works[0]


@torch.no_grad()
def _denoises(denoiser: ProximalDenoiser, sigma: float = 0.1) -> bool:
    """Whether a denoiser removes noise from a smooth picture."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(1, denoiser.channels, 4, 4, generator=generator)
    x = F.interpolate(coarse, size=(64, 64), mode="bilinear").to(next(denoiser.parameters()))
    noise = sigma * torch.randn(x.shape, generator=generator).to(x)
    return bool((denoiser(x + noise, sigma) - x).norm() < 0.75 * noise.norm())


# --- plain networks ------------------------------------------------------------------------------


def _plain(
    state: State, kind: str, origin: str, settings: dict[str, Any]
) -> tuple[BaseModel, State]:
    """The configuration and the weights of the gradient-step denoiser of a published network."""
    if any("running_mean" in name for name in state):
        raise CheckpointError(
            f"{origin} holds batch normalization; merge it into the convolutions first, as KAIR "
            "does in the files it publishes"
        )
    if kind == "drunet":
        found, weights = _drunet(state, origin), state
        default: dict[str, Any] = {"activation": "R"}
    else:
        weights = _as_in_kair(state, origin)
        width, inputs = _shape(weights, "model.0.weight", origin)[:2]
        if kind == "ffdnet" and (inputs < 4 or inputs % FFDNet.UNSHUFFLE**2 != 1):
            raise CheckpointError(
                f"{origin} reads {inputs} channel(s), FFDNet four for each of the image and one "
                "for the level: it is a checkpoint of another kind"
            )
        blocks = sum(name.endswith("weight") for name in weights)
        last = weights.get(f"model.{2 * blocks - 2}.weight")
        if kind == "dncnn" and last is not None and len(last) != inputs:
            raise CheckpointError(
                f"{origin} reads {inputs} channels and returns {len(last)}, DnCNN as many as it "
                "reads: it is a checkpoint of another kind"
            )
        found = {
            "channels": inputs // FFDNet.UNSHUFFLE**2 if kind == "ffdnet" else inputs,
            "widths": (width,),
            "blocks": blocks,
        }
        default = {}
    kinked = {**default, **settings}.get("activation", "R") == "R"
    default |= {"network": kind, "levels": LEVELS.get(kind), "smooth": kinked}
    if kind in LEVELS:  # it takes the level
        default["sigma"] = SIGMA
    elif found["blocks"] == BLIND_LAYERS:
        default["levels"] = BLIND_LEVELS
    config = GradientStepConfig(**{**default, **joined(found, settings)})
    return config, {f"network.{name}": t for name, t in weights.items()}


def _drunet(state: State, origin: str) -> dict[str, Any]:
    widths = [_shape(state, f"m_down{i}.0.res.0.weight", origin)[0] for i in (1, 2, 3)]
    widths.append(_shape(state, "m_up3.0.weight", origin)[0])
    down = {name.split(".")[1] for name in state if name.startswith("m_down1.") and ".res." in name}
    channels = _shape(state, "m_tail.weight", origin)[0]
    return {"widths": tuple(widths), "blocks": len(down), "channels": channels}


def _as_in_kair(state: State, origin: str) -> State:
    """The weights of FFDNet and DnCNN under the names of KAIR, where they are deepinv's.

    deepinv's FFDNet gathers the level with the pixels, four equal channels, whose weights add up
    to those of one. Its DnCNN adds what its last layer finds, KAIR's subtracts it.
    """
    if "in_conv.weight" in state:
        middle = sum(re.fullmatch(r"conv_list\.\d+\.weight", name) is not None for name in state)
        order = ["in_conv", *(f"conv_list.{i}" for i in range(middle)), "out_conv"]
        sign = -1
    elif "blocks.0.0.weight" in state:
        last = max(int(name.split(".")[1]) for name in state if name.startswith("blocks."))
        order = [*(f"blocks.{i}.0" for i in range(last)), f"blocks.{last}"]
        sign = 1
    else:
        return state
    kair = {}
    for number, layer in enumerate(order):
        _shape(state, f"{layer}.weight", origin)
        for part in ("weight", "bias"):
            if f"{layer}.{part}" not in state:
                raise CheckpointError(f"{origin} has no {layer}.{part}")
            t = state[f"{layer}.{part}"]
            kair[f"model.{2 * number}.{part}"] = sign * t if layer == order[-1] else t
    unknown = len(state) - len(kair)
    if unknown:
        raise CheckpointError(f"{origin} holds {unknown} weights that such a network does not have")
    if sign == 1:
        first = kair["model.0.weight"]
        level = FFDNet.UNSHUFFLE**2
        kair["model.0.weight"] = torch.cat(
            [first[:, :-level], first[:, -level:].sum(1, keepdim=True)], 1
        )
    return kair
