"""What decided a figure, for its record."""

from __future__ import annotations

import platform
from importlib.metadata import version


def versions() -> dict[str, str]:
    """Versions of what decides a figure."""
    return {name: version(name) for name in ("proxmatch", "torch", "deepinv")}


def environment() -> dict[str, str]:
    """These, and the version of Python: what must be equal for results to be."""
    return {**versions(), "python": ".".join(platform.python_version_tuple()[:2])}
