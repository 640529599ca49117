from __future__ import annotations

import deepinv
import pytest
import torch
from deepinv.datasets import TensorDataset
from torch import Tensor

from proxmatch.denoisers import GradientStep, GradientStepConfig, jacobian_spectrum
from proxmatch.losses import (
    Constant,
    ContractivityLoss,
    ProximalMatchingLoss,
    contractivity_penalty,
    curvature,
    top_direction,
)
from tests.denoisers.test_base import jacobian
from tests.denoisers.zoo import DENOISERS

NETWORKS = {
    "unet": lambda: DENOISERS["gs"](),
    "unet, padded": lambda: DENOISERS["gs-padded"](),
    "drunet": lambda: GradientStep(
        GradientStepConfig.drunet(channels=2, widths=(3, 3, 4, 4), blocks=1, sigma=0.1)
    ),
}


@pytest.fixture(params=sorted(NETWORKS))
def denoiser(request: pytest.FixtureRequest, _seeded: None) -> GradientStep:
    model = NETWORKS[request.param]().double()
    assert isinstance(model, GradientStep)
    return model


def nested(denoiser: GradientStep, x: Tensor, v: Tensor) -> Tensor:
    """v^T H v by differentiating g twice with autograd, and keeping the graph for a third time."""
    leaf = x.clone().requires_grad_()
    g = leaf - denoiser(leaf)
    (hv,) = torch.autograd.grad(g, leaf, v, create_graph=True)
    return (v * hv).flatten(1).sum(1)


def test_value_and_gradient_equal_nested_autograd(denoiser: GradientStep) -> None:
    x = torch.rand(2, 2, 7, 6, dtype=torch.float64)
    v = torch.randn_like(x)
    scale = v.square().flatten(1).sum(1)
    ours, truth = curvature(denoiser, x, v), nested(denoiser, x, v) / scale
    assert torch.allclose(ours, truth, rtol=1e-9)
    parameters = list(denoiser.parameters())
    for a, b in zip(
        torch.autograd.grad(ours.sum(), parameters, allow_unused=True),
        torch.autograd.grad(truth.sum(), parameters, allow_unused=True),
        strict=True,
    ):
        a = torch.zeros(()) if a is None else a
        b = torch.zeros(()) if b is None else b
        assert (a - b).norm() <= 1e-6 * (1e-9 + b.norm())


def test_the_direction_finds_the_top_of_the_spectrum() -> None:
    denoiser = DENOISERS["gs"]().double()
    assert isinstance(denoiser, GradientStep)
    x = torch.rand(2, 2, 8, 8, dtype=torch.float64)
    v = top_direction(denoiser, x, torch.randn_like(x), iterations=400, shift=0.0)
    assert torch.allclose(v.flatten(1).norm(dim=1), torch.ones(2, dtype=torch.float64))
    expected = jacobian_spectrum(denoiser, x, iterations=128).constant
    assert torch.allclose(curvature(denoiser, x, v).abs().detach(), expected, rtol=1e-3)
    for i in range(2):
        dense = torch.eye(128, dtype=torch.float64) - jacobian(denoiser, x[i : i + 1])
        rayleigh = v[i].flatten() @ dense @ v[i].flatten()
        assert float(curvature(denoiser, x, v)[i]) == pytest.approx(float(rayleigh), rel=1e-9)


def test_a_known_value_saves_an_evaluation() -> None:
    torch.manual_seed(0)
    denoiser = GradientStep(GradientStepConfig(channels=1, widths=(4, 4), sigma=0.1))
    x, start = torch.rand(2, 1, 8, 8), torch.randn(2, 1, 8, 8)
    seen: list[int] = []
    denoiser.register_forward_hook(lambda *_: seen.append(1))
    expected = top_direction(denoiser, x, start, iterations=3)
    assert len(seen) == 4
    value = denoiser(x)
    seen.clear()
    found = top_direction(denoiser, x, start, iterations=3, value=value)
    torch.testing.assert_close(found, expected)
    assert len(seen) == 3


def test_a_kept_direction_beats_a_fresh_one() -> None:
    denoiser = DENOISERS["gs"]().double()
    assert isinstance(denoiser, GradientStep)
    x = torch.rand(1, 2, 8, 8, dtype=torch.float64)
    fresh = top_direction(denoiser, x, torch.randn_like(x), iterations=3, shift=0.0)
    kept = fresh
    for _ in range(5):
        kept = top_direction(denoiser, x, kept, iterations=3, shift=0.0)
    assert float(curvature(denoiser, x, kept)) > float(curvature(denoiser, x, fresh))


def test_the_penalty_is_zero_below_its_limit_and_pulls_down_above() -> None:
    denoiser = DENOISERS["gs"]().double()
    assert isinstance(denoiser, GradientStep)
    x = torch.rand(2, 2, 8, 8, dtype=torch.float64)
    v = top_direction(denoiser, x, torch.randn_like(x), iterations=50, shift=0.0)
    before = curvature(denoiser, x, v).detach()
    assert float(contractivity_penalty(denoiser, x, v, 1.0).max()) == 0
    limit = float(before.min()) / 2
    penalty = contractivity_penalty(denoiser, x, v, limit)
    assert torch.allclose(penalty, (before - limit) ** 2)
    optimizer = torch.optim.SGD(denoiser.parameters(), lr=1e-3 / float(penalty.sum().sqrt()))
    penalty.sum().backward()
    optimizer.step()
    assert bool((curvature(denoiser, x, v).abs() < before).all())


def test_both_losses_work_in_deepinvs_trainer() -> None:
    denoiser = GradientStep(GradientStepConfig(widths=(4, 4), channels=1))
    before = [p.detach().clone() for p in denoiser.parameters()]
    images = torch.rand(4, 1, 16, 16)
    physics = deepinv.physics.Denoising(deepinv.physics.GaussianNoise(0.1))
    loader = torch.utils.data.DataLoader(TensorDataset(x=images), batch_size=2)
    trainer = deepinv.Trainer(
        model=deepinv.models.ArtifactRemoval(denoiser, mode="direct"),
        physics=physics,
        optimizer=torch.optim.Adam(denoiser.parameters(), lr=1e-3),
        train_dataloader=loader,
        epochs=2,
        losses=[
            ProximalMatchingLoss(Constant(gamma=0.2), epochs=2),
            ContractivityLoss(denoiser, limit=0.0, iterations=2),
        ],
        online_measurements=True,
        save_path=None,
        verbose=False,
        show_progress_bar=False,
        plot_images=False,
    )
    trainer.train()
    assert any(not torch.equal(a, b) for a, b in zip(before, denoiser.parameters(), strict=True))
