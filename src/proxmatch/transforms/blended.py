r"""Blending: a convex combination of two proximal maps, which is one again.

    D_w = (1 - w) D + w D' = grad h_w,    h_w = (1 - w) h + w h',    0 < w < 1.

J_w is the same combination of J and J': its eigenvalues are at least (1 - w) mu + w mu', so that
L_H = 1 / ((1 - w) mu + w mu'). Two priors that err in different ways err less together: a network
that has seen other images, and a Wiener filter that has seen few.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from proxmatch.denoisers import checkpoint, families
from proxmatch.denoisers.base import Linearization, ProximalDenoiser
from proxmatch.errors import InputError
from proxmatch.transforms.transformed import Transformed

#: The most weights that the second denoiser may have: it is a setting of the first.
MOST = 10_000


class Blended(Transformed):
    """(1 - w) D + w D'.

    Args:
        inner: D, of any size.
        other: D', a small denoiser without transforms such as a Wiener filter, of as many channels;
            or what :attr:`settings` says of one.
        weight: w, in (0, 1).

    Attributes:
        other: D'.

    Raises:
        InputError: w is not in (0, 1), or D' is too large, of other channels or transformed.
        CheckpointError: settings that do not fit together.
    """

    kind = "blended"

    def __init__(
        self,
        inner: ProximalDenoiser,
        other: ProximalDenoiser | Mapping[str, Any],
        weight: float = 0.5,
    ) -> None:
        super().__init__(inner)
        if not 0 < weight < 1:
            raise InputError(f"the weight must be between 0 and 1, got {weight}")
        second = _made(other, inner) if isinstance(other, Mapping) else other
        if not isinstance(second, ProximalDenoiser):
            raise InputError(f"the second denoiser is no ProximalDenoiser but {second!r}")
        if second.chain or families.name_of(second) is None or _size(second) > MOST:
            raise InputError(
                f"the second denoiser must be of a family, without transforms and of at most "
                f"{MOST:,} weights, such as a Wiener filter; got {second!r}"
            )
        if second.channels != inner.channels:
            raise InputError(
                f"the denoisers have {inner.channels} and {second.channels} channels; they must "
                "have as many"
            )
        self.other, self.weight = second, float(weight)
        self.always_convex = inner.always_convex and second.always_convex
        self.train(inner.training)

    @property
    def settings(self) -> dict[str, Any]:
        """The second denoiser with all its weights, and the weight of it."""
        return {"other": _told(self.other), "weight": self.weight}

    def stronger(self, factor: float) -> ProximalDenoiser:
        """The same with D at ``factor`` times its level, if it has one."""
        find = getattr(self.inner, "stronger", None)
        return self if find is None else Blended(find(factor), self.other, self.weight)

    @property
    def conditional(self) -> bool:
        """Whether one of the two takes the noise level."""
        return self.inner.conditional or self.other.conditional

    def convexity(self, sigma: float | None = None) -> float:
        """The value (1 - w) mu + w mu'."""
        one, other = self.inner.convexity(sigma), self.other.convexity(sigma)
        return (1 - self.weight) * one + self.weight * other

    def forward(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """D_w(x), the shape of x."""
        return self._mean(self.inner(x, sigma), self.other(x, sigma))

    def potential(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """h_w(x), ``(B,)``."""
        return self._mean(self.inner.potential(x, sigma), self.other.potential(x, sigma))

    def linearize(self, x: Tensor, sigma: float | Tensor | None = None) -> Linearization:
        """D_w(x) and v -> (1 - w) J(x) v + w J'(x) v."""
        (value, product), (second, other) = (
            denoiser.linearize(x, sigma) for denoiser in (self.inner, self.other)
        )
        return self._mean(value, second), lambda v: self._mean(product(v), other(v))

    def _mean(self, one: Tensor, other: Tensor) -> Tensor:
        return (1 - self.weight) * one + self.weight * other


def _size(denoiser: ProximalDenoiser) -> int:
    return sum(t.numel() for t in denoiser.state_dict().values())


def _told(denoiser: ProximalDenoiser) -> dict[str, Any]:
    """A small denoiser as JSON values."""
    return {
        "family": families.name_of(denoiser),
        "architecture": denoiser.configuration().model_dump(mode="json"),
        "weights": {name: t.tolist() for name, t in denoiser.state_dict().items()},
    }


def _made(told: Mapping[str, Any], like: ProximalDenoiser) -> ProximalDenoiser:
    """The opposite of :func:`_told`, on the device and in the precision of another denoiser."""
    if set(told) != {"family", "architecture", "weights"}:
        raise InputError("the second denoiser is a family, an architecture and weights")
    config = families.config_of(told["family"]).model_validate(told["architecture"])
    state = {
        str(name): torch.tensor(values, dtype=torch.float64)
        for name, values in dict(told["weights"]).items()
    }
    made = checkpoint.build(config, state, "the second denoiser")
    made.to(next(like.parameters(), torch.empty(0)))
    return made
