"""A convex combination of two proximal maps, checked against its parts and by brute force."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from proxmatch.baselines import Identity, Wiener
from proxmatch.denoisers import LPN, GradientStep, GradientStepConfig, LPNConfig, load, save
from proxmatch.denoisers.checkpoint import fingerprint
from proxmatch.errors import CheckpointError, InputError
from proxmatch.pnp import pnp_pgd
from proxmatch.problems import denoising
from proxmatch.transforms import Blended, Relaxed

C = 2


def images(count: int = 2, side: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(count)
    return torch.rand(count, C, side, side, generator=generator, dtype=torch.float64)


def wiener() -> Wiener:
    return Wiener.fit(images(3, 8).cumsum(2) / 8, 0.1)


def lpn() -> LPN:
    torch.manual_seed(0)
    config = LPNConfig(channels=C, size=4, hidden=6, features=5, strides=(2,), unshuffle=1)
    return LPN(config).double()


def scaled() -> GradientStep:
    torch.manual_seed(0)
    config = GradientStepConfig.scaled(channels=C, widths=(4, 4), levels=(0.01, 0.2), sigma=0.1)
    return GradientStep(config).double()


@given(st.floats(0.01, 0.99))
def test_it_is_the_combination_and_bounds_its_spectrum(weight: float) -> None:
    one, other, x = lpn(), wiener(), images()
    both = Blended(one, other, weight)
    assert torch.allclose(both(x), (1 - weight) * one(x) + weight * other(x))
    jacobian = torch.autograd.functional.jacobian(both.forward, x[:1]).reshape(32, 32)
    assert torch.allclose(jacobian, jacobian.T, atol=1e-10)
    assert float(torch.linalg.eigvalsh(jacobian)[0]) >= both.convexity() > 0


def test_it_minimizes_what_its_regularizer_says() -> None:
    """The prox property, tested at the points D(z) + v: no v makes the objective smaller."""
    both, z = Blended(lpn(), wiener(), 0.4), images(1)
    u = both(z).detach()

    def objective(at: Tensor) -> float:
        found: float = ((at - z).square().sum() / 2 + both.regularizer(at)[0]).item()
        return found

    least = objective(u)
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        v = torch.randn(u.shape, generator=generator, dtype=torch.float64)
        for size in (1e-1, 1e-3):
            assert objective(u + size * v) > least


def test_a_saved_one_is_the_same(tmp_path: Path) -> None:
    both = Blended(Relaxed(scaled(), 0.3, 0.05), wiener(), 0.25)
    again = load(save(both, tmp_path))
    assert torch.equal(again(images()), both(images()))
    assert fingerprint(again) == fingerprint(both)
    other = Blended(both.inner, Wiener.fit(images(3, 8), 0.2), 0.25)
    assert fingerprint(other) != fingerprint(both)


def test_only_the_first_gets_stronger() -> None:
    inner = Relaxed(scaled(), 0.3, 0.05)
    both, x = Blended(inner, wiener()), images()
    want = (Relaxed(scaled(), 0.3, 0.1)(x) + both.other(x)) / 2
    assert torch.allclose(both.stronger(2.0)(x), want)
    plain = Blended(lpn(), wiener())
    assert plain.stronger(2.0) is plain


def test_what_does_not_fit_is_refused() -> None:
    for weight in (0.0, 1.0, float("nan")):
        with pytest.raises(InputError, match="between 0 and 1"):
            Blended(lpn(), wiener(), weight)
    large = GradientStep(GradientStepConfig.compact(channels=C))
    for other in (Identity(C), Relaxed(wiener(), 0.5), large):
        with pytest.raises(InputError, match="such as a Wiener filter"):
            Blended(lpn(), other)
    with pytest.raises(InputError, match="2 and 1 channels"):
        Blended(lpn(), Wiener.fit(torch.rand(2, 1, 8, 8), 0.1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"family": "pickle"}, "no family 'pickle'"),
        ({"weights": {"log_snr": [[1.0]]}}, "has shape"),
        ({"weights": {"log_snr": "?"}}, "str"),
        ({"architecture": {"mean": [0.5]}}, "axes"),
        ({"extra": 1}, "a family, an architecture and weights"),
    ],
)
def test_settings_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    told = {**Blended(lpn(), wiener()).settings["other"], **change}
    with pytest.raises((InputError, CheckpointError, ValueError, TypeError), match=message):
        Blended(lpn(), told)


def test_it_is_told_the_level_that_only_the_second_reads() -> None:
    blend, x = Blended(lpn(), scaled(), 0.3), images()
    assert blend.conditional
    assert not torch.equal(blend(x, 0.05), blend(x, 0.2))
    problem = denoising(4, channels=C, iterations=2, dtype=torch.float64)
    assert pnp_pgd(blend, problem.measure(x), problem, sigma=0.2).status[0] == "completed"
