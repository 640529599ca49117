"""Muon: against the singular value decomposition, and within the engine."""

from __future__ import annotations

import contextlib
from pathlib import Path

import torch

from proxmatch.denoisers import GradientStep, GradientStepConfig
from proxmatch.learning.engine import run
from proxmatch.learning.muon import Muon, is_matrix, orthogonal
from proxmatch.learning.settings import Levels, Optimizer, TrainingSettings
from proxmatch.learning.sources import stream


def test_singular_values_become_about_one_and_vectors_stay() -> None:
    torch.manual_seed(0)
    for shape in ((12, 30), (30, 12)):
        u, _, v = torch.linalg.svd(torch.randn(shape), full_matrices=False)
        values = torch.logspace(-1, 0, 12)
        found = u.T @ orthogonal(u @ values.diag() @ v) @ v.T
        assert (found - found.diag().diag()).abs().max() < 1e-3
        assert found.diag().min() > 0.6
        assert found.diag().max() < 1.3


def test_a_step_has_the_size_of_one_of_adam() -> None:
    weight = torch.nn.Parameter(torch.zeros(32, 40, 3, 3))
    weight.grad = 1e-6 * torch.randn(weight.shape)  # a scale of the gradient does not matter
    Muon([weight], lr=1e-2).step()
    rms = float(weight.detach().square().mean().sqrt())
    assert 0.1e-2 < rms < 0.4e-2  # Adam's is 0.2 to 0.4 of its rate


def test_only_convolutions_inside_a_network_are_matrices() -> None:
    model = GradientStep(GradientStepConfig.scaled(widths=(24, 32)))
    inner = {name for name, p in model.named_parameters() if is_matrix(p)}
    assert "network.head.weight" not in inner  # it reads the image
    assert "network.tail.weight" not in inner
    assert "network.body.0.first.weight" in inner
    assert not any(name.endswith("bias") for name in inner)


def test_a_run_that_is_interrupted_goes_on_with_the_same_momentum(tmp_path: Path) -> None:
    settings = TrainingSettings(
        steps=4,
        batch=2,
        noise=Levels(),
        optimizer=Optimizer(matrices=3e-3),
        averaging=0.5,
        checkpoint_every=2,
    )

    def trained(folder: Path, stop: int | None = None) -> GradientStep:
        torch.manual_seed(0)
        model = GradientStep(GradientStepConfig.scaled(widths=(24, 24)))

        def on_step(step: int, loss: float) -> None:
            if step == stop:
                raise KeyboardInterrupt

        draw = stream(lambda count, generator: torch.rand(count, 3, 8, 8, generator=generator))
        run(model, draw, settings, folder, on_step=on_step)
        return model

    whole = trained(tmp_path / "whole")
    with contextlib.suppress(KeyboardInterrupt):
        trained(tmp_path / "parts", stop=3)
    parts = trained(tmp_path / "parts")
    for name, weight in whole.state_dict().items():
        assert torch.equal(weight, parts.state_dict()[name]), name


def test_a_gradient_too_small_to_be_squared_is_no_harm() -> None:
    weight = torch.nn.Parameter(torch.zeros(24, 24, 1, 1))
    weight.grad = torch.full_like(weight, 1e-30)
    Muon([weight], lr=0.1).step()
    assert bool(weight.isfinite().all())


def test_the_decay_shrinks_the_weights_by_its_rate() -> None:
    weight = torch.nn.Parameter(torch.ones(24, 24, 1, 1))
    weight.grad = torch.zeros_like(weight)
    Muon([weight], lr=0.1, decay=0.5).step()
    assert torch.allclose(weight, torch.full_like(weight, 0.95))
