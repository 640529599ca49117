"""Any denoiser where a proximal one is expected: what needs a potential raises an error.

A network, a denoiser of deepinv or a plain function can reconstruct, and can be given a strength,
aligned and diagnosed like a :class:`~proxmatch.denoisers.base.ProximalDenoiser`. It has no
potential, inverse, regularizer or symmetric Jacobian. So it has no L and no certificate, and
t L < 1 cannot be ensured: asking for these raises a
:class:`~proxmatch.errors.NotProximalError`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from proxmatch.denoisers.base import Linearization, ProximalDenoiser
from proxmatch.denoisers.given import Function, Given, Told, describe, name_of, outputs
from proxmatch.denoisers.gradient_step import SIGMA
from proxmatch.errors import InputError, NotProximalError

#: Anything that denoises: a proximal denoiser, one of deepinv, a network, a function.
AnyDenoiser = Callable[..., Tensor] | ProximalDenoiser


class PlainDenoiser(ProximalDenoiser):
    """A denoiser without a known potential.

    How it takes the noise level is found out by calling it on small random images.

    Args:
        denoiser: any callable, images ``(B, C, H, W)`` to images; with a noise level or without.
        channels: image channels C.
        told: how it gets the level (:class:`~proxmatch.denoisers.given.GivenConfig`).
        residual: whether it returns the noise.
        multiple: image sides it takes are multiples of this; others are padded. Found out by
            default.
        sigma: the level it gets unless another is given.

    Raises:
        InputError: it cannot be called on such images, or does not return images.
    """

    proximal = False
    always_convex = False

    def __init__(
        self,
        denoiser: Callable[..., Tensor],
        *,
        channels: int = 3,
        told: Told | None = None,
        residual: bool = False,
        multiple: int | None = None,
        sigma: float = SIGMA,
    ) -> None:
        super().__init__(channels, sigma)
        if not callable(denoiser):
            raise InputError(
                f"a denoiser is called with images; {type(denoiser).__name__} cannot be called"
            )
        module = denoiser if isinstance(denoiser, nn.Module) else Function(denoiser)
        self.name = name_of(module)
        config = describe(
            module, channels, told=told, residual=residual, multiple=multiple, differentiable=False
        )
        self.network = Given(module, config)
        self.reads = config.told != "nothing" and not torch.equal(
            *outputs(module, config, channels)
        )
        # The device, for a denoiser that has no weights.
        like = next(module.parameters(), torch.zeros(()))
        self.place = nn.Parameter(torch.zeros((), dtype=like.dtype, device=like.device), False)

    def forward(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """D(x), the shape of x.

        Args:
            x: noisy images, ``(B, C, H, W)``.
            sigma: noise level, if it takes one.
        """
        x = self._check(x)
        level = None
        if self.network.conditional:
            level = self._levels(x, sigma)
            level = level if level.ndim == 4 else level.view(-1, 1, 1, 1)
        height, width = x.shape[-2:]
        bottom, right = (-n % self.network.multiple for n in (height, width))
        if bottom or right:
            x = F.pad(x, (0, right, 0, bottom), mode="replicate")
            if level is not None and level.shape[-1] > 1:
                level = F.pad(level, (0, right, 0, bottom), mode="replicate")
        out: Tensor = self.network(x, level)
        return out[..., :height, :width]

    def potential(self, x: Tensor, sigma: float | Tensor | None = None) -> NoReturn:
        """There is none."""
        raise NotProximalError(self._lacking("a potential"))

    def linearize(self, x: Tensor, sigma: float | Tensor | None = None) -> Linearization:
        """Its Jacobian need not be symmetric."""
        raise NotProximalError(self._lacking("a symmetric Jacobian, so no L"))

    def inverse(self, *_: Any, **__: Any) -> NoReturn:
        """It need not have one."""
        raise NotProximalError(self._lacking("an inverse"))

    def convexity(self, sigma: float | None = None) -> NoReturn:
        """There is no h."""
        raise NotProximalError(self._lacking("a convex potential"))

    @property
    def smoothness(self) -> NoReturn:
        """There is no L_H."""
        raise NotProximalError(self._lacking("L_H"))

    @property
    def conditional(self) -> bool:
        """Whether its output depends on the noise level."""
        return self.reads

    @property
    def maps(self) -> bool:
        """Whether the noise level may differ between pixels."""
        return self.network.maps

    def _lacking(self, what: str) -> str:
        return (
            f"{self.name} is not known to be a proximal map and does not have {what}; make it one "
            "with GradientStep.of(network, smooth=True)"
        )


def as_denoiser(denoiser: Any, channels: int | None = None) -> ProximalDenoiser:
    """A proximal denoiser as it is, anything else that denoises as a :class:`PlainDenoiser`.

    Args:
        denoiser: D.
        channels: of the images that it is used on, if they are known; otherwise 3, or as many as
            it takes.

    Raises:
        InputError: it is not a denoiser.

    Example:
        >>> half = as_denoiser(lambda x: x / 2)
        >>> half(torch.ones(1, 3, 2, 2)).mean().item(), half.proximal
        (0.5, False)
    """
    if isinstance(denoiser, ProximalDenoiser):
        return denoiser
    if isinstance(denoiser, str):
        raise InputError(
            f"a denoiser is expected, got the text {denoiser!r}; pass load({denoiser!r})"
        )
    first: InputError | None = None
    for number in (3, 1, 2) if channels is None else (channels,):
        try:
            return PlainDenoiser(denoiser, channels=number)
        except InputError as error:
            first = first or error
    raise first or InputError("there is no denoiser")
