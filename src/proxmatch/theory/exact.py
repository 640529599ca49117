r"""A known prior as a proximal denoiser of images: every pixel by itself, everything exact.

With E the energy of the prior and R = sigma^2 E,

    D = prox_R,    D^{-1}(u) = u + sigma^2 grad E(u),    J_D(z) = (Id + sigma^2 Hess E(D(z)))^{-1},

so the inverse and the regularizer have closed forms: certificates can be tested where D* is known.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from proxmatch.denoisers import ProximalDenoiser
from proxmatch.denoisers.base import Linearization
from proxmatch.errors import InputError
from proxmatch.theory.known import Prior


class ExactDenoiser(ProximalDenoiser):
    """The MAP denoiser of a known prior, applied to every pixel.

    A prior of dimension one acts on every number of an image; one of dimension d on the d channels
    of every pixel.

    Args:
        prior: E.
        sigma: standard deviation of the noise, in units of the image.
        channels: of the images; the dimension of the prior unless that is one.

    Raises:
        InputError: the posterior has several modes somewhere, so that the map is not continuous.
    """

    def __init__(self, prior: Prior, sigma: float, channels: int | None = None) -> None:
        channels = prior.dimension if channels is None else channels
        if prior.dimension not in (1, channels):
            raise InputError(f"a prior of {prior.dimension} dimensions for {channels} channels")
        if 1 + sigma**2 * prior.curvature_range[0] <= 0:
            raise InputError(
                f"{prior} is not known to have a single posterior mode at sigma = {sigma}; bring "
                "its components closer, widen them, or take a smaller sigma"
            )
        super().__init__(channels, sigma)
        self.prior, self.level = prior, sigma

    def forward(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """D(x), the shape of x, differentiable once; the noise level is the denoiser's own."""
        u, jacobian = self.linearize(x)
        return u + jacobian(x - x.detach()) if x.requires_grad else u

    def potential(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """h(z) = <z, u> - |u|^2 / 2 - R(u) at u = D(z), ``(B,)``: its derivative in z is u."""
        u, _ = self.linearize(x)
        energy = self.prior.energy(self._vectors(u)).view(len(x), -1).sum(1)
        return ((x - u / 2) * u).flatten(1).sum(1) - self.level**2 * energy

    def linearize(self, x: Tensor, sigma: float | Tensor | None = None) -> Linearization:
        """D(x) and v -> (Id + sigma^2 Hess E(D(x)))^{-1} v."""
        u = self.prior.mode(self._vectors(self._check(x).detach()), self.level)
        eye = torch.eye(self.prior.dimension, dtype=x.dtype, device=x.device)
        matrix = eye + self.level**2 * self.prior.curvature(u)

        def jacobian(v: Tensor) -> Tensor:
            return self._images(torch.linalg.solve(matrix, self._vectors(v)[..., None])[..., 0], v)

        return self._images(u, x), jacobian

    @property
    def smoothness(self) -> float:
        """L_H = 1 + sigma^2 sup |Hess E|: infinite where E has a kink."""
        return 1 + self.level**2 * self.prior.curvature_range[1]

    def _preimage(self, u: Tensor, sigma: float | Tensor | None) -> Tensor:
        """D^{-1}(u) = u + sigma^2 grad E(u); where E has a kink, one of the solutions."""
        return u + self.level**2 * self._images(self.prior.slope(self._vectors(u)), u)

    def _why(self) -> str:
        return "the prior has a kink" if math.isinf(self.smoothness) else super()._why()

    def _vectors(self, x: Tensor) -> Tensor:
        """Images as ``(N, d)``."""
        d = self.prior.dimension
        return x.reshape(-1, 1) if d == 1 else x.permute(0, 2, 3, 1).reshape(-1, d)

    def _images(self, vectors: Tensor, like: Tensor) -> Tensor:
        """Back to the shape of ``like``."""
        if self.prior.dimension == 1:
            return vectors.view(like.shape)
        b, c, h, w = like.shape
        return vectors.view(b, h, w, c).permute(0, 3, 1, 2).contiguous()
