"""Denoisers of all noise levels: what holds for every weight and every level."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.func import hessian, jvp

from proxmatch.denoisers import (
    GradientStep,
    GradientStepConfig,
    ScaledLPN,
    ScaledLPNConfig,
    scaled_lpn,
)
from proxmatch.denoisers.scaled_lpn import GROWTH, RIGID
from proxmatch.denoisers.unet import ScaledUNet


def small(**changes: object) -> ScaledLPN:
    settings = {"direct": (2, 2, 2), "hidden": (2, 4, 2), **changes}
    return ScaledLPN(ScaledLPNConfig.model_validate(settings))


def dense(model: ScaledLPN, x: torch.Tensor, level: float) -> torch.Tensor:
    """The Hessian of the potential by automatic differentiation, ``(n, n)``."""
    found: torch.Tensor = hessian(lambda v: model.potential(v.view_as(x), level)[0])(x.flatten())
    return found


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), level=st.floats(0.003, 0.3), size=st.floats(0.1, 30.0))
def test_a_scaled_lpn_is_convex_whatever_its_weights(seed: int, level: float, size: float) -> None:
    torch.manual_seed(seed)
    model = small(channels=1).double()
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(0, 0.5)  # nonnegative weights too: they are used as max(w, 0)
    x = 0.5 + size * torch.randn(1, 1, 5, 6, dtype=torch.float64)
    spectrum = torch.linalg.eigvalsh(dense(model, x, level).detach())
    alpha = float(model.config.convexity(torch.tensor(level, dtype=torch.float64)))
    assert float(spectrum[0]) >= alpha * (1 - 1e-9)
    assert model.convexity(level) == pytest.approx(alpha)


def test_the_written_out_gradient_is_that_of_the_potential() -> None:
    torch.manual_seed(0)
    model = small().double()
    with torch.no_grad():
        for p in model.parameters():
            p += 0.3 * torch.randn_like(p)
    x = torch.rand(2, 3, 9, 14, dtype=torch.float64, requires_grad=True)
    level = torch.tensor([0.02, 0.2], dtype=torch.float64)
    (by_autograd,) = torch.autograd.grad(model.potential(x, level).sum(), x)
    assert torch.allclose(model(x, level), by_autograd, rtol=1e-10, atol=1e-12)


def test_without_a_gradient_a_few_rows_at_a_time_give_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    model = small().double()
    x = torch.rand(2, 3, 26, 14, dtype=torch.float64)
    whole = model(x, 0.1)
    heights = []
    rows = scaled_lpn._rows

    def watched(width: int, number: int) -> int:
        heights.append(rows(width, number))
        return heights[-1]

    monkeypatch.setattr(scaled_lpn, "BLOCK", 100)
    monkeypatch.setattr(scaled_lpn, "_rows", watched)
    with torch.no_grad():
        assert torch.allclose(model(x, 0.1), whole, rtol=1e-12)
    assert max(heights) < 4


def test_alpha_goes_to_one_as_the_level_goes_to_zero() -> None:
    config = ScaledLPNConfig()
    levels = torch.tensor([1e-4, 0.01, 0.1, 10.0])
    found = config.convexity(levels)
    assert found[0] > 0.999
    assert found[1] == pytest.approx(config.alpha + (1 - config.alpha) / 2)
    assert found[3] == pytest.approx(config.alpha, rel=1e-4)
    assert bool((found.diff() < 0).all())


def test_the_cosines_it_starts_from_are_a_tight_frame() -> None:
    """Without thresholds and deep layers, grad psi is the identity up to the edge of the image."""
    torch.manual_seed(0)
    model = ScaledLPN(ScaledLPNConfig(channels=1)).double()
    with torch.no_grad():
        for tap in (*model.tap.values(), *model.back):
            tap[0] = -40
        model.filters["edges_0"] /= 0.97**0.5
        model.bias["edges_0"][0] = -40
    z = torch.randn(1, 1, 16, 24, dtype=torch.float64)
    assert torch.allclose(model.convex_gradient(z, torch.full((1,), 0.05).double()), z, atol=1e-5)


def test_an_lpn_with_squares_passes_any_edge() -> None:
    """Far from the center D grows as its input does: it is not bounded."""
    torch.manual_seed(0)
    model = small(channels=1, direct=(6, 6, 6))
    x = torch.randn(1, 1, 16, 16)
    near, far = (model(0.5 + size * x, 0.01) - 0.5 for size in (1e2, 1e4))
    assert float((far / near).median()) == pytest.approx(100, rel=0.05)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), level=st.floats(0.003, 0.3))
def test_far_out_d_grows_by_no_more_than_its_bound(seed: int, level: float) -> None:
    """The Hessian far from the center, dense, against the bound from the weights."""
    torch.manual_seed(seed)
    model = small(channels=1, direct=(8, 2, 2)).double()
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(0, 0.5)
    far = 0.5 + 1e6 * torch.randn(1, 1, 8, 16, dtype=torch.float64)
    largest = float(torch.linalg.eigvalsh(dense(model, far, level).detach())[-1])
    alpha = model.convexity(level)
    assert largest <= (alpha + (1 - alpha) * model.growth()) * (1 + 1e-9)


def test_after_a_step_d_grows_more_slowly_than_its_input() -> None:
    torch.manual_seed(0)
    model = small(channels=1, direct=(8, 2, 2)).double()
    with torch.no_grad():
        model.filters["edges_0"][:2] *= 3.0
    assert model.growth() > 2
    before = model.filters["edges_0"].flatten(1) / RIGID
    left, values, right = torch.linalg.svd(before, full_matrices=False)
    model.project_()
    assert 0.9 < model.growth() < 1
    cut = left @ torch.diag(values.clamp(max=GROWTH**0.5)) @ right
    assert torch.allclose(model.filters["edges_0"].flatten(1) / RIGID, cut)


@pytest.mark.parametrize("kind", ["gs", "lpn"])
def test_the_level_is_a_unit_of_length_but_for_the_level_channel(kind: str) -> None:
    """With the level's own channel off, D_{cs}(m + c v) = m + c (D_s(m + v) - m)."""
    torch.manual_seed(0)
    if kind == "gs":
        model: GradientStep | ScaledLPN = GradientStep(GradientStepConfig.scaled(widths=(4, 6)))
        assert isinstance(model, GradientStep)
        with torch.no_grad():
            model.network.get_submodule("head").get_parameter("weight")[:, -1] = 0
    else:
        model = small(alpha=0.1, knee=1e-9)
        with torch.no_grad():
            for part in (model.bias, model.gain, model.tap, model.back):
                for p in part.parameters():
                    p[1:] = 0
    model.double()
    v = torch.randn(1, 3, 16, 16, dtype=torch.float64)
    one = model(0.5 + 0.1 * v, 0.05) - 0.5
    two = model(0.5 + 0.2 * v, 0.1) - 0.5
    assert torch.allclose(two, 2 * one, rtol=1e-6, atol=1e-8)


