"""Colors: their statistics, the rotation between two sets of them, and alignment by both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deepinv as dinv
import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import assume, given, strategies as st
from torch import Tensor

from proxmatch.baselines import Identity, Wiener
from proxmatch.data import embedded
from proxmatch.denoisers import load, save
from proxmatch.errors import DegenerateStatisticsWarning, InputError
from proxmatch.problems import (
    Problem,
    gaussian_deblurring,
    inpainting as masked,
    poisson_denoising,
    super_resolution,
)
from proxmatch.transforms import (
    Aligned,
    ColorStatistics,
    Relaxed,
    align,
    color_statistics,
    colors_of,
    statistics_from_measurements,
)
from proxmatch.transforms.align import ROUNDING, rotation
from proxmatch.transforms.measured_colors import EXPONENT, attenuation


def colorful(seed: int, count: int = 3) -> Tensor:
    """Images with random color statistics."""
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(3, 3, generator=generator) / 8
    white = torch.randn(count, 3, 6, 5, generator=generator)
    return torch.einsum("ij,bjhw->bihw", mix, white) + torch.rand(3, 1, 1, generator=generator)


def angle(u: Tensor) -> float:
    return float(torch.rad2deg(((u.trace() - 1) / 2).clamp(-1, 1).acos()))


# --- statistics ----------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 3])
def test_statistics_are_those_of_numpy(channels: int) -> None:
    images = colorful(0)[:, :channels]
    found = color_statistics(images)
    pixels = images.double().movedim(1, 0).reshape(channels, -1).numpy()
    assert np.allclose(found.mean, pixels.mean(1))
    assert np.allclose(found.covariance, np.cov(pixels, bias=True).reshape(channels, channels))
    again = ColorStatistics.from_json(json.loads(json.dumps(found.to_json())))
    assert torch.equal(again.mean, found.mean)
    assert torch.equal(again.covariance, found.covariance)


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"mean": [0.5]},
        {"mean": [0.5], "covariance": [0.1]},
        {"mean": [0.5], "covariance": [[-0.1]]},
        {"mean": ["a"], "covariance": [[0.1]]},
        {"mean": [float("nan")], "covariance": [[0.1]]},
        {"mean": [0.5, 0.5], "covariance": [[1, 0.5], [0.2, 1]]},
        {"mean": 3, "covariance": 4},
        {"mean": None, "covariance": None},
    ],
)
def test_what_is_no_statistics_is_refused(content: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        ColorStatistics.from_json(content)


@pytest.mark.parametrize(
    "images",
    [torch.rand(3, 8, 8), torch.rand(0, 3, 8, 8), torch.ones(1, 3, 8, 8, dtype=torch.uint8), [1]],
)
def test_what_is_no_image_has_no_statistics(images: Any) -> None:
    with pytest.raises(InputError):
        color_statistics(images)
    with pytest.raises(InputError, match="finite"):
        color_statistics(torch.full((1, 3, 2, 2), torch.nan))
    with pytest.raises(InputError, match="divide 8-bit images by 255"):
        color_statistics(255 * torch.ones(1, 3, 4, 4))


# --- the rotation --------------------------------------------------------------------------------


@given(seed=st.integers(0, 2**31))
def test_the_rotation_is_the_polar_factor(seed: int) -> None:
    source, target = color_statistics(colorful(seed)), color_statistics(colorful(seed + 1))
    least = min(float(torch.linalg.eigvalsh(s.covariance)[0]) for s in (source, target))
    assume(least > ROUNDING)  # what is less says nothing, and scipy does not know
    product = scipy.linalg.sqrtm(source.covariance) @ scipy.linalg.sqrtm(target.covariance)
    expected, _ = scipy.linalg.polar(np.real(product))
    u = rotation(source, target)
    assert np.allclose(u, expected, atol=1e-4)  # scipy does not know what rounding is worth
    assert float(torch.linalg.det(u)) == pytest.approx(1)
    brighter = ColorStatistics(target.mean, 7 * target.covariance)
    assert torch.allclose(rotation(source, brighter), u, atol=1e-6)
    assert torch.allclose(rotation(source, source), torch.eye(3).double(), atol=1e-8)


def test_an_undetermined_rotation_is_the_smallest_one() -> None:
    """Gray images fix one axis only; of all rotations that take it there, the nearest to none."""
    source = color_statistics(colorful(1))
    gray = color_statistics(torch.rand(1, 1, 8, 8).expand(-1, 3, -1, -1))
    u = rotation(source, gray)
    root = torch.from_numpy(np.real(scipy.linalg.sqrtm(source.covariance)))
    axis = torch.nn.functional.normalize(root.sum(1), dim=0)
    assert torch.allclose(u @ torch.ones(3).double() / 3**0.5, axis, atol=1e-6)
    for turn in torch.linspace(0.1, 6.1, 7, dtype=torch.float64):
        cross = torch.linalg.cross(axis.expand(3, 3), torch.eye(3).double(), dim=1).T
        about = torch.matrix_exp(turn * cross)
        assert torch.allclose(about @ axis, axis)
        assert (about @ u).trace() < u.trace()


# --- align ---------------------------------------------------------------------------------------


def known(images: Tensor) -> Identity:
    model = Identity(images.shape[1])
    model.record = {"colors": color_statistics(images).to_json()}
    return model


@pytest.mark.parametrize("channels", [1, 3])
def test_images_are_seen_in_the_colors_of_the_training(channels: int) -> None:
    source, target = colorful(0)[:, :channels], colorful(1)[:, :channels]
    model = align(known(source), target)
    assert model.scale == 0.5
    seen = color_statistics(model.enter(target.double()))
    assert torch.allclose(seen.mean, color_statistics(source).mean, atol=1e-9)
    # U^T C_source^{1/2} C_target^{1/2} symmetric: nothing is gained by a further rotation.
    root = [scipy.linalg.sqrtm(color_statistics(x).covariance) for x in (source, target)]
    left = model.rotation.T.numpy() @ root[0] @ root[1]
    assert np.allclose(left, left.T, atol=1e-6)
    if channels == 1:
        assert model.rotation.tolist() == [[1.0]]


def test_what_an_aligned_denoiser_is_for_is_known() -> None:
    source = colorful(0)
    model = Relaxed(align(known(source), colorful(1), scale=0.7), 0.5)
    assert isinstance(model.inner, Aligned)
    expected = color_statistics(model.inner.leave(source.double()))
    found = colors_of(model)
    assert found is not None
    assert torch.allclose(found.mean, expected.mean)
    assert torch.allclose(found.covariance, expected.covariance)
    again = align(model, model.inner.leave(source.double()), scale=1.0)
    assert angle(again.rotation) < 1e-3
    assert torch.allclose(again.mean, again.center)


def test_a_denoiser_of_unknown_colors_needs_a_source(tmp_path: Path) -> None:
    source, target = colorful(0), colorful(1)
    model = Wiener.fit(source, 0.1)
    with pytest.raises(InputError, match="as source"):
        align(model, target)
    given_images = align(model, target, source=source)
    given_numbers = align(model, color_statistics(target), source=color_statistics(source))
    assert given_images.settings == given_numbers.settings
    again = load(save(given_images, tmp_path))
    assert (
        again.record
        == given_images.record
        == {
            "source": color_statistics(source).to_json(),
            "target": color_statistics(target).to_json(),
        }
    )


def test_channels_must_fit() -> None:
    with pytest.raises(InputError, match=r"have 3 channel\(s\), the denoiser takes 1"):
        align(known(colorful(0)), torch.rand(1, 1, 8, 8), source=torch.rand(1, 3, 8, 8))
    with pytest.raises(InputError, match="colors of the source have 1"):
        align(known(colorful(0)), colorful(1), source=torch.rand(1, 1, 8, 8))


def test_images_without_variety_are_told() -> None:
    model = known(colorful(0))
    flat = torch.tensor([0.2, 0.4, 0.6]).view(1, 3, 1, 1).expand(-1, -1, 8, 8)
    with pytest.warns(DegenerateStatisticsWarning, match="images do not vary along any color"):
        found = align(model, flat)
    assert torch.allclose(found.rotation, torch.eye(3).double())
    assert torch.allclose(found.mean, torch.tensor([0.2, 0.4, 0.6]).double())
    with pytest.warns(DegenerateStatisticsWarning, match="along 2 of their colors"):
        align(model, torch.rand(1, 1, 8, 8).expand(-1, 3, -1, -1))
    with pytest.warns(DegenerateStatisticsWarning, match="source do not vary"):
        align(model, colorful(1), source=flat)


# --- from measurements ---------------------------------------------------------------------------


def inpainting(size: int = 16, noise: float = 0.0) -> Problem:
    mask = (torch.rand(1, 1, size, size, generator=torch.Generator().manual_seed(0)) > 0.5).float()
    model = dinv.physics.GaussianNoise(noise) if noise else dinv.physics.ZeroNoise()
    physics = dinv.physics.Inpainting((3, size, size), mask=mask.expand(1, 3, -1, -1))
    physics.noise_model = model
    return Problem.from_physics(physics, (3, size, size))


@pytest.mark.parametrize(
    "problem",
    [gaussian_deblurring(16, noise=0.0), super_resolution(16, kernel_size=9), inpainting()],
    ids=["blur", "sr", "inpainting"],
)
def test_the_color_of_flat_images_is_found_exactly(problem: Problem) -> None:
    colors = torch.rand(4, 3, 1, 1)
    found = statistics_from_measurements(problem.measure(colors.expand(-1, -1, 16, 16)), problem)
    assert torch.allclose(found.mean, colors.double().mean((0, 2, 3)), atol=1e-6)


def test_noise_is_taken_off() -> None:
    problem = gaussian_deblurring(32, kernel_size=1, noise=0.2)  # noise alone
    images = colorful(2, 1).mean((2, 3), keepdim=True) + 0.1 * torch.randn(40, 3, 32, 32)
    found = statistics_from_measurements(problem.measure(images), problem)
    truth = color_statistics(images)
    assert torch.allclose(found.covariance, truth.covariance, atol=1e-3)
    loud = statistics_from_measurements(problem.measure(images), problem, noise=0.3)
    assert float(loud.covariance.abs().max()) == 0  # less than the noise: nothing is left


@pytest.mark.parametrize("share", [0.2, 1.0])
def test_noise_is_taken_off_where_it_is(share: float) -> None:
    """What a mask hides has no noise."""
    mask = torch.rand(64, 64, generator=torch.Generator().manual_seed(0)) < share
    images = embedded("photographs").test[:32]
    noisy, silent = (masked(64, mask=mask, noise=sigma) for sigma in (0.1, 0.0))
    found = statistics_from_measurements(noisy.measure(images), noisy)
    truth = statistics_from_measurements(silent.measure(images), silent)
    assert torch.allclose(found.covariance, truth.covariance, atol=2e-3)


@pytest.mark.parametrize("kind", ["blur", "sr"])
def test_photographs_are_known_by_their_measurements(kind: str) -> None:
    images = embedded("photographs").adaptation[::2]
    problem = gaussian_deblurring(64) if kind == "blur" else super_resolution(64)
    truth = color_statistics(images)
    found = statistics_from_measurements(problem.measure(images), problem)
    assert float((found.mean - truth.mean).abs().max()) < 1e-3
    assert float(found.covariance.trace() / truth.covariance.trace()) == pytest.approx(1, abs=0.15)
    source = color_statistics(embedded("histology").adaptation)
    away = rotation(source, found).T @ rotation(source, truth)
    assert angle(away) < 2 < 0.2 * angle(rotation(source, truth))


def test_the_attenuation_is_that_of_the_spectrum() -> None:
    """For a circular blur: the sum of |H|^2 S over that of S."""
    problem = gaussian_deblurring(32, channels=1, kernel_sigma=1.5, kernel_size=9)
    delta = torch.zeros(1, 1, 32, 32)
    delta[..., 0, 0] = 1
    response = torch.fft.fft2(problem.physics.A(delta)).abs().square()
    f = torch.fft.fftfreq(32)
    spectrum = (f[:, None].square() + f.square()).sqrt().clamp_min(1 / 64) ** -EXPONENT
    expected = float((response * spectrum).sum() / spectrum.sum())
    assert attenuation(problem) == pytest.approx(expected, rel=0.05)
    assert attenuation(gaussian_deblurring(32, kernel_size=1)) == pytest.approx(1, rel=1e-4)


def test_the_background_of_a_detector_is_no_color() -> None:
    problem, color = poisson_denoising(16, peak=1e6), torch.tensor([0.2, 0.5, 0.8])
    y = problem.measure(color.view(1, 3, 1, 1).expand(-1, -1, 16, 16))
    found = statistics_from_measurements(y, problem, noise=1e-3)
    assert torch.allclose(found.mean.float(), color, atol=1e-3)


def test_operators_that_hide_the_colors_are_refused() -> None:
    class Gray(dinv.physics.LinearPhysics):  # type: ignore[misc]
        def A(self, x: Tensor, **_: Any) -> Tensor:
            return x.mean(1, keepdim=True).expand(-1, 3, -1, -1)

        def A_adjoint(self, y: Tensor, **_: Any) -> Tensor:
            return y.mean(1, keepdim=True).expand(-1, 3, -1, -1)

    class Edges(dinv.physics.LinearPhysics):  # type: ignore[misc]
        def A(self, x: Tensor, **_: Any) -> Tensor:
            return x - x.roll(1, -1)

        def A_adjoint(self, y: Tensor, **_: Any) -> Tensor:
            return y - y.roll(-1, -1)

    for physics, message in ((Gray(), "channel by channel"), (Edges(), "does not see the mean")):
        problem = Problem.from_physics(physics, (3, 8, 8))
        with pytest.raises(InputError, match=message):
            statistics_from_measurements(torch.rand(2, 3, 8, 8), problem, noise=0.0)
    physics = dinv.physics.Denoising(dinv.physics.UniformNoise(0.1))
    problem = Problem.from_physics(physics, (3, 8, 8))
    with pytest.raises(InputError, match="UniformNoise is not known; pass it"):
        statistics_from_measurements(torch.rand(2, 3, 8, 8), problem)
