"""The baselines against closed forms: scipy's cosine transform, a dense solve, two pixels."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.fft
import torch
from hypothesis import given, strategies as st
from pydantic import ValidationError
from torch import Tensor

from proxmatch.baselines import (
    Identity,
    TotalVariation,
    Wiener,
    WienerConfig,
    no_denoiser,
    total_variation,
    wiener_filter,
)
from proxmatch.data import embedded
from proxmatch.errors import InputError
from proxmatch.metrics import psnr
from proxmatch.pnp import pnp_pgd
from proxmatch.problems import denoising, gaussian_deblurring
from proxmatch.transforms.colors import color_statistics
from proxmatch.transforms.strength import halved

SIGMA = 0.1


def field(count: int, size: int = 32, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Gaussian images of one channel with the variances S = 1e-3 / f^2, and S itself."""
    k = torch.arange(size, dtype=torch.float64) / (2 * size)
    variance = 1e-3 / (k[:, None].square() + k.square()).clamp_min((0.5 / size) ** 2)
    generator = torch.Generator().manual_seed(seed)
    white = torch.randn(count, 1, size, size, generator=generator, dtype=torch.float64)
    drawn = scipy.fft.idctn((white * variance.sqrt()).numpy(), axes=(2, 3), norm="ortho")
    return torch.from_numpy(drawn) + 0.5, variance


def test_the_filter_is_scipys_cosine_transform_and_a_gain() -> None:
    images = embedded("photographs", 16).adaptation[:4].double()
    model = Wiener.fit(images, SIGMA)
    x = torch.rand(2, 3, 7, 10, dtype=torch.float64)
    axes, mean = np.array(model.config.axes), np.array(model.config.mean)[:, None, None]
    colors = np.einsum("ij,bjhw->bihw", axes, x.numpy() - mean)
    coefficients = scipy.fft.dctn(colors, axes=(2, 3), norm="ortho")
    rows, cols = np.arange(7) / 14, np.arange(10) / 20
    octave = np.log2(np.maximum(np.hypot(rows[:, None], cols), 2**-8) / 2**-8)
    place = octave / np.log2(2**0.5 / 2 * 2**8) * 15
    snr = model.log_snr.detach().numpy()
    gain = [1 / (1 + np.exp(-np.interp(place, np.arange(16), row))) for row in snr]
    back = scipy.fft.idctn(np.array(gain) * coefficients, axes=(2, 3), norm="ortho")
    expected = np.einsum("ji,bjhw->bihw", axes, back) + mean
    assert np.allclose(model(x).detach(), expected, atol=1e-12)


def test_the_fit_comes_near_the_best_linear_denoiser() -> None:
    """Where S is known: the error of the filter fitted on one image, and of the exact one."""
    images, variance = field(41)
    clean = images[1:]
    noisy = clean + SIGMA * torch.randn_like(clean)
    model = Wiener.fit(images[:1], SIGMA)
    coefficients = scipy.fft.dctn((noisy - 0.5).numpy(), axes=(2, 3), norm="ortho")
    gain = (variance / (variance + SIGMA**2)).numpy()
    exact = scipy.fft.idctn(gain * coefficients, axes=(2, 3), norm="ortho") + 0.5
    best = float((torch.from_numpy(exact) - clean).square().mean())
    ours = float((model(noisy).detach() - clean).square().mean())
    assert best <= ours < 1.03 * best
    for sigma in (SIGMA / 3, SIGMA * 3):  # another strength is worse
        other = Wiener.fit(images[:1], sigma)
        assert float((other(noisy).detach() - clean).square().mean()) > 1.1 * ours


@given(seed=st.integers(0, 2**31))
def test_any_weights_make_a_proximal_map(seed: int) -> None:
    torch.manual_seed(seed)
    model = Wiener.fit(torch.rand(1, 2, 5, 6, dtype=torch.float64), SIGMA)
    with torch.no_grad():
        model.log_snr.normal_(0, 3)
    _, product = model.linearize(torch.rand(60, 2, 5, 6, dtype=torch.float64))
    values = torch.linalg.eigvalsh(product(torch.eye(60).double().view(60, 2, 5, 6)).flatten(1))
    assert float(values[0]) > 0
    assert float(values[-1]) < 1
    assert 1 / float(values[0]) <= model.smoothness * (1 + 1e-9)


