r"""Denoisers that are proximal maps by construction: D_s = prox of R_s, R_s explicit.

    R_s(u) = sum_k <1, psi_{s,k}(w_k * u)>

The filters w_k together have norm at most one as an operator (:mod:`.filters`), and psi'' is at
least -rho with rho < 1 (:mod:`.profile`), so that R_s(u) + |u - z|^2 / 2 is strongly convex. D_s(z)
exists and is unique for all weights, on images of all sizes (:mod:`.proximal`). Goujon, Neumayer
and Unser, *Learning weakly convex regularizers for convergent image-reconstruction algorithms*
(SIAM J. Imaging Sci., 2024), call it a weakly convex ridge regularizer.

The inverse D_s^{-1}(u) = u + grad R_s(u) and R_s itself have closed forms here, where other
families have to solve for them. D_s, which has a closed form there, is solved for here. D_s^{-1} is
(1 + m_s)-Lipschitz, m_s the largest curvature of psi.

**The level s** enters as in the paper, psi_{s,k}(x) = psi_s(a x) / a^2 with a scale a = a_k(s) / s
of each filter, and through the curvature m_s. The logarithms of a_k and m are linear in s between
nodes.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn

from proxmatch.denoisers.base import Linearization, ProximalDenoiser, Reader, Recipe
from proxmatch.denoisers.inverse import Inverse
from proxmatch.denoisers.levels import Level
from proxmatch.denoisers.ridge.filters import composed, normalized
from proxmatch.denoisers.ridge.profile import Profile
from proxmatch.denoisers.ridge.proximal import Regularizer, derivative, proximal
from proxmatch.denoisers.ridge.published_weights import wcrr
from proxmatch.errors import InputError


class RidgeConfig(BaseModel):
    """How a ridge regularizer is laid out.

    Attributes:
        channels: image channels.
        sizes: sides of the convolutions that make up the filters, one after the other; odd.
        hidden: channels between them.
        filters: number of filters K; as many as there are :func:`waves` by default.
        rho: bound on the concavity of psi.
        corner: how far its corners are rounded (:mod:`.profile`).
        nodes: noise levels at which scales, curvature and tail are given; constant beyond.
        sigma: noise level it is evaluated at unless told otherwise.
        levels: smallest and largest noise level of the training.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    channels: int = Field(3, ge=1)
    sizes: tuple[Annotated[int, Field(ge=3, le=31)], ...] = Field((7,), min_length=1)
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = ()
    filters: int | None = Field(None, ge=1)
    rho: float = Field(0.95, ge=0, lt=1)
    corner: float = Field(0.5, gt=0, le=1)
    nodes: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...] = Field(
        (0.003, 0.015, 0.05, 0.1, 0.25), min_length=2
    )
    sigma: Level | None = None
    levels: tuple[Level, Level] | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if any(size % 2 == 0 for size in self.sizes):
            raise ValueError(f"sizes: sides of filters are odd, not {self.sizes}")
        if len(self.hidden) != len(self.sizes) - 1:
            raise ValueError(
                f"hidden: {len(self.sizes)} convolutions have {len(self.sizes) - 1} layers between "
                f"them, not {len(self.hidden)}"
            )
        if sorted(set(self.nodes)) != list(self.nodes):
            raise ValueError("nodes: the levels must increase")
        return self

    @property
    def number(self) -> int:
        """K."""
        return self.filters or len(waves(self.channels, self.sizes[0]))


