from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import deepinv
import numpy
import pytest
import torch
import torch.nn.functional as F
from deepinv.models.GSPnP import GSDRUNet, GSPnP
from torch import Tensor, nn
from torch.nn.utils import spectral_norm

from proxmatch.denoisers import (
    GradientStep,
    GradientStepConfig,
    ScaledLPN,
    ScaledLPNConfig,
    jacobian_spectrum,
    kinks,
    load,
    save,
    smooth,
)
from proxmatch.denoisers.tiles import Tiled
from proxmatch.errors import (
    CheckpointError,
    InputError,
    NotContractiveError,
    NotSmoothWarning,
    UnknownLipschitzError,
)
from proxmatch.transforms import Symmetrized
from tests.denoisers.zoo import DENOISERS, size

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
    model.lipschitz = float(jacobian_spectrum(model, torch.rand(2, 2, 8, 8)).constant.max())
    assert model.smoothness == pytest.approx(1 / (1 - model.lipschitz))


def test_inverse_is_one_over_one_minus_l_lipschitz() -> None:
    """|D^-1(u) - D^-1(v)| <= |u - v| / (1 - L) with L measured densely on the segment."""
    model = DENOISERS["gs"]().double()
    a, b = torch.rand(2, 1, 2, 8, 8, dtype=torch.float64)
    with torch.no_grad():
        u, v = model(a), model(b)
    points = torch.cat([a + t * (b - a) for t in torch.linspace(0, 1, 9)])
    constant = float(jacobian_spectrum(model, points, iterations=128).constant.max())
    assert float((a - b).norm()) <= float((u - v).norm()) / (1 - constant) * (1 + 1e-3)


# --- any network ---------------------------------------------------------------------------------


class Smooth(nn.Module):
    """A small smooth network without a level."""

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, 6, 3, padding=1), nn.Softplus(), nn.Conv2d(6, channels, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out


class Column(Smooth):
    """Told the level as (B, 1, 1, 1), which it repeats, as FFDNet in KAIR."""

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        return super().forward(x + sigma.repeat(1, 1, *x.shape[2:]))


class Map(Smooth):
    """Told the level of every pixel."""

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        return super().forward(x * sigma)


class Embedded(Smooth):
    """Told the level through a dense layer, as diffusion networks."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(1, 3)

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        return super().forward(x + self.embed(sigma[:, None])[:, :, None, None])


class Deaf(Smooth):
    """Takes a level, as every denoiser of deepinv, and does not read it."""

    def forward(self, x: Tensor, sigma: Tensor | None = None) -> Tensor:
        return super().forward(x)


class Attention(Smooth):
    """Pixels that look at each other."""

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        tokens = y.flatten(2).transpose(1, 2)
        seen = F.scaled_dot_product_attention(tokens, tokens, tokens)
        return seen.transpose(1, 2).reshape(x.shape)


class Normalized(nn.Sequential):
    """Batch normalization and dropout."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 6, 3, padding=1),
            nn.BatchNorm2d(6),
            nn.Dropout2d(),
            nn.Tanh(),
            nn.Conv2d(6, 3, 1),
        )


