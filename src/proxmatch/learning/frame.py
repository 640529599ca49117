"""Training inside an alignment: the denoiser learns in the colours it knows.

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


def core(model: ProximalDenoiser) -> ProximalDenoiser:
    """The network inside an aligned denoiser, or the network itself.

    Raises:
        InputError: there is none that could be trained.
    """
    if isinstance(model, Aligned):
        return core(model.inner)
    if not model.trainable:
        raise InputError(
            f"{type(model).__name__} cannot be trained; give a network, as it is or aligned, and "
            "choose its strength afterwards"
        )
    return model


def around(model: ProximalDenoiser, network: ProximalDenoiser) -> ProximalDenoiser:
    """The model with another network in the place of its own."""
    if isinstance(model, Aligned):
        return Aligned(around(model.inner, network), **model.settings)
    return network


def inside(model: ProximalDenoiser, source: Source) -> Source:
    """A source as the network inside the model sees it."""
    if not isinstance(model, Aligned):
        return source
    enter: Callable[[Tensor], Tensor] = model.enter
    scale = model.scale

    def entered(step: int, settings: TrainingSettings) -> Batch:
        batch = source(step, settings)
        level = None if batch.level is None else scale * batch.level
        return Batch(enter(batch.noisy), enter(batch.clean), batch.keys, level)

    return inside(model.inner, entered)
