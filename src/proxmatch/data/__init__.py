"""Images to learn from, to adapt to and to test on."""

from proxmatch.data.any_form import image_batch, image_list, read_image, save_image
from proxmatch.data.domain import ImageDomain
from proxmatch.data.embedded import EmbeddedDomain, embedded
from proxmatch.data.few_shot import FewShot, few_shot
from proxmatch.data.held_images import HeldImages, open_images
from proxmatch.data.images import ImageFile, encode_image, image_files, read_file, read_files

__all__ = [
    "EmbeddedDomain",
    "FewShot",
    "HeldImages",
    "ImageDomain",
    "ImageFile",
    "embedded",
    "encode_image",
    "few_shot",
    "image_batch",
    "image_files",
    "image_list",
    "open_images",
    "read_file",
    "read_files",
    "read_image",
    "save_image",
]