class Ridge(ProximalDenoiser):
    """The proximal map of a weakly convex ridge regularizer, for every noise level.

    It has no reach: through the minimization each pixel depends on all others, less and less with
    distance. Where ``mixed`` is set, as in a training, the minimization stops
    earlier (:mod:`.proximal`).

    Args:
        config: the layout.

    Attributes:
        layers: the convolutions of the filters, before these are brought to norm one.
        scale: log a_k at the nodes, ``(J, K)``.
        curvature: log m at the nodes, ``(J,)``.
        tail: t at the nodes, ``(J,)``, used as max(t, 0).
    """

    trainable = True
    solved = True
    mixable = True
    recipe = Recipe(clip=1.0, rate=2e-3)
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "ridge": {
            "model": RidgeConfig(levels=(0.003, 0.25), sigma=0.05),
            "size": 64,
            "settings": {
                "noise": {"low": 0.003, "high": 0.25},
                "steps": 2_000,
                "batch": 4,
                "optimizer": {"rate": 5e-3, "warmup": 50, "final": 0.02, "clip": 0.3},
                "averaging": 0.995,
                "mixed": True,
            },
        }
    }
    published: ClassVar[dict[str, Reader]] = {"wcrr": wcrr}
    config: RidgeConfig

    def __init__(self, config: RidgeConfig | None = None) -> None:
        config = config or RidgeConfig()
        super().__init__(config.channels, config.sigma)
        self.config = config
        widths = (config.channels, *config.hidden, config.number)
        self.layers = nn.ParameterList(
            torch.empty(out, into, size, size)
            for into, out, size in zip(widths, widths[1:], config.sizes, strict=False)
        )
        nodes = len(config.nodes)
        self.scale = nn.Parameter(torch.zeros(nodes, config.number))
        self.curvature = nn.Parameter(torch.zeros(nodes))
        self.tail = nn.Parameter(torch.zeros(nodes))
        if not self.scale.is_meta:
            initialize(self)

    def constrained(self) -> dict[str, nn.Parameter]:
        """The tail, which must not be negative: large responses must not grow."""
        return {"tail": self.tail}

    def kernel(self) -> Tensor:
        """The filters w_k, ``(K, C, n, n)``: without response to constants, of norm at most one."""
        first, *others = self.layers
        return normalized(composed([first - first.mean((2, 3), keepdim=True), *others]))

    def forward(
        self, x: Tensor, sigma: float | Tensor | None = None, guess: Tensor | None = None
    ) -> Tensor:
        """D_s(x) = argmin R_s(u) + |u - x|^2 / 2, the shape of x; the search starts at a guess."""
        x = self._check(x)
        level = self._levels(x, sigma)
        keep = torch.is_grad_enabled() and (
            x.requires_grad or any(p.requires_grad for p in self.parameters())
        )
        with torch.inference_mode(False), torch.set_grad_enabled(keep):
            z = x if keep else x.detach().clone()
            start = None if guess is None else self._check(guess).detach().clone()
            return proximal(self._at(level), z, start, rough=self.mixed)

    def near(self, x: Tensor, guess: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """D_s(x), found from a point near it."""
        return self.forward(x, sigma, guess)

    def potential(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """h_s(x) = |x|^2 / 2 less the Moreau envelope of R_s, ``(B,)``."""
        return self.potential_at(x, self.forward(x, sigma), sigma)

    def potential_at(self, x: Tensor, value: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """h_s(x), ``(B,)``, from D_s(x)."""
        regularizer = self._at(self._levels(x, sigma))
        return ((x - value / 2) * value).flatten(1).sum(1) - regularizer.value(value)

    def linearize(self, x: Tensor, sigma: float | Tensor | None = None) -> Linearization:
        """D_s(x) and v -> (Id + Hess R_s(D_s(x)))^{-1} v, by conjugate gradients."""
        x = self._check(x)
        level = self._levels(x, sigma)
        with torch.inference_mode(False), torch.no_grad():
            regularizer = self._at(level)
            u = proximal(regularizer, x.detach().clone())

        def jacobian(v: Tensor) -> Tensor:
            with torch.inference_mode(False), torch.no_grad():
                return derivative(regularizer, u, v.detach().clone())

        return u, jacobian

    def regularizer(
        self,
        u: Tensor,
        sigma: float | Tensor | None = None,
        *,
        inverse: Inverse | None = None,
    ) -> Tensor:
        """R_s(u), ``(B,)``, from its definition; the inverse is not needed."""
        u = self._check(u).detach()
        if inverse is not None and inverse.z.shape != u.shape:
            raise InputError(
                f"the inverse has shape {tuple(inverse.z.shape)}, u has {tuple(u.shape)}"
            )
        with torch.no_grad():
            return self._at(self._levels(u, sigma)).value(u)

    def regularizer_grad(self, u: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """Grad R_s(u), the shape of u."""
        u = self._check(u).detach()
        with torch.no_grad():
            return self._at(self._levels(u, sigma)).gradient(u)

    def convexity(self, sigma: float | None = None) -> float:
        """1 / (1 + m_s): a lower bound of the eigenvalues of J_D."""
        own = self.curvature.detach().double()
        level = self._levels(own.new_zeros(1, self.channels, 1, 1), sigma)
        return 1 / (1 + float((self._weights(level) @ own).exp()))

    @property
    def smoothness(self) -> float:
        """L_H = 1 + m_s at the denoiser's own level."""
        return 1.0 / self.convexity()

    @property
    def conditional(self) -> bool:
        """It takes the noise level."""
        return True

    def _preimage(self, u: Tensor, sigma: float | Tensor | None) -> Tensor:
        """D^{-1}(u) = u + grad R(u)."""
        return u + self._at(self._levels(u, sigma)).gradient(u)

    def _at(self, level: Tensor) -> Regularizer:
        """R_s at the levels of a batch."""
        config, weights = self.config, self._weights(level)
        curvature = (weights @ self.curvature).exp()
        tail = weights @ self.tail.clamp_min(0)
        width = ((config.rho + tail) / (config.rho + curvature)).clamp(1e-6, 1)
        profile = Profile(
            scale=((weights @ self.scale).exp() / level[:, None])[:, :, None, None],
            curvature=curvature.view(-1, 1, 1, 1),
            width=width.view(-1, 1, 1, 1),
            rho=config.rho,
            corner=config.corner,
        )
        return Regularizer(self.kernel(), profile)

    def _weights(self, level: Tensor) -> Tensor:
        """How much each node counts at the levels, ``(B, J)``: linear between two of them."""
        nodes = level.new_tensor(self.config.nodes)
        upper = torch.searchsorted(nodes, level.contiguous()).clamp(1, len(nodes) - 1)
        below, above = nodes[upper - 1], nodes[upper]
        part = ((level - below) / (above - below)).clamp(0, 1)[:, None]
        one_hot = F.one_hot(torch.stack([upper - 1, upper]), len(nodes)).to(level)
        return (1 - part) * one_hot[0] + part * one_hot[1]


#: Curvature and tail of psi at the start of a training.
CURVATURE, TAIL = 30.0, 0.05
#: How many standard deviations of noise psi is curved for, at the start of a training.
REACH = 2.0


@torch.no_grad()
def initialize(denoiser: Ridge) -> None:
    """Draw filters at random, or take cosines if there is one layer; scale psi to their response.

    Cosines on windows are orthonormal, and as filters they are a tight frame: |W u| = |u| but for
    what is smooth. Trained filters remain nearly tight.
    """
    config = denoiser.config
    for layer in denoiser.layers:
        layer.copy_(torch.randn(layer.shape) * layer[0].numel() ** -0.5)
    if not config.hidden:
        atoms = cosines(config.channels, config.sizes[0])[: config.number]
        denoiser.layers[0][: len(atoms)] = atoms
    response = torch.linalg.vector_norm(denoiser.kernel().flatten(1), dim=1)
    denoiser.scale.copy_(-(REACH * response).log().expand_as(denoiser.scale))
    denoiser.curvature.fill_(CURVATURE).log_()
    denoiser.tail.fill_(TAIL)


def waves(channels: int, side: int) -> list[tuple[int, int, int]]:
    """Color and frequencies of the cosines that filters start from, coarse ones first.

    All cosines of gray but the constant one, and for each chroma those up to half the highest
    frequency.
    """
    orders = {
        (q, i, j): (4 if q else 1) * (i * i + j * j)
        for q in range(channels)
        for i in range(side)
        for j in range(side)
    }
    found = [wave for wave, order in orders.items() if 0 < order <= 2 * (side - 1) ** 2]
    return sorted(found, key=lambda wave: orders[wave])


def cosines(channels: int, side: int) -> Tensor:
    """The :func:`waves` as filters of norm one, ``(M, C, side, side)``."""

    def basis(n: int) -> Tensor:
        place = torch.arange(n, dtype=torch.float64)
        rows = torch.cos(torch.pi / n * place[:, None] * (place + 0.5))
        unit: Tensor = rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True)
        return unit

    wave, color = basis(side), basis(channels)
    q, i, j = torch.tensor(waves(channels, side)).T
    return torch.einsum("mc,mx,my->mcxy", color[q], wave[i], wave[j]).float()
