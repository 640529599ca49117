"""``proxmatch import``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from proxmatch.commands import _screen
from proxmatch.commands._options import Json, Out, key_values


def command(
    file: Annotated[Path, typer.Argument(help="a published checkpoint")],
    kind: Annotated[
        str,
        typer.Option(
            help="gsdrunet, prox-pnp, ffdnet, dncnn, drunet, lpn-official ...; "
            "the message about an unknown kind lists them all"
        ),
    ],
    out: Out,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="what the weights do not contain, such as sigma=0.05"
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Convert a published checkpoint; no code in the file is run.

    Example: proxmatch import GSDRUNet.ckpt --kind gsdrunet --set sigma=0.03 --out models/gsdrunet
    """
    from proxmatch._internal.locks import owned
    from proxmatch.denoisers import import_checkpoint, save

    denoiser = import_checkpoint(file, kind, **key_values(settings))
    with owned(out):
        save(denoiser, out)
    weights = sum(p.numel() for p in denoiser.parameters())
    record = {"model": str(out), "kind": type(denoiser).__name__, "weights": weights}
    _screen.show(record, json, f"wrote {out}: {type(denoiser).__name__}, {weights} weights")
