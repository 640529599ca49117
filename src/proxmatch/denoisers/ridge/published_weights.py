r"""The published weakly convex ridge regularizers (github.com/axgoujon).

A file holds the weights of a chain of convolutions, and three splines: the slopes of the convex and
of the concave part of psi, and log(255 s a_k(s)) of each filter. They are projected when used:
slopes to [0, 1], zero in the outermost cells, and mirrored.

The paper finds psi to be the minimax concave penalty; in its files, it is that exactly. The convex
part has slope 1 up to a knot, the concave one from there up to another. Both are held by
:class:`~proxmatch.denoisers.ridge.profile.Profile` as they are. Differences remain:

- the published rho is 1, where D may fail to be unique; here it is :data:`RHO`;
- the published code cuts off and extends by zeros after each convolution, here it is done once, so
  that a formula bounds the norm. Pixels within the size of a filter of the border differ a little.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from proxmatch.denoisers.checkpoint import joined
from proxmatch.errors import CheckpointError

RHO = 0.999
#: Nearly sharp corners.
CORNER = 1e-6
#: What a file does not say: half the range of the splines of psi, and the largest noise level.
RANGE, HIGHEST = 0.1, 30 / 255

FIRST = "conv_layer.conv_layers.0.parametrizations.weight.original"
CONVEX, CONCAVE = "activation_cvx.coefficients", "activation_ccv.coefficients"
SCALING, CURVATURE = "spline_scaling.coefficients", "mu_"


def wcrr(
    state: dict[str, Tensor], origin: str, settings: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The fields of the configuration and the weights of a published regularizer.

    Args:
        state: the tensors of ``checkpoint_*.pth``.
        origin: the file, for messages.
        settings: ``sigma``, the noise level it is evaluated at unless told otherwise; ``highest``,
            the largest noise level of its training (``noise_range`` in its ``config.json``).

    Raises:
        CheckpointError: the file holds something else, or a psi of another shape.
    """
    state = {name: t.float() for name, t in state.items()}
    missing = [n for n in (FIRST, CONVEX, CONCAVE, SCALING, CURVATURE) if n not in state]
    if missing:
        raise CheckpointError(f"{origin} has no {missing[0]}: it is a checkpoint of another kind")
    layers = [state[FIRST]]
    while (name := f"conv_layer.conv_layers.{len(layers)}.weight") in state:
        layers.append(state[name])
    knots = state[CONVEX].shape[-1]
    inner, outer = _clips(state, knots, origin)
    curvature = state[CURVATURE].exp()
    # With the range of the concave part as the unit; the tail is what the two clips leave.
    unit = 2 * RANGE / (knots - 1) * outer
    tail = (curvature + RHO) * inner / outer - RHO
    if float(tail) < -1e-3:
        raise CheckpointError(f"{origin}: psi falls far out, which no shipped file does")
    scaling = state[SCALING]
    nodes = scaling.shape[1]
    told = {"highest": HIGHEST, **settings}
    highest = told.pop("highest")
    found = {
        "channels": layers[0].shape[1],
        "sizes": tuple(layer.shape[-1] for layer in layers),
        "hidden": tuple(layer.shape[0] for layer in layers[:-1]),
        "filters": layers[-1].shape[0],
        "rho": RHO,
        "corner": CORNER,
        "nodes": tuple(highest * k / (nodes - 1) for k in range(nodes)),
        "levels": (highest / 100, highest),
    }
    weights = {f"layers.{i}": layer for i, layer in enumerate(layers)}
    weights["scale"] = scaling.T - math.log(255 * unit)
    weights["curvature"] = curvature.log().expand(nodes).clone()
    weights["tail"] = tail.clamp_min(0).expand(nodes).clone()
    return joined(found, told), weights


def _clips(state: dict[str, Tensor], knots: int, origin: str) -> tuple[int, int]:
    """The knots, counted from the middle, where the convex and the concave part of psi end."""
    convex, concave = (_slopes(state[name], knots) for name in (CONVEX, CONCAVE))
    inner, outer = int(convex.sum().round()), int((convex + concave).sum().round())
    cells = torch.arange(len(convex))
    ideal = (cells < inner).float(), ((cells >= inner) & (cells < outer)).float()
    apart = max(float((a - b).abs().max()) for a, b in zip((convex, concave), ideal, strict=True))
    if apart > 1e-3 or not 0 < inner < outer:
        raise CheckpointError(
            f"{origin}: the splines of psi are no minimax concave penalty (slopes are off by "
            f"{apart:.2g}); train a Ridge of your own instead"
        )
    return inner, outer


def _slopes(coefficients: Tensor, knots: int) -> Tensor:
    """Slopes of a spline between its knots, as its model projects them, on the right half."""
    slopes = (coefficients.diff(dim=1) * (knots - 1) / (2 * RANGE)).clamp(0, 1).squeeze(0)
    slopes[0] = slopes[-1] = 0
    return ((slopes + slopes.flip(0)) / 2)[(knots - 1) // 2 :]