def written_out(network: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """D(x) as the gradient of |x|^2 / 2 - |x - N(x)|^2 / 2 by autograd."""
    leaf = x.clone().requires_grad_()
    h = (leaf.square().sum() - (leaf - network(leaf)).square().sum()) / 2
    return torch.autograd.grad(h, leaf)[0]


@pytest.mark.parametrize(
    ("network", "told", "arguments"),
    [
        (Smooth(), "nothing", lambda x, s: (x,)),
        (Deaf(), "nothing", lambda x, s: (x,)),
        (Column(), "column", lambda x, s: (x, s)),
        (Map(), "map", lambda x, s: (x, s.expand(-1, 1, *x.shape[2:]))),
        (Embedded(), "vector", lambda x, s: (x, s.flatten())),
        (Attention(), "nothing", lambda x, s: (x,)),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, nn.Module) else None,
)
def test_any_network_is_called_as_it_wants(
    network: nn.Module, told: str, arguments: Callable[[Tensor, Tensor], tuple[Tensor, ...]]
) -> None:
    levels, x = torch.tensor([0.1, 0.3]), torch.rand(2, 3, 12, 10)
    model = GradientStep.of(network)
    given = model.config.given
    assert given is not None
    assert given.told == told
    assert model.conditional is (told != "nothing")
    column = levels.view(2, 1, 1, 1)
    expected = written_out(lambda v: network(*arguments(v, column)), x)
    assert torch.allclose(model(x, levels), expected, atol=1e-5)
    noise = GradientStep.of(network, residual=True)
    expected = written_out(lambda v: v - network(*arguments(v, column)), x)
    assert torch.allclose(noise(x, levels), expected, atol=1e-5)


def test_a_network_that_reads_the_level_as_a_channel() -> None:
    network = Smooth(4)
    network.layers[2] = nn.Conv2d(6, 3, 1)
    model = GradientStep.of(network)
    x, levels = torch.rand(2, 3, 9, 9), torch.rand(2, 1, 9, 9) + 0.1
    expected = written_out(lambda v: network(torch.cat([v, levels], 1)), x)
    assert torch.allclose(model(x, levels), expected, atol=1e-5)


def test_deepinvs_own_gradient_step_of_its_own_networks() -> None:
    x = torch.rand(2, 3, 40, 32)
    dncnn = deepinv.models.DnCNN(depth=4, nf=8, pretrained=None)
    with pytest.warns(NotSmoothWarning):
        ours = GradientStep.of(dncnn)
    assert torch.allclose(ours(x), GSPnP(dncnn)(x.clone(), 0.1).detach(), atol=1e-5)
    drunet = deepinv.models.DRUNet(nc=WIDTHS, nb=1, act_mode="E", pretrained=None)
    ours = GradientStep.of(drunet)
    levels = torch.tensor([0.1, 0.2])
    assert ours.maps
    for level in (levels, torch.rand(2, 1, 40, 32)):
        expected = GSPnP(drunet)(x.clone(), level).detach()
        assert torch.allclose(ours(x, level), expected, atol=1e-5)


def test_deepinvs_gradient_step_is_taken_apart(tmp_path: Path) -> None:
    """Its D carries no second derivative; its network does."""

    def gsdrunet(alpha: float = 1.0) -> nn.Module:
        return GSDRUNet(alpha, nc=WIDTHS, nb=1, pretrained=None)

    theirs, x = gsdrunet(), torch.rand(2, 3, 32, 32)
    ours = GradientStep.of(theirs)
    assert torch.allclose(ours(x, 0.1), theirs(x.clone(), 0.1).detach(), atol=1e-5)
    again = load(save(ours, tmp_path / "own"), network=gsdrunet)
    assert torch.equal(again(x), ours(x))
    with pytest.raises(InputError, match=r"alpha = 0\.5 .*Relaxed\(denoiser, 0\.5\)"):
        GradientStep.of(gsdrunet(0.5))


def test_a_network_of_spectral_norm_is_made_smooth_and_copied() -> None:
    """Its layers hold on to weights that were computed, which cannot be copied by themselves."""
    layers = [spectral_norm(nn.Conv2d(3, 3, 3, padding=1)) for _ in range(2)]
    network = nn.Sequential(layers[0], nn.ReLU(), layers[1]).eval()
    x = torch.rand(1, 3, 8, 8)
    network(x)
    model = GradientStep.of(network, smooth=True)
    assert torch.allclose(deepcopy(model)(x), model(x))


def test_a_network_with_strides_is_padded() -> None:
    """Sides that are no multiples are replicated, and the result is cut."""

    class Halved(Smooth):
        def forward(self, x: Tensor) -> Tensor:
            return F.interpolate(super().forward(F.avg_pool2d(x, 4)), scale_factor=4)

    network = Halved()
    model = GradientStep.of(network)
    assert model.network.multiple == 4
    assert GradientStep.of(network, multiple=8).network.multiple == 8
    x = torch.rand(1, 3, 10, 13)
    expected = written_out(
        lambda v: network(F.pad(v, (0, 3, 0, 2), mode="replicate"))[..., :10, :13], x
    )
    assert torch.allclose(model(x), expected, atol=1e-5)
    assert model.reach is None


def test_batches_and_chance_do_not_reach_the_potential() -> None:
    network = Normalized()
    network(torch.randn(8, 3, 8, 8))
    statistics = network[1].running_mean.clone()
    model = GradientStep.of(network)
    model.train()
    x = torch.rand(3, 3, 8, 8)
    assert torch.allclose(model(x)[:1], model(x[:1]), atol=1e-5)
    assert torch.equal(network[1].running_mean, statistics)
    assert network[0].training


def test_second_derivative_of_a_given_network() -> None:
    model = GradientStep.of(Embedded(), sigma=0.2).double()
    x, v = torch.rand(2, 2, 3, 8, 8, dtype=torch.float64)
    _, jacobian = model.linearize(x)
    expected = (v * (v - jacobian(v))).flatten(1).sum(1)
    assert torch.allclose(model.second_derivative(x, v), expected, rtol=1e-8)


@pytest.mark.parametrize(
    ("network", "settings", "message"),
    [
        (Smooth(1), {}, r"images of shape \(2, 3, 64, 64\) fails: .*channels=, told= or multiple="),
        (Smooth(), {"told": "vector"}, "noise level as vector fails"),
        (nn.Conv2d(3, 3, 3), {}, r"returns \(2, 3, 62, 62\)"),
        (nn.LSTM(64, 64), {"told": "nothing"}, "fails|returns tuple"),
    ],
)
def test_networks_that_are_none_are_told_why(
    network: nn.Module, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        GradientStep.of(network, **settings)


def test_a_function_is_no_network() -> None:
    with pytest.raises(InputError, match="the forward of a module"):
        GradientStep.of(lambda x: x)  # type: ignore[arg-type]


def test_a_network_without_a_gradient_is_refused() -> None:
    class Cut(Smooth):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).detach()

    with pytest.raises(InputError, match="carries no gradient"):
        GradientStep.of(Cut())


def test_a_network_of_chance_is_refused() -> None:
    class Chance(Smooth):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + 0.1 * torch.rand_like(x)

    with pytest.raises(InputError, match="another image each time"):
        GradientStep.of(Chance())


def test_a_network_that_cannot_be_differentiated_twice_is_refused() -> None:
    class Once(Smooth):
        def forward(self, x: Tensor) -> Tensor:
            with torch.enable_grad():
                out = super().forward(x.requires_grad_())
                return out - torch.autograd.grad(out, x, out)[0]

    with pytest.raises(InputError, match="cannot be differentiated twice"):
        GradientStep.of(Once())


# --- kinks ---------------------------------------------------------------------------------------


class Kinked(nn.Module):
    """Kinks in modules, in functions, and where they do no harm."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.LeakyReLU(0.1),
            nn.PReLU(4),
            nn.ReLU6(),
            nn.ELU(),
            nn.SELU(),
            nn.CELU(0.3),
            nn.Conv2d(4, 3, 1),
        )

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        return F.relu(self.layers(x)) + sigma.clamp(min=0.01).view(-1, 1, 1, 1)


def test_layers_with_kinks_are_named() -> None:
    network = Kinked()
    with pytest.warns(NotSmoothWarning, match=r"layers\.1 \(relu\).*and 2 more.*smooth=True"):
        GradientStep.of(network)
    with pytest.warns(NotSmoothWarning, match=r"layers\.6 \(elu\), Kinked \(relu\): .*Softplus"):
        GradientStep.of(network, smooth=True)
    x, level = torch.rand(1, 3, 8, 8), torch.rand(1)
    assert [name.split(" ")[0] for name in kinks(network, lambda: network(x, level))] == [
        *(f"layers.{i}" for i in (1, 2, 3, 4, 6)),
        "Kinked",
    ]


def test_smooth_networks_are_not_warned_about() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GradientStep.of(Smooth())
        GradientStep.of(nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU()), smooth=50)


def test_smooth_activations_stay_within_their_bound() -> None:
    """|S(a) - max(a, 0)| <= log(2) / beta; a PReLU keeps its weights."""
    a = torch.linspace(-8, 8, 1001).view(1, 1, -1)
    for layer, lipschitz_constant in (
        (nn.ReLU(), 1.0),
        (nn.LeakyReLU(0.2), 1.0),
        (nn.PReLU(init=0.3), 1.0),
        (nn.ReLU6(), 2.0),
        (nn.Hardtanh(-2, 1), 2.0),
    ):
        soft = smooth(layer, 20.0)
        error = (soft(a) - layer(a)).abs().max()
        assert 0 < error <= lipschitz_constant * math.log(2) / 20 + 1e-6
        assert list(soft.state_dict()) == list(layer.state_dict())
        leaf = torch.zeros(1, 1, 1, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradgradcheck(soft.double(), leaf)
    with pytest.raises(InputError, match="sharpness"):
        smooth(nn.ReLU(), 0.0)


def test_smoothing_leaves_the_network_alone() -> None:
    shared = nn.ReLU()
    network = nn.Sequential(nn.Conv2d(3, 3, 1), shared, nn.Conv2d(3, 3, 1), shared)
    x = torch.randn(1, 3, 8, 8)
    before = network(x)
    soft = smooth(network)
    assert torch.equal(network(x), before)
    assert not any(isinstance(part, nn.ReLU) for part in soft.modules())
    assert torch.allclose(soft(x), before, atol=0.02)
    assert not torch.equal(soft(x), before)


# --- saving --------------------------------------------------------------------------------------


def test_a_network_of_ones_own_class_is_saved_and_loaded(tmp_path: Path) -> None:
    network = nn.Sequential(
        nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 3, 1)
    ).eval()
    model = GradientStep.of(network, smooth=40.0, residual=True, sigma=0.1)
    folder = save(model, tmp_path / "own")

    def fresh() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 3, 1))

    x = torch.rand(2, 3, 8, 8)
    own = fresh()
    kept = [p.clone() for p in own.parameters()]
    for given in (own, fresh):
        again = load(folder, network=given)
        assert torch.equal(again(x), model(x))
        assert again.configuration() == model.configuration()
    assert all(torch.equal(p, q) for p, q in zip(own.parameters(), kept, strict=True))
    with pytest.raises(CheckpointError, match=r"own, torch.*Sequential: pass network="):
        load(folder)
    with pytest.raises(CheckpointError, match="the one passed is a Smooth"):
        load(folder, network=Smooth())
    with pytest.raises(CheckpointError, match="does not fit"):
        load(folder, network=nn.Sequential(nn.Conv2d(3, 3, 1)))
    with pytest.raises(CheckpointError, match="built from its configuration"):
        load(save(DENOISERS["gs"](), tmp_path / "ours"), network=own)


def test_files_of_the_first_kinds_hold_nothing_new(tmp_path: Path) -> None:
    folder = save(DENOISERS["gs"](), tmp_path)
    architecture = json.loads((folder / "config.json").read_text())["architecture"]
    assert not {"smooth", "given"} & architecture.keys()


# --- noise levels, and what deepinv passes ------------------------------------------------------


def scaled() -> GradientStep:
    return GradientStep(GradientStepConfig.scaled(widths=(4, 5), sigma=0.2)).double()


def test_levels_of_every_format() -> None:
    """deepinv's formats: a number, a tensor without dimension, one an image, a map."""
    model, x = scaled(), torch.rand(2, 3, 12, 15, dtype=torch.float64)
    expected = model(x, 0.1)
    for level in (torch.tensor(0.1), torch.full((2,), 0.1), torch.full((2, 1, 1, 1), 0.1)):
        assert torch.allclose(model(x, level), expected, atol=1e-7)
    arrays = numpy.float32(0.1), numpy.full(2, 0.1), numpy.array(0.1)
    for numbers in ([0.1], (0.1, 0.1), *arrays):
        assert torch.allclose(model(x, numbers), expected, atol=1e-7)
    for level in (torch.full((2, 1, 12, 15), 0.1), torch.full((1, 1, 12, 15), 0.1)):
        assert torch.allclose(model(x, level), expected, atol=1e-7)


def test_a_map_of_levels_has_a_potential_and_an_inverse() -> None:
    model = DENOISERS["gs-scaled"]().double()
    x = torch.rand(2, 2, 9, 11, dtype=torch.float64, requires_grad=True)
    level = 0.2 + 0.2 * torch.rand(2, 1, 9, 11, dtype=torch.float64)
    (expected,) = torch.autograd.grad(model.potential(x, level).sum(), x)
    out = model(x.detach(), level).detach()
    assert (out - expected).norm() <= 1e-10 * expected.norm()
    assert not torch.allclose(out, model(x, 0.3), atol=1e-4)
    solved = model.inverse(out, level)
    assert bool(solved.converged.all())
    assert torch.allclose(solved.z, x.detach(), atol=1e-6)


def test_a_map_of_levels_turns_and_is_cut_with_its_image() -> None:
    model, x = scaled(), torch.rand(2, 3, 40, 97, dtype=torch.float64)
    level = 0.1 + 0.2 * torch.rand(2, 1, 40, 97, dtype=torch.float64)
    mirrored = Symmetrized(model)(x.flip(-1), level.flip(-1)).flip(-1)
    assert torch.allclose(Symmetrized(model)(x, level), mirrored, atol=1e-10)
    cut = Tiled(model, tile=33)
    assert len(cut._cuts(97)) > 1
    with torch.no_grad():
        assert torch.allclose(cut(x, level), model(x, level), atol=1e-12)


def test_levels_that_make_no_sense_are_refused() -> None:
    model, x = scaled(), torch.rand(2, 3, 8, 8, dtype=torch.float64)
    for level, message in (
        (torch.rand(2, 1, 8, 9), r"shape \(2, 1, 8, 8\)"),
        (torch.rand(3, 1, 8, 8), r"shape \(2, 1, 8, 8\)"),
        (torch.rand(3), "3 noise levels for 2"),
        (-torch.ones(2, 1, 8, 8), "positive"),
        (0.0, "positive"),
        (float("nan"), "positive"),
        ([0.1] * 3, "3 noise levels for 2"),
        ([], "0 noise levels for 2"),
        (numpy.full(3, 0.1), "3 noise levels for 2"),
        ([0.1, -0.1], "positive"),
        (numpy.array([0.1, numpy.nan]), "positive"),
        ("0.1", "positive"),
        (["0.1", "0.1"], "positive"),
        (True, "positive"),
        ([True, True], "positive"),
        (torch.ones(2, dtype=torch.bool), "positive"),
        ([[0.1], [0.1, 0.2]], "positive"),
        ({"level": 0.1}, "positive"),
    ):
        with pytest.raises(InputError, match=message):
            model(x, level)
    one = ScaledLPN(ScaledLPNConfig()).double()
    with pytest.raises(InputError, match="ScaledLPN takes one noise level an image"):
        one(x, torch.full((2, 1, 8, 8), 0.1))


@pytest.mark.parametrize("name", sorted(DENOISERS))
def test_what_deepinv_passes_along_is_accepted(name: str) -> None:
    model = DENOISERS[name]()
    x = torch.rand(2, 2, *size(name))
    level = torch.tensor([0.1, 0.2])
    assert torch.equal(model(x, level, physics=None, gain=1.0), model(x, level))
    assert torch.equal(model(x, sigma=level), model(x, level))


WRONG = (
    0.0, -1, float("nan"), float("inf"), [0.1] * 3, [0.1, 0.0], "0.1", True, torch.zeros(2),
    torch.tensor([0.1, torch.nan]),
)  # fmt: skip


@pytest.mark.parametrize("name", sorted(DENOISERS))
def test_levels_in_every_form_reach_every_denoiser(name: str) -> None:
    """A wrong one is refused also where it is not used."""
    model = DENOISERS[name]()
    x = torch.rand(2, 2, *size(name))
    level = torch.tensor([0.1, 0.2])
    ways = {
        "call": model,
        "potential": model.potential,
        "linearize": lambda x, sigma: model.linearize(x, sigma)[0],
        "near": lambda x, sigma: model.near(x, x, sigma),
        "inverse": lambda x, sigma: model.inverse(x, sigma=sigma, max_iterations=3).z,
    }
    for way in ways.values():
        expected = way(x, level)
        for given in ([0.1, 0.2], (0.1, 0.2), numpy.array([0.1, 0.2])):
            assert torch.equal(way(x, given), expected)
        for wrong in WRONG:
            with pytest.raises(InputError, match="noise level"):
                way(x, wrong)
    with pytest.raises(InputError, match="noise level"):
        model(x, sigma=-1)
