"""The operators of the modalities against other implementations, and on pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import deepinv
import numpy as np
import pytest
import skimage.data
import torch
from deepinv.physics import Demosaicing, MultiCoilMRI, Tomography
from skimage.transform import iradon, radon, resize
from torch import Tensor

import proxmatch as pm
from proxmatch.baselines.total_variation import TotalVariation
from proxmatch.metrics import psnr
from proxmatch.pnp import pnp_pgd
from proxmatch.problems import (
    Problem,
    box_inpainting,
    demosaicing,
    kernel_deblurring,
    mri,
    multicoil_mri,
    poisson_deblurring,
    poisson_denoising,
    squared_norm,
    tomography,
)
from proxmatch.problems.motion import random_path
from proxmatch.problems.multicoil_mri import birdcage
from tests.problems.test_norms import by_svd, dense


def picture(pixels: np.ndarray, side: int = 64) -> Tensor:
    """One image in [0, 1], ``(1, C, side, side)``."""
    white = 255 if pixels.dtype == np.uint8 else 1
    small = torch.from_numpy(resize(pixels / white, (side, side), anti_aliasing=True)).float()
    return small[None, None] if small.ndim == 2 else small.permute(2, 0, 1)[None]


def phantom(side: int = 64) -> Tensor:
    return picture(skimage.data.shepp_logan_phantom(), side)


def brain(side: int = 64) -> Tensor:
    """A phantom with a smooth phase, as real and imaginary part."""
    along = torch.linspace(-1, 1, side)
    phase = 0.6 * torch.sin(2 * along[None, :] + along[:, None])
    return torch.cat([phantom(side) * phase.cos(), phantom(side) * phase.sin()], dim=1)


def magnitude(x: Tensor) -> Tensor:
    return x.norm(dim=1, keepdim=True)


CAMERA = picture(skimage.data.camera())
ASTRONAUT = picture(skimage.data.astronaut()[:256, 100:356])

# --- tomography ----------------------------------------------------------------------------------


def test_projections_are_those_of_scikit_image() -> None:
    """Where the detector has an odd number of cells: else theirs turns about another point."""
    problem = tomography(64, views=9, noise=0, channels=1, dtype=torch.float64)
    x = phantom().double()
    angles = np.linspace(0, 180, 9, endpoint=False)
    expected = radon(x[0, 0].numpy(), angles, circle=False) / 64
    np.testing.assert_allclose(problem.measure(x)[0, 0], expected, atol=1e-12)


def test_the_start_is_a_filtered_back_projection() -> None:
    problem = tomography(64, views=60, noise=0, channels=1, dtype=torch.float64)
    x = phantom().double()
    y = problem.measure(x)
    angles = np.linspace(0, 180, 60, endpoint=False)
    theirs = torch.from_numpy(iradon(64 * y[0, 0].numpy(), angles, circle=False))[None, None]
    ours = problem.initial(y)
    assert float(psnr(ours, x)) > 27
    assert float(psnr(ours, x)) == pytest.approx(float(psnr(theirs, x)), abs=0.1)
    torch.testing.assert_close(ours.mean(), x.mean(), rtol=0.02, atol=0)


def test_an_inexact_adjoint_would_be_noticed() -> None:
    """deepinv's own back-projection, which is not the transpose of its projection."""
    angles = torch.linspace(0, 180, 8, dtype=torch.float64)[:-1]
    inexact = Tomography(
        angles, 16, normalize=False, adjoint_via_backprop=False, dtype=torch.float64
    )
    g = torch.Generator().manual_seed(0)
    x = torch.randn(1, 1, 16, 16, generator=g, dtype=torch.float64)
    y = torch.randn(inexact.A(x).shape, generator=g, dtype=torch.float64)
    ours = tomography(16, views=7, channels=1, dtype=torch.float64).physics
    torch.testing.assert_close(ours.A(x), inexact.A(x) / 16, rtol=0, atol=1e-14)
    matrix = dense(ours, (1, 16, 16))
    torch.testing.assert_close(ours.A_adjoint(y).flatten(), matrix.T @ y.flatten())
    theirs = inexact.A_adjoint(y).flatten() / 16
    assert float((theirs - matrix.T @ y.flatten()).norm() / theirs.norm()) > 1e-2


