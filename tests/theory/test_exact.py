"""Denoisers that are known: everything they say against brute force."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from proxmatch.denoisers import ProximalDenoiser
from proxmatch.errors import InputError
from proxmatch.theory import ExactDenoiser
from proxmatch.theory.known import Gaussian, Huber, Laplace, Mixture
from proxmatch.theory.pointwise import PointwiseLPN, pointwise_gradient_step

PAIR = Mixture(((0.2,), (0.8,)), 0.3)
PLANE = Mixture(((0.2, 0.2), (0.8, 0.3), (0.5, 0.9)), 0.3)
DENOISERS = {
    "gaussian": lambda: ExactDenoiser(Gaussian(0.3, 0.5), 0.2, 2),
    "huber": lambda: ExactDenoiser(Huber(0.1, 0.05), 0.1, 2),
    "mixture": lambda: ExactDenoiser(PAIR, 0.2, 2),
    "plane": lambda: ExactDenoiser(PLANE, 0.2),
    "pointwise-lpn": lambda: PointwiseLPN(2, 1.5, units=12).double(),
    "pointwise-gs": lambda: pointwise_gradient_step(2, 5).double(),
}


@pytest.fixture(params=sorted(DENOISERS))
def denoiser(request: pytest.FixtureRequest) -> ProximalDenoiser:
    return DENOISERS[request.param]()


@pytest.fixture
def z() -> Tensor:
    return torch.rand(2, 2, 3, 4, dtype=torch.float64) * 1.4 - 0.2


def test_denoiser_is_the_gradient_of_its_potential(denoiser: ProximalDenoiser, z: Tensor) -> None:
    leaf = z.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(denoiser.potential(leaf).sum(), leaf)
    assert torch.allclose(denoiser(z), gradient, atol=1e-12)


def test_jacobian_is_that_of_finite_differences(denoiser: ProximalDenoiser, z: Tensor) -> None:
    value, product = denoiser.linearize(z)
    v = torch.randn_like(z)
    change = (denoiser(z + 1e-6 * v) - denoiser(z - 1e-6 * v)) / 2e-6
    assert torch.equal(value, denoiser(z).detach())
    assert torch.allclose(product(v), change, atol=1e-7)
    leaf = z.clone().requires_grad_()
    (back,) = torch.autograd.grad(denoiser(leaf), leaf, v)  # symmetric: J^T v = J v
    assert torch.allclose(back, product(v), atol=1e-10)


def test_inverse_undoes_the_denoiser(denoiser: ProximalDenoiser, z: Tensor) -> None:
    inverse = denoiser.inverse(denoiser(z).detach())
    assert bool(inverse.converged.all())
    assert torch.allclose(inverse.z, z, atol=1e-7)


@pytest.mark.parametrize("name", ["gaussian", "huber", "mixture", "plane"])
def test_exact_denoiser_is_the_proximal_map_of_its_energy(name: str, z: Tensor) -> None:
    denoiser = DENOISERS[name]()
    assert isinstance(denoiser, ExactDenoiser)
    u = denoiser(z)

    def subproblem(u: Tensor) -> Tensor:
        vectors = (
            u.reshape(-1, 1) if denoiser.prior.dimension == 1 else u.movedim(1, -1).flatten(0, 2)
        )
        energy = denoiser.prior.energy(vectors).view(len(u), -1).sum(1)
        return (u - z).square().flatten(1).sum(1) / 2 + denoiser.level**2 * energy

    for size in (1e-3, 0.1, 1.0):
        other = u + size * torch.randn_like(u)
        assert bool((subproblem(other) > subproblem(u)).all())
    difference = denoiser.regularizer(u) - denoiser.regularizer(z)
    expected = subproblem(u) - subproblem(z) - (u - z).square().flatten(1).sum(1) / 2
    assert torch.allclose(difference, expected, atol=1e-10)


@pytest.mark.parametrize("name", ["gaussian", "huber", "mixture", "plane"])
def test_smoothness_bounds_the_inverse_and_is_attained(name: str) -> None:
    denoiser = DENOISERS[name]()
    u = torch.rand(400, 2, 1, 1, dtype=torch.float64) * 4 - 1.5
    v = u + 1e-3 * torch.randn_like(u)
    rise = (denoiser.inverse(u).z - denoiser.inverse(v).z).flatten(1).norm(dim=1)
    ratio = rise / (u - v).flatten(1).norm(dim=1)
    assert float(ratio.max()) <= denoiser.smoothness * (1 + 1e-9)
    assert float(ratio.max()) >= 0.9 * denoiser.smoothness


def test_laplace_is_the_soft_threshold_and_has_no_smoothness() -> None:
    denoiser = ExactDenoiser(Laplace(0.5), 0.5)
    z = torch.linspace(-2, 2, 9, dtype=torch.float64).view(1, 1, 3, 3)
    assert torch.allclose(denoiser(z), torch.nn.functional.softshrink(z, 0.5))
    assert math.isinf(denoiser.smoothness)


def test_several_modes_are_refused() -> None:
    with pytest.raises(InputError, match="single posterior mode"):
        ExactDenoiser(Mixture(((-1.0,), (1.0,)), 0.3), 0.5)
    with pytest.raises(InputError, match="channels"):
        ExactDenoiser(PLANE, 0.2, 3)
