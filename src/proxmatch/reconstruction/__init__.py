"""Measurements of any size and number, in memory or as files, to images."""

from proxmatch.reconstruction.any_size import Reconstruction, at_strength, reconstruct
from proxmatch.reconstruction.batch import FileBatch
from proxmatch.reconstruction.signs import Examination, Sign
from proxmatch.reconstruction.soundness import examine

__all__ = [
    "Examination",
    "FileBatch",
    "Reconstruction",
    "Sign",
    "at_strength",
    "examine",
    "reconstruct",
]
