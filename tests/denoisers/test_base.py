"""What must hold for every proximal denoiser, checked against autograd and brute force."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from proxmatch.denoisers import LPN, LPNConfig, ProximalDenoiser, jacobian_spectrum
from proxmatch.errors import InputError, NotConvergedWarning
from tests.denoisers.zoo import DENOISERS, size


@pytest.fixture(params=sorted(DENOISERS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def denoiser(name: str, _seeded: None) -> ProximalDenoiser:
    return DENOISERS[name]().double()


@pytest.fixture
def x(name: str, denoiser: ProximalDenoiser) -> Tensor:
    return torch.rand(3, 2, *size(name), dtype=torch.float64)


def jacobian(denoiser: ProximalDenoiser, x: Tensor) -> Tensor:
    """Dense J_D of one image by autograd, ``(n, n)``."""
    shape = x.shape
    dense = torch.autograd.functional.jacobian(
        lambda v: denoiser(v.view(shape)).flatten(), x.flatten()
    )
    assert isinstance(dense, Tensor)
    return dense


def test_forward_is_the_gradient_of_the_potential(denoiser: ProximalDenoiser, x: Tensor) -> None:
    leaf = x.clone().requires_grad_()
    potential = denoiser.potential(leaf)
    assert potential.shape == (3,)
    (gradient,) = torch.autograd.grad(potential.sum(), leaf)
    assert (denoiser(x) - gradient).norm() <= 1e-10 * gradient.norm()


def test_potential_differences_match_the_work_of_the_denoiser(
    denoiser: ProximalDenoiser, x: Tensor
) -> None:
    """h(b) - h(a) is the integral of <D, b - a> along the segment (Simpson, exact to 1e-6)."""
    a, b = x, torch.rand_like(x)
    t = torch.linspace(0, 1, 65, dtype=torch.float64)
    w = torch.ones(65, dtype=torch.float64)
    w[1:-1:2], w[2:-1:2] = 4, 2
    with torch.no_grad():
        work = sum(
            wi * (denoiser(a + ti * (b - a)) * (b - a)).flatten(1).sum(1)
            for wi, ti in zip(w / (3 * 64), t, strict=True)
        )
        assert torch.allclose(denoiser.potential(b) - denoiser.potential(a), work, rtol=1e-4)


def test_jacobian_is_symmetric_positive_definite(denoiser: ProximalDenoiser, x: Tensor) -> None:
    dense = jacobian(denoiser, x[:1])
    assert (dense - dense.T).norm() <= 1e-10 * dense.norm()
    smallest = torch.linalg.eigvalsh((dense + dense.T) / 2)[0]
    if isinstance(denoiser, LPN):
        assert smallest >= denoiser.config.alpha * (1 - 1e-9)
    assert smallest > 0


def test_linearize_agrees_with_the_dense_jacobian(denoiser: ProximalDenoiser, x: Tensor) -> None:
    value, product = denoiser.linearize(x)
    assert not product(x.clone().requires_grad_()).requires_grad
    v = torch.randn_like(x)
    assert torch.equal(value, denoiser(x).detach())
    for i in range(len(x)):
        expected = jacobian(denoiser, x[i : i + 1]) @ v[i].flatten()
        assert torch.allclose(product(v)[i].flatten(), expected, rtol=1e-9, atol=1e-12)


def test_inverse_undoes_the_denoiser(denoiser: ProximalDenoiser, x: Tensor) -> None:
    with torch.no_grad():
        u = denoiser(x)
    result = denoiser.inverse(u)
    assert bool(result.converged.all())
    assert bool((result.residual <= 1e-10).all())
    assert torch.allclose(result.z, x, atol=1e-6)
    achieved = (denoiser(result.z) - u).flatten(1).norm(dim=1) / u.flatten(1).norm(dim=1)
    assert torch.allclose(achieved, result.residual, atol=1e-14)
    warm = denoiser.inverse(u, initial=result.z)
    assert bool((warm.iterations <= 1).all())


def test_regularizer_gradient_matches_finite_differences(
    denoiser: ProximalDenoiser, x: Tensor
) -> None:
    with torch.no_grad():
        u = denoiser(x)
    direction = torch.randn_like(u)
    step = 1e-5
    slope = (
        denoiser.regularizer(u + step * direction) - denoiser.regularizer(u - step * direction)
    ) / (2 * step)
    expected = (denoiser.regularizer_grad(u) * direction).flatten(1).sum(1)
    assert torch.allclose(slope, expected, rtol=1e-4, atol=1e-6)


def test_denoiser_is_the_proximal_map_of_its_regularizer(
    denoiser: ProximalDenoiser, x: Tensor
) -> None:
    """D(z) minimizes 1/2 |u - z|^2 + R(u): against a brute-force minimization by L-BFGS."""
    z = x[:1]
    with torch.no_grad():
        u = denoiser(z + 0.05 * torch.randn_like(z))  # a start away from the solution

    class Objective(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, u: Tensor) -> Tensor:
            inverse = denoiser.inverse(u)
            ctx.slope = inverse.z - z  # u - z + grad R(u)
            return 0.5 * ((u - z) ** 2).sum() + denoiser.regularizer(u, inverse=inverse).sum()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * ctx.slope

    u = u.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [u],
        max_iter=100,
        tolerance_grad=1e-9,
        tolerance_change=1e-12,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        value: Tensor = Objective.apply(u)
        value.backward()
        return value

    optimizer.step(closure)
    assert torch.allclose(u.detach(), denoiser(z).detach(), atol=1e-5)


@given(seed=st.integers(0, 2**31), t=st.floats(0.01, 0.99))
def test_potential_is_convex_along_any_segment(name: str, seed: int, t: float) -> None:
    torch.manual_seed(seed)
    denoiser = DENOISERS[name]().double()
    scale = 2.0 if isinstance(denoiser, LPN) else 0.5
    a, b = (scale * torch.randn(2, 2, *size(name), dtype=torch.float64) for _ in range(2))
    with torch.no_grad():
        chord = t * denoiser.potential(a) + (1 - t) * denoiser.potential(b)
        arc = denoiser.potential(t * a + (1 - t) * b)
    slack = 0.0
    if isinstance(denoiser, LPN):  # strongly convex: the chord is above by alpha/2 t(1-t)|a-b|^2
        slack = denoiser.config.alpha / 2 * t * (1 - t) * (a - b).flatten(1).square().sum(1)
    assert bool((arc + slack <= chord + 1e-9 * chord.abs()).all())


def test_batch_does_not_matter(denoiser: ProximalDenoiser, x: Tensor) -> None:
    alone = torch.cat([denoiser(x[i : i + 1]) for i in range(len(x))])
    assert torch.allclose(denoiser(x), alone, rtol=1e-12, atol=1e-13)


def test_float32_agrees_with_float64(name: str, denoiser: ProximalDenoiser, x: Tensor) -> None:
    with torch.no_grad():
        exact = denoiser(x)
        single = denoiser.float()(x.float())
    assert single.dtype == torch.float32
    assert torch.allclose(single.double(), exact, atol=2e-5)
    u = single
    assert bool(denoiser.inverse(u).converged.all())


def test_caller_is_left_alone(denoiser: ProximalDenoiser, x: Tensor) -> None:
    kept = x.clone()
    for mode in (torch.no_grad(), torch.enable_grad(), torch.inference_mode()):
        for training in (True, False):
            denoiser.train(training)
            with mode:
                before = torch.is_grad_enabled()
                images = x.clone()
                out = denoiser(images)
                denoiser.potential(images)
                denoiser.linearize(images)[1](images)
                denoiser.regularizer(out.detach().clone())
                assert torch.is_grad_enabled() == before
            assert torch.equal(images, kept)
            assert images.requires_grad is False
            assert images.grad is None
            assert denoiser.training is training
    assert all(p.grad is None for p in denoiser.parameters())
    with torch.no_grad():
        assert denoiser(x).requires_grad is False
    assert denoiser(x).requires_grad is True


def test_training_gradient_matches_autograd_of_the_potential(
    denoiser: ProximalDenoiser, x: Tensor
) -> None:
    """One ordinary backward gives what differentiating the potential twice gives."""
    target = torch.rand_like(x)
    parameters = [p for p in denoiser.parameters() if p.requires_grad]
    if isinstance(denoiser, LPN):
        denoiser.project_()
    loss = (denoiser(x) - target).square().sum()
    ours = torch.autograd.grad(loss, parameters, allow_unused=True)
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(denoiser.potential(leaf).sum(), leaf, create_graph=True)
    truth = torch.autograd.grad((gradient - target).square().sum(), parameters, allow_unused=True)
    for a, b in zip(ours, truth, strict=True):
        a = torch.zeros(()) if a is None else a
        b = torch.zeros(()) if b is None else b
        assert (a - b).norm() <= 1e-9 * (1 + b.norm())


def test_second_derivatives_pass_through(denoiser: ProximalDenoiser, x: Tensor) -> None:
    """A penalty on J_D v can be trained on: its derivative against finite differences."""
    v = torch.randn_like(x)
    parameter = next(p for p in denoiser.parameters())

    def penalty() -> Tensor:
        leaf = x.clone().requires_grad_()
        (jv,) = torch.autograd.grad(denoiser(leaf), leaf, v, create_graph=True)
        return (jv**2).sum()

    (slope,) = torch.autograd.grad(penalty(), parameter)
    direction = torch.randn_like(parameter)
    step = 1e-5
    values = []
    for sign in (1, -1):
        with torch.no_grad():
            parameter += sign * step * direction
        values.append(float(penalty().detach()))
        with torch.no_grad():
            parameter -= sign * step * direction
    assert (values[0] - values[1]) / (2 * step) == pytest.approx(
        float((slope * direction).sum()), rel=1e-4
    )


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (torch.rand(1, 3, 8, 8, dtype=torch.float64), "channel"),
        (torch.rand(2, 8, 8, dtype=torch.float64), "shape"),
        (torch.rand(1, 2, 8, 8, dtype=torch.float32), "float32"),
        (torch.ones(1, 2, 8, 8, dtype=torch.uint8), "uint8"),
        (torch.ones(1, 2, 8, 8, dtype=torch.float16), "float16"),
        (torch.rand(0, 2, 8, 8, dtype=torch.float64), "empty"),
        ([[1.0]], "tensor"),
    ],
)
def test_what_is_no_image_is_refused(denoiser: ProximalDenoiser, bad: Tensor, message: str) -> None:
    for method in (denoiser, denoiser.potential, denoiser.linearize, denoiser.inverse):
        with pytest.raises(InputError, match=message):
            method(bad)


def test_black_images_have_a_regularizer_too(denoiser: ProximalDenoiser, x: Tensor) -> None:
    for u in (torch.zeros_like(x), torch.full_like(x, 1e-3)):
        result = denoiser.inverse(u)
        assert bool(result.converged.all())
        assert float((denoiser(result.z) - u).abs().max()) < 1e-8
        assert bool(torch.isfinite(denoiser.regularizer(u, inverse=result)).all())


def test_the_inverse_refuses_what_has_none(denoiser: ProximalDenoiser, x: Tensor) -> None:
    x[1, 0, 0, 0] = float("nan")
    with pytest.raises(InputError, match=r"NaN or infinity in the images \[1\]"):
        denoiser.inverse(x)
    good = denoiser.inverse(denoiser(x[:1]).detach(), tolerance=1e-3)
    with pytest.raises(InputError, match="shape"):
        denoiser.regularizer(x[2:3].expand(3, -1, -1, -1), inverse=good)
    never = denoiser.inverse(denoiser(x[:1]).detach(), tolerance=0.0, max_iterations=3)
    assert not bool(never.converged.any()) or float(never.residual) == 0


def test_autocast_changes_nothing(denoiser: ProximalDenoiser, x: Tensor) -> None:
    """In half precision a denoiser is no gradient, and no inverse reaches its tolerance."""
    model, x = denoiser.float(), x.float()

    def everything() -> list[Tensor]:
        value, product = model.linearize(x)
        solved = model.inverse(value, max_iterations=5)
        found = [model(x), model.potential(x), value, product(x), solved.z, solved.residual]
        return [t.detach() for t in found]

    expected = everything()
    with torch.autocast("cpu", torch.bfloat16):
        found = everything()
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


def test_replicas_and_parametrizations_of_an_lpn_work() -> None:
    model = DENOISERS["lpn"]()
    assert isinstance(model, LPN)
    x = torch.rand(1, 2, 8, 8)
    expected = model(x)
    replica = torch.nn.utils.parametrizations.weight_norm(copy.deepcopy(model).lin[0])
    wrapped = copy.deepcopy(model)
    wrapped.lin[0] = replica
    assert torch.allclose(wrapped(x), expected, atol=1e-5)
    (gradient,) = (torch.func.grad(lambda v: model.potential(v).sum())(x),)
    assert torch.allclose(gradient, expected, atol=1e-5)


def test_a_solve_that_fails_says_so() -> None:
    denoiser = DENOISERS["gs"]().double()
    with torch.no_grad():
        for p in denoiser.parameters():
            p.mul_(12)  # far from contractive
    u = 10 * torch.randn(2, 2, 8, 8, dtype=torch.float64)
    result = denoiser.inverse(u, max_iterations=20)
    assert not bool(result.converged.any())
    assert bool(torch.isfinite(result.z).all())
    with pytest.warns(NotConvergedWarning, match="not solved for image"):
        denoiser.regularizer(u, inverse=result)


def test_what_has_a_tolerance_is_not_rounded_to_tf32() -> None:
    """A recent GPU rounds what its convolutions multiply to 11 bits unless it is told not to."""

    def rounds() -> bool:
        return torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32

    seen: list[bool] = []

    class Watching(LPN):
        def forward(self, x: Tensor, *given: Any, **named: Any) -> Tensor:
            seen.append(rounds())
            return super().forward(x, *given, **named)

        def linearize(self, x: Tensor, *given: Any) -> Any:
            seen.append(rounds())
            return super().linearize(x, *given)

    model = Watching(LPNConfig(size=8, hidden=4, features=3, strides=(2,), channels=1))
    x = torch.rand(1, 1, 8, 8)
    before = rounds()
    assert before
    model(x)
    assert all(seen)
    seen.clear()
    model.inverse(x, max_iterations=2)
    jacobian_spectrum(model, x, iterations=2)
    assert len(seen) > 3
    assert not any(seen)
    assert rounds() == before
