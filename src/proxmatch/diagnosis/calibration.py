r"""How much of its error a denoiser gives away in what it returns.

A conditional mean D*(z) = E[x | z] is *calibrated*: E[x | D*(z)] = D*(z), so that its error
x - D*(z) cannot be predicted from its output. That of a denoiser made for other images can: it
draws colors, contrasts and details toward those it knows. What is predicted from the output is a
part of D*(z) - D(z).

The prediction is linear in features of D(z) around each pixel: the 3 x 3 neighbors, means over
7 x 7 and 15 x 15, products of the mean colors over 3 x 3. For each image it is fitted to the
others, so that it has learned something of the domain and not of the image; its ridge and its
length are those that predict best in this way. Of a single image, the upper half is predicted from
the lower one and vice versa.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, pad, unfold

#: Relative to the mean square of each feature.
RIDGES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
WIDE = (7, 15)


def predictable(outputs: Tensor, images: Tensor) -> float:
    """The share of |x - D(z)|^2 that D(z) predicts, from 0 to 1; NaN if D(z) is not finite.

    Args:
        outputs: D(z), ``(B, C, H, W)``.
        images: the clean x behind each z, alike.
    """
    if not bool(torch.isfinite(outputs).all()):
        return float("nan")
    output, clean = (t.detach().cpu().double() for t in (outputs, images))
    features, error = _groups(_features(output)), _groups((clean - output).flatten(2))
    squares, products = features @ features.transpose(1, 2), features @ error.transpose(1, 2)
    scale = squares.sum(0).diagonal().clamp_min(torch.finfo(squares.dtype).tiny).sqrt()
    others = (squares.sum(0) - squares) / scale / scale[:, None]
    aims = (products.sum(0) - products) / scale[:, None]
    total = float(error.square().sum())
    best = 0.0
    for ridge in RIDGES if total > 0 else ():
        unit = torch.eye(len(scale), dtype=squares.dtype)
        weights = torch.linalg.solve(others + ridge * unit, aims) / scale[:, None]
        found = weights.transpose(1, 2) @ features
        energy, common = float(found.square().sum()), float((found * error).sum())
        length = min(1.0, max(0.0, common / energy)) if energy > 0 else 0.0
        best = max(best, (2 * length * common - length**2 * energy) / total)
    return best


def _features(outputs: Tensor) -> Tensor:
    """``(B, F, P)`` of P pixels."""
    mean = _mean(outputs, 3).flatten(2)
    first, second = torch.triu_indices(outputs.shape[1], outputs.shape[1])
    parts = [
        unfold(pad(outputs, (1, 1, 1, 1), mode="replicate"), 3),
        *(_mean(outputs, side).flatten(2) for side in WIDE),
        mean[:, first] * mean[:, second],
        torch.ones_like(mean[:, :1]),
    ]
    return torch.cat(parts, 1)


def _mean(images: Tensor, side: int) -> Tensor:
    return avg_pool2d(pad(images, (side // 2,) * 4, mode="replicate"), side, 1)


def _groups(values: Tensor) -> Tensor:
    """Pixels by image, ``(B, N, P)``; the halves of a single one, ``(2, N, P / 2)``."""
    if len(values) > 1:
        return values
    half = values.shape[2] // 2
    return torch.cat([values[..., :half], values[..., half : 2 * half]])
