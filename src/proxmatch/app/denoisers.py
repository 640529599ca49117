"""The denoisers of a page, at a strength: those of proxmatch, adapted ones, and plain methods.

The strength is one number: the noise level for a denoiser of many levels, t for one of a single
level, the weight of total variation. Unless it is given, it is the one of ``proxmatch
reconstruct``: chosen on embedded pictures, once for each problem.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from proxmatch.app.pages import Page
from proxmatch.baselines import Identity, TotalVariation
from proxmatch.baselines.total_variation import WEIGHTS
from proxmatch.denoisers import ProximalDenoiser, load, shipped
from proxmatch.errors import InputError
from proxmatch.reconstruction.any_size import Builder, at_strength, simulation
from proxmatch.transforms import Blended, Lifted, Relaxed, tune
from proxmatch.transforms.strength import LEVELS, MARGIN, MIDDLING_LEVEL

#: Methods without a learned prior, and what they are called.
PLAIN = {"tv": "total variation", "none": "no denoiser"}
#: Chosen by trying the denoisers on the picture itself.
AUTO = "auto"


@dataclass(frozen=True)
class Ready:
    """A denoiser at a strength."""

    name: str  # of the denoiser
    denoiser: Any  # to run
    strength: float | None  # the number on the slider; None where there is none
    told: str  # the strength in words
    usual: bool  # whether it is what the command line would take


class Denoisers:
    """Loaded once, for all pages; strengths that were chosen are kept."""

    def __init__(self) -> None:
        self._loaded: dict[str, ProximalDenoiser] = {}
        self._chosen: dict[tuple[Any, ...], Any] = {}
        self._lock = threading.Lock()

    def load(self, name: str, page: Page) -> ProximalDenoiser:
        """A denoiser by name."""
        if name in page.denoisers:
            return page.denoisers[name]
        if name not in shipped():
            raise InputError(f"there is no denoiser {name!r}")
        with self._lock:
            if name not in self._loaded:
                self._loaded[name] = load(name).eval()
            return self._loaded[name]

    def known(self, name: str, page: Page, channels: int, problem: tuple[Any, ...]) -> bool:
        """Whether its usual strength for a problem was chosen already, or needs no choice."""
        if name == "none":
            return True
        if name != "tv" and not self.load(name, page).conditional:
            return True
        return (name, id(page.denoisers.get(name)), channels, problem) in self._chosen

    def middling(self, name: str, page: Page, channels: int) -> Ready:
        """At a strength that is right for many problems: for a first look."""
        if name == "tv":
            return self.at(name, page, channels, WEIGHTS[3])
        base = self.load(name, page)
        return self.at(name, page, channels, MIDDLING_LEVEL if base.conditional else 1.0)

    def at(self, name: str, page: Page, channels: int, strength: float | None) -> Ready:
        """At a given strength."""
        if name == "none":
            return Ready(name, Identity(channels), None, "none", True)
        if strength is None or not 0 < strength <= 1:
            raise InputError(f"a strength is a number between 0 and 1, not {strength}")
        if name == "tv":
            return Ready(name, TotalVariation(strength), strength, f"weight {strength:.3g}", False)
        base = fitted(self.load(name, page), channels)
        if not base.conditional:
            denoiser = base if strength == 1 else Relaxed(base, strength)
            return Ready(name, denoiser, strength, f"t {strength:.2g}", strength == 1)
        t = largest_step(base)
        told = f"level {strength:.3g}, t {t:.2g}"
        return Ready(name, Relaxed(base, t, strength), strength, told, False)

    def usual(
        self, name: str, page: Page, channels: int, build: Builder, problem: tuple[Any, ...]
    ) -> Ready:
        """At the strength that ``proxmatch reconstruct`` takes for this problem."""
        if name == "none":
            return self.at(name, page, channels, None)
        key = (name, id(page.denoisers.get(name)), channels, problem)
        if key not in self._chosen:
            self._chosen[key] = self._choose(name, page, channels, build)
        denoiser = self._chosen[key]
        if isinstance(denoiser, TotalVariation):
            return Ready(name, denoiser, denoiser.weight, f"weight {denoiser.weight:.3g}", False)
        relaxed = next((each for each in denoiser.chain if isinstance(each, Relaxed)), None)
        blended = any(isinstance(each, Blended) for each in denoiser.chain)
        beside = ", blended with a filter" if blended else ""
        if relaxed is None:
            return Ready(name, denoiser, 1.0, f"t 1{beside}", True)
        if relaxed.level is None:
            return Ready(name, denoiser, relaxed.t, f"t {relaxed.t:.2g}{beside}", True)
        told = f"level {relaxed.level:.3g}, t {relaxed.t:.2g}{beside}"
        return Ready(name, denoiser, relaxed.level, told, True)

    def _choose(self, name: str, page: Page, channels: int, build: Builder) -> Any:
        if name != "tv":
            return at_strength(fitted(self.load(name, page), channels), None, build)
        found = simulation(build, channels)
        if found is None:
            return TotalVariation(WEIGHTS[3])
        problem, images = found
        return tune(TotalVariation, WEIGHTS, images, problem).denoiser


def fitted(denoiser: ProximalDenoiser, channels: int) -> ProximalDenoiser:
    """A denoiser for images of this many channels: itself, or lifted."""
    return denoiser if denoiser.channels == channels else Lifted(denoiser, channels)


def largest_step(denoiser: ProximalDenoiser) -> float:
    """The largest t for which t L < 1 by the card of a denoiser of many levels."""
    constant: float | None = getattr(denoiser.core, "lipschitz", None)
    return min(1.0, MARGIN / constant) if constant else 1.0


def choices() -> list[dict[str, Any]]:
    """What can be chosen, as JSON values: name, label, and the ends of the slider."""
    return [
        *(described(name, load(name)) for name in shipped()),
        {"name": "tv", "label": PLAIN["tv"], "low": 0.0005, "high": 0.2, "kind": "weight"},
        {"name": "none", "label": PLAIN["none"], "low": None, "high": None, "kind": None},
    ]


def described(name: str, denoiser: ProximalDenoiser) -> dict[str, Any]:
    """A denoiser as a choice."""
    low, high, kind = (LEVELS[0], LEVELS[-1], "level") if denoiser.conditional else (0.02, 1.0, "t")
    return {"name": name, "label": name, "low": low, "high": high, "kind": kind}
