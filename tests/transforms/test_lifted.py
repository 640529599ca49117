"""Lifting a color denoiser to gray images and stacks: its algebra, constants and noise level.

That it is an exact proximal map is tested with all other denoisers in tests/denoisers.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from proxmatch.baselines import Identity
from proxmatch.denoisers import (
    LPN,
    GradientStep,
    GradientStepConfig,
    LPNConfig,
    ScaledLPN,
    ScaledLPNConfig,
)
from proxmatch.denoisers.tiles import tiled
from proxmatch.errors import InputError
from proxmatch.transforms import Aligned, Lifted, Relaxed, align, color_statistics, colors_of


def lpn() -> LPN:
    model = LPN(LPNConfig(size=4, unshuffle=1, hidden=6, features=5, strides=(2,), channels=3))
    with torch.no_grad():
        for p in model.parameters():
            p += 0.05 * torch.randn_like(p)
    return model.double()


def gray(count: int = 2, channels: int = 1, side: int = 4) -> Tensor:
    return torch.rand(count, channels, side, side, dtype=torch.float64)


def test_a_gray_image_is_the_mean_over_the_channels() -> None:
    inner, x = lpn(), gray()
    color = inner(torch.cat([x, x, x], 1))
    expected = (color[:, 0:1] + color[:, 1:2] + color[:, 2:3]) / 3
    model = Lifted(inner)
    assert model.channels == 1
    assert torch.allclose(model(x), expected, rtol=1e-12)
    assert torch.allclose(model.potential(x), inner.potential(torch.cat([x, x, x], 1)) / 3)


def test_channels_of_a_stack_are_denoised_by_themselves() -> None:
    inner, x = lpn(), gray(2, 5)
    alone = torch.cat([Lifted(inner)(x[:, c : c + 1]) for c in range(5)], 1)
    assert torch.allclose(Lifted(inner, 5)(x), alone, rtol=1e-12)


def test_real_and_imaginary_parts_are_shown_in_their_range() -> None:
    inner = lpn()
    z = torch.complex(*(2 * gray(2, 2) - 1).unbind(1))  # (2, 4, 4), both parts in [-1, 1]
    x = torch.view_as_real(z).permute(0, 3, 1, 2)
    out = Lifted(inner, 2, low=-1, high=1)(x)
    for part, values in enumerate((z.real, z.imag)):
        expected = 2 * Lifted(inner)((values[:, None] + 1) / 2) - 1
        assert torch.allclose(out[:, part : part + 1], expected, atol=1e-12)
    # The same by an alignment around the lifted denoiser.
    around = Aligned(Lifted(inner, 2), 0.5, torch.eye(2), mean=[0, 0], center=[0.5, 0.5])
    assert torch.allclose(out, around(x), atol=1e-12)
    assert Lifted(inner, 2, low=(0, -0.5), high=(1, 0.5)).scale == 1


def test_eigenvalues_stay_between_those_of_the_color_denoiser() -> None:
    """J_1 = Q^T J Q with an isometry Q, written out densely."""
    inner, x = lpn(), gray(1)
    model = Lifted(inner)

    def dense(of: object, at: Tensor) -> Tensor:
        n = at.numel()
        columns = torch.eye(n, dtype=torch.float64).view(n, *at.shape[1:])
        product = of.linearize(at.expand(n, -1, -1, -1))[1]  # type: ignore[attr-defined]
        return product(columns).view(n, n).T

    spread = torch.cat([torch.eye(16, dtype=torch.float64)] * 3) / 3**0.5
    whole = dense(inner, torch.cat([x, x, x], 1))
    lifted = dense(model, x)
    assert torch.allclose(lifted, spread.T @ whole @ spread, atol=1e-12)
    all_of, ours = torch.linalg.eigvalsh(whole), torch.linalg.eigvalsh(lifted)
    assert all_of[0] <= ours[0] + 1e-12
    assert ours[-1] <= all_of[-1] + 1e-12
    assert model.convexity() == inner.convexity() == inner.config.alpha
    assert ours[0] >= model.convexity()


class Linear(Identity):
    """The best linear denoiser of pixels N(0, a Q Q^T + b (Id - Q Q^T)), Q = (1, 1, 1) / sqrt 3."""

    a, b = 0.5, 0.1

    def forward(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        self.told = torch.as_tensor(sigma if sigma is not None else self.sigma, dtype=x.dtype)
        level = self.told.flatten()[:, None, None, None] if self.told.dim() < 4 else self.told
        mean = x.mean(1, keepdim=True).expand_as(x)
        of_gray = self.a / (self.a + level**2)
        return of_gray * mean + self.b / (self.b + level**2) * (x - mean)


def test_the_best_color_denoiser_is_lifted_to_the_best_gray_one() -> None:
    """Gray pixels x with E x / sqrt(3) of variance a / 3 have the gain (a/3) / (a/3 + sigma^2)."""
    model, sigma, x = Lifted(Linear(3)), 0.2, gray()
    gain = (Linear.a / 3) / (Linear.a / 3 + sigma**2)
    assert torch.allclose(model(x, sigma), gain * x, rtol=1e-9)
    levels = torch.tensor([0.2, 0.4])
    gains = (Linear.a / 3) / (Linear.a / 3 + levels.double() ** 2)
    assert torch.allclose(model(x, levels), gains[:, None, None, None] * x, rtol=1e-6)


def test_noise_levels_follow_their_channels() -> None:
    inner = Linear(3)
    model = Lifted(inner, 2, low=-1, high=1)
    model(gray(3, 2), torch.tensor([0.1, 0.2, 0.3]))
    told = 3**0.5 / 2 * torch.tensor([0.1, 0.1, 0.2, 0.2, 0.3, 0.3])
    assert torch.allclose(inner.told.float(), told)
    levels = torch.rand(3, 1, 4, 4) + 0.1
    model(gray(3, 2), levels)
    assert torch.allclose(inner.told.float(), 3**0.5 / 2 * levels.repeat_interleave(2, 0))
    model.sigma = 0.1
    assert inner.sigma == pytest.approx(0.1 * 3**0.5 / 2)
    assert model.sigma == pytest.approx(0.1)


def test_convexity_is_that_of_the_level_the_inner_denoiser_sees() -> None:
    inner = ScaledLPN(ScaledLPNConfig(channels=3, sigma=0.1, levels=(0.01, 0.2)))
    assert Lifted(inner).convexity(0.05) == pytest.approx(inner.convexity(0.05 * 3**0.5))
    assert Lifted(inner).levels == pytest.approx((0.01 / 3**0.5, 0.2 / 3**0.5))
    aligned = Aligned(inner, 0.5, torch.eye(3), [0.5] * 3, [0.5] * 3)
    assert aligned.convexity(0.1) == pytest.approx(inner.convexity(0.05))


def test_large_images_are_lifted_tile_by_tile() -> None:
    inner = GradientStep(GradientStepConfig(channels=3, widths=(3, 4))).double()
    model = Relaxed(Lifted(inner, 2), 0.5).eval()
    x = torch.rand(1, 2, 90, 40, dtype=torch.float64)
    assert torch.allclose(tiled(model, 33)(x), model(x), atol=1e-12)


@pytest.mark.parametrize(
    ("channels", "low", "high", "message"),
    [
        (0, 0.0, 1.0, "at least one channel"),
        (1, 1.0, 1.0, "less than high"),
        (2, (0.0, 0.0), (1.0, float("inf")), "less than high"),
        (2, 0.0, (1.0, 2.0), "different widths"),
        (2, (0.0, 0.0, 0.0), 1.0, "3 ends of ranges for 2"),
    ],
)
def test_ranges_that_make_no_sense_are_refused(
    channels: int, low: float | Sequence[float], high: float | Sequence[float], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Lifted(Identity(3), channels, low, high)


def test_color_images_are_refused_by_a_lifted_denoiser() -> None:
    with pytest.raises(InputError, match="takes 1 channel"):
        Lifted(lpn())(gray(1, 3))


def test_a_lifted_denoiser_knows_its_gray_values_and_can_be_aligned() -> None:
    inner, colored = lpn(), torch.rand(3, 3, 8, 8, dtype=torch.float64)
    inner.record["colors"] = color_statistics(colored).to_json()
    for low, high in ((0.0, 1.0), (-1.0, 3.0)):
        model = Lifted(inner, low=low, high=high)
        found, wanted = colors_of(model), color_statistics(colored.mean(1, keepdim=True))
        assert found is not None
        assert torch.allclose(found.mean, low + (high - low) * wanted.mean)
        assert torch.allclose(found.covariance, (high - low) ** 2 * wanted.covariance)
        assert align(model, gray()).inner is model
    assert colors_of(Lifted(inner, 2)) is None
