"""Training and adaptation: settings as data, one engine, runs that survive being killed."""

from proxmatch.learning.adaptation import adapt
from proxmatch.learning.assess import Assessment, assess
from proxmatch.learning.augmentation import augment
from proxmatch.learning.engine import Check, RunResult, RunStatus, run
from proxmatch.learning.evidence import AdaptationResult, Candidate, Evidence
from proxmatch.learning.fine_tune import adaptation_settings, fine_tune, gentle_settings
from proxmatch.learning.settings import (
    PRESETS,
    Augmentation,
    Optimizer,
    Penalty,
    Preset,
    TrainingSettings,
    TrajectoryInputs,
)
from proxmatch.learning.sources import Batch, pairs, stream, windows
from proxmatch.learning.training import TrainingResult, train

__all__ = [
    "PRESETS",
    "AdaptationResult",
    "Assessment",
    "Augmentation",
    "Batch",
    "Candidate",
    "Check",
    "Evidence",
    "Optimizer",
    "Penalty",
    "Preset",
    "RunResult",
    "RunStatus",
    "TrainingResult",
    "TrainingSettings",
    "TrajectoryInputs",
    "adapt",
    "adaptation_settings",
    "assess",
    "augment",
    "fine_tune",
    "gentle_settings",
    "pairs",
    "run",
    "stream",
    "train",
    "windows",
]