def test_its_regularizer_is_the_quadratic_of_its_variances() -> None:
    images, _ = field(2, 8)
    model = Wiener.fit(images, SIGMA)
    u = torch.rand(3, 1, 8, 8, dtype=torch.float64)
    with torch.no_grad():
        gain = model._gain(u)
    coefficients = scipy.fft.dctn(u.numpy() - model.config.mean[0], axes=(2, 3), norm="ortho")
    expected = 0.5 * ((1 / gain - 1) * torch.from_numpy(coefficients).square()).flatten(1).sum(1)
    found = model.regularizer(u)
    assert torch.allclose(found - found[0], expected - expected[0], atol=1e-9)


def test_pnp_with_it_is_the_posterior_mean() -> None:
    """At sigma^2 = eta times the noise variance, against a dense solve of the normal equations."""
    noise, size = 0.05, 8
    problem = gaussian_deblurring(size, channels=1, noise=noise, eta=0.9, iterations=800)
    problem = problem.to(torch.float64)
    images, _ = field(3, size)
    model = Wiener.fit(images[1:], problem.eta**0.5 * noise)
    y = problem.measure(images[:1])
    found = pnp_pgd(model, y, problem).images.flatten()
    eye = torch.eye(size**2, dtype=torch.float64).view(-1, 1, size, size)
    a = problem.physics.A(eye).flatten(1).T
    _, product = model.linearize(eye)
    precision = (torch.linalg.inv(product(eye).flatten(1)) - torch.eye(size**2)) / model.sigma**2  # type: ignore[operator]
    scale = problem.eta  # sigma^2 / noise^2: the prior covariance is S itself
    assert scale == pytest.approx(model.sigma**2 / noise**2)  # type: ignore[operator]
    mean = torch.full((size**2,), model.config.mean[0], dtype=torch.float64)
    left = a.T @ a / noise**2 + precision
    exact = torch.linalg.solve(left, a.T @ y.flatten() / noise**2 + precision @ mean)
    assert torch.allclose(found, exact, atol=1e-7)


def test_inference_mode_leaves_nothing_behind() -> None:
    """The tables that are kept between calls serve a caller who differentiates."""
    model, x = Wiener.fit(torch.rand(2, 3, 16, 16), 0.1), torch.rand(1, 3, 23, 29)
    with torch.inference_mode():
        expected = model(x)
    leaf = x.clone().requires_grad_()
    out = model(leaf)
    out.sum().backward()
    assert leaf.grad is not None
    assert torch.equal(out.detach(), expected.clone())


def test_images_that_cannot_be_fitted() -> None:
    with pytest.raises(InputError, match="sigma"):
        Wiener.fit(torch.rand(1, 3, 8, 8), 0.0)
    with pytest.raises(InputError, match="spectrum"):
        Wiener.fit(torch.rand(1, 3, 1, 1), 0.1)
    flat = Wiener.fit(torch.full((1, 3, 8, 8), 0.5), 0.1)
    assert bool(flat.log_snr.isfinite().all())
    with pytest.raises(ValidationError, match="orthogonal"):
        WienerConfig(mean=(0.5, 0.5), axes=((1.0, 0.0), (1.0, 0.0)))
    with pytest.raises(ValidationError, match="rows"):
        WienerConfig(mean=(0.5,), axes=((1.0, 0.0), (0.0, 1.0)))


def test_the_identity_has_no_prior() -> None:
    model, x = Identity(2), torch.rand(2, 2, 4, 5, dtype=torch.float64)
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model.potential(leaf).sum(), leaf)
    assert torch.equal(gradient, model(x))
    assert torch.equal(model.linearize(x)[1](gradient), gradient)
    assert float(model.regularizer(x).abs().max()) < 1e-12
    assert model.inverse(x).converged.all()
    assert model.smoothness == 1


def test_without_a_denoiser_stopping_is_everything() -> None:
    problem = gaussian_deblurring(32, noise=0.05)
    images = embedded("photographs", 32).adaptation[:4]
    found = no_denoiser(images, problem)
    y = problem.measure(images)
    x = problem.initial(y)
    curve = [float(psnr(x, images).mean())]
    for _ in range(problem.iterations):
        x = x - problem.eta * problem.gradient(x, y)
        curve.append(float(psnr(x, images).mean()))
    assert 0 < found.chosen.iteration < problem.iterations
    assert found.chosen.best == pytest.approx(max(curve), abs=1e-4)
    assert curve[found.chosen.iteration] == pytest.approx(max(curve), abs=1e-4)
    assert found.chosen.psnr == pytest.approx(curve[-1], abs=1e-4)
    assert found.chosen.best > found.chosen.psnr + 0.5


