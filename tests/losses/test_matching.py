from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, strategies as st

from proxmatch.denoisers import GradientStep
from proxmatch.errors import InputError
from proxmatch.losses import (
    absolute_error,
    gradient_field_matching,
    proximal_matching,
    saturation,
    scaled_squared_error,
    squared_error,
)
from tests.denoisers.zoo import DENOISERS


def pair(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    a, b = torch.rand(2, 3, 2, 8, 8, generator=generator, dtype=torch.float64)
    return a, b


def test_against_the_formulas_written_out() -> None:
    a, b = pair()
    for i in range(3):
        d = math.sqrt(
            sum((p - q) ** 2 for p, q in zip(a[i].flatten(), b[i].flatten(), strict=True))
        )
        gamma = 0.3 * math.sqrt(a[i].numel())
        assert float(squared_error(a, b)[i]) == pytest.approx(d**2)
        assert float(proximal_matching(a, b, 0.3)[i]) == pytest.approx(
            1 - math.exp(-(d**2) / (2 * gamma**2))
        )
        assert float(absolute_error(a, b)[i]) == pytest.approx(float((a[i] - b[i]).abs().sum()))


@given(rms=st.floats(1e-4, 1e3), scale=st.floats(0, 10), seed=st.integers(0, 1000))
def test_proximal_matching_is_bounded_and_its_gradient_is_that_of_the_control_damped(
    rms: float, scale: float, seed: int
) -> None:
    a, b = pair(seed)
    a = (b + scale * (a - b)).requires_grad_()
    loss = proximal_matching(a, b, rms)
    assert bool(((loss >= 0) & (loss <= 1)).all())
    (ours,) = torch.autograd.grad(loss.sum(), a, retain_graph=True)
    (control,) = torch.autograd.grad(scaled_squared_error(a, b, rms).sum(), a)
    left = 1 - saturation(a, b, rms).view(-1, 1, 1, 1)
    assert bool(torch.isfinite(ours).all())
    assert torch.allclose(ours, left * control, rtol=1e-6, atol=1e-12 / rms**2)


def test_no_nan_where_output_and_target_agree() -> None:
    a = pair()[0].requires_grad_()
    loss = proximal_matching(a, a.detach(), 0.1)
    (gradient,) = torch.autograd.grad(loss.sum(), a)
    assert float(loss.abs().max()) == 0
    assert float(gradient.abs().max()) == 0


def test_small_differences_survive_float32() -> None:
    """1 - exp(-t) would round to zero for t = 1e-9; expm1 does not."""
    a = torch.zeros(1, 1, 10, 10)
    b = a + 1e-5
    assert float(proximal_matching(a, b, 0.2)) == pytest.approx(1e-10 / (2 * 0.04), rel=1e-4)


def test_gamma_far_below_the_residual_leaves_no_gradient_and_says_so() -> None:
    a, b = pair()
    a.requires_grad_()
    (gradient,) = torch.autograd.grad(proximal_matching(a, b, 1e-3).sum(), a)
    assert float(gradient.abs().max()) == 0
    assert float(saturation(a, b, 1e-3).min()) == 1


def test_matching_the_gradient_field_is_matching_the_output() -> None:
    denoiser = DENOISERS["gs"]().double()
    assert isinstance(denoiser, GradientStep)
    clean, noise = pair()
    noisy = clean + 0.1 * noise
    field = gradient_field_matching(denoiser, noisy, clean, 0.2)
    output = proximal_matching(denoiser(noisy), clean, 0.2)
    assert torch.allclose(field, output, rtol=1e-10)
    parameters = list(denoiser.parameters())
    for x, y in zip(
        torch.autograd.grad(field.sum(), parameters, allow_unused=True),
        torch.autograd.grad(output.sum(), parameters, allow_unused=True),
        strict=True,
    ):
        assert x is y is None or torch.allclose(x, y, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("rms", [0.0, -1.0, float("nan")])
def test_a_gamma_that_is_none_is_refused(rms: float) -> None:
    a, b = pair()
    with pytest.raises(InputError, match="gamma must be positive"):
        proximal_matching(a, b, rms)
