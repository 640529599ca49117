from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, strategies as st
from pydantic import ValidationError
from torch import Tensor

from proxmatch.denoisers import LPN, LPNConfig
from proxmatch.denoisers.patches import patch_gradient, tilings
from tests.denoisers.zoo import DENOISERS


def official_potential(state: dict[str, Tensor], x: Tensor, beta: float, alpha: float) -> Tensor:
    """The published lpn_128, written as its layout says; its alpha multiplies |x|^2."""

    def act(a: Tensor) -> Tensor:
        return F.softplus(a, beta=beta)

    def resized(n: int) -> Tensor:
        return F.interpolate(x, (n, n), mode="bilinear", align_corners=False, antialias=False)

    full = x.shape[-1]
    strides, sides = [2, 1, 2, 1, 2], [full, full // 2, full // 2, full // 4, full // 4]
    y = act(F.conv2d(x, state["lin.0.weight"], state["lin.0.bias"], padding=1))
    for i, (s, n) in enumerate(zip(strides, sides, strict=True), start=1):
        skip = F.conv2d(
            resized(n), state[f"res.{i - 1}.weight"], state[f"res.{i - 1}.bias"], s, padding=1
        )
        y = act(F.conv2d(y, state[f"lin.{i}.weight"], None, s, padding=1) + skip)
    skip = F.conv2d(resized(full // 8), state["res.5.weight"], state["res.5.bias"])
    y = act(F.conv2d(y, state["lin.6.weight"]) + skip)
    top = F.linear(y.mean((2, 3)), state["lin.7.weight"], state["lin.7.bias"])
    return top[:, 0] + alpha * (x**2).flatten(1).sum(1)


def official_state(hidden: int, top: int = 16) -> dict[str, Tensor]:
    """Random weights under the published names, the constrained ones exp(N) as in that code."""
    state = {
        "lin.0.weight": torch.randn(hidden, 3, 3, 3) / 5,
        "lin.0.bias": torch.randn(hidden) / 10,
        "lin.6.weight": torch.exp(torch.randn(64, hidden, top, top) * 0.5 - 9.5),
        "lin.7.weight": torch.exp(torch.randn(1, 64) * 0.5 - 1.0),
        "lin.7.bias": torch.randn(1),
        "res.5.weight": torch.randn(64, 3, top, top) / 27,
        "res.5.bias": torch.randn(64) / 10,
    }
    for i in range(1, 6):
        state[f"lin.{i}.weight"] = torch.exp(torch.randn(hidden, hidden, 3, 3) * 0.5 - 6)
        state[f"res.{i - 1}.weight"] = torch.randn(hidden, 3, 3, 3) / 5
        state[f"res.{i - 1}.bias"] = torch.randn(hidden) / 10
    return state


def test_the_official_network_is_one_setting() -> None:
    state = official_state(hidden=32)
    model = LPN(LPNConfig.official(hidden=32))
    model.load_state_dict(state)
    x = torch.rand(2, 3, 128, 128, requires_grad=True)
    potential = official_potential(state, x, beta=100.0, alpha=1e-6)
    (expected,) = torch.autograd.grad(potential.sum(), x)
    with torch.no_grad():
        assert torch.allclose(model.potential(x), potential, rtol=1e-5)
        assert (model(x) - expected).norm() <= 1e-5 * expected.norm()
    assert model.smoothness == pytest.approx(1 / 2e-6)


def test_compact_network_has_the_stated_size() -> None:
    assert sum(p.numel() for p in LPN().parameters()) == 222_081


@pytest.mark.parametrize("name", ["lpn", "lpn-any-size", "lpn-by-patches"])
@pytest.mark.parametrize("rate", [1e-2, 1.0])
def test_convexity_survives_any_optimizer_step(name: str, rate: float) -> None:
    """Even absurd steps, without projection, leave the midpoint inequality and alpha intact."""
    model = DENOISERS[name]().double()
    assert isinstance(model, LPN)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(5):
        x = torch.rand(2, 2, 8, 8, dtype=torch.float64)
        loss = (model(x) - x.flip(-1)).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert any(bool((p < 0).any()) for p in model.constrained().values())  # it was pushed there
    a, b = (torch.randn(8, 2, 8, 8, dtype=torch.float64) for _ in range(2))
    with torch.no_grad():
        middle = model.potential((a + b) / 2)
        mean = (model.potential(a) + model.potential(b)) / 2
        quarter = model.config.alpha / 8 * (a - b).flatten(1).square().sum(1)
    assert bool((middle + quarter <= mean + 1e-9 * mean.abs()).all())


def test_projection_changes_nothing_but_the_stored_numbers() -> None:
    model = DENOISERS["lpn"]()
    assert isinstance(model, LPN)
    with torch.no_grad():
        for p in model.constrained().values():
            p -= 0.02
    x = torch.rand(1, 2, 8, 8)
    before = model(x)
    model.project_()
    assert torch.equal(model(x), before)
    assert all(bool((p >= 0).all()) for p in model.constrained().values())


def test_a_weight_at_zero_can_come_back_but_not_go_below() -> None:
    model = DENOISERS["lpn"]()
    assert isinstance(model, LPN)
    tap = model.tap[0]
    with torch.no_grad():
        tap.fill_(-0.1)
    x = torch.rand(2, 2, 8, 8)
    model(x).square().sum().backward()  # wants smaller outputs: pushes the taps down
    up = tap.grad.clone()
    tap.grad = None
    (-model(x).square().sum()).backward()
    assert bool((up <= 0).all())
    assert bool((tap.grad <= 0).all())
    assert bool((tap.grad < 0).any())


@given(length=st.integers(1, 40), size=st.sampled_from([1, 2, 4, 6, 8, 12, 16]))
def test_tilings_cover_every_pixel_with_weight_one(length: int, size: int) -> None:
    indices, contrasts, weights = tilings(length, size)
    cover = torch.zeros(length, dtype=torch.float64)
    for index, contrast, weight in zip(indices, contrasts, weights, strict=True):
        assert len(index) == len(contrast) == size
        part = weight * torch.tensor(contrast, dtype=torch.float64).square()
        cover.index_add_(0, torch.tensor(index), part)
    assert torch.allclose(cover, torch.ones_like(cover), atol=1e-12)


@given(length=st.integers(9, 200), size=st.sampled_from([2, 6, 8]))
def test_a_pixel_less_takes_no_more_patches(length: int, size: int) -> None:
    """Where the widths of strips had to divide the size, 127 pixels took 8 times those of 128."""
    multiple = -(-length // size) * size
    assert len(tilings(length, size)[0]) <= len(tilings(multiple, size)[0])


def test_patches_of_the_identity_make_the_identity() -> None:
    x = torch.rand(3, 2, 11, 9, dtype=torch.float64)
    assert torch.allclose(patch_gradient(x, 4, lambda patches: patches, 5), x, atol=1e-12)


@pytest.mark.parametrize("batch", [1, 3])
def test_tile_batch_bounds_memory_and_changes_nothing(batch: int) -> None:
    seen: list[int] = []
    small = LPN(LPNConfig(size=8, hidden=4, channels=1, tile_batch=2)).double()
    large = LPN(small.config.model_copy(update={"tile_batch": 1000})).double()
    large.load_state_dict(small.state_dict())
    x = torch.rand(batch, 1, 21, 30, dtype=torch.float64)
    enter = small._enter

    def spy(patches: Tensor) -> tuple[Tensor, tuple[int, int]]:
        seen.append(len(patches))
        return enter(patches)

    small._enter = spy  # type: ignore[method-assign]
    assert torch.allclose(small(x), large(x), atol=1e-12)
    assert max(seen) == 2


def test_any_size_network_is_translation_covariant_inside() -> None:
    model = LPN(LPNConfig.any_size(channels=1, hidden=4)).double()
    x = torch.rand(1, 1, 96, 96, dtype=torch.float64)
    shifted = x.roll((8, 16), (2, 3))  # multiples of unshuffle x strides
    a, b = model(x).roll((8, 16), (2, 3)), model(shifted)
    assert torch.allclose(a[..., 40:60, 40:60], b[..., 40:60, 40:60], atol=1e-12)


def test_starts_near_the_identity_on_smooth_images() -> None:
    x = F.interpolate(torch.rand(4, 3, 9, 9), size=(64, 64), mode="bilinear")
    with torch.no_grad():
        error = (LPN()(x) - x).square().mean()
    assert error < 0.4 * (x - 0.5).square().mean()


@pytest.mark.parametrize(
    "settings", [{"alpha": 0.0}, {"alpha": 1.0}, {"size": 30}, {"strides": (3,)}, {"color": 1}]
)
def test_impossible_layouts_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        LPNConfig(**settings)  # type: ignore[arg-type]
