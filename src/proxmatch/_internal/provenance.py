"""What decided a figure, for its record."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import version
from pathlib import Path

#: Modules and packages whose source decides what a denoiser, a problem and a reconstruction give.
CORE = ("pnp.py", "metrics.py", "denoisers", "problems", "transforms", "baselines")


def versions() -> dict[str, str]:
    """Versions of what decides a figure."""
    return {name: version(name) for name in ("proxmatch", "torch", "deepinv")}


@cache
def code_digest(*parts: str) -> str:
    """A hash of the source of modules and packages, by their paths in proxmatch."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for part in parts:
        path = root / part
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]
