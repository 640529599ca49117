"""Images to learn from, to adapt to and to test on."""

from proxmatch.data.domain import ImageDomain
from proxmatch.data.embedded import EmbeddedDomain, embedded
from proxmatch.data.few_shot import FewShot, few_shot

__all__ = ["EmbeddedDomain", "FewShot", "ImageDomain", "embedded", "few_shot"]
