import deepinv
import pytest
import torch
from deepinv.physics import (
    Blur,
    BlurFFT,
    DecomposablePhysics,
    Downsampling,
    LinearPhysics,
    SpaceVaryingBlur,
)

from proxmatch.errors import InputError
from proxmatch.problems import gaussian_deblurring, squared_norm, super_resolution


def dense(physics, img_size, dtype=torch.float64):
    """The matrix of A."""
    n = torch.Size(img_size).numel()
    basis = torch.eye(n, dtype=dtype).view(n, 1, *img_size)
    return torch.stack([physics.A(e).flatten() for e in basis], dim=1)


def by_svd(physics, img_size, dtype=torch.float64):
    return torch.linalg.matrix_norm(dense(physics, img_size, dtype), ord=2).item() ** 2


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class TripledMask(DecomposablePhysics):
    """A decomposable physics whose A is more than its singular values."""

    def A(self, x, **kwargs):
        return 3 * super().A(x)

    def A_adjoint(self, y, **kwargs):
        return 3 * super().A_adjoint(y)

    def A_adjoint_A(self, x, **kwargs):
        return self.A_adjoint(self.A(x))


EXACT = {
    "BlurFFT": (BlurFFT((2, 6, 7), random(1, 1, 3, 4)), (2, 6, 7)),
    "Blur, one kernel": (Blur(random(1, 1, 3, 3), padding="circular"), (2, 6, 7)),
    "Blur, a kernel per channel": (Blur(random(1, 2, 3, 5), padding="circular"), (2, 6, 7)),
    "Downsampling by 2": (Downsampling((1, 8, 6), random(1, 1, 3, 3), factor=2), (1, 8, 6)),
    "Downsampling by 3": (Downsampling((1, 6, 9), random(1, 1, 5, 5), factor=3), (1, 6, 9)),
    "Denoising": (deepinv.physics.Denoising(), (1, 4, 4)),
    "Inpainting": (deepinv.physics.Inpainting((1, 4, 4), mask=0.5), (1, 4, 4)),
    "singular values": (DecomposablePhysics(mask=-random(1, 1, 4, 4)), (1, 4, 4)),
    "deblurring": (gaussian_deblurring((6, 9), dtype=torch.float64, channels=1).physics, (1, 6, 9)),
    "super-resolution": (
        super_resolution((8, 12), kernel_size=7, channels=1, dtype=torch.float64).physics,
        (1, 8, 12),
    ),
}


@pytest.mark.parametrize("name", EXACT)
def test_closed_forms_agree_with_the_matrix(name):
    physics, img_size = EXACT[name]
    found = squared_norm(physics, img_size)
    assert found.exact
    assert found.value == pytest.approx(by_svd(physics, img_size), rel=1e-10)


@pytest.mark.parametrize("size", [64, 128, (128, 64)])
def test_the_operators_of_the_paper(size):
    assert gaussian_deblurring(size).gradient_bound.value == pytest.approx(1, rel=1e-6)
    assert super_resolution(size).gradient_bound.value == pytest.approx(0.06295, rel=1e-4)


def test_a_bound_is_above_the_norm_and_close():
    for seed in range(5):
        matrix = random(30, 48, seed=seed)
        physics = LinearPhysics(
            A=lambda x, m=matrix: x.flatten(1) @ m.T.to(x),
            A_adjoint=lambda y, m=matrix: (y @ m.to(y)).view(-1, 3, 4, 4),
        )
        truth = torch.linalg.matrix_norm(matrix, ord=2).item() ** 2
        found = squared_norm(physics, (3, 4, 4))
        assert not found.exact
        assert truth < found.value < 1.1 * truth


def test_a_bound_holds_where_the_power_method_falls_short():
    spectrum = torch.linspace(0.9, 1, 4096).view(1, 1, 64, 64).sqrt()
    physics = LinearPhysics(A=lambda x: spectrum * x, A_adjoint=lambda y: spectrum * y)
    estimate = physics.compute_sqnorm(torch.zeros(1, 1, 64, 64), max_iter=100, verbose=False)
    assert estimate < 0.99
    assert 1 <= squared_norm(physics, (1, 64, 64)).value < 1.1


@pytest.mark.parametrize(
    ("physics", "img_size"),
    [
        (Blur(random(1, 1, 3, 3).float(), padding="reflect"), (1, 6, 7)),
        (
            Downsampling((1, 8, 8), random(1, 1, 3, 3).float(), factor=2, padding="reflect"),
            (1, 8, 8),
        ),
        (Downsampling((1, 7, 8), random(1, 1, 3, 3).float(), factor=2), (1, 7, 8)),
        (TripledMask(mask=torch.ones(1, 1, 4, 4)), (1, 4, 4)),
    ],
)
def test_unknown_spectra_are_bounded(physics, img_size):
    found = squared_norm(physics, img_size)
    truth = by_svd(physics, img_size, torch.float32)
    assert not found.exact
    assert truth < found.value < 1.1 * truth


@pytest.mark.parametrize("padding", ["valid", "reflect", "replicate", "constant"])
def test_operators_without_negative_entries_are_bounded_for_certain(padding):
    """The two channels are apart, and one of them sees ten times as little."""
    kernel = random(1, 2, 3, 3).abs() * torch.tensor([1.0, 0.1]).view(1, 2, 1, 1)
    for physics in (
        Blur(kernel, padding=padding),
        Downsampling((2, 8, 8), kernel, factor=2, padding=padding),
        SpaceVaryingBlur(random(1, 2, 3, 3, 3).abs(), random(1, 2, 3, 8, 8).abs(), padding=padding),
    ):
        found, truth = squared_norm(physics, (2, 8, 8)), by_svd(physics, (2, 8, 8))
        assert not found.exact
        assert truth <= found.value < 1.02 * truth


def test_a_bound_is_repeatable_and_leaves_the_random_state_alone():
    physics = Blur(random(1, 1, 3, 3), padding="reflect")
    before = torch.get_rng_state()
    first = squared_norm(physics, (1, 6, 6))
    assert torch.equal(before, torch.get_rng_state())
    torch.rand(1)
    assert squared_norm(physics, (1, 6, 6)) == first


def test_a_zero_operator_is_refused():
    with pytest.raises(InputError, match="zero"):
        squared_norm(BlurFFT((1, 4, 4), torch.zeros(1, 1, 3, 3)), (1, 4, 4))
    with pytest.raises(InputError, match="zero"):
        squared_norm(LinearPhysics(A=lambda x: 0 * x, A_adjoint=lambda y: 0 * y), (1, 4, 4))
