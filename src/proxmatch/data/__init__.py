"""Images to adapt to and to test on."""

from proxmatch.data.embedded import EmbeddedDomain, embedded

__all__ = ["EmbeddedDomain", "embedded"]
