"""Images to learn from, to adapt to and to test on."""

from proxmatch.data.domain import ImageDomain
from proxmatch.data.embedded import EmbeddedDomain, embedded
from proxmatch.data.few_shot import FewShot, few_shot
from proxmatch.data.images import ImageFile, encode_image, image_files, read_image, read_images

__all__ = [
    "EmbeddedDomain",
    "FewShot",
    "ImageDomain",
    "ImageFile",
    "embedded",
    "encode_image",
    "few_shot",
    "image_files",
    "read_image",
    "read_images",
]
