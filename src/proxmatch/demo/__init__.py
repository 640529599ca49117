"""The demo: one story on whole pictures, told in numbers, pictures and a page."""

from proxmatch.demo.output import Written, check, write
from proxmatch.demo.setup import REAL, TINY, Picture, Setup
from proxmatch.demo.story import STAGES, Story, tell

__all__ = [
    "REAL",
    "STAGES",
    "TINY",
    "Picture",
    "Setup",
    "Story",
    "Written",
    "check",
    "tell",
    "write",
]
