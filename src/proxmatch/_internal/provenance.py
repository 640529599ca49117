"""What decided a figure, for its record."""

from __future__ import annotations

from importlib.metadata import version


def versions() -> dict[str, str]:
    """Versions of what decides a figure."""
    return {name: version(name) for name in ("proxmatch", "torch", "deepinv")}
