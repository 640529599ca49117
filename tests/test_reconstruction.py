from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import proxmatch as pm
from proxmatch.denoisers import LPN, GradientStep, GradientStepConfig, LPNConfig
from proxmatch.errors import DivergenceWarning, InputError
from proxmatch.pnp import Status, pnp_pgd
from proxmatch.problems import gaussian_deblurring, make_problem
from tests.denoisers.zoo import _contractive

STEPS = 4


def gs() -> GradientStep:
    return _contractive(GradientStepConfig(channels=3, widths=(4, 6)))


def lpn() -> LPN:
    return LPN(LPNConfig(channels=3, size=8, hidden=4, features=3, strides=(2,)))


models = pytest.mark.parametrize("make", [gs, lpn])


@models
def test_it_is_pnp_pgd(make: object) -> None:
    model = make()  # type: ignore[operator]
    problem = gaussian_deblurring(24)
    x = torch.rand(3, 3, 24, 24)
    y = problem.measure(x)
    expected = pnp_pgd(model, y, problem, iterations=STEPS).images
    for given in (problem, lambda size: gaussian_deblurring(size), "deblurring"):
        found = pm.reconstruct(model, y, given, iterations=STEPS)
        torch.testing.assert_close(torch.stack(found.images), expected)
        assert found.iterations == (STEPS,) * 3
        assert found.status == (Status.COMPLETED,) * 3


@models
@pytest.mark.parametrize("name", ["deblurring", "super-resolution", "inpainting"])
def test_company_tiles_and_order_change_nothing(make: object, name: str) -> None:
    model = make()  # type: ignore[operator]
    sizes = [(32, 32), (40, 100), (32, 32), (40, 100), (32, 32)]
    options = {"super-resolution": ["factor=2", "kernel_size=5"]}.get(name, [])
    y = []
    for number, size in enumerate(sizes):
        problem = make_problem(name, size, options)
        x = torch.rand(1, 3, *size, generator=torch.Generator().manual_seed(number))
        y.append(problem.measure(x)[0])

    def run(measured: list[Tensor], **how: Any) -> list[Tensor]:
        found = pm.reconstruct(model, measured, name, options=options, iterations=STEPS, **how)
        return list(found.images)

    together = run(y)
    assert [image.shape[1:] for image in together] == [torch.Size(size) for size in sizes]
    for how in ({"batch": 1}, {"batch": 2}, {"tile": 32}):
        for a, b in zip(run(y, **how), together, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-5)
    for a, b in zip(run(y[::-1]), together[::-1], strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)
    assert torch.equal(run(y)[1], together[1])  # the same twice


def test_steps_are_told_and_divergence_is_named() -> None:
    class Expanding(GradientStep):
        def forward(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
            return torch.where(x.mean((1, 2, 3), keepdim=True) > 0.5, 200 * x, x)

    told: list[int] = []
    y = torch.rand(3, 3, 16, 16) * 0.3
    y[1] += 0.6
    model = Expanding(GradientStepConfig(channels=3, widths=(4, 6)))
    with pytest.warns(DivergenceWarning, match=r"\[1\] diverged"):
        found = pm.reconstruct(model, y, "denoising", iterations=5, on_step=told.append)
    assert found.status[1] is Status.DIVERGED
    assert found.status[0] is Status.COMPLETED
    assert told[0] == 3
    assert sum(told) < 15


def test_double_precision_is_kept() -> None:
    found = pm.reconstruct(lpn().double(), [torch.rand(3, 9, 9)], "denoising", iterations=1)
    assert found.images[0].dtype == torch.float64


def test_what_does_not_fit() -> None:
    model = lpn()
    with pytest.raises(InputError, match="at least one"):
        pm.reconstruct(model, [], "denoising")
    with pytest.raises(InputError, match="no tensor"):
        pm.reconstruct(model, [[1.0]], "denoising")  # type: ignore[list-item]
    with pytest.raises(InputError, match="no problem"):
        pm.reconstruct(model, torch.rand(1, 3, 8, 8), "sharpening")
    with pytest.raises(InputError, match="batch"):
        pm.reconstruct(model, torch.rand(1, 3, 8, 8), "denoising", batch=0)
    with pytest.raises(InputError, match="NaN"):
        pm.reconstruct(model, torch.full((1, 3, 8, 8), torch.nan), "denoising")
    with pytest.raises(InputError, match="shape"):
        pm.reconstruct(model, torch.rand(1, 1, 8, 8), "denoising")


def test_the_noise_level_reaches_the_denoiser() -> None:
    seen: list[object] = []

    class Told(GradientStep):
        def forward(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
            seen.append(sigma)
            return x.clone()

    told = Told(GradientStepConfig(channels=3, widths=(4, 6)))
    pm.reconstruct(told, torch.rand(2, 3, 16, 16), "denoising", iterations=2, sigma=0.03)
    assert seen == [0.03, 0.03]
