from __future__ import annotations

import json
import math

import pytest
import torch
from rich.console import Console
from torch import Tensor

import proxmatch as pm
from proxmatch._internal.randomness import generator_of
from proxmatch.baselines import Wiener
from proxmatch.denoisers import LPN, LPNConfig
from proxmatch.diagnosis.mismatch import FLOOR, GAPS, SCORES, Grade, judge
from proxmatch.errors import InputError
from proxmatch.metrics import psnr
from proxmatch.pnp import pnp_pgd
from proxmatch.transforms import Relaxed


@pytest.fixture(scope="module")
def images() -> Tensor:
    return pm.embedded("photographs", 32).test[::30][:4]


def test_with_a_reference_it_is_the_gap_along_the_run(images: Tensor) -> None:
    problem = pm.gaussian_deblurring(32)
    model, reference = (Wiener.fit(images, sigma) for sigma in (0.2, 0.05))
    found = pm.diagnose(model, images, problem, reference, iterations=4, seed=3)
    y = problem.measure(images, seed=3)
    run = pnp_pgd(model, y, problem, reference=reference, truth=images, iterations=4)
    best = pnp_pgd(reference, y, problem, iterations=4).images
    assert run.gap is not None
    assert found.gap == pytest.approx(float(run.gap.mean()))
    assert found.gap_curve == pytest.approx(run.gap.mean(0).tolist())
    assert found.cost == pytest.approx(
        float((psnr(best, images) - psnr(run.images, images)).mean()), abs=1e-4
    )
    assert found.verdict is judge(found.gap, GAPS)
    alone = pm.diagnose(model, images, problem, iterations=4, seed=3)
    assert alone.score == found.score
    assert (alone.gap, alone.cost, alone.gap_curve) == (None, None, None)
    itself = pm.diagnose(reference, images, problem, reference, iterations=4)
    assert (itself.gap, itself.cost, itself.verdict) == (0, 0, Grade.MATCHED)


def test_errors_add_up_as_squares_where_the_conditional_mean_is_known() -> None:
    """On Gaussian images the Wiener filter is the conditional mean: the estimate can be checked."""
    generator = torch.Generator().manual_seed(0)
    white = torch.randn(64, 3, 32, 32, generator=generator)
    draw = Wiener.fit(pm.embedded("photographs", 32).test[:8], 1.0)
    with torch.no_grad():
        gain = draw._gain(white)
        spectrum = (gain / (1 - gain)).sqrt()  # of S, as sigma is 1
        images = draw._mean(white) + draw._filter(white, spectrum)
    sigma = 0.1
    exact = Wiener.fit(images, sigma)
    model = Relaxed(exact, 0.4)
    found = pm.diagnose(model, images, pm.gaussian_deblurring(32), iterations=1)
    unit = torch.randn(images.shape, generator=generator_of(0, "noise"))
    z = images + sigma * unit
    true = float((model(z) - exact(z)).detach().norm() / images.norm())
    squares = math.sqrt(found.error**2 - found.wiener_error**2)
    assert squares == pytest.approx(true, rel=0.05)
    excess = found.error**2 - (FLOOR * found.wiener_error) ** 2
    expected = math.sqrt(max(excess, found.predictable * found.error**2)) * found.activity
    assert found.score == pytest.approx(expected)
    matched = pm.diagnose(exact, images, pm.gaussian_deblurring(32), iterations=1)
    assert matched.residual == pytest.approx(matched.residual_expected, rel=0.02)
    assert found.residual != pytest.approx(found.residual_expected, rel=0.1)


def test_shipped_models_on_images_of_another_domain() -> None:
    images = pm.embedded("photographs").test[::40][:2]
    problem = pm.super_resolution(64)
    wrong, right = (
        pm.diagnose(pm.load(f"lpn-{name}"), images, problem, iterations=3)
        for name in ("histology", "photographs")
    )
    assert wrong.score > 5 * right.score
    assert wrong.verdict is Grade.BADLY
    assert "adapt it with 5 to 25" in wrong.recommendation
    assert wrong.lipschitz_trained == pytest.approx(0.8999)
    assert wrong.denoising < right.denoising - 3
    assert wrong.psnr < right.psnr
    better = wrong.wiener_psnr - wrong.psnr
    assert f"A Wiener filter of these images reconstructs {better:.1f} dB" in wrong.recommendation


@pytest.mark.parametrize("limits", [SCORES, GAPS])
def test_verdicts(limits: tuple[float, float]) -> None:
    assert judge(0.0, limits) is Grade.MATCHED
    assert judge(limits[0], limits) is Grade.MISMATCHED
    assert judge(limits[1], limits) is Grade.BADLY
    assert judge(math.nan, limits) is Grade.BADLY


def test_divergence_is_counted_and_everything_is_json(images: Tensor) -> None:
    model = LPN(LPNConfig(size=8, hidden=4, features=3, strides=(2,)))
    with torch.no_grad():
        for p in model.constrained().values():
            p.mul_(30)
    found = pm.diagnose(model, images, pm.problems.denoising(32), iterations=30)
    assert found.diverged == 4
    assert found.verdict is Grade.BADLY
    told = json.loads(found.to_json())
    assert told["verdict"] == "badly mismatched"
    assert told["denoising_trained"] is None
    console = Console(record=True, width=100)
    console.print(found.table())
    assert "4 of 4" in console.export_text()
    assert found.advice().startswith("badly mismatched: adapt it")


def test_what_does_not_fit(images: Tensor) -> None:
    model = Wiener.fit(images, 0.1)
    with pytest.raises(InputError, match="expected images"):
        pm.diagnose(model, images[:, :1], pm.problems.denoising(32))
    with pytest.raises(InputError, match="must have the shape"):
        pm.diagnose(model, images, pm.problems.denoising(16))
