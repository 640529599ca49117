"""Training inside an alignment: the denoiser learns in the colors it knows.

With A the map of an :class:`~proxmatch.transforms.Aligned` and s its scale,

    |A^{-1} D(A z) - x| = |D(A z) - A x| / s:

to train the aligned denoiser on pairs (z, x) is to train D on (A z, A x), with s times the noise.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from proxmatch.denoisers import ProximalDenoiser
from proxmatch.errors import InputError
from proxmatch.learning.settings import TrainingSettings
from proxmatch.learning.sources import Batch, Source
from proxmatch.transforms import Aligned


def core(denoiser: ProximalDenoiser) -> ProximalDenoiser:
    """The network inside an aligned denoiser, or the network itself.

    Raises:
        InputError: there is none that could be trained.
    """
    if isinstance(denoiser, Aligned):
        return core(denoiser.inner)
    if not denoiser.trainable:
        raise InputError(
            f"{type(denoiser).__name__} cannot be trained; give a network, as it is or aligned, "
            "and choose its strength afterwards"
        )
    return denoiser


def around(denoiser: ProximalDenoiser, network: ProximalDenoiser) -> ProximalDenoiser:
    """The model with another network in place of its own."""
    if isinstance(denoiser, Aligned):
        return Aligned(around(denoiser.inner, network), **denoiser.settings)
    return network


def inside(denoiser: ProximalDenoiser, source: Source) -> Source:
    """A source as the network inside the model sees it."""
    if not isinstance(denoiser, Aligned):
        return source
    enter: Callable[[Tensor], Tensor] = denoiser.enter
    scale = denoiser.scale

    def entered(step: int, settings: TrainingSettings) -> Batch:
        batch = source(step, settings)
        level = None if batch.level is None else scale * batch.level
        return Batch(enter(batch.noisy), enter(batch.clean), batch.keys, level)

    return inside(denoiser.inner, entered)
