"""The pictures of the demo, in steps of 1/255: written to a file and read again, they are the same.

So the commands on the page, run on the demo's files, give the demo's numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from proxmatch.data.embedded import embedded_picture


def whole(name: str, reduce: int) -> Tensor:
    """A picture in 8 bits, ``(3, H, W)`` in [0, 1]."""
    return embedded_picture(name, reduce).mul(255).round().div(255)


def crops(picture: Tensor, size: int, number: int) -> Tensor:
    """Square crops of a picture, ``(number, 3, size, size)``: busy ones, and one that is not.

    The cells of a grid are sorted by their contrast, and crops are taken at even distances from the
    middle of that order to the highest contrast.
    """
    cells = picture.unfold(1, size, size).unfold(2, size, size)  # (3, rows, cols, size, size)
    cells = cells.permute(1, 2, 0, 3, 4).flatten(0, 1)
    order = cells.flatten(1).std(1).argsort(descending=True)
    places = torch.linspace(0, (len(cells) - 1) // 2, number).round().long()
    return cells[order[places]].contiguous()


def spread(count: int, number: int) -> list[int]:
    """So many of the numbers below ``count``, evenly spread from the first to the last."""
    places: list[int] = torch.linspace(0, count - 1, min(number, count)).round().int().tolist()
    return places
