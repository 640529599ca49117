from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor

from proxmatch.baselines import Wiener
from proxmatch.denoisers import LPN, GradientStep, GradientStepConfig, LPNConfig, ProximalDenoiser
from proxmatch.denoisers.tiles import SMALLEST, Tiled, tiled
from proxmatch.errors import InputError, ProxmatchWarning, TooLargeError
from proxmatch.transforms import Aligned, Blended, Relaxed, Symmetrized


def gs(**changes: object) -> GradientStep:
    settings = {"channels": 1, "widths": (3, 4), **changes}
    model = GradientStep(GradientStepConfig(**settings)).double().eval()  # type: ignore[arg-type]
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(0, 0.2)
    return model


def lpn(**changes: object) -> LPN:
    settings = {"channels": 1, "hidden": 4, "size": None, **changes}
    return LPN(LPNConfig(**settings)).double().eval()  # type: ignore[arg-type]


def drunet() -> GradientStep:
    return gs(network="drunet", widths=(2, 2, 2, 2), blocks=1, sigma=0.05)


HEARTS = {
    "gs, two scales": gs,
    "gs, three scales": lambda: gs(widths=(3, 3, 3)),
    "drunet": drunet,
    "lpn of any size": lpn,
    "lpn of any size, other strides": lambda: lpn(strides=(2, 2), unshuffle=1),
}
hearts = pytest.mark.parametrize("name", HEARTS)


def image(*shape: int) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64)


@hearts
def test_a_pixel_is_not_seen_beyond_the_reach(name: str) -> None:
    model = HEARTS[name]()
    found = model.reach
    assert found is not None
    side = 2 * found.radius + 40
    x = image(1, 1, 48, side)
    moved = x.clone()
    moved[0, 0, :, side // 2] += 0.3
    with torch.no_grad():
        columns = (model(moved) - model(x)).abs().amax((0, 1, 2)).nonzero().flatten()
    seen = int((columns - side // 2).abs().max())
    assert 0 < seen <= found.radius


@hearts
@pytest.mark.parametrize("size", [(1, 200), (97, 131), (160, 96)])
def test_tiles_give_what_the_whole_image_gives(name: str, size: tuple[int, int]) -> None:
    model = HEARTS[name]()
    if name == "drunet" and size[0] > 1:
        size = (40, 431)  # its reach is more than a hundred pixels
    x = image(2, 1, *size)
    cut = Tiled(model, tile=33)
    assert len(cut._cuts(max(size))) > 1
    torch.testing.assert_close(cut(x), model(x).detach(), rtol=0, atol=1e-12)


def test_noise_levels_follow_their_images() -> None:
    model = drunet()
    x, levels = image(2, 1, 32, 300), torch.tensor([0.02, 0.3], dtype=torch.float64)
    torch.testing.assert_close(
        Tiled(model, tile=64)(x, levels), model(x, levels).detach(), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize(
    "around",
    [
        lambda d: Relaxed(d, 0.5),
        lambda d: Aligned(d, 0.5, [[1.0]], mean=[0.4], center=[0.6]),
        lambda d: Symmetrized(d),
        lambda d: Relaxed(Symmetrized(d, "dihedral"), 0.7),
        lambda d: Blended(d, Wiener.fit(image(2, 1, 16, 16), 0.1).double()),
    ],
)
def test_transforms_stay_around_the_tiles(around: object) -> None:
    model: ProximalDenoiser = around(gs())  # type: ignore[operator]
    x = image(1, 1, 101, 101)
    small = tiled(model, 32)
    assert isinstance(small, type(model))
    torch.testing.assert_close(small(x), model(x).detach(), rtol=0, atol=1e-12)
    assert small.always_convex == model.always_convex


def test_a_denoiser_of_many_levels_keeps_them_and_its_strength() -> None:
    model = gs(network="scaled-unet", widths=(3, 4), blocks=1, levels=(0.01, 0.2))
    whole, x = tiled(Relaxed(model, 0.5, 0.07), SMALLEST), image(1, 1, 200, 40)
    assert not whole.conditional  # its own level stands in the place of any other
    assert whole.levels == (0.01, 0.2)
    torch.testing.assert_close(whole(x), x + 0.5 * (model(x, 0.07) - x))


def test_the_mode_of_a_model_is_left_alone() -> None:
    model = Relaxed(gs(), 0.5).train()
    tiled(model)
    assert model.inner.training


def test_what_is_bounded_already_is_left_alone() -> None:
    fixed = LPN(LPNConfig(size=8, hidden=4, features=3, strides=(2,)))
    linear = Wiener.fit(torch.rand(2, 3, 16, 16), 0.1)
    for model in (fixed, linear, Relaxed(linear, 0.5)):
        assert tiled(model) is model
    with pytest.raises(InputError, match="cannot be applied in tiles"):
        Tiled(fixed)
    with pytest.raises(InputError, match="at least"):
        Tiled(gs(), tile=8)


class Hungry(GradientStep):
    """Fails like torch on images of more than ``limit`` pixels."""

    limit = 0
    message = "[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory"

    def forward(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        if x.shape[-1] * x.shape[-2] > self.limit:
            raise RuntimeError(self.message)
        return super().forward(x, sigma)


def test_smaller_tiles_when_memory_is_short() -> None:
    model = Hungry(GradientStepConfig(channels=1, widths=(3, 4))).double()
    x = image(1, 1, 40, 400)
    model.limit = 10**6
    whole = model(x).detach()
    model.limit = 40 * 120
    cut = Tiled(model, tile=256)
    with pytest.warns(ProxmatchWarning) as told:
        found = cut(x)
    assert "tiles of 64 pixels" in str(told[-1].message)
    torch.testing.assert_close(found, whole, rtol=0, atol=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # and it remembers
        cut(x)
    model.limit = 0
    with pytest.warns(ProxmatchWarning), pytest.raises(TooLargeError, match="cut the image"):
        cut(x)
    assert cut.tile >= SMALLEST


def test_other_failures_are_not_taken_for_a_lack_of_memory() -> None:
    model = Hungry(GradientStepConfig(channels=1, widths=(3, 4))).double()
    model.message = "mat1 and mat2 shapes cannot be multiplied"
    with pytest.raises(RuntimeError, match="mat1"):
        Tiled(model, tile=64)(image(1, 1, 40, 400))
