"""The demo: one story on whole pictures, told in numbers, pictures and a page."""

from proxmatch.demo.folder import Written, check, write
from proxmatch.demo.plan import REAL, TINY, Picture, Plan
from proxmatch.demo.story import STAGES, Story, tell

__all__ = [
    "REAL",
    "STAGES",
    "TINY",
    "Picture",
    "Plan",
    "Story",
    "Written",
    "check",
    "tell",
    "write",
]