@pytest.mark.parametrize(("side", "views"), [(8, 1), (9, 4), (12, 30)])
def test_the_norm_of_projections_is_bounded_tightly(side: int, views: int) -> None:
    physics = tomography(side, views=views, channels=1, dtype=torch.float64).physics
    truth, found = by_svd(physics, (1, side, side)), squared_norm(physics, (1, side, side))
    assert not found.exact
    assert truth <= found.value <= (1 + 2e-4) * truth


# --- magnetic resonance --------------------------------------------------------------------------


def test_measurements_are_a_quarter_of_the_frequencies() -> None:
    problem = mri(64, seed=3)
    x = brain()
    y = problem.measure(x)
    image = torch.complex(x[0, 0], x[0, 1]).numpy()
    centered = np.fft.fftshift(np.fft.fft2(np.fft.ifftshift(image), norm="ortho"))
    columns = problem.physics.mask[0, 0, 0] > 0
    assert int(columns.sum()) == 16
    assert bool(columns[30:34].all())  # 0.08 of 64 columns about the zero frequency
    found = torch.complex(y[0, 0], y[0, 1]).numpy()
    np.testing.assert_allclose(found[:, columns], centered[:, columns], atol=1e-5)
    assert bool((y[..., ~columns] == 0).all())
    assert not torch.equal(mri(64, seed=4).physics.mask, problem.physics.mask)


def test_all_frequencies_give_the_image_back() -> None:
    x = brain(16).double()
    single = mri(16, mask=torch.ones(16, 16), dtype=torch.float64)
    several = multicoil_mri(16, coils=5, acceleration=1, dtype=torch.float64)
    for problem in (single, several):
        torch.testing.assert_close(problem.initial(problem.measure(x)), x, rtol=0, atol=1e-12)
        assert problem.gradient_bound.exact
        assert problem.gradient_bound.value == pytest.approx(1)


def test_coils_see_the_image_weighted() -> None:
    problem = multicoil_mri((16, 12), coils=3, center=0.1, dtype=torch.float64)
    maps = birdcage(3, (16, 12))
    torch.testing.assert_close(maps.abs().square().sum(0), torch.ones(16, 12).double())
    # The coil on the right is nearest to the right border, and so on by a third of a turn.
    brightest = maps.abs().flatten(1).argmax(1)
    assert int(brightest[0]) % 12 == 11
    assert int(brightest[1]) // 12 > 8 > int(brightest[2]) // 12
    x = torch.rand(1, 2, 16, 12, dtype=torch.float64)
    y = problem.measure(x)
    assert y.shape == (1, 2, 3, 16, 12)
    image = torch.complex(x[0, 0], x[0, 1])
    mask = problem.physics.mask[0, 0]
    for coil in range(3):
        shifted = torch.fft.ifftshift(maps[coil] * image)
        expected = mask * torch.fft.fftshift(torch.fft.fft2(shifted, norm="ortho"))
        torch.testing.assert_close(torch.complex(y[0, 0, coil], y[0, 1, coil]), expected)


def test_the_bound_of_coils_that_do_not_add_up_to_one() -> None:
    maps = torch.randn(2, 4, 6, dtype=torch.complex128)
    mask = torch.zeros(4, 6, dtype=torch.float64)
    mask[:, ::2] = 2
    for sampled in (mask, 3 * torch.ones_like(mask)):
        physics = MultiCoilMRI(mask=sampled, coil_maps=maps)
        truth, found = by_svd(physics, (2, 4, 6)), squared_norm(physics, (2, 4, 6))
        assert truth <= found.value * (1 + 1e-12)
        assert found.exact == (sampled is not mask)
        if found.exact:
            assert found.value == pytest.approx(truth)


# --- mosaics and holes ---------------------------------------------------------------------------


def test_the_mosaic_of_deepinv_is_one_of_the_four() -> None:
    theirs = Demosaicing((3, 6, 8))
    x = torch.rand(2, 3, 6, 8)
    ours = demosaicing((6, 8), pattern="bggr")
    assert torch.equal(ours.measure(x), theirs.A(x))
    masks = [demosaicing((6, 8), pattern=p).physics.mask for p in ("rggb", "bggr", "grbg", "gbrg")]
    for mask in masks:
        assert bool((mask.sum(1) == 1).all())
    assert len({tuple(mask.flatten().tolist()) for mask in masks}) == 4
    corner = [mask[0, :, :2, :2].argmax(0).flatten().tolist() for mask in masks]
    assert corner == [[0, 1, 1, 2], [2, 1, 1, 0], [1, 0, 2, 1], [1, 2, 0, 1]]


