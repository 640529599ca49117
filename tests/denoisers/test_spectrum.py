from __future__ import annotations

import pytest
import torch
from hypothesis import given, strategies as st

from proxmatch.denoisers import LPN, jacobian_spectrum
from proxmatch.denoisers.spectrum import lanczos
from proxmatch.errors import InputError
from tests.denoisers.test_base import jacobian
from tests.denoisers.zoo import DENOISERS, size


@pytest.mark.parametrize("name", sorted(DENOISERS))
def test_extreme_eigenvalues_of_the_dense_jacobian(name: str) -> None:
    denoiser = DENOISERS[name]().double()
    x = torch.rand(2, 2, *size(name), dtype=torch.float64)
    found = jacobian_spectrum(denoiser, x, iterations=x[0].numel())
    for i in range(2):
        eigenvalues = torch.linalg.eigvalsh(jacobian(denoiser, x[i : i + 1]))
        assert float(found.largest[i]) == pytest.approx(float(eigenvalues[-1]), rel=1e-6)
        assert float(found.smallest[i]) == pytest.approx(float(eigenvalues[0]), rel=1e-4)
        assert float(found.constant[i]) == pytest.approx(
            float((1 - eigenvalues).abs().max()), rel=1e-4
        )
    if isinstance(denoiser, LPN):
        assert bool((found.smallest >= denoiser.config.alpha * (1 - 1e-9)).all())


@given(seed=st.integers(0, 2**31), n=st.integers(1, 30), iterations=st.integers(1, 40))
def test_estimates_are_bounds_and_residuals_are_true(seed: int, n: int, iterations: int) -> None:
    """Ritz values never leave the spectrum, and an eigenvalue lies within the residual."""
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(2, n, n, generator=generator, dtype=torch.float64)
    a = (a + a.transpose(1, 2)) / 2
    a[0] = torch.eye(n) + (a[0] > 1)  # few distinct eigenvalues, away from zero
    a[0] = (a[0] + a[0].T) / 2
    start = torch.randn(2, n, generator=generator, dtype=torch.float64)
    found = lanczos(lambda v: (a @ v[:, :, None])[:, :, 0], start, iterations)
    eigenvalues = torch.linalg.eigvalsh(a)
    for theta, residual in (
        (found.largest, found.largest_residual),
        (found.smallest, found.smallest_residual),
    ):
        assert bool((theta <= eigenvalues[:, -1] + 1e-9).all())
        assert bool((theta >= eigenvalues[:, 0] - 1e-9).all())
        distance = (eigenvalues - theta[:, None]).abs().amin(1)
        assert bool((distance <= residual + 1e-8).all())


@pytest.mark.parametrize("name", sorted(DENOISERS))
def test_the_direction_of_a_point_is_a_start_for_its_neighbor(name: str) -> None:
    """From the smallest Ritz vector one iteration gives its Rayleigh quotient, v^T J v."""
    denoiser = DENOISERS[name]().double()
    x = torch.rand(1, 2, *size(name), dtype=torch.float64)
    dense = jacobian(denoiser, x)
    found = jacobian_spectrum(denoiser, x, iterations=x.numel())
    v = found.direction.flatten()
    assert float(v.norm()) == pytest.approx(1, rel=1e-9)
    assert float(v @ dense @ v) == pytest.approx(float(found.smallest), rel=1e-6)
    again = jacobian_spectrum(denoiser, x, iterations=1, start=found.direction)
    assert float(again.smallest) == pytest.approx(float(found.smallest), rel=1e-6)


def test_no_iterations_is_refused() -> None:
    with pytest.raises(InputError, match="at least one"):
        jacobian_spectrum(DENOISERS["lpn"](), torch.rand(1, 2, 8, 8), iterations=0)


def test_few_iterations_underestimate_and_admit_it() -> None:
    """A localized top mode is missed by a few steps from a random start; the residual shows it."""
    diagonal = torch.linspace(0, 0.9, 4096, dtype=torch.float64)
    diagonal[-1] = 1.3
    few, many = (
        lanczos(lambda v: v * diagonal, torch.randn(1, 4096, dtype=torch.float64), k)
        for k in (5, 80)
    )
    assert float(few.largest) < 1.2
    assert not bool(few.converged())
    assert float(many.largest) == pytest.approx(1.3, abs=1e-6)
    assert bool(many.largest_residual < 1e-3)


def test_a_jacobian_that_is_not_finite_is_told() -> None:
    with pytest.raises(InputError, match="not finite at these images"):
        lanczos(lambda v: v / 0, torch.ones(1, 1, 4, 4), 3)