def test_a_level_for_each_image_is_that_of_one_by_one() -> None:
    torch.manual_seed(0)
    for model in (
        GradientStep(GradientStepConfig.scaled(widths=(4, 6))),
        small(),
    ):
        x, levels = torch.rand(3, 3, 16, 24), torch.tensor([0.01, 0.05, 0.2])
        together = model(x, levels)
        for i, level in enumerate(levels):
            assert torch.allclose(together[i : i + 1], model(x[i : i + 1], float(level)), atol=1e-6)


def test_a_map_of_equal_levels_is_that_level() -> None:
    torch.manual_seed(0)
    network = ScaledUNet(widths=(4, 6))
    x = torch.rand(2, 3, 16, 16)
    level = torch.full((2, 1, 1, 1), 0.07)
    assert torch.allclose(network(x, level), network(x, level.expand(2, 1, 16, 16)), atol=1e-6)


@torch.no_grad()
def test_without_a_graph_forward_derivatives_are_still_followed() -> None:
    torch.manual_seed(0)
    denoiser = ScaledLPN(ScaledLPNConfig(channels=1, sigma=0.1)).double()
    x, v = torch.rand(2, 1, 1, 24, 16, dtype=torch.float64)
    _, found = jvp(denoiser, (x,), (v,))
    torch.testing.assert_close(found, denoiser.linearize(x)[1](v))
