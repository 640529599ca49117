r"""Symmetrization: the mean of a denoiser over the symmetries of the pixel grid.

    D_G(x) = 1/|G| sum_g g^{-1} D(g x) = grad h_G(x),    h_G(x) = 1/|G| sum_g h(g x),

because flips and quarter turns g only move pixels, so that g^{-1} = g^T. J_G is the mean of the
g^T J(g x) g: its smallest eigenvalue is not below the smallest of these, its largest not above the
largest. D_G commutes with every g of the group, which is what a prior without a preferred
direction has to do; it costs |G| evaluations of D.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from proxmatch.denoisers.base import Linearization, ProximalDenoiser
from proxmatch.denoisers.networks import is_map
from proxmatch.errors import InputError
from proxmatch.transforms.transformed import Transformed

Group = Literal["flips", "dihedral"]

#: Quarter turns in each group; its elements are these, each with and without a mirror before it.
_TURNS = {"flips": (0, 2), "dihedral": (0, 1, 2, 3)}


class Symmetrized(Transformed):
    """The mean of g^{-1} D g over a group.

    Args:
        inner: D.
        group: ``flips`` (left to right, top to bottom, both: 4 elements), or ``dihedral`` (with
            quarter turns: 8 elements, for square images).

    Raises:
        InputError: no such group.
    """

    kind = "symmetrized"

    def __init__(self, inner: ProximalDenoiser, group: Group = "flips") -> None:
        super().__init__(inner)
        if group not in get_args(Group):
            raise InputError(f"no group {group!r}; there are {', '.join(get_args(Group))}")
        self.group: Group = group
        self.elements = [(mirror, turns) for mirror in (False, True) for turns in _TURNS[group]]

    @property
    def settings(self) -> dict[str, Any]:
        """The group."""
        return {"group": self.group}

    def forward(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """The mean of g^{-1} D(g x), the shape of x."""
        x = self._square(x)
        parts = [undo(self.inner(do(x, *g), _turned(sigma, *g)), *g) for g in self.elements]
        return self._mean(parts)

    def potential(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """The mean of h(g x), ``(B,)``."""
        x = self._square(x)
        parts = [self.inner.potential(do(x, *g), _turned(sigma, *g)) for g in self.elements]
        return self._mean(parts)

    def linearize(self, x: Tensor, sigma: float | Tensor | None = None) -> Linearization:
        """D_G(x) and v -> the mean of g^{-1} J(g x) g v."""
        x = self._square(x).detach()
        at = [self.inner.linearize(do(x, *g), _turned(sigma, *g)) for g in self.elements]

        def jacobian(v: Tensor) -> Tensor:
            parts = zip(at, self.elements, strict=True)
            return self._mean([undo(product(do(v, *g)), *g) for (_, product), g in parts])

        values = [undo(value, *g) for (value, _), g in zip(at, self.elements, strict=True)]
        return self._mean(values), jacobian

    def _square(self, x: Tensor) -> Tensor:
        """Refuse images whose shape quarter turns would change."""
        x = self._check(x)
        if self.group == "dihedral" and x.shape[-2] != x.shape[-1]:
            raise InputError(
                f"quarter turns need square images, got {x.shape[-2]} x {x.shape[-1]}; take the "
                "group 'flips'"
            )
        return x

    def _mean(self, parts: list[Tensor]) -> Tensor:
        return torch.stack(parts).mean(0)


def do(x: Tensor, mirror: bool, turns: int) -> Tensor:
    """The image g x: x mirrored left to right or not, then turned by quarter turns."""
    return torch.rot90(x.flip(-1) if mirror else x, turns, (-2, -1)).contiguous()


def _turned(sigma: float | Tensor | None, mirror: bool, turns: int) -> float | Tensor | None:
    """The map g s of noise levels s; a level for a whole image stays as it is."""
    return do(sigma, mirror, turns) if isinstance(sigma, Tensor) and is_map(sigma) else sigma


def undo(x: Tensor, mirror: bool, turns: int) -> Tensor:
    """g^{-1} x."""
    x = torch.rot90(x, -turns, (-2, -1))
    return x.flip(-1) if mirror else x
