from __future__ import annotations

import pytest
import torch
from deepinv.models.GSPnP import GSDRUNet

from proxmatch.denoisers import GradientStep, GradientStepConfig, lipschitz
from proxmatch.errors import InputError, NotContractiveError, UnknownLipschitzError
from tests.denoisers.zoo import DENOISERS

WIDTHS = (4, 6, 8, 10)


@pytest.fixture
def pair() -> tuple[torch.nn.Module, GradientStep]:
    theirs = GSDRUNet(nc=WIDTHS, pretrained=None)
    ours = GradientStep(GradientStepConfig.drunet(widths=WIDTHS))
    ours.network.load_state_dict(theirs.student_grad.model.state_dict())
    return theirs, ours


def test_drunet_gives_deepinvs_own_output(pair: tuple[torch.nn.Module, GradientStep]) -> None:
    theirs, ours = pair
    x = torch.rand(2, 3, 40, 48)
    expected = theirs(x.clone(), 0.1).detach()
    assert torch.allclose(ours(x, 0.1), expected, atol=1e-5)
    levels = torch.tensor([0.05, 0.2])
    assert torch.allclose(ours(x, levels)[1:], theirs(x[1:].clone(), 0.2).detach(), atol=1e-5)


@pytest.mark.parametrize("shape", [(33, 40), (8, 9), (70, 65)])
def test_sizes_the_network_cannot_take_are_still_gradients(
    pair: tuple[torch.nn.Module, GradientStep], shape: tuple[int, int]
) -> None:
    ours = pair[1].double()
    ours.sigma = 0.1
    x = torch.rand(1, 3, *shape, dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(ours.potential(x).sum(), x)
    out = ours(x.detach())
    assert out.shape == x.shape
    assert (out - expected).norm() <= 1e-10 * expected.norm()


def test_noise_level_is_asked_for(pair: tuple[torch.nn.Module, GradientStep]) -> None:
    x = torch.rand(3, 3, 32, 32)
    with pytest.raises(InputError, match="conditioned on the noise level"):
        pair[1](x)
    with pytest.raises(InputError, match="2 noise levels for 3 images"):
        pair[1](x, torch.tensor([0.1, 0.2]))


def test_smoothness_is_a_number_only_when_it_is_known() -> None:
    model = DENOISERS["gs"]()
    assert isinstance(model, GradientStep)
    with pytest.raises(UnknownLipschitzError, match="never measured"):
        _ = model.smoothness
    model.lipschitz = 1.02
    with pytest.raises(NotContractiveError, match=r"1\.020 >= 1"):
        _ = model.smoothness
    model.lipschitz = float("nan")
    with pytest.raises(NotContractiveError):
        _ = model.smoothness
    model.lipschitz = float(lipschitz(model, torch.rand(2, 2, 8, 8)).constant.max())
    assert model.smoothness == pytest.approx(1 / (1 - model.lipschitz))


def test_inverse_is_one_over_one_minus_l_lipschitz() -> None:
    """|D^-1(u) - D^-1(v)| <= |u - v| / (1 - L) with L measured densely on the segment."""
    model = DENOISERS["gs"]().double()
    a, b = torch.rand(2, 1, 2, 8, 8, dtype=torch.float64)
    with torch.no_grad():
        u, v = model(a), model(b)
    points = torch.cat([a + t * (b - a) for t in torch.linspace(0, 1, 9)])
    constant = float(lipschitz(model, points, iterations=128).constant.max())
    assert float((a - b).norm()) <= float((u - v).norm()) / (1 - constant) * (1 + 1e-3)
