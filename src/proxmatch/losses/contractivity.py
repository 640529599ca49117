r"""The contractivity penalty [L - L_max]_+^2 (equation 42).

L is the largest |eigenvalue| of the Hessian H of g. It is found in two steps:

1. a direction v is found without a graph, by shifted power iteration on H. It is best to start from
   the last direction of the same image: the top modes are localized, so that of another image is of
   no use;
2. the Rayleigh quotient v^T H v / |v|^2 is evaluated with one graph. Its absolute value is a lower
   bound of L, and its derivative in the weights is exact for this v.

For g = |r|^2 / 2, r(x) = x - N(x), the quadratic form needs no Hessian product: along x + t v it is

    v^T H v = d^2/dt^2 g = |r'|^2 + <r, r''>,    r' = v - J_N v,    r'' = -N''[v, v],

which a Taylor pass through N (value, first and second derivative side by side) gives at the cost of
three forward passes, and one ordinary backward.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from proxmatch.denoisers import GradientStep
from proxmatch.metrics import norm


def curvature(
    denoiser: GradientStep, x: Tensor, v: Tensor, sigma: float | Tensor | None = None
) -> Tensor:
    """The Rayleigh quotient v^T H v / |v|^2 of the Hessian of g at x, ``(B,)``, differentiable.

    Args:
        denoiser: D = Id - grad g.
        x: where, ``(B, C, H, W)``.
        v: directions, the same shape; constants of the differentiation.
        sigma: noise level, as in the denoiser's ``forward``.

    Example:
        >>> from proxmatch.denoisers import GradientStepConfig
        >>> denoiser = GradientStep(GradientStepConfig(channels=1, widths=(4, 4), sigma=0.1))
        >>> x, v = torch.rand(1, 1, 8, 8), torch.randn(1, 1, 8, 8)
        >>> curvature(denoiser, x, v).shape
        torch.Size([1])
    """
    v = v.detach()
    return denoiser.second_derivative(x, v, sigma) / v.square().flatten(1).sum(1)


@torch.no_grad()
def top_direction(
    denoiser: GradientStep,
    x: Tensor,
    start: Tensor,
    *,
    iterations: int = 10,
    shift: float = 0.3,
    sigma: float | Tensor | None = None,
    value: Tensor | None = None,
) -> Tensor:
    """Unit directions of large eigenvalues of the Hessian of g at each image, without a graph.

    Power iteration v <- (H - shift) v favors the upper end of the spectrum, which is where L is.
    A few steps from scratch underestimate L badly; start from the last directions instead. The
    products H v are finite differences of D: they cost one evaluation each, and a direction need
    not be exact for the penalty to be.

    Args:
        denoiser: D = Id - grad g.
        x: where, ``(B, C, H, W)``.
        start: directions to start from, the same shape.
        iterations: products with H.
        shift: subtracted from H, which speeds up the search; the top is found if L > 2 shift, and
            below that there is nothing to penalize.
        sigma: noise level, as in the denoiser's ``forward``.
        value: D(x), if it is known already: one evaluation less.

    Example:
        >>> from proxmatch.denoisers import GradientStepConfig
        >>> denoiser = GradientStep(GradientStepConfig(channels=1, widths=(4, 4), sigma=0.1))
        >>> x = torch.rand(1, 1, 8, 8)
        >>> v = top_direction(denoiser, x, torch.randn_like(x), iterations=5)
        >>> torch.allclose(v.norm(), torch.ones(()))
        True
    """
    x, v = x.detach(), _unit(start.detach())
    step = torch.finfo(x.dtype).eps ** 0.3  # |step v|: 8e-3 in float32, 2e-5 in float64
    base = denoiser(x, sigma) if value is None else value.detach()
    for _ in range(iterations):
        jv = (denoiser(x + step * v, sigma) - base) / step
        v = _unit((1 - shift) * v - jv)  # H = Id - J_D
    return v


def contractivity_penalty(
    denoiser: GradientStep, x: Tensor, v: Tensor, limit: float, sigma: float | Tensor | None = None
) -> Tensor:
    """[|v^T H v| / |v|^2 - limit]_+^2, ``(B,)``, exact in value and derivative for its v.

    Args:
        denoiser: D = Id - grad g.
        x: adaptation inputs, ``(B, C, H, W)``.
        v: directions from :func:`top_direction`.
        limit: L_max < 1.
        sigma: noise level, as in the denoiser's ``forward``.

    Example:
        >>> from proxmatch.denoisers import GradientStepConfig
        >>> denoiser = GradientStep(GradientStepConfig(channels=1, widths=(4, 4), sigma=0.1))
        >>> x, v = torch.rand(1, 1, 8, 8), torch.randn(1, 1, 8, 8)
        >>> bool(contractivity_penalty(denoiser, x, v, limit=100.0) == 0)
        True
    """
    excess: Tensor = F.relu(curvature(denoiser, x, v, sigma).abs() - limit)
    return excess.square()


def _unit(v: Tensor) -> Tensor:
    return v / norm(v).clamp_min(torch.finfo(v.dtype).tiny).view(-1, 1, 1, 1)