def test_the_raw_mosaic_of_a_camera_is_as_good() -> None:
    problem = demosaicing(64)
    y = problem.measure(ASTRONAUT)
    raw = y.sum(1, keepdim=True).expand_as(y).contiguous()
    assert torch.equal(problem.initial(raw), problem.initial(y))
    torch.testing.assert_close(problem.gradient(ASTRONAUT, raw), problem.gradient(ASTRONAUT, y))


def test_a_mosaic_starts_from_the_bilinear_interpolation() -> None:
    problem = demosaicing((8, 10))
    x = torch.rand(1, 3, 8, 10)
    y = problem.measure(x)
    mask = problem.physics.mask
    weights = torch.tensor([[1.0, 2, 1], [2, 4, 2], [1, 2, 1]]).expand(3, 1, 3, 3)
    numerator, denominator = (
        torch.nn.functional.conv2d(image, weights, groups=3) for image in (y, mask)
    )
    inside = (..., slice(1, -1), slice(1, -1))
    expected = torch.where(mask[inside] > 0, y[inside], numerator / denominator)
    torch.testing.assert_close(problem.initial(y)[inside], expected, rtol=0, atol=1e-6)


def test_the_hole_is_where_it_was_asked_for() -> None:
    centered = box_inpainting((16, 20)).physics.mask[0, 0]
    expected = torch.ones(16, 20)
    expected[6:10, 8:12] = 0
    assert torch.equal(centered, expected)
    placed = box_inpainting((16, 20), side=3, row=0, column=17).physics.mask[0, 0]
    assert float(placed.sum()) == 16 * 20 - 9
    assert float(placed[:3, 17:].sum()) == 0


# --- what they are good for ----------------------------------------------------------------------


def kernel() -> Tensor:
    return random_path(9, seed=1)


CASES: dict[str, tuple[Callable[[], Problem], Tensor, float, float]] = {
    # problem, image, weight of the total variation, what it gains over the start in dB
    "tomography, 20 views": (lambda: tomography(64, views=20, channels=1), phantom(), 1e-3, 1.5),
    "mri": (lambda: mri(64), brain(), 0.01, 1.5),
    "multicoil-mri": (lambda: multicoil_mri(64, noise=0.01), brain(), 0.01, 3.5),
    "box-inpainting": (lambda: box_inpainting(64), ASTRONAUT, 0.01, 0.3),
    "kernel-deblurring": (
        lambda: kernel_deblurring(64, kernel=kernel(), channels=1), CAMERA, 3e-3, 3.0,
    ),
    "poisson-denoising": (lambda: poisson_denoising(64, channels=1), CAMERA, 0.01, 6.0),
    "poisson-deblurring": (
        lambda: poisson_deblurring(64, channels=1, peak=200), CAMERA, 1e-3, 2.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_prior_improves_a_picture(case: str) -> None:
    make, x, weight, gain = CASES[case]
    problem = make()
    y = problem.measure(x)
    start = problem.initial(y)
    found = pnp_pgd(TotalVariation(weight), y, problem, warm=0).images
    if x.shape[1] == 2:
        x, start, found = magnitude(x), magnitude(start), magnitude(found)
    assert float(psnr(found, x) - psnr(start, x)) > gain


def test_a_learned_prior_improves_a_mosaic() -> None:
    problem = demosaicing(64)
    y = problem.measure(ASTRONAUT)
    found = pnp_pgd(pm.load("gs-photographs"), y, problem, iterations=20).images
    assert float(psnr(found, ASTRONAUT) - psnr(problem.initial(y), ASTRONAUT)) > 2


def test_the_likelihood_is_better_than_least_squares_with_few_photons() -> None:
    problem = poisson_denoising(64, channels=1, peak=50.0, background=0.1)
    gaussian = Problem.from_physics(deepinv.physics.Denoising(), (1, 64, 64))
    y = problem.measure(CAMERA)

    def best(solved: Problem, data: Tensor, weights: Sequence[float]) -> float:
        runs = (pnp_pgd(TotalVariation(w), data, solved).images for w in weights)
        return max(float(psnr(x, CAMERA)) for x in runs)

    assert best(problem, y, [0.004]) > best(gaussian, y - 0.1, [0.13, 0.1, 0.08]) + 0.3