def test_when_the_start_is_best_nothing_is_done() -> None:
    problem = denoising(16, noise=0.0)
    images = torch.rand(2, 3, 16, 16)
    found = no_denoiser(images, problem)
    assert found.chosen.iteration == 0
    y = problem.measure(images)
    run = pnp_pgd(found.denoiser, y, problem, iterations=found.chosen.iteration)
    assert torch.equal(run.images, problem.initial(y))


@pytest.mark.parametrize("difference", [0.5, 0.15])
def test_total_variation_of_two_pixels(difference: float) -> None:
    """Both move by the weight toward each other, and no further than to their mean."""
    x = torch.tensor([0.3, 0.3 + difference], dtype=torch.float64).view(1, 1, 1, 2)
    out = TotalVariation(0.1, steps=2000)(x).flatten()
    step = min(0.1, difference / 2)
    assert torch.allclose(out, x.flatten() + step * torch.tensor([1.0, -1.0]), atol=1e-5)


def test_total_variation_remembers_nothing() -> None:
    denoiser, x = TotalVariation(0.05), torch.rand(1, 3, 8, 8)
    first = denoiser(x)
    assert torch.equal(denoiser(torch.cat([x, 0 * x]))[:1], first)
    denoiser(torch.rand(1, 3, 8, 8))
    assert torch.equal(denoiser(x, 0.1), first)
    with pytest.raises(InputError, match="weight"):
        TotalVariation(0.0)


def test_every_baseline_gets_its_strength_from_the_images() -> None:
    """Each improves on the last iterate of gradient steps alone, on images it has not seen."""
    problem = gaussian_deblurring(32, noise=0.05)
    domain = embedded("photographs", 32)
    truth = domain.test[::24]
    y = problem.measure(truth)
    alone = no_denoiser(domain.adaptation[:2], problem)

    def quality(denoiser: object) -> float:
        run = pnp_pgd(denoiser, y, problem, truth=truth)  # type: ignore[arg-type]
        assert run.psnr is not None
        return float(run.psnr[:, -1].mean())

    for found in (
        wiener_filter(domain.adaptation[:2], problem),
        total_variation(domain.adaptation[:2], problem, weights=(0.05, 0.02)),
    ):
        assert found.chosen.psnr == max(trial.psnr for trial in found.table)
        assert quality(found.denoiser) > quality(alone.denoiser) + 3


def test_the_filter_of_a_natural_spectrum_is_that_of_images_with_this_spectrum() -> None:
    """Fitted to random images whose cosine transforms have variance 1 / f^2.5, it is the same."""
    frequency = np.hypot(*np.meshgrid(np.arange(64), np.arange(64))) / 128
    frequency[0, 0] = np.inf
    draws = np.random.default_rng(0).standard_normal((256, 1, 64, 64))
    fields = scipy.fft.idctn(draws * frequency**-1.25, axes=(2, 3), norm="ortho")
    x = torch.from_numpy(0.5 + 0.2 * fields / fields.std())
    known = Wiener.natural(color_statistics(x), 0.05, (64, 64)).double()
    fitted = Wiener.fit(x, 0.05)
    y = x[:4] + 0.05 * torch.from_numpy(draws[4:8])
    difference = (known(y) - fitted(y)).square().mean().sqrt()
    assert float(difference) < 0.1 * float((fitted(y) - x[:4]).square().mean().sqrt())


def test_the_filter_of_mirrored_images_knows_how_brightness_varies() -> None:
    """Mirrored images have no power at their lowest frequencies, which says nothing about them."""
    images = embedded("photographs", 64).adaptation[:8]
    problem = gaussian_deblurring(64, iterations=20)
    darker = 0.5 * embedded("photographs", 64).test[:2]
    y = problem.measure(darker)

    def quality(given: Tensor) -> float:
        run = pnp_pgd(Wiener.fit(given, 0.03), y, problem, truth=darker)
        assert run.psnr is not None
        return float(run.psnr[:, -1].mean())

    assert quality(halved(images)) > quality(images) - 1


def test_a_baseline_has_no_noise_levels() -> None:
    problem = denoising(16, channels=1, iterations=1)
    y = problem.measure(torch.rand(2, 1, 16, 16))
    for denoiser in (TotalVariation(0.01), Identity(1), Wiener.fit(y, 0.1)):
        assert torch.equal(denoiser(y, 0.1), denoiser(y))
        with pytest.raises(InputError, match="positive number"):
            denoiser(y, -1)
        with pytest.raises(InputError, match="has no noise levels"):
            pnp_pgd(denoiser, y, problem, sigma=0.1)
        pnp_pgd(denoiser, y, problem)
