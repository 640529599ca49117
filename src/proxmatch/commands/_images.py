"""Images for the commands: crops, or whole pictures."""

from __future__ import annotations

from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def pictures(
    place: Path, number: int, channels: int, downscale: int = 1, *, clean: bool = True
) -> list[Tensor]:
    """The first pictures of a folder, an archive or an HDF5 file, whole, ``(C, H, W)`` each.

    They are downscaled by an area filter. An HDF5 file has clean images and measurements.
    """
    from torch.nn.functional import avg_pool2d

    from proxmatch.data.images import readable
    from proxmatch.data.shards import stored_pictures
    from proxmatch.errors import InputError

    first = islice(stored_pictures([place], clean=clean), number)
    found = readable((picture.name, partial(picture.read, channels)) for picture in first)
    for file in found:
        if min(file.pixels.shape[1:]) < downscale:
            raise InputError(
                f"{file.path} has {file.pixels.shape[2]} x {file.pixels.shape[1]} pixels, too few "
                f"for --downscale {downscale}"
            )
    return [avg_pool2d(file.pixels, downscale) for file in found]


def crops(folder: Path, number: int, size: int, downscale: int, channels: int) -> Tensor:
    """Crops spread over the pictures of a folder, ``(number, C, size, size)``."""
    from proxmatch.data import ImageDomain

    domain = ImageDomain(folder, size, downscale=downscale, channels=channels)
    last, count = len(domain) - 1, min(number, len(domain))
    return domain.tensor(round(i * last / max(1, count - 1)) for i in range(count))
