"""``proxmatch models``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from proxmatch.commands import _screen
from proxmatch.commands._options import Json

if TYPE_CHECKING:
    from proxmatch.denoisers import ProximalDenoiser

#: Columns of the list and their headings: together they fit 80 characters.
COLUMNS = {
    "channels": "image",
    "weights": "weights",
    "L": "L",
    "trained on": "data",
    "license": "license",
}
#: Names of images by their number of channels.
IMAGES = {1: "gray", 3: "color"}
#: Entries of a card that only --json shows.
LONG = ("data", "validation_data", "model", "settings", "colors", "table")
WIDTH = 78


def command(
    name: Annotated[str | None, typer.Argument(help="a model, or the folder of one")] = None,
    json: Json = False,
) -> None:
    """List the models that come with proxmatch, or show the card of one.

    Example: proxmatch models lpn-faces
    """
    from proxmatch.denoisers import load, shipped

    if name is None:
        found = {known: _summary(load(known)) for known in shipped()}
        rows = [(known, *_row(card)) for known, card in found.items()]
        _screen.show(found, json, _screen.table(("name", *COLUMNS.values()), rows))
        return
    import yaml

    denoiser = load(name)
    card = {**_summary(denoiser), "transforms": _transforms(denoiser), "card": denoiser.core.record}
    shown = yaml.safe_dump(
        _readable(card), sort_keys=False, allow_unicode=True, default_flow_style=None, width=WIDTH
    )
    _screen.show(card, json, f"{shown}# data, architecture and settings of the training: --json")


def _summary(denoiser: ProximalDenoiser) -> dict[str, Any]:
    heart = denoiser.core
    record = heart.record
    return {
        "kind": type(denoiser).__name__,
        "channels": denoiser.channels,
        "weights": sum(p.numel() for p in denoiser.parameters()),
        "sigma": denoiser.sigma,
        "L": None if heart is not denoiser else _lipschitz(heart),
        "trained on": _of_all(record, "source") or _at(record, "data", "folder"),
        "license": _of_all(record, "license"),
    }


def _of_all(record: object, key: str) -> str | None:
    """What cards say of the images: that of the model, and those of the models it started from.

    A dataset that several were trained on is named once.
    """
    found: dict[str, str] = {}
    while isinstance(record, dict):
        said = record.get(key)
        if isinstance(said, str):
            found.setdefault(_name(said), said)
        record = record.get("start")
    return "; ".join(found.values()) or None


def _name(text: str) -> str:
    """A dataset without its citation."""
    return text.partition(",")[0]


def _lipschitz(denoiser: ProximalDenoiser) -> Any:
    """The measured L; of an adapted model, the one measured after the adaptation."""
    if _at(denoiser.record, "adapted") is not None:
        return _at(denoiser.record, "adapted", "after", "lipschitz")
    return _at(denoiser.record, "validation", "lipschitz")


def _at(record: object, *keys: str) -> Any:
    """Look up nested keys; None if they are missing, since a card may hold any JSON."""
    for key in keys:
        record = record.get(key) if isinstance(record, dict) else None
    return record


def _transforms(denoiser: ProximalDenoiser) -> list[dict[str, Any]]:
    chain: Any = denoiser.chain
    return [{"kind": t.kind, "settings": t.settings} for t in chain]


def _row(card: dict[str, Any]) -> list[str]:
    """The columns of a model in the list."""
    shown = {**card, "channels": IMAGES.get(card["channels"], card["channels"])}
    return [_short(shown[column]) for column in COLUMNS]


def _short(value: object) -> str:
    """A short text for the list: two decimals, and no citation."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.2f}"
    return ",\n".join(_name(text) for text in str(value).split("; "))


def _readable(value: Any) -> Any:
    """A card for people: long and empty entries are dropped, numbers have four digits."""
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if k not in LONG and v not in (None, [], {})}
        return {key: _readable(item) for key, item in kept.items()}
    if isinstance(value, list | tuple):
        return [_readable(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value
