"""The ridge regularizer against brute force: what must hold for every weight, image and level."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st
from pydantic import ValidationError
from scipy.integrate import quad
from scipy.optimize import minimize as scipy_minimize
from scipy.signal import correlate2d
from torch import Tensor

from proxmatch.denoisers import ProximalDenoiser, import_checkpoint, load, save
from proxmatch.denoisers.ridge import Ridge, RidgeConfig, proximal as module
from proxmatch.denoisers.ridge.family import cosines
from proxmatch.denoisers.ridge.filters import analyze, composed, normalized, synthesize
from proxmatch.denoisers.ridge.profile import Profile
from proxmatch.denoisers.ridge.published_weights import RHO
from proxmatch.errors import CheckpointError, InputError
from proxmatch.transforms import Relaxed

SEEDS = st.integers(0, 2**31)


def ridge(seed: int = 0, spread: float = 0.3, **changes: object) -> Ridge:
    """A small one with weights far from where a training starts."""
    torch.manual_seed(seed)
    layout = {"channels": 2, "sizes": (3, 3), "hidden": (3,), "filters": 5, "sigma": 0.2}
    model = Ridge(RidgeConfig(**{**layout, **changes})).double()  # type: ignore[arg-type]
    with torch.no_grad():
        for p in model.parameters():
            p += spread * torch.randn_like(p)
    return model


def profile(seed: int, corner: float, rho: float) -> Profile:
    generator = torch.Generator().manual_seed(seed)
    a, m, w = (torch.rand(1, 1, 1, 1, generator=generator, dtype=torch.float64) for _ in range(3))
    return Profile(0.5 + 3 * a, 0.1 + 30 * m, 0.01 + 0.99 * w, rho, corner)


def matrix(kernel: Tensor, height: int, width: int) -> Tensor:
    """W on images of one size, dense."""
    channels = kernel.shape[1]
    unit = torch.eye(channels * height * width, dtype=kernel.dtype)
    return analyze(unit.view(-1, channels, height, width), kernel).flatten(1).T


# ------------------------------------------------------------------------------------- filters


@given(
    seed=SEEDS,
    channels=st.integers(1, 3),
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    sizes=st.sampled_from([(3,), (5,), (3, 5), (3, 3, 3)]),
)
def test_the_filters_have_norm_at_most_one(
    seed: int, channels: int, size: tuple[int, int], sizes: tuple[int, ...]
) -> None:
    model = ridge(seed, 1.0, channels=channels, sizes=sizes, hidden=(2,) * (len(sizes) - 1))
    with torch.no_grad():
        norm = torch.linalg.matrix_norm(matrix(model.kernel(), *size), 2)
    assert norm <= 1 + 1e-12


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_the_bound_on_the_norm_is_tight(channels: int) -> None:
    """Against the supremum over other frequencies."""
    kernel = normalized(torch.randn(6, channels, 5, 5, dtype=torch.float64))
    spectrum = np.fft.fft2(kernel.numpy(), (203, 199)).transpose(2, 3, 0, 1)
    assert 0.997 < np.linalg.norm(spectrum, 2, axis=(-2, -1)).max() <= 1


def test_synthesis_is_the_transpose_of_analysis() -> None:
    kernel = torch.randn(5, 2, 3, 3, dtype=torch.float64)
    y = torch.randn(1, 5, 4, 6, dtype=torch.float64)
    expected = matrix(kernel, 4, 6).T @ y.flatten()
    assert torch.allclose(synthesize(y, kernel).flatten(), expected)


def test_layers_are_composed_to_one_convolution() -> None:
    layers = [torch.randn(shape, dtype=torch.float64) for shape in ((3, 2, 3, 3), (4, 3, 5, 5))]
    x = torch.randn(1, 2, 9, 8, dtype=torch.float64)
    chain = F.conv2d(F.conv2d(x, layers[0], padding=6), layers[1])[..., 2:-2, 2:-2]
    whole = F.conv2d(x, composed(layers), padding=5)[..., 1:-1, 1:-1]
    assert torch.allclose(chain, whole)


def test_a_training_starts_from_orthonormal_cosines_without_constants() -> None:
    for channels, number in ((1, 48), (3, 86)):
        atoms = cosines(channels, 7).double()
        assert len(atoms) == number == RidgeConfig(channels=channels).number
        gram = atoms.flatten(1) @ atoms.flatten(1).T
        assert torch.allclose(gram, torch.eye(number, dtype=torch.float64), atol=1e-6)
        assert float(atoms.sum((2, 3)).abs().max()) < 1e-5


# ------------------------------------------------------------------------------------- psi


@given(seed=SEEDS, corner=st.floats(0.01, 1), rho=st.floats(0, 0.99))
def test_the_curvature_of_psi_stays_within_its_bounds(seed: int, corner: float, rho: float) -> None:
    psi = profile(seed, corner, rho)
    x = torch.linspace(-4, 4, 4001, dtype=torch.float64).view(1, 1, -1, 1)
    m = float(psi.curvature)
    bend = psi.bend(x)
    assert float(bend.min()) >= -rho - 1e-12
    assert float(bend.max()) <= m + 1e-12
    measured = psi.slope(x).flatten().diff() / x.flatten().diff()
    assert float(measured.min()) >= -rho - 1e-9
    assert float(measured.max()) <= m + 1e-9
    assert torch.allclose(psi.slope(-x), -psi.slope(x))


@given(seed=SEEDS, corner=st.floats(0.05, 1), rho=st.floats(0, 0.99), x=st.floats(-3, 3))
def test_psi_and_its_slope_are_integrals(seed: int, corner: float, rho: float, x: float) -> None:
    psi = profile(seed, corner, rho)
    a, w = float(psi.scale), float(psi.width)
    kinks = sorted({s * c / a for c in (1 - corner, 1 + corner) for s in (1, w)})

    def integral(of: str) -> float:
        def f(t: float) -> float:
            return float(getattr(psi, of)(torch.full((1, 1, 1, 1), t, dtype=torch.float64)))

        cuts = [0.0, *(k for k in kinks if k < abs(x)), abs(x)]
        return float(sum(quad(f, *pair)[0] for pair in pairwise(cuts)))

    at = torch.full((1, 1, 1, 1), abs(x), dtype=torch.float64)
    assert float(psi.slope(at)) == pytest.approx(integral("bend"), abs=1e-8)
    assert float(psi.value(at)) == pytest.approx(integral("slope"), abs=1e-8)
    assert float(psi.value(-at)) == float(psi.value(at))


def test_the_tail_is_where_the_slope_ends() -> None:
    """Zero for the minimax concave penalty: what is large is left alone."""
    for tail in (0.0, 0.2):
        model = ridge()
        with torch.no_grad():
            model.tail.fill_(tail)
        psi = model._at(torch.tensor([0.2], dtype=torch.float64)).profile
        slope = psi.slope(1e3 / psi.scale)
        assert torch.allclose(slope * psi.scale, torch.full_like(slope, tail))


# ------------------------------------------------------------------------------------- R and D


def by_hand(model: Ridge, u: np.ndarray) -> float:
    """R(u) of one image, filter by filter."""
    kernel = model.kernel().detach().numpy()
    psi = model._at(torch.tensor([model.sigma], dtype=torch.float64)).profile
    total = 0.0
    for k, filters in enumerate(kernel):
        response = sum(
            correlate2d(channel, f, mode="same") for channel, f in zip(u, filters, strict=True)
        )
        one = Profile(psi.scale[:, k : k + 1], psi.curvature, psi.width, psi.rho, psi.corner)
        total += float(one.value(torch.from_numpy(response)[None, None]).sum())
    return total


def test_the_regularizer_is_what_its_definition_says() -> None:
    model, u = ridge(), torch.rand(2, 2, 6, 7, dtype=torch.float64)
    expected = [by_hand(model, image.numpy()) for image in u]
    assert model.regularizer(u).tolist() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("sigma", [0.05, 0.4])
def test_the_denoiser_minimizes_what_it_should(sigma: float) -> None:
    """Against L-BFGS of scipy on R + |u - z|^2 / 2, differentiated by autograd."""
    model = ridge(sigma=sigma)
    z = torch.rand(1, 2, 6, 7, dtype=torch.float64)
    regularizer = model._at(torch.tensor([sigma], dtype=torch.float64)).detach()

    def objective(u: np.ndarray) -> tuple[float, np.ndarray]:
        image = torch.from_numpy(u).view_as(z).requires_grad_()
        value = regularizer.value(image).sum() + (image - z).square().sum() / 2
        value.backward()
        assert image.grad is not None
        return float(value.detach()), image.grad.numpy().ravel()

    options = {"maxiter": 5000, "ftol": 1e-16, "gtol": 1e-10}
    start = np.zeros(z.numel())
    best = scipy_minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x
    found = model(z).detach().numpy().ravel()
    assert np.abs(found - best).max() < 1e-6
    assert np.abs(found - z.numpy().ravel()).max() > 1e-3


@settings(max_examples=12)
@given(seed=SEEDS, spread=st.floats(0, 2), level=st.floats(0.003, 0.5), rho=st.floats(0, 0.99))
def test_it_is_exact_for_every_weight(seed: int, spread: float, level: float, rho: float) -> None:
    model = ridge(seed, spread, rho=rho, sigma=level)
    u = torch.randn(2, 2, 5, 6, dtype=torch.float64)
    with torch.no_grad():
        z = u + model.regularizer_grad(u)
        assert torch.allclose(model(z), u, atol=1e-9)
    found = model.inverse(u)
    assert torch.equal(found.z, z)
    assert bool(found.converged.all())


@settings(max_examples=12)
@given(seed=SEEDS, rho=st.floats(0, 0.95))
def test_the_constants_bound_the_jacobian(seed: int, rho: float) -> None:
    model = ridge(seed, 0.5, rho=rho)
    x = torch.rand(1, 2, 4, 5, dtype=torch.float64).expand(40, -1, -1, -1)
    _, product = model.linearize(x)
    dense = product(torch.eye(40, dtype=torch.float64).view_as(x)).flatten(1)
    assert torch.allclose(dense, dense.T, atol=1e-10)
    eigenvalues = torch.linalg.eigvalsh((dense + dense.T) / 2)
    assert float(eigenvalues[0]) >= model.convexity() * (1 - 1e-9)
    assert float(eigenvalues[-1]) <= (1 + 1e-9) / (1 - rho)
    assert model.smoothness == pytest.approx(1 / model.convexity())
    assert model.convexity() < 1


def test_the_regularizer_is_the_one_of_the_potential() -> None:
    """R(u) = h*(u) - |u|^2 / 2, as other families compute it; the constants agree too."""
    model, u = ridge(), torch.rand(2, 2, 5, 6, dtype=torch.float64)
    assert torch.allclose(model.regularizer(u), ProximalDenoiser.regularizer(model, u), atol=1e-10)
    assert torch.allclose(
        model.regularizer_grad(u), ProximalDenoiser.regularizer_grad(model, u), atol=1e-10
    )


def test_the_level_is_a_scale() -> None:
    """With the same psi at all nodes, D_{cs}(c z) = c D_s(z)."""
    model = ridge()
    with torch.no_grad():
        for p in (model.scale, model.curvature, model.tail):
            p.copy_(p[:1].expand_as(p))
    z = torch.rand(1, 2, 5, 6, dtype=torch.float64)
    for c in (0.1, 0.5, 2.0):
        assert torch.allclose(model(c * z, 0.1 * c), c * model(z, 0.1), atol=1e-11)


def test_levels_between_and_beyond_the_nodes() -> None:
    model = ridge(nodes=(0.1, 0.2, 0.4))
    with torch.no_grad():
        model.curvature.copy_(torch.tensor([1.0, 2.0, 4.0]))
    for level, log in ((0.05, 1.0), (0.1, 1.0), (0.15, 1.5), (0.3, 3.0), (0.4, 4.0), (0.9, 4.0)):
        assert model.convexity(level) == pytest.approx(1 / (1 + math.exp(log)))
    z = torch.rand(2, 2, 5, 6, dtype=torch.float64)
    both = model(z, torch.tensor([0.15, 0.9]))
    assert torch.allclose(both[0], model(z[:1], 0.15)[0])
    assert torch.allclose(both[1], model(z[1:], 0.9)[0])


def test_single_precision_trains_like_double_precision() -> None:
    model = ridge(channels=1, sizes=(5,), hidden=(), filters=8)
    x, target = torch.rand(2, 2, 1, 12, 12, dtype=torch.float64)

    def gradient(of: Ridge) -> Tensor:
        loss = (of(x.to(of.scale)) - target.to(of.scale)).square().sum()
        found = torch.autograd.grad(loss, list(of.parameters()))
        return torch.cat([g.double().flatten() for g in found])

    exact, single = gradient(model), gradient(model.float())
    assert float((single - exact).norm()) < 5e-3 * float(exact.norm())


def test_the_evaluation_of_a_training_is_close() -> None:
    model, x = ridge().float(), torch.rand(2, 2, 12, 12)
    with torch.no_grad():
        exact, model.mixed = model(x), True
        apart = (model(x) - exact).abs().max()
    assert 0 < float(apart) < 1e-3


def test_the_search_may_start_anywhere() -> None:
    model, x = ridge(), torch.rand(3, 2, 9, 7, dtype=torch.float64)
    found = model(x).detach()
    for guess in (torch.zeros_like(x), found, 5 * torch.randn_like(x)):
        assert torch.allclose(model.near(x, guess).detach(), found, atol=1e-11)


def test_a_start_that_is_near_saves_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Along a run the last iterate is one."""
    model, x = ridge(), torch.rand(1, 2, 9, 7, dtype=torch.float64)
    calls = 0

    def counted(u: Tensor, kernel: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return analyze(u, kernel)

    monkeypatch.setattr(module, "analyze", counted)
    found = model(x).detach()
    cold, calls = calls, 0
    relaxed = Relaxed(model, 0.5)
    relaxed.near(x + 1e-6, relaxed._step(x, found))
    warm, calls = calls, 0
    model.near(x, found)
    assert calls < warm < cold


def test_large_images_are_handled_a_few_filters_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = ridge(), torch.rand(3, 2, 12, 10, dtype=torch.float64)
    whole = model(x).detach()
    monkeypatch.setattr("proxmatch.denoisers.ridge.proximal.AT_ONCE", 240)
    assert torch.allclose(model(x).detach(), whole, atol=1e-11)


def test_the_potential_needs_no_second_minimization(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = ridge(), torch.rand(2, 2, 5, 6, dtype=torch.float64)
    u, expected = model(x).detach(), model.potential(x).detach()
    monkeypatch.setattr("proxmatch.denoisers.ridge.proximal.minimize", None)
    assert torch.allclose(model.potential_at(x, u), expected, atol=1e-11)


def test_a_saved_one_comes_back(tmp_path: Path) -> None:
    model = ridge().float()
    z = torch.rand(1, 2, 8, 8)
    again = load(save(model, tmp_path / "model"))
    assert torch.equal(again(z), model(z))
    half = load(save(model.half(), tmp_path / "half"))
    assert torch.allclose(half(z), again(z), atol=2e-2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sizes": (4,), "hidden": ()}, "odd"),
        ({"sizes": (3, 3), "hidden": ()}, "between"),
        ({"nodes": (0.2, 0.1)}, "increase"),
        ({"rho": 1.0}, "less than 1"),
        ({"corner": 0.0}, "greater than 0"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        RidgeConfig(**changes)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------- published

KNOTS, INNER, OUTER, NODES = 21, 2, 8, 4


def published_state() -> dict[str, Tensor]:
    """A small file in the layout of the published ones, not projected, as those are."""
    grid = torch.linspace(-0.1, 0.1, KNOTS)
    step = float(grid[1] - grid[0])
    convex = 3 * grid.clamp(-INNER * step, INNER * step)[None]  # slope 3: projected to 1
    concave = 2 * (grid - grid.clamp(-INNER * step, INNER * step))
    concave = concave.clamp(2 * (INNER - OUTER) * step, 2 * (OUTER - INNER) * step)[None]
    concave = concave - 0.01 * (grid.abs() > OUTER * step + 1e-6) * grid.sign()  # falls: to 0
    return {
        "mu_": torch.tensor(1.5),
        "conv_layer.conv_layers.0.parametrizations.weight.original": torch.randn(2, 1, 3, 3),
        "conv_layer.conv_layers.1.weight": torch.randn(3, 2, 3, 3),
        "conv_layer.conv_layers.2.weight": torch.randn(5, 3, 3, 3),
        "activation_cvx.coefficients": convex,
        "activation_ccv.coefficients": concave,
        "spline_scaling.coefficients": 2 + torch.rand(5, NODES),
    }


def published_gradient(state: dict[str, Tensor], u: Tensor, sigma: float, norm: Tensor) -> Tensor:
    """Grad R as the published code computes it, with rho as here."""
    first = state["conv_layer.conv_layers.0.parametrizations.weight.original"]
    layers = [first - first.mean((1, 2, 3), keepdim=True)]
    layers += [state[f"conv_layer.conv_layers.{i}.weight"] for i in (1, 2)]

    def spline(name: str, x: Tensor) -> Tensor:
        coefficients = state[name][0].numpy()
        slopes = np.clip(np.diff(coefficients) / (0.2 / (KNOTS - 1)), 0, 1)
        slopes[[0, -1]] = 0
        values = np.concatenate([[0], np.cumsum(slopes) * 0.2 / (KNOTS - 1)])
        values = (values - values[::-1]) / 2
        grid = np.linspace(-0.1, 0.1, KNOTS)
        return torch.from_numpy(np.interp(x.numpy(), grid, values)).float()

    levels = np.linspace(0, 30, NODES)
    logs = [np.interp(255 * sigma, levels, c) for c in state["spline_scaling.coefficients"].numpy()]
    scaling = torch.tensor(logs).exp().float().view(1, -1, 1, 1) / (255 * sigma + 1e-5)
    y = u
    for layer in layers:
        y = F.conv2d(y, layer, padding=1)
    x = scaling * y / norm
    y = state["mu_"].exp() * spline("activation_cvx.coefficients", x)
    y = (y - RHO * spline("activation_ccv.coefficients", x)) / scaling / norm
    for layer in reversed(layers):
        y = F.conv_transpose2d(y, layer, padding=1)
    return y


def test_published_weights_are_held_as_they_are(tmp_path: Path) -> None:
    state = published_state()
    torch.save({"epoch": 6000, "state_dict": state, "L": torch.tensor(3.0)}, tmp_path / "w.pth")
    model = import_checkpoint(tmp_path / "w.pth", "wcrr", sigma=0.1)
    assert isinstance(model, Ridge)
    assert (model.config.hidden, model.config.filters, model.sigma) == ((2, 3), 5, 0.1)
    u = torch.rand(2, 1, 24, 24)
    first = state["conv_layer.conv_layers.0.parametrizations.weight.original"]
    raw = composed([first - first.mean((2, 3), keepdim=True), *list(model.layers)[1:]])
    norm = (raw.norm() / model.kernel().norm()).detach()
    for sigma in (0.02, 0.055, 0.1):
        expected = published_gradient(state, u, sigma, norm)
        ours = model.regularizer_grad(u, sigma)
        inside = (..., slice(6, -6), slice(6, -6))  # a border of the size of a filter is another
        assert float(expected[inside].abs().max()) > 1e-4
        assert torch.allclose(ours[inside], expected[inside], atol=1e-6)
    assert bool(model.inverse(model(u).detach(), tolerance=1e-4).converged.all())


def test_other_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "w.pth"
    state = published_state()
    torch.save({"a": torch.ones(2)}, file)
    with pytest.raises(CheckpointError, match="another kind"):
        import_checkpoint(file, "wcrr")
    torch.save(state, file)
    with pytest.raises(InputError, match="filters follow from the weights"):
        import_checkpoint(file, "wcrr", filters=5)
    state["activation_cvx.coefficients"] = 0.4 * state["activation_cvx.coefficients"] / 3
    torch.save(state, file)
    with pytest.raises(CheckpointError, match="minimax concave"):
        import_checkpoint(file, "wcrr")
    state = published_state() | {"mu_": torch.tensor(-2.0)}
    torch.save(state, file)
    with pytest.raises(CheckpointError, match="falls far out"):
        import_checkpoint(file, "wcrr")
