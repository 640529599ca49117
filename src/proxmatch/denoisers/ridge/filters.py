r"""Convolutions W whose norm as an operator is at most one, on images of any size.

W u are the responses of K filters to an image that is zero outside, each as large as the image.
Extending by zeros and cutting the result off do not increase norms, so |W| is at most the norm on
the whole plane,

    |W|^2 <= sup_f lambda_max(S(f)),    S(f) = k(f)^H k(f),

k(f) the Fourier transform of the filters at the frequency f, ``(K, C)``. For a unit vector v,
v^H S(f) v is a nonnegative trigonometric polynomial T of degree n - 1 along each axis. On a grid of
N > 2 (n - 1) points per axis, T <= M. By the lemma of M. Riesz, a real one of degree d has a grid
point near its largest modulus where it still is cos(pi d / N) times that; applied along both axes
to T - M / 2, which is at most M / 2 in modulus on the grid,

    sup T <= M / 2 (1 + 1 / cos(pi d / N)^2).

With N = 32 d the right-hand side is 0.5 % above M: the norm is at most 1, and above 0.997 in the
limit of large images.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

#: Points of the grid of frequencies along an axis, in units of the degree.
OVERSAMPLING = 32


def analyze(u: Tensor, kernel: Tensor) -> Tensor:
    """W u, ``(B, K, H, W)``, of images ``(B, C, H, W)`` with a kernel ``(K, C, n, n)``, n odd."""
    return F.conv2d(u, kernel, padding=kernel.shape[-1] // 2)


def synthesize(y: Tensor, kernel: Tensor) -> Tensor:
    """W^T y, ``(B, C, H, W)``.

    As one matrix product and a sum over the windows: with so few output channels this is 3 to 10
    times as fast on a CPU as a transposed convolution.
    """
    side = kernel.shape[-1]
    windows = kernel.flatten(1).T @ y.flatten(2)
    return F.fold(windows, y.shape[-2:], side, padding=side // 2)


def composed(layers: Sequence[Tensor]) -> Tensor:
    """The kernel of several convolutions, one after the other, as that of one, ``(K, C, n, n)``."""
    kernel = layers[0].transpose(0, 1)
    for layer in layers[1:]:
        kernel = F.conv2d(kernel, layer.flip(2, 3), padding=layer.shape[-1] - 1)
    return kernel.transpose(0, 1)


def normalized(kernel: Tensor) -> Tensor:
    """The kernel divided by a bound on the norm of its W; a kernel of zeros stays one."""
    bound = squared_norm(kernel)
    return kernel * bound.clamp_min(torch.finfo(kernel.dtype).tiny).rsqrt()


def squared_norm(kernel: Tensor) -> Tensor:
    """An upper bound of |W|^2 for images of every size, at most 0.5 % above the supremum.

    Where on the grid the largest eigenvalue is found carries no graph; the eigenvalue does.
    """
    degree = kernel.shape[-1] - 1
    points = OVERSAMPLING * degree
    rows, columns = _highest(kernel.detach(), points)
    place = 2 * math.pi / points * torch.arange(degree + 1, dtype=kernel.dtype)
    phase = (rows * place[:, None] + columns * place).to(kernel.device)
    spectrum = torch.complex((kernel * phase.cos()).sum((2, 3)), (kernel * phase.sin()).sum((2, 3)))
    top: Tensor = torch.linalg.eigvalsh(spectrum.mH @ spectrum)[-1]
    return top * (1 + math.cos(math.pi / OVERSAMPLING) ** -2) / 2


def _highest(kernel: Tensor, points: int) -> tuple[int, int]:
    """The frequency of the grid at which the largest eigenvalue of S is largest."""
    side = kernel.shape[-1]
    by_channel = kernel.transpose(0, 1)
    correlation = F.conv2d(by_channel, by_channel, padding=side - 1)
    correlation = F.pad(correlation, (0, points - 2 * side + 1) * 2).roll((1 - side,) * 2, (2, 3))
    symbol = torch.fft.rfft2(correlation).flatten(2).permute(2, 0, 1)
    # An eigenvalue is at most the Frobenius norm, which rules out most frequencies.
    above = torch.linalg.matrix_norm(symbol)
    where = above.argmax()[None]
    if len(by_channel) > 1:
        found = torch.linalg.eigvalsh(symbol[where])[:, -1]
        where = (above >= (1 - 1e-4) * found).nonzero().flatten()
        where = where[torch.linalg.eigvalsh(symbol[where])[:, -1].argmax()][None]
    return divmod(int(where), points // 2 + 1)
