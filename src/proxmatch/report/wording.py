"""Names and numbers as they are shown to the reader."""

from __future__ import annotations

import json
from typing import Any

from proxmatch.methods import family_label
from proxmatch.records import RELAXATIONS
from proxmatch.report.summary import Denoiser

MISSING = "\N{EN DASH}"
_DEPTH, _LONGEST = 4, 400


def denoiser(block: Denoiser) -> str:
    """``LPN, extreme source``."""
    parts = [family_label(block.family), f"{block.source} source" if block.source else ""]
    return ", ".join(part for part in parts if part) or "all rows"


def relaxation(name: str) -> str:
    """What a relaxation is called in a heading."""
    return RELAXATIONS.get(name, name)


def number(value: float | None, digits: int = 2, signed: bool = False) -> str:
    """With a real minus sign; a dash when it is not known."""
    if value is None:
        return MISSING
    text = f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"
    return text.replace("-", "\N{MINUS SIGN}")


def context(*parts: str | None) -> str:
    """The parts that are not empty, separated by dots."""
    return " · ".join(part for part in parts if part)


def flat(record: dict[str, Any], prefix: str = "", depth: int = 1) -> list[tuple[str, str]]:
    """Nested settings as lines of dotted names and short texts."""
    lines: list[tuple[str, str]] = []
    for name, value in record.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and value and depth < _DEPTH:
            lines += flat(value, f"{key}.", depth + 1)
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            lines.append((key, text if len(text) <= _LONGEST else text[:_LONGEST] + " …"))
    return lines
