"""Every error and warning that proxmatch raises on purpose.

Each message names what is wrong and what to do about it. All errors derive from
:class:`ProxmatchError`, all warnings from :class:`ProxmatchWarning`, so that a caller can filter
them by name.
"""

from __future__ import annotations


class ProxmatchError(Exception):
    """Base class of every error raised on purpose."""


class InputError(ProxmatchError, ValueError):
    """An argument is of the wrong kind, shape or range, or holds NaN or infinity."""


class DataError(InputError):
    """A folder of images is missing, holds nothing readable, or changed while in use."""


class StepSizeError(ProxmatchError, ValueError):
    """The step size breaks eta * L_f < 1, without which the theory says nothing."""


class NotContractiveError(ProxmatchError, ArithmeticError):
    """A gradient-step denoiser has L >= 1: it is not known to be a proximal map."""


class UnknownLipschitzError(ProxmatchError, ArithmeticError):
    """L of a gradient-step denoiser was asked for but never estimated."""


class NotProximalError(ProxmatchError, TypeError):
    """A denoiser without a potential was asked for what only a proximal map has."""


class CheckpointError(ProxmatchError):
    """A checkpoint is missing, truncated, foreign, or does not fit its configuration."""


class FutureFormatError(CheckpointError):
    """A checkpoint was written by a newer proxmatch than this one."""


class ConvexityError(CheckpointError):
    """A checkpoint holds negative weights where the network must be convex."""


class UnsafeCheckpointError(CheckpointError):
    """A file would run code when loaded; it was not loaded."""


class EngineError(ProxmatchError):
    """A piece of an experiment could not be computed, although it was tried again."""


class FolderInUseError(ProxmatchError):
    """Another run is writing to this folder."""


class TooLargeError(ProxmatchError, MemoryError):
    """There is not enough memory for an image, even in small tiles."""


class ProxmatchWarning(UserWarning):
    """Base class of every warning given on purpose."""


class LevelWarning(ProxmatchWarning):
    """A noise level outside those a denoiser was trained for."""


class NotSmoothWarning(ProxmatchWarning):
    """A network has kinks, where a gradient-step denoiser jumps."""


class NotConvergedWarning(ProxmatchWarning):
    """An iterative solve stopped before it reached its tolerance."""


class DivergenceWarning(ProxmatchWarning):
    """Some images of a reconstruction diverged and were stopped."""


class SuspiciousWarning(ProxmatchWarning):
    """Some images of a reconstruction are probably worse than what they were made from."""


class StepSizeWarning(ProxmatchWarning):
    """A step size with eta * L_f >= 1 is in use, because the caller asked for it."""


class MismatchedPhysicsWarning(ProxmatchWarning):
    """An operator and its adjoint, or its noise and the data term, do not belong together."""


class AdaptationWarning(ProxmatchWarning):
    """An adaptation made a denoiser worse, or found nothing better."""


class DegenerateStatisticsWarning(ProxmatchWarning):
    """Images vary too little for their colors to determine an alignment."""


class SkippedFilesWarning(ProxmatchWarning):
    """Files of a folder of images were left out.

    Attributes:
        files: the reason of each, by name.
    """

    def __init__(self, files: dict[str, str]) -> None:
        super().__init__(files)
        self.files = files

    def __str__(self) -> str:
        lines = [f"{name}: {reason}" for name, reason in self.files.items()]
        more = [f"and {len(lines) - 10} more"] if len(lines) > 10 else []
        return f"{len(lines)} file(s) left out: " + "; ".join(lines[:10] + more)


class ThinnedWarning(ProxmatchWarning):
    """Pictures of a page were compressed or left out to keep it small."""
