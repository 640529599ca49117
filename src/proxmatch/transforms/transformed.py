"""What every transform of a proximal denoiser shares.

A transform takes a denoiser D = grad h and makes another one, whose potential is known exactly
from h. What D has (a convex potential, an inverse, a regularizer, a smoothness constant), it has
too, and transforms can be combined in any order.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from proxmatch.denoisers.base import ProximalDenoiser
from proxmatch.denoisers.wrapped import Wrapped
from proxmatch.errors import InputError, NotContractiveError


class Transformed(Wrapped):
    """A proximal denoiser made of another one, which it holds and does not copy.

    Args:
        inner: D.

    Attributes:
        inner: D.
        record: how the transform was chosen; D keeps its own record.
    """

    #: What a checkpoint calls it.
    kind: ClassVar[str]

    def __init__(self, inner: ProximalDenoiser) -> None:
        if not isinstance(inner, ProximalDenoiser):
            raise InputError(
                f"a transform takes a ProximalDenoiser, got {type(inner).__name__}; make it one "
                "with GradientStep.of(network), or use it without a potential as "
                "PlainDenoiser(network)"
            )
        super().__init__(inner)

    def __repr__(self) -> str:
        told = {k: v for k, v in self.settings.items() if isinstance(v, int | float | str)}
        parts = [
            repr(self.inner),
            *(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in told.items()),
        ]
        return f"{type(self).__name__}({', '.join(parts)})"

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Arguments of the constructor after ``inner``, as JSON values."""

    @property
    def smoothness(self) -> float:
        """L_H = 1 / mu, with mu the :meth:`convexity`."""
        mu = self.convexity()
        if not mu > 0:
            raise NotContractiveError(
                f"the eigenvalues of J are only known to be above {mu:.3f}: this is not known to "
                "be a proximal map and L_H does not exist; weaken it (choose_strength), or adapt "
                "the denoiser with the contractivity penalty"
            )
        return 1 / mu

    @property
    def core(self) -> ProximalDenoiser:
        """The denoiser at the heart of the chain."""
        return self.inner.core

    @property
    def chain(self) -> tuple[ProximalDenoiser, ...]:
        """The transforms around the core, from the inside out, this one last."""
        return (*self.inner.chain, self)

    def with_core(self, core: ProximalDenoiser) -> ProximalDenoiser:
        """The same transforms around another core; itself around its own."""
        inner = self.inner.with_core(core)
        if inner is self.inner:
            return self
        kind: Any = type(self)
        changed: ProximalDenoiser = kind(inner, **self.settings)
        changed.record = self.record
        return changed

    def _why(self) -> str:
        return self.inner._why()
