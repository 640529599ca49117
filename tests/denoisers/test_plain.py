from __future__ import annotations

import deepinv as dinv
import numpy as np
import pytest
import torch
from torch import Tensor, nn

import proxmatch as pm
from proxmatch.denoisers.plain import PlainDenoiser, as_denoiser
from proxmatch.errors import InputError, NotProximalError


class Blur(nn.Module):
    """A network of the user's own: a mean over neighbors, told no level."""

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        self.net = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        nn.init.constant_(self.net.weight, 1 / 9)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


def shrink(x: Tensor, sigma: Tensor) -> Tensor:
    return x / (1 + sigma.view(-1, 1, 1, 1))


def x(channels: int = 3, side: int = 16) -> Tensor:
    return torch.rand(2, channels, side, side, generator=torch.Generator().manual_seed(0))


def drunet() -> nn.Module:
    return dinv.models.DRUNet(3, 3, nc=(4, 4, 4, 4), nb=1, pretrained=None)


@pytest.mark.parametrize(
    ("denoiser", "conditional"),
    [
        (Blur(), False),
        (drunet(), True),
        (dinv.models.DnCNN(3, 3, depth=3, nf=4, pretrained=None), False),
        (shrink, True),
        (lambda z, s: z * (1 - float(s)), True),
        (lambda z, _: z / 2, False),
        (lambda z: z / 2, False),
    ],
)
def test_it_denoises_as_what_it_was_given(denoiser: object, conditional: bool) -> None:
    plain = as_denoiser(denoiser)
    assert plain.conditional is conditional
    found = plain(x(), 0.1).detach()
    called = [(x(), torch.full((2,), 0.1)), (x(), 0.1), (x(),)]
    for arguments in called:
        try:
            expected = denoiser(*arguments)  # type: ignore[operator]
            break
        except (TypeError, AttributeError, ValueError):
            continue
    torch.testing.assert_close(found, expected.detach())


def test_a_level_is_told() -> None:
    plain = as_denoiser(shrink)
    torch.testing.assert_close(plain(x(), 1.0), x() / 2)
    torch.testing.assert_close(plain(x()), x() / 1.05)
    number = as_denoiser(lambda z, s: z / (1 + float(s)))
    for denoiser in (plain, number):
        torch.testing.assert_close(denoiser(x(), torch.tensor([1.0, 3.0]))[1], x()[1] / 4)


def test_sizes_that_it_does_not_take_are_padded_or_told() -> None:
    def even(z: Tensor) -> Tensor:
        if z.shape[-1] % 4:
            raise RuntimeError("sides must be multiples of 4")
        return z * 2

    def square(z: Tensor) -> Tensor:
        if z.shape[-1] != z.shape[-2]:
            raise RuntimeError("images must be square")
        return z * 2

    for multiple in (4, None):
        found = PlainDenoiser(even, multiple=multiple)(x(side=15))
        torch.testing.assert_close(found, 2 * x(side=15))
    with pytest.raises(InputError, match=r"square fails on images .*16, 15.*: images must be"):
        PlainDenoiser(square)(x()[..., :15])


def test_a_denoiser_outside_pytorch_is_served() -> None:
    def rounded(z: Tensor) -> Tensor:
        return torch.from_numpy(np.round(z.numpy(), 1))

    torch.testing.assert_close(as_denoiser(rounded)(x()), rounded(x()))


def test_a_function_that_cannot_be_called_is_named() -> None:
    def broken(z: Tensor, sigma: Tensor) -> Tensor:
        raise ValueError("the moon is full")

    with pytest.raises(InputError, match=r"^broken called .* fails: the moon is full"):
        as_denoiser(broken)


def test_what_needs_a_potential_is_told_in_one_sentence() -> None:
    plain = as_denoiser(Blur())
    asked = [
        lambda: plain.potential(x()),
        lambda: plain.inverse(x()),
        lambda: plain.regularizer(x()),
        lambda: plain.smoothness,
        lambda: pm.jacobian_spectrum(plain, x()),
        lambda: pm.transforms.Relaxed(plain, 0.5).potential(x()),
    ]
    for ask in asked:
        with pytest.raises(
            NotProximalError, match=r"Blur is not known to be a proximal map.*GradientStep\.of"
        ):
            ask()


@pytest.mark.parametrize("wrong", [3, None, lambda z: z[..., ::2], lambda z: "x", nn.Linear(3, 4)])
def test_what_is_no_denoiser_is_refused(wrong: object) -> None:
    with pytest.raises(InputError):
        as_denoiser(wrong)


def test_what_takes_no_level_runs_in_pnp_pgd() -> None:
    problem, blur = pm.make_problem("denoising", 16, iterations=3), Blur()
    y = problem.measure(x())
    expected = pm.pnp_pgd(lambda z, sigma: blur(z), y, problem)
    for denoiser in (blur, lambda z: blur(z), blur.forward):
        run = pm.pnp_pgd(denoiser, y, problem, reference=denoiser)
        assert torch.equal(run.images, expected.images)
        assert run.mismatch is not None
        assert float(run.mismatch.max()) == 0
        with pytest.raises(InputError, match="has no noise levels"):
            pm.pnp_pgd(denoiser, y, problem, sigma=0.1)


def test_what_needs_a_level_is_told_so_in_pnp_pgd() -> None:
    """deepinv's total variation raises a RuntimeError without a level."""
    problem = pm.make_problem("denoising", 16, iterations=3)
    with pytest.raises(InputError, match="it may need a noise level, pass sigma"):
        pm.pnp_pgd(dinv.models.TVDenoiser(), problem.measure(x()), problem)


def test_a_name_is_not_a_denoiser() -> None:
    with pytest.raises(InputError, match=r"pass load\('gs-faces'\)"):
        as_denoiser("gs-faces")


def test_channels_are_those_of_the_images_or_found_out() -> None:
    assert as_denoiser(Blur(1)).channels == 1
    assert as_denoiser(lambda z: z, 2).channels == 2
