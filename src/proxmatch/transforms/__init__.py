"""Changes of a proximal denoiser after which it is still one, exactly; none needs training."""

from proxmatch.transforms.align import align
from proxmatch.transforms.aligned import Aligned
from proxmatch.transforms.blended import Blended
from proxmatch.transforms.colors import ColorStatistics, color_statistics, colors_of
from proxmatch.transforms.lifted import Lifted
from proxmatch.transforms.measured_colors import statistics_from_measurements
from proxmatch.transforms.relaxed import Relaxed
from proxmatch.transforms.strength import (
    Trial,
    Tuned,
    choose_strength,
    choose_strength_from_measurements,
    stand_ins,
    tune,
)
from proxmatch.transforms.symmetrized import Symmetrized
from proxmatch.transforms.transformed import Transformed

#: The transforms by the names that checkpoints use.
TRANSFORMS: dict[str, type[Transformed]] = {
    t.kind: t for t in (Aligned, Blended, Lifted, Relaxed, Symmetrized)
}

__all__ = [
    "TRANSFORMS",
    "Aligned",
    "Blended",
    "ColorStatistics",
    "Lifted",
    "Relaxed",
    "Symmetrized",
    "Transformed",
    "Trial",
    "Tuned",
    "align",
    "choose_strength",
    "choose_strength_from_measurements",
    "color_statistics",
    "colors_of",
    "stand_ins",
    "statistics_from_measurements",
    "tune",
]
