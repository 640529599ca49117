"""Training loops: settings as data, one engine, runs that survive being killed."""

from proxmatch.learning.engine import RunResult, RunStatus, run
from proxmatch.learning.settings import (
    PRESETS,
    Optimiser,
    Penalty,
    Preset,
    TrainingSettings,
)

__all__ = [
    "PRESETS",
    "Optimiser",
    "Penalty",
    "Preset",
    "RunResult",
    "RunStatus",
    "TrainingSettings",
    "run",
]
