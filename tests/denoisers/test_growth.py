"""A scaled UNet that starts from a smaller one computes what that one does."""

from __future__ import annotations

import pytest
import torch

from proxmatch.denoisers.unet import ScaledUNet
from proxmatch.errors import InputError


def test_new_blocks_begin_as_the_identity() -> None:
    torch.manual_seed(0)
    small, large = ScaledUNet(3, (4, 6, 8)), ScaledUNet(3, (4, 6, 8), (1, 2, 3))
    large.inherit_(small)
    x = torch.rand(2, 3, 16, 24)
    assert torch.equal(large(x, 0.1), small(x, 0.1))


def test_a_network_of_one_channel_is_the_mean_over_those_of_a_color_network() -> None:
    torch.manual_seed(0)
    color, gray = ScaledUNet(3, (4, 6)).double(), ScaledUNet(1, (4, 6)).double()
    gray.inherit_(color)
    x = torch.rand(2, 1, 8, 12, dtype=torch.float64)
    wanted = color(x.expand(-1, 3, -1, -1), 0.1).mean(1, keepdim=True)
    assert torch.allclose(gray(x, 0.1), wanted, atol=1e-12)


@pytest.mark.parametrize(
    "other",
    [ScaledUNet(3, (4, 8)), ScaledUNet(3, (4, 6), 3), ScaledUNet(3, (4, 6), leak=0.1)],
    ids=["widths", "blocks", "leak"],
)
def test_what_does_not_fit_is_refused(other: ScaledUNet) -> None:
    with pytest.raises(InputError, match="widths"):
        ScaledUNet(3, (4, 6), 2).inherit_(other)


@pytest.mark.parametrize("blocks", [1, (1, 2), (2, 1), (1, 1, 3)])
def test_the_radius_is_how_far_it_sees(blocks: int | tuple[int, ...]) -> None:
    torch.manual_seed(0)
    widths = (4, 4, 4) if blocks == (1, 1, 3) else (4, 4)
    network = ScaledUNet(1, widths, blocks).double()
    side = 2 * network.radius + 2 * network.multiple
    side -= side % network.multiple
    x = torch.full((1, 1, 8, side), 0.5, dtype=torch.float64, requires_grad=True)
    place = side // 2
    (g,) = torch.autograd.grad(network(x, 0.1)[0, 0, 4, place], x)
    seen = (g.abs().sum((0, 1, 2)) > 0).nonzero().flatten()
    assert int(seen.min()) >= place - network.radius
    assert int(seen.max()) <= place + network.radius
    assert int(seen.max()) - int(seen.min()) >= network.radius  # not far above what it sees


def test_a_leak_leaves_no_unit_without_a_gradient() -> None:
    torch.manual_seed(0)
    network = ScaledUNet(1, (4, 6), leak=0.1)
    with torch.no_grad():
        network.body[0].first.bias.fill_(-200.0)  # every unit far in the flat part of ELU
    x = torch.rand(1, 1, 16, 16)
    network(x, 0.1).sum().backward()
    assert bool((network.body[0].first.weight.grad.abs().amax((1, 2, 3)) > 0).all())


def test_coarse_scales_see_the_same_contrast_at_every_level() -> None:
    """With N_s(x) = x + s U(...), what enters ``down`` must not grow as s falls."""
    torch.manual_seed(0)
    network = ScaledUNet(3, (4, 6), contrast=0.25)
    seen = []
    network.down[0].register_forward_pre_hook(lambda layer, inputs: seen.append(inputs[0].std()))
    x = torch.rand(1, 3, 16, 16)
    for level in (0.003, 0.03):
        network(x, level)
    assert 0.5 < float(seen[0] / seen[1]) < 2


def test_a_constant_map_of_levels_is_the_level() -> None:
    torch.manual_seed(0)
    network = ScaledUNet(3, (4, 6), leak=0.1, contrast=0.25).double()
    x = torch.rand(2, 3, 16, 16, dtype=torch.float64)
    levels = torch.full((2, 1, 16, 16), 0.1, dtype=torch.float64)
    assert torch.allclose(network(x, levels), network(x, 0.1), atol=1e-12)
