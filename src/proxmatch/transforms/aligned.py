r"""Alignment: a denoiser seen through a change of colors.

With the similarity A x = s U (x - m) + c, U orthogonal on the channels of every pixel,

    D' = A^{-1} D A,    that is    D'(x) = U^T (D(s U (x - m) + c) - c) / s + m:

images around the color m are shown to D as images around c, with s times their contrast, and what
D makes of them is taken back. By the chain rule D' = grad h' with

    h'(x) = h(A x) / s^2 + <A^{-1} 0, x>,    J' = U^T J(A x) U,    R'(u) = R(A u) / s^2,

so J' has the eigenvalues of J, D' is a proximal map with the L_H of D, and D'^{-1} = A^{-1} D^{-1}
A. Noise of level sigma reaches D at the level s sigma: a D trained at sigma_0 removes noise of
sigma_0 / s, and s < 1 makes the prior stronger as well as milder in contrast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from proxmatch._internal.constants import constant
from proxmatch.denoisers.base import Linearization, ProximalDenoiser
from proxmatch.denoisers.inverse import Inverse, residual_scale
from proxmatch.errors import InputError
from proxmatch.transforms.transformed import Transformed

ORTHOGONAL = 1e-5  # how far U^T U may be from the identity: what float32 leaves, and more


class Aligned(Transformed):
    """A^{-1} D A with A x = s U (x - m) + c.

    The numbers are kept in float64, whatever the precision of D, and put where the images are.

    Args:
        inner: D.
        scale: s > 0.
        rotation: U, orthogonal, ``(C, C)``; what float32 left inexact is made exact.
        mean: m, the color of the images, ``(C,)``.
        center: c, the color that D sees in its place, ``(C,)``.

    Raises:
        InputError: a shape that does not fit the channels of D, a scale that is not positive, or
            a rotation that is not orthogonal.
    """

    kind = "aligned"

    def __init__(
        self,
        inner: ProximalDenoiser,
        scale: float,
        rotation: Tensor | Sequence[Sequence[float]],
        mean: Tensor | Sequence[float],
        center: Tensor | Sequence[float],
    ) -> None:
        super().__init__(inner)
        if not 0 < scale < float("inf"):
            raise InputError(f"the scale must be positive and finite, got {scale}")
        c = inner.channels
        self.scale = float(scale)
        self.rotation = _orthogonal(_numbers("rotation", rotation, (c, c)))
        self.mean = _numbers("mean", mean, (c,))
        self.center = _numbers("center", center, (c,))

    @property
    def settings(self) -> dict[str, Any]:
        """Scale, rotation, mean and center."""
        return {
            "scale": self.scale,
            "rotation": self.rotation.tolist(),
            "mean": self.mean.tolist(),
            "center": self.center.tolist(),
        }

    @property
    def gain(self) -> float:
        """The noise level that D gets for noise of level one: s."""
        return self.scale

    def enter(self, x: Tensor) -> Tensor:
        """A x = s U (x - m) + c, the shape of x."""
        return _mix(self.scale * self.rotation, x - _color(self.mean, x)) + _color(self.center, x)

    def leave(self, w: Tensor) -> Tensor:
        """A^{-1} w = U^T (w - c) / s + m, the shape of w."""
        back = self.rotation.T / self.scale
        return _mix(back, w - _color(self.center, w)) + _color(self.mean, w)

    def forward(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """A^{-1} D(A x), the shape of x."""
        return self.leave(self.inner(self.enter(self._check(x)), self._level(sigma)))

    def potential(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """h(A x) / s^2 + <A^{-1} 0, x>, ``(B,)``."""
        inner = self.inner.potential(self.enter(self._check(x)), self._level(sigma))
        origin = self.mean - self.rotation.T @ self.center / self.scale
        return inner / self.scale**2 + (x * _color(origin, x)).flatten(1).sum(1)

    def linearize(self, x: Tensor, sigma: float | Tensor | None = None) -> Linearization:
        """D'(x) and v -> U^T J(A x) U v."""
        w, product = self.inner.linearize(self.enter(self._check(x).detach()), self._level(sigma))

        def jacobian(v: Tensor) -> Tensor:
            return _mix(self.rotation.T, product(_mix(self.rotation, v.detach())))

        return self.leave(w), jacobian

    def _solve(
        self,
        u: Tensor,
        sigma: float | Tensor | None,
        start: Tensor,
        tolerance: float,
        max_iterations: int,
    ) -> Inverse:
        """A^{-1} D^{-1}(A u), solved by D."""
        target = self.enter(u)
        # |D(w) - A u| = s |D'(z) - u|: a relative residual of D is this many of ours.
        ratio = residual_scale(target) / (self.scale * residual_scale(u))
        found = self.inner.inverse(
            target,
            self._level(sigma),
            initial=self.enter(start),
            tolerance=tolerance / float(ratio.max()),
            max_iterations=max_iterations,
        )
        residual = found.residual * ratio
        return replace(
            found, z=self.leave(found.z), residual=residual, converged=residual <= tolerance
        )

    def _level(self, sigma: float | Tensor | None) -> float | Tensor | None:
        return None if sigma is None else self.scale * sigma


def _mix(matrix: Tensor, x: Tensor) -> Tensor:
    """A matrix ``(C, C)`` applied to the channels of every pixel of ``(B, C, H, W)``."""
    return torch.einsum("ij,bjhw->bihw", constant(matrix, x), x)


def _color(color: Tensor, x: Tensor) -> Tensor:
    """A color ``(C,)`` as an image like x."""
    return constant(color, x)[:, None, None]


def _numbers(name: str, value: Tensor | Sequence[Any], shape: tuple[int, ...]) -> Tensor:
    numbers = torch.as_tensor(value, dtype=torch.float64, device="cpu").detach().clone()
    if numbers.shape != shape or not bool(numbers.isfinite().all()):
        raise InputError(
            f"the {name} must hold {' x '.join(map(str, shape))} finite numbers for the channels "
            f"of the denoiser, got the shape {tuple(numbers.shape)}"
        )
    return numbers


def _orthogonal(rotation: Tensor) -> Tensor:
    """The given matrix where it is orthogonal to rounding, the nearest one that is otherwise."""
    identity = torch.eye(len(rotation), dtype=torch.float64)
    error = float((rotation.T @ rotation - identity).abs().max())
    if error > ORTHOGONAL:
        raise InputError(
            f"the rotation is not orthogonal: U^T U differs from the identity by {error:.1e}; take "
            "the orthogonal factor of its polar decomposition"
        )
    return rotation if error < 1e-14 else polar(rotation)


def polar(matrix: Tensor) -> Tensor:
    """The orthogonal factor of the polar decomposition, ``(C, C)``: the nearest orthogonal one."""
    left, _, right = torch.linalg.svd(matrix)
    product: Tensor = left @ right
    return product
