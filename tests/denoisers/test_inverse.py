from __future__ import annotations

import torch
from torch import Tensor

from proxmatch.denoisers.inverse import anderson, quasi_newton

SIZES = torch.logspace(-3, 1, 192, dtype=torch.float64).view(1, 1, 8, 24)


def gradient(z: Tensor, places: Tensor) -> Tensor:
    """Of sum a z^2 / 2 + softplus: convex, of condition 10^4 and with a bend."""
    scale = (1.0 + places.to(z)).view(-1, 1, 1, 1)
    return scale * (SIZES.to(z) * z + 0.01 * torch.sigmoid(20 * z))


def test_a_quasi_newton_method_solves_what_a_fixed_point_does_not() -> None:
    z = torch.randn(3, 1, 8, 24, generator=torch.Generator().manual_seed(0)).double()
    u = gradient(z, torch.arange(3))
    slow = anderson(gradient, u, u, 1e-6, 400)
    found = quasi_newton(gradient, u, u, 1e-6, 400)
    assert not slow.converged.any()
    assert found.converged.all()
    torch.testing.assert_close(found.z, z, rtol=0, atol=0.01)
    again = gradient(found.z, torch.arange(3)) - u
    torch.testing.assert_close(found.residual, again.flatten(1).norm(dim=1) / _scale(u))


def _scale(u: Tensor) -> Tensor:
    return u.flatten(1).norm(dim=1).clamp_min(0.1 * u[0].numel() ** 0.5)


def test_images_of_a_batch_do_not_know_of_each_other() -> None:
    z = torch.randn(2, 1, 8, 24, generator=torch.Generator().manual_seed(1)).double()
    u = gradient(z, torch.arange(2))
    together = quasi_newton(gradient, u, u, 1e-6, 400)
    alone = quasi_newton(lambda z, places: gradient(z, places + 1), u[1:], u[1:], 1e-6, 400)
    torch.testing.assert_close(together.z[1:], alone.z, rtol=0, atol=1e-3)


def test_a_short_memory_and_a_solution_to_begin_with() -> None:
    z = torch.randn(1, 1, 8, 24, generator=torch.Generator().manual_seed(2)).double()
    u = gradient(z, torch.arange(1))
    assert quasi_newton(gradient, u, z, 1e-6, 100).iterations.tolist() == [1]
    short, long = (quasi_newton(gradient, u, u, 1e-12, 60, memory=m).residual for m in (2, 60))
    assert float(long) < float(short) < 1


def test_what_is_not_convex_ends_with_its_best_point() -> None:
    u = torch.ones(1, 1, 8, 24)
    found = quasi_newton(lambda z, places: torch.where(z > 2, torch.nan, -z), u, u, 1e-6, 50)
    assert found.residual.isfinite().all()
    assert not found.converged.any()
