from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import deepinv as dinv
import pytest
import torch
from torch import Tensor

import proxmatch as pm
from proxmatch.denoisers import LPN, GradientStep, GradientStepConfig, LPNConfig
from proxmatch.errors import DivergenceWarning, InputError
from proxmatch.pnp import Status, pnp_pgd
from proxmatch.problems import gaussian_deblurring, make_problem
from proxmatch.reconstruction.any_size import placed
from tests.denoisers.zoo import _contractive

STEPS = 4

# Networks of random weights on random pixels: what comes out is suspicious indeed.
pytestmark = [
    pytest.mark.filterwarnings("ignore::proxmatch.errors.SuspiciousWarning"),
    pytest.mark.filterwarnings("ignore::proxmatch.errors.MismatchedPhysicsWarning"),
]


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
        assert Status.DIVERGED not in found.status


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
    assert found.status[0] is not Status.DIVERGED
    assert told[0] == 3
    assert sum(told) < 15


def test_double_precision_is_kept() -> None:
    found = pm.reconstruct(lpn().double(), [torch.rand(3, 9, 9)], "denoising", iterations=1)
    assert found.images[0].dtype == torch.float64


def test_what_does_not_fit() -> None:
    model = lpn()
    with pytest.raises(InputError, match="at least one"):
        pm.reconstruct(model, [], "denoising")
    with pytest.raises(InputError, match="images are tensors"):
        pm.reconstruct(model, [[1.0]], "denoising")
    with pytest.raises(InputError, match="no problem"):
        pm.reconstruct(model, torch.rand(1, 3, 8, 8), "sharpening")
    with pytest.raises(InputError, match="batch"):
        pm.reconstruct(model, torch.rand(1, 3, 8, 8), "denoising", batch=0)
    with pytest.raises(InputError, match="NaN"):
        pm.reconstruct(model, torch.full((1, 3, 8, 8), torch.nan), "denoising")
    with pytest.raises(InputError, match=r"3 channel\(s\), these have 2; lift it"):
        pm.reconstruct(model, torch.rand(1, 2, 8, 8), "denoising")
    with pytest.raises(InputError, match="gray and color apart"):
        pm.reconstruct(model, [torch.rand(1, 8, 8), torch.rand(3, 8, 8)], "denoising")


def test_the_noise_level_reaches_the_denoiser() -> None:
    seen: list[object] = []

    class Told(GradientStep):
        def forward(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
            seen.append(sigma)
            return x.clone()

    told = Told(GradientStepConfig.scaled(channels=3, widths=(4, 6)))
    pm.reconstruct(told, torch.rand(2, 3, 16, 16), "denoising", iterations=2, sigma=0.03)
    assert seen == [0.03, 0.03]
    seen.clear()
    sizes = [torch.rand(3, 16, 16), torch.rand(3, 8, 8), torch.rand(3, 16, 16)]
    pm.reconstruct(told, sizes, "denoising", iterations=1, sigma=[0.03, 0.05, 0.1])
    numbers = [level.tolist() for level in seen if isinstance(level, Tensor)]
    assert numbers == [pytest.approx([0.03, 0.1]), pytest.approx([0.05])]


def test_a_level_that_makes_no_sense_is_refused() -> None:
    y = torch.rand(2, 3, 16, 16)
    one, many = gs(), GradientStep(GradientStepConfig.scaled(channels=3, widths=(4, 6)))
    for level in (0.05, [0.05, 0.1]):
        with pytest.raises(InputError, match="has no noise levels"):
            pm.reconstruct(one, y, "denoising", iterations=1, sigma=level)
    for wrong in (-0.1, float("nan"), "0.1", [0.1] * 3):
        with pytest.raises(InputError, match="noise level"):
            pm.reconstruct(many, y, "denoising", iterations=1, sigma=wrong)


def test_gray_in_gray_out() -> None:
    y = torch.rand(2, 1, 24, 24)
    model = gs()
    found = pm.reconstruct(model, y, "denoising", iterations=STEPS)
    expected = pnp_pgd(
        pm.transforms.Lifted(model), y, make_problem("denoising", 24, channels=1), iterations=STEPS
    )
    torch.testing.assert_close(torch.stack(found.images), expected.images)


def test_pictures_and_arrays(tmp_path: Path) -> None:
    y = torch.rand(1, 3, 16, 16).mul(255).round().div(255)
    pm.save_image(y, tmp_path / "y.png")
    array = y[0].permute(1, 2, 0).numpy()
    model = gs()
    expected = pm.reconstruct(model, y, "denoising", iterations=STEPS).images[0]
    for given in (tmp_path / "y.png", str(tmp_path), array, [y[0]], [array]):
        [found] = pm.reconstruct(model, given, "denoising", iterations=STEPS).images
        torch.testing.assert_close(found, expected)


def test_any_denoiser_reconstructs() -> None:
    network = dinv.models.DRUNet(3, 3, nc=(4, 4, 4, 4), nb=1, pretrained=None)
    y = torch.rand(1, 3, 16, 16)
    problem = make_problem("denoising", 16)
    found = pm.reconstruct(network, y, problem, iterations=2, sigma=0.1)
    with torch.no_grad():
        expected = pnp_pgd(network, y, problem, iterations=2, sigma=0.1)
    torch.testing.assert_close(found.images[0], expected.images[0])


def test_a_problem_goes_to_the_very_device_of_the_denoiser() -> None:
    """Two GPUs are of one type."""
    moves: list[torch.device] = []

    class There:
        device, dtype = "cuda:0", torch.float32

        def to(self, place: torch.device) -> There:
            moves.append(place)
            return self

    for index, expected in ((0, []), (1, [torch.device("cuda", 1)])):
        like = SimpleNamespace(device=torch.device("cuda", index), dtype=torch.float32)
        placed(There(), like)  # type: ignore[arg-type]
        assert moves == expected


def test_a_single_measurement_is_one_and_not_a_batch_of_its_channels() -> None:
    model, problem = gs(), gaussian_deblurring(24)
    y = problem.measure(torch.rand(1, 3, 24, 24))
    expected = pnp_pgd(model, y, problem, iterations=STEPS).images[0]
    assert torch.equal(pnp_pgd(model, y[0], problem, iterations=STEPS).images[0], expected)
    for given in (problem, "deblurring"):
        found = pm.reconstruct(model, y[0], given, iterations=STEPS)
        torch.testing.assert_close(found.images[0], expected)
