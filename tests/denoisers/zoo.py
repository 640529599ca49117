"""Small denoisers of every kind: each new one meets the shared tests of test_base.py."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn

from proxmatch.baselines import Wiener
from proxmatch.denoisers import (
    LPN,
    GradientStep,
    GradientStepConfig,
    LPNConfig,
    ProximalDenoiser,
    ScaledLPN,
    ScaledLPNConfig,
    jacobian_spectrum,
)
from proxmatch.denoisers.ridge import Ridge, RidgeConfig
from proxmatch.transforms import Aligned, Blended, Lifted, Relaxed, Symmetrized


def _lpn(**changes: object) -> LPN:
    settings = {"size": 8, "hidden": 6, "features": 5, "strides": (2,), "channels": 2, **changes}
    model = LPN(LPNConfig(**settings))
    with torch.no_grad():  # away from the symmetric start
        for p in model.parameters():
            p += 0.05 * torch.randn_like(p)
    return model


class Own(nn.Module):
    """A network of a user's own class: it returns the noise, and is told the level as (B,)."""

    def __init__(self, channels: int = 2, width: int = 5) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, width, 3, padding=1)
        self.gain = nn.Linear(1, width)
        self.second = nn.Conv2d(width, channels, 3, padding=1)

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        gain = self.gain(sigma[:, None])[:, :, None, None]
        out: Tensor = self.second(torch.tanh(self.first(x) * gain))
        return out


def _contractive(made: GradientStepConfig | GradientStep) -> GradientStep:
    """A gradient-step denoiser with L = 0.4 on random images (it goes with the tail squared)."""
    model = made if isinstance(made, GradientStep) else GradientStep(made)
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(0, 0.15)
        x = 0.5 + 0.5 * torch.randn(4, model.channels, 8, 8)
        found = jacobian_spectrum(model, x, iterations=60).constant.max()
        tail = [layer for layer in model.network.modules() if isinstance(layer, nn.Conv2d)][-1]
        for p in tail.parameters():
            p.mul_((0.4 / found).sqrt())
    return model


def own(model: ProximalDenoiser) -> Own | None:
    """What must be passed to load a denoiser again."""
    core = model.core
    given = isinstance(core, GradientStep) and core.config.network == "given"
    return Own() if given else None


def _scaled_lpn(sigma: float = 0.1) -> ScaledLPN:
    model = ScaledLPN(ScaledLPNConfig(channels=2, direct=(2, 2, 2), hidden=(4, 2, 4), sigma=sigma))
    with torch.no_grad():  # away from the symmetric start
        for p in model.parameters():
            p += 0.05 * torch.randn_like(p)
    return model


def _ridge(**changes: object) -> Ridge:
    settings = {"channels": 2, "sizes": (3,), "filters": 7, "sigma": 0.3, **changes}
    model = Ridge(RidgeConfig.model_validate(settings))
    with torch.no_grad():  # away from the symmetric start
        model.curvature.sub_(1.5)
        for p in model.parameters():
            p += 0.05 * torch.randn_like(p)
    return model


def _wiener() -> Wiener:
    return Wiener.fit(torch.rand(2, 2, 9, 7).cumsum(2) / 9, 0.1)


def _small() -> LPN:
    return _lpn(size=4, unshuffle=1)


def _aligned(inner: ProximalDenoiser) -> Aligned:
    return Aligned(inner, 0.5, [[0.6, -0.8], [0.8, 0.6]], mean=[0.3, 0.6], center=[0.7, 0.5])


@cache
def _one_gs() -> GradientStep:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return _contractive(GradientStepConfig(channels=2, widths=(4, 5)))


DENOISERS: dict[str, Callable[[], ProximalDenoiser]] = {
    "lpn": _lpn,
    "lpn-last-tap": lambda: _lpn(taps="last", unshuffle=1, strides=(2, 1, 2), center=0.0),
    "lpn-sharp": lambda: _lpn(beta=100.0, alpha=0.02),
    "lpn-any-size": lambda: _lpn(size=None),
    "lpn-by-patches": lambda: _lpn(size=4, unshuffle=1, tile_batch=3),
    "gs": lambda: _contractive(GradientStepConfig(channels=2, widths=(4, 5))),
    "gs-padded": lambda: _contractive(GradientStepConfig(channels=2, widths=(3, 4, 5))),
    "lpn-scaled": _scaled_lpn,
    "lpn-scaled-padded": lambda: _scaled_lpn(0.02),
    "gs-scaled": lambda: _contractive(
        GradientStepConfig.scaled(channels=2, widths=(4, 5), sigma=0.3)
    ),
    "gs-dncnn": lambda: _contractive(
        GradientStepConfig(channels=2, network="dncnn", widths=(4,), blocks=3, smooth=3.0)
    ),
    "gs-own": lambda: _contractive(GradientStep.of(Own(), channels=2, residual=True, sigma=0.2)),
    "gs-lifted": lambda: Lifted(
        _contractive(GradientStepConfig.scaled(channels=3, widths=(4, 5), sigma=0.3)), 2
    ),
    "lpn-lifted": lambda: Lifted(
        _lpn(size=4, unshuffle=1, channels=3), 2, low=(-1.0, -0.5), high=(1.0, 1.5)
    ),
    "ridge": _ridge,
    "ridge-layers": lambda: _ridge(sizes=(3, 3), hidden=(3,), rho=0.6, corner=1.0, sigma=0.05),
    "lpn-aligned": lambda: _aligned(_small()),
    "lpn-relaxed": lambda: Relaxed(_small(), 0.6),
    "lpn-symmetrized": lambda: Symmetrized(_small()),
    "lpn-chain": lambda: Relaxed(_aligned(Symmetrized(_small())), 0.3),
    "wiener": _wiener,
    "lpn-blended": lambda: Blended(_small(), _wiener(), 0.3),
    "gs-blended": lambda: Blended(Relaxed(copy.deepcopy(_one_gs()), 0.7), _wiener()),
    "gs-chain": lambda: Symmetrized(_aligned(Relaxed(copy.deepcopy(_one_gs()), 0.7))),
}

#: Spatial size each one is tested at; by patches and padded where it does not fit the network.
SIZES = {
    "lpn-by-patches": (6, 5),
    "lpn-any-size": (7, 10),
    "gs-padded": (7, 6),
    "ridge-layers": (7, 6),
    "lpn-scaled-padded": (7, 10),
    "gs-chain": (4, 6),
    **dict.fromkeys(("lpn-aligned", "lpn-relaxed", "lpn-symmetrized", "lpn-chain"), (4, 4)),
    **dict.fromkeys(("lpn-lifted", "lpn-blended"), (4, 4)),
}


def size(name: str) -> tuple[int, int]:
    return SIZES.get(name, (8, 8))
