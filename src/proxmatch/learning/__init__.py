"""Training and adaptation: settings as data, one engine, runs that survive being killed."""

from proxmatch._internal.cluster import Workers
from proxmatch.learning.adaptation import adapt, carry_out
from proxmatch.learning.adaptation_plan import AdaptationPlan, plan_adaptation
from proxmatch.learning.assess import Assessment, assess
from proxmatch.learning.augmentation import augment
from proxmatch.learning.engine import Check, RunResult, RunStatus, run
from proxmatch.learning.evidence import AdaptationResult, Candidate, Evidence
from proxmatch.learning.fine_tune import adaptation_settings, fine_tune, gentle_settings
from proxmatch.learning.settings import (
    PRESETS,
    Augmentation,
    Levels,
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
    "AdaptationPlan",
    "AdaptationResult",
    "Assessment",
    "Augmentation",
    "Batch",
    "Candidate",
    "Check",
    "Evidence",
    "Levels",
    "Optimizer",
    "Penalty",
    "Preset",
    "RunResult",
    "RunStatus",
    "TrainingResult",
    "TrainingSettings",
    "TrajectoryInputs",
    "Workers",
    "adapt",
    "adaptation_settings",
    "assess",
    "augment",
    "carry_out",
    "fine_tune",
    "gentle_settings",
    "pairs",
    "plan_adaptation",
    "run",
    "stream",
    "train",
    "windows",
]
