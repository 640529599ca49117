"""Measurements of any size and number, in memory or as files, to images."""

from proxmatch.reconstruction.any_size import Reconstruction, at_strength, reconstruct
from proxmatch.reconstruction.batch import FileBatch

__all__ = ["FileBatch", "Reconstruction", "at_strength", "reconstruct"]
