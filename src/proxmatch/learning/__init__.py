"""Training and adaptation: settings as data, one engine, runs that survive being killed."""

from proxmatch.learning.adapt import AdaptationResult, Evidence, adapt, adaptation_settings
from proxmatch.learning.assess import Assessment, assess
from proxmatch.learning.engine import Check, RunResult, RunStatus, run
from proxmatch.learning.settings import (
    PRESETS,
    Optimiser,
    Penalty,
    Preset,
    TrainingSettings,
)
from proxmatch.learning.sources import Batch, pairs, stream, windows
from proxmatch.learning.train import TrainingResult, train

__all__ = [
    "PRESETS",
    "AdaptationResult",
    "Assessment",
    "Batch",
    "Check",
    "Evidence",
    "Optimiser",
    "Penalty",
    "Preset",
    "RunResult",
    "RunStatus",
    "TrainingResult",
    "TrainingSettings",
    "adapt",
    "adaptation_settings",
    "assess",
    "pairs",
    "run",
    "stream",
    "train",
    "windows",
]
