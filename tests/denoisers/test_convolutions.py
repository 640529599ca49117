"""The quick pullback against finite differences and PyTorch's own derivatives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from proxmatch.denoisers import GradientStep, GradientStepConfig
from proxmatch.denoisers.convolutions import QuickPullback

LAYERS = {
    "plain": (F.conv2d, (4, 2, 3, 3), {"padding": 1}),
    "strided": (F.conv2d, (4, 2, 2, 3), {"stride": (2, 1), "padding": (0, 1)}),
    "dilated, in groups": (F.conv2d, (4, 1, 3, 3), {"dilation": 2, "groups": 2}),
    "transposed": (F.conv_transpose2d, (2, 3, 2, 2), {"stride": 2}),
    "transposed, with more": (
        F.conv_transpose2d,
        (2, 3, 3, 3),
        {"stride": 2, "padding": 1, "output_padding": 1},
    ),
}


@pytest.fixture(params=LAYERS)
def layer(request: pytest.FixtureRequest) -> tuple[Any, Tensor, dict[str, Any]]:
    function, shape, settings = LAYERS[request.param]
    torch.manual_seed(0)
    return function, torch.randn(shape, dtype=torch.float64, requires_grad=True), settings


def test_products_and_their_derivatives_equal_finite_differences(
    layer: tuple[Any, Tensor, dict[str, Any]],
) -> None:
    function, weight, settings = layer
    x = torch.randn(2, 2, 6, 7, dtype=torch.float64, requires_grad=True)
    out = function(x, weight, **settings)
    bias = torch.randn(out.shape[1], dtype=torch.float64, requires_grad=True)
    r = torch.randn_like(out).requires_grad_()

    def product(x: Tensor, weight: Tensor, bias: Tensor, r: Tensor) -> Tensor:
        with QuickPullback() as quick:
            n = function(x, weight, bias, **settings).sin()
        return quick.pullback(n, x, r)

    with QuickPullback():
        torch.testing.assert_close(function(x, weight, **settings), out)
    assert torch.autograd.gradcheck(product, (x, weight, bias, r))
    assert torch.autograd.gradgradcheck(product, (x, weight, bias, r))


def test_what_is_no_convolution_of_images_is_left_alone() -> None:
    one, signal = nn.Conv1d(2, 3, 3), torch.randn(1, 2, 8)
    same, image = nn.Conv2d(2, 3, 3, padding="same"), torch.randn(1, 2, 8, 8)
    with QuickPullback():
        found = one(signal), same(image), same(image[0])
    torch.testing.assert_close(found, (one(signal), same(image), same(image)[0]))


def gradient(denoiser: GradientStep, x: Tensor, *, quick: bool, mixed: bool = False) -> Tensor:
    """Of a squared error with respect to the weights."""
    denoiser.mixed = mixed
    if quick:
        loss = (denoiser(x, 0.1) - 0.5).square().mean()
    else:
        z = x.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            n = denoiser.network(z, x.new_full((len(x), 1, 1, 1), 0.1))
        (jtr,) = torch.autograd.grad(n, z, z - n, create_graph=True)
        loss = (n + jtr - 0.5).square().mean()
    found = torch.autograd.grad(loss, list(denoiser.parameters()))
    return torch.cat([g.flatten().double() for g in found])


def test_the_gradient_of_a_training_is_that_of_pytorch() -> None:
    torch.manual_seed(0)
    config = GradientStepConfig.scaled(widths=(8, 8), leak=0.1, contrast=0.25, sigma=0.1)
    denoiser = GradientStep(config).double()
    x = torch.rand(2, 3, 12, 16, dtype=torch.float64)
    ours, theirs = (gradient(denoiser, x, quick=quick) for quick in (True, False))
    assert (ours - theirs).norm() <= 1e-10 * theirs.norm()


def test_in_bfloat16_the_gradient_is_still_right() -> None:
    torch.manual_seed(0)
    config = GradientStepConfig.scaled(widths=(24, 24), leak=0.1, contrast=0.25, sigma=0.1)
    denoiser = GradientStep(config)
    x = torch.rand(2, 3, 64, 64)
    exact = gradient(denoiser, x, quick=False)
    error = (gradient(denoiser, x, quick=True, mixed=True) - exact).norm() / exact.norm()
    assert error < 0.02
