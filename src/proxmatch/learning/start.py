"""Which denoisers to start from: the named ones, or all that come with proxmatch.

The nearest of several denoisers is the one that removes noise from the images best.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from proxmatch._internal.randomness import generator_of
from proxmatch.denoisers import AnyDenoiser, ProximalDenoiser, load, shipped
from proxmatch.errors import InputError
from proxmatch.metrics import psnr
from proxmatch.transforms.fitting import fitting

#: Noise level at which denoisers are compared.
LEVEL = 0.05

#: What :func:`sources_of` takes.
Sources = (
    AnyDenoiser | str | Path | Sequence[AnyDenoiser | str | Path] | Mapping[str, AnyDenoiser] | None
)


def sources_of(
    given: Sources, channels: int | None = None, device: torch.device | str = "cpu"
) -> dict[str, ProximalDenoiser]:
    """Denoisers by name.

    Args:
        given: a denoiser of any kind, the name or folder of one, several of these, or denoisers by
            name; None for all that come with proxmatch except the slow ones, whose D is solved for.
        channels: of the images. Color denoisers are lifted to gray images. Models that come with
            proxmatch are left out if they do not fit.
        device: for those that are loaded.

    Raises:
        InputError: there is none, or one does not fit.
    """
    if isinstance(given, str | Path):
        given = [given]
    elif callable(given):
        given = {"the denoiser": given}
    if not isinstance(given, Mapping | Sequence | None):
        raise InputError(f"expected a denoiser or the name of one, got {type(given).__name__}")
    named = dict(given) if isinstance(given, Mapping) else {}
    for number, one in enumerate(() if isinstance(given, Mapping) else given or (), 1):
        named[str(one) if isinstance(one, str | Path) else f"denoiser {number}"] = one
    found = {
        name: fitting(load(one, device=device) if isinstance(one, str | Path) else one, channels)
        for name, one in named.items()
    }
    for name in shipped(quick=True) if given is None else ():
        denoiser = load(name, device=device)
        if channels in (denoiser.channels, 1):
            found[name] = fitting(denoiser, channels)
    if not found:
        wanted = "" if channels is None else f" for images of {channels} channel(s)"
        raise InputError(f"there is no denoiser{wanted} to start from; name one")
    if len({denoiser.channels for denoiser in found.values()}) > 1:
        told = ", ".join(f"{name} {denoiser.channels}" for name, denoiser in found.items())
        raise InputError(f"the denoisers take images of different numbers of channels: {told}")
    return found


@torch.no_grad()
def nearest_first(
    sources: Mapping[str, ProximalDenoiser], images: Tensor, *, seed: int = 0
) -> dict[str, float]:
    """PSNR of each denoiser on noisy images at :data:`LEVEL` in dB, the best one first."""
    unit = torch.randn(images.shape, generator=generator_of(seed, "noise")).to(images)
    noisy = images + LEVEL * unit
    found = {name: float(psnr(d(noisy, LEVEL), images).mean()) for name, d in sources.items()}
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))
