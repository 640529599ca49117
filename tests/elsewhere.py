"""Everything on a device that is not there (tests/pretended.py): nothing mixes devices, the numbers
are those of the CPU, and the host seldom waits.

PyTorch takes notice of a device only before its first backward pass, so that these tests have a
process of their own: test_devices.py starts it.
"""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from proxmatch.baselines import Wiener, total_variation
from proxmatch.denoisers import (
    LPN,
    GradientStep,
    GradientStepConfig,
    LPNConfig,
    ProximalDenoiser,
    lipschitz,
)
from proxmatch.denoisers.unet import CompactUNet
from proxmatch.diagnosis import diagnose
from proxmatch.learning import TrainingSettings, adapt
from proxmatch.losses import contractivity_penalty, top_direction
from proxmatch.pnp import pnp_pgd
from proxmatch.problems import gaussian_deblurring, super_resolution
from proxmatch.reconstruction import reconstruct
from proxmatch.transforms import align, choose_strength, colour_statistics
from tests.denoisers.zoo import DENOISERS
from tests.pretended import NAME, Elsewhere, MixedDevicesError, pretended_device, register

register()

SIDE = 16
DEBLURRING = gaussian_deblurring(SIDE, channels=3, iterations=4)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tiny denoisers that nobody trained
        yield


@pytest.fixture
def waits() -> Iterator[Counter[str]]:
    with pretended_device() as seen:
        yield seen


def images(number: int = 2, channels: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    smooth = torch.rand(number, channels, 5, 5, generator=generator)
    return torch.nn.functional.interpolate(smooth, (SIDE, SIDE), mode="bilinear")


def gs() -> GradientStep:
    torch.manual_seed(0)
    model = GradientStep(
        GradientStepConfig(channels=3, network="scaled-unet", widths=(4, 6), blocks=1, sigma=0.1)
    )
    model.record = {"colours": colour_statistics(images(4)).to_json()}
    return model.eval()


def lpn() -> LPN:
    torch.manual_seed(0)
    model = LPN(LPNConfig(size=SIDE, hidden=4, features=4, strides=(2,), sigma=0.1))
    model.record = {"colours": colour_statistics(images(4)).to_json()}
    return model.eval()


def here(value: Any) -> Tensor:
    return (value.inner if isinstance(value, Elsewhere) else value).detach()


def test_the_device_notices_what_is_mixed(waits: Counter[str]) -> None:
    """A seeded defect: a constant that stayed on the CPU."""
    x = images().to(NAME)

    class Forgetful(Wiener):
        def _gain(self, x: Tensor) -> Tensor:
            gain = super()._gain(x)
            return gain * torch.ones(SIDE)

    model = Wiener.fit(images(), 0.1).to(NAME)
    model(x)
    model.__class__ = Forgetful
    with pytest.raises(MixedDevicesError, match=r"aten.mul"):
        model(x)


def test_the_device_notices_what_waits(waits: Counter[str]) -> None:
    x = images().to(NAME)
    assert waits == {"upload": 1}
    float(x.sum()), x[x > 0.5], x.cpu(), bool((x > 0).all()), x.nonzero()
    assert waits["_local_scalar_dense"] + waits["is_nonzero"] >= 2
    assert waits["boolean indexing"] == waits["_to_copy"] == waits["nonzero"] == 1


@pytest.mark.parametrize("name", DENOISERS)
def test_denoisers(name: str) -> None:
    torch.manual_seed(0)
    model = DENOISERS[name]()
    x = images(channels=model.channels)[..., :8, :8].contiguous()
    expected = everything(copy.deepcopy(model), x)
    with pretended_device():
        found = everything(model.to(NAME), x.to(NAME))
    for a, b in zip(expected, found, strict=True):
        assert b.device.type == NAME
        torch.testing.assert_close(here(b), a, rtol=1e-3, atol=1e-4)


def everything(model: ProximalDenoiser, x: Tensor) -> list[Tensor]:
    """All that a denoiser can do."""
    v = x.flip(3)
    value, product = model.linearize(x)
    found = [model(x), model.potential(x), value, product(v)]
    found += [lipschitz(model, x, iterations=3).constant]
    solved = model.inverse(value, max_iterations=4)
    found += [solved.z, solved.residual]
    # Elsewhere it takes jvp of jvp, which ends the process on any device written in Python.
    if isinstance(model, GradientStep) and isinstance(model.network, CompactUNet):
        direction = top_direction(model, x, v, iterations=2)
        found += [contractivity_penalty(model, x, direction, 0.1)]
    model.zero_grad()
    model(x).square().sum().backward()
    return [t.detach() for t in (*found, *(p.grad for p in model.parameters())) if t is not None]


@pytest.mark.parametrize("make", [gs, lpn])
def test_reconstructions(make: Callable[[], ProximalDenoiser], waits: Counter[str]) -> None:
    model, x = make(), images()
    for problem in (DEBLURRING, super_resolution(SIDE, factor=2, kernel_size=5, channels=3, iterations=4)):
        y = problem.measure(x)
        expected = pnp_pgd(y, problem, model, truth=x).reconstruction
        there = problem.to(torch.device(NAME))
        moved = copy.deepcopy(model).to(NAME)
        found = pnp_pgd(y.to(NAME), there, moved, truth=x.to(NAME), reference=moved)
        torch.testing.assert_close(here(found.reconstruction), expected, rtol=1e-4, atol=1e-5)
        assert found.psnr is not None
        assert found.psnr.device.type == NAME
        many = reconstruct(moved, problem, y.to(NAME), sigma=0.1)
        torch.testing.assert_close(many.images[0], expected[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [gs, lpn])
def test_the_jobs(make: Callable[[], ProximalDenoiser], waits: Counter[str]) -> None:
    model, x = make().to(NAME), images(4)
    there, problem = x.to(NAME), DEBLURRING.to(torch.device(NAME))
    assert next(align(model, there).parameters()).device.type == NAME
    tuned = choose_strength(model, problem, there)
    assert tuned.denoiser(there).device.type == NAME
    diagnose(model, there, problem, model)
    y = problem.measure(there)
    for result in (
        adapt(model, measurements=y, problem=problem),
        adapt(model, x, problem=problem, budget=0.1),
        adapt(
            model, x, "mse", problem=problem, settings=TrainingSettings(steps=2, batch=2, noise=0.1)
        ),
    ):
        assert result.model(there).device.type == NAME
    total_variation(0.1, iterations=3)(there, None)
