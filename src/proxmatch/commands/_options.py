"""Arguments that several commands share, and what they stand for."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proxmatch.errors import InputError

if TYPE_CHECKING:
    import torch

    from proxmatch.denoisers import ProximalDenoiser

Model = Annotated[
    str, typer.Argument(help="a model that comes with proxmatch, or the folder of one")
]
MaybeModel = Annotated[
    str | None,
    typer.Argument(
        help="a model that comes with proxmatch, or the folder of one (default: the nearest of all)"
    ),
]
From = Annotated[
    list[str] | None,
    typer.Option(
        "--from",
        metavar="MODEL",
        help="another model to choose from; can be repeated; 'all': every model of proxmatch",
    ),
]
Out = Annotated[Path, typer.Option(help="folder for the output")]
Json = Annotated[bool, typer.Option("--json", help="print one JSON object, for machines")]
Seed = Annotated[int, typer.Option(min=0, help="seed for everything random")]
Device = Annotated[str, typer.Option(help="where to compute: cpu, cuda, cuda:1, mps, xpu")]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads (default: all)")]
Problem = Annotated[str, typer.Option(help="a name that `proxmatch problems` lists")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="an option that `proxmatch problems NAME` lists"
    ),
]
Address = Annotated[
    str | None, typer.Option(help="host:port of a Ray cluster (default: one is started here)")
]
WorkerCount = Annotated[
    int, typer.Option(min=1, help="processes, if a Ray cluster is started here")
]
Downscale = Annotated[int, typer.Option(min=1, help="reduce the images by this factor first")]
Open = Annotated[
    bool | None,
    typer.Option("--open/--no-open", help="open the page (default: if there is a screen)"),
]
Iterations = Annotated[int | None, typer.Option(min=1, help="PnP steps (default: the problem's)")]


class EngineChoice(StrEnum):
    """Where to compute."""

    LOCAL = "local"
    RAY = "ray"


Engine = Annotated[EngineChoice, typer.Option(help="compute on this machine, or on Ray")]


def compute(device: str, threads: int | None) -> torch.device:
    """Set the number of threads, and find the device.

    Raises:
        InputError: there is no such device here.
    """
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"no device {device!r} on this machine: {reason}") from error
    if place.type == "meta":
        raise InputError("the device 'meta' holds no numbers; take cpu")
    return place


def load_model(name: str, place: torch.device) -> ProximalDenoiser:
    """A denoiser by name or folder."""
    from proxmatch.denoisers import load

    return load(name, device=place)


def load_sources(
    named: str | None, more: list[str] | None, place: torch.device
) -> dict[str, ProximalDenoiser]:
    """The denoisers to choose among, by name, all of one number of channels.

    With ``all``, or without any name, those that come with proxmatch: for color, or of as many
    channels as the one that is named.
    """
    from proxmatch.learning.start import sources_of

    given = [name for name in (named, *(more or [])) if name is not None]
    names = [name for name in given if name != "all"]
    found = sources_of(names, device=place) if names else {}
    if given and "all" not in given:
        return found
    channels = next(iter(found.values())).channels if found else 3
    return sources_of(None, channels, place) | found


def key_values(given: list[str] | None) -> dict[str, Any]:
    """Parse ``key=value`` pairs; values that look like numbers become numbers."""
    found: dict[str, Any] = {}
    for text in given or []:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not key.isidentifier():
            raise InputError(f"{text!r} is not KEY=VALUE")
        try:
            found[key] = float(value)
        except ValueError:
            found[key] = value
    return found
