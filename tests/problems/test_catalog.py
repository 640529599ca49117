"""What every problem of the catalog obeys, and what each of them is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage
from scipy.linalg import hadamard
from torch import Tensor

from proxmatch.errors import InputError, StepSizeError
from proxmatch.pnp import pnp_pgd
from proxmatch.problems import (
    PROBLEMS,
    Problem,
    compressed_sensing,
    demosaicing,
    denoising,
    inpainting,
    kernel_deblurring,
    make_problem,
    mri,
    tomography,
)
from proxmatch.problems.catalog import image_side, options
from proxmatch.problems.fidelity import curvature
from proxmatch.problems.motion import random_path, stroke
from tests.problems.test_norms import by_svd

SMALL: dict[str, tuple[Any, list[str]]] = {
    "deblurring": ((9, 14), ["noise=0.03"]),
    "super-resolution": ((12, 8), ["factor=2", "kernel_size=5", "noise=0.03"]),
    "super-resolution x3": ((12, 9), ["factor=3", "kernel_size=7", "noise=0.03"]),
    "motion-deblurring": ((9, 12), ["length=7", "angle=30", "noise=0.03"]),
    "motion-deblurring, random": ((9, 12), ["length=8", "seed=3", "noise=0.03"]),
    "kernel-deblurring": ((9, 12), ["noise=0.03"]),
    "inpainting": ((9, 12), ["keep=0.4", "seed=1", "noise=0.03"]),
    "box-inpainting": ((9, 12), ["noise=0.03"]),
    "demosaicing": ((6, 8), ["noise=0.03"]),
    "denoising": ((9, 12), ["noise=0.03"]),
    "compressed-sensing": ((8, 16), ["share=0.3", "noise=0.03"]),
    "tomography": (10, ["views=7", "noise=0.03"]),
    "mri": ((8, 12), ["center=0.1", "noise=0.03"]),
    "multicoil-mri": ((8, 12), ["center=0.1", "coils=3", "noise=0.03"]),
    "poisson-denoising": ((9, 12), []),
    "poisson-deblurring": ((9, 12), ["peak=20", "background=0.3"]),
}
#: L_f is only bounded, and this times the truth is the most that the bound may be.
BOUNDED = {"tomography": 1.0002, "multicoil-mri": 1.5}
KERNEL = torch.tensor([[0.1, 0.2, 0.0], [0.0, 0.4, 0.3]], dtype=torch.float64)
every = pytest.mark.parametrize("case", SMALL)
gaussian = pytest.mark.parametrize("case", [case for case in SMALL if "poisson" not in case])


def name_of(case: str) -> str:
    return case.split(",")[0].split(" ")[0]


def small(case: str, size: Any = None, **common: Any) -> Problem:
    found, given = SMALL[case]
    if case == "kernel-deblurring":
        common["kernel"] = KERNEL
    return make_problem(name_of(case), size or found, given, **{"dtype": torch.float64, **common})


def images(problem: Problem, n: int = 2, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.rand(n, *problem.img_size, generator=g, dtype=torch.float64).to(problem.dtype)


def test_every_name_of_the_catalog_is_tested() -> None:
    assert {name_of(case) for case in SMALL} == set(PROBLEMS)


@every
def test_adjoint(case: str) -> None:
    problem = small(case)
    x = images(problem, 1)
    y = torch.rand_like(problem.physics.A(x))
    left = (problem.physics.A(x) * y).sum()
    right = (x * problem.physics.A_adjoint(y)).sum()
    assert abs(left - right) <= 1e-12 * abs(left)


@every
def test_the_lipschitz_constant_is_exact_or_a_bound(case: str) -> None:
    fixed = PROBLEMS[name_of(case)].channels
    problem = small(case, channels=fixed or 1)
    truth = by_svd(problem.physics, problem.img_size) * curvature(problem.data_fidelity)
    assert problem.gradient_bound.exact == (case not in BOUNDED)
    if problem.gradient_bound.exact:
        assert problem.gradient_bound.value == pytest.approx(truth, rel=1e-10)
    else:
        assert truth <= problem.gradient_bound.value <= BOUNDED[case] * truth
    assert problem.eta * truth <= 0.951


@gaussian
def test_noise_is_as_announced_and_where_something_is_measured(case: str) -> None:
    problem = small(case, 96 if case == "super-resolution x3" else 64, dtype=torch.float32)
    x = images(problem, 4)
    clean = problem.physics.A(x)
    noise = problem.measure(x) - clean
    mask = getattr(problem.physics, "mask", None)
    if mask is not None and "deblurring" not in case:
        mask = mask[:, :, None] if clean.ndim == 5 else mask  # the same for all coils
        measured = mask.expand_as(clean) > 0
        assert bool((noise[~measured] == 0).all())
        noise = noise[measured]
    assert float(noise.std()) == pytest.approx(0.03, rel=0.03)
    assert abs(float(noise.mean())) < 1e-3


@every
def test_the_gradient_is_that_of_the_data_term(case: str) -> None:
    problem = small(case)
    y = problem.measure(images(problem))
    x = images(problem, seed=1).requires_grad_()
    (expected,) = torch.autograd.grad(problem.fidelity(x, y).sum(), x)
    scale = float(expected.abs().max())
    for found in (problem.gradient(x.detach(), y), problem.gradient_at(y)(x.detach())):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12 * scale)


@every
def test_gradient_steps_fit_the_data(case: str) -> None:
    problem = small(case, dtype=torch.float32)
    x = images(problem)
    y = problem.measure(x)
    run = pnp_pgd(lambda z, _: z, y, problem, iterations=60)
    start, end = problem.fidelity(problem.initial(y), y), problem.fidelity(run.images, y)
    assert bool((end <= start + 1e-6).all())
    assert bool((end < 0.5 * problem.fidelity(torch.zeros_like(x), y)).all())


@every
def test_moving_to_another_precision_builds_the_same_operator(case: str) -> None:
    single, double = small(case, dtype=torch.float32), small(case)
    x = images(double)
    moved = single.to(torch.float64)
    torch.testing.assert_close(moved.physics.A(x), double.physics.A(x), rtol=0, atol=1e-13)
    assert moved.describe() == double.describe() == single.describe()


@every
def test_sizes_of_images_follow_from_those_of_measurements(case: str) -> None:
    problem = small(case)
    measured = problem.physics.A(images(problem)).shape[-2:]
    given = options(name_of(case), SMALL[case][1]) if case != "kernel-deblurring" else {}
    assert image_side(name_of(case), tuple(measured), given) == problem.img_size[1:]


def test_a_problem_keeps_its_own_kernel() -> None:
    kernel = torch.full((3, 3), 1 / 9, dtype=torch.float64)
    problem = kernel_deblurring(8, kernel=kernel, channels=1, dtype=torch.float64)
    kernel *= 2
    assert float(problem.to(torch.float32).physics.A(torch.ones(1, 1, 8, 8)).max()) < 1.001


def test_deblurring_with_a_kernel_is_a_circular_convolution() -> None:
    kernel = torch.rand(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    problem = kernel_deblurring((9, 12), kernel=kernel, dtype=torch.float64, noise=0)
    x = images(problem)
    expected = [
        [ndimage.convolve(c, kernel.numpy(), mode="wrap") for c in image] for image in x.numpy()
    ]
    np.testing.assert_allclose(problem.physics.A(x), expected, atol=1e-12)


@pytest.mark.parametrize("length", [1, 2, 5, 8, 15])
def test_strokes(length: int) -> None:
    flat, upright, slanted = (stroke(length, angle) for angle in (0, 90, 30))
    side = len(flat)
    assert side % 2 == 1
    assert length <= side <= length + 1
    assert flat[side // 2].sum() == pytest.approx(1)
    torch.testing.assert_close(upright, flat.T, rtol=0, atol=1e-12)
    if length % 2:  # all of its pixels alike, but for the half pixels at the ends
        assert float(flat[side // 2, 1:-1].std(correction=0)) < 1e-3 if length > 3 else True
    center = torch.arange(side, dtype=torch.float64) - side // 2
    rows, cols = (slanted.sum(axis) for axis in (1, 0))
    assert float(rows @ center) == pytest.approx(0, abs=1e-12)
    # Up and to the right: the slope of the second moments is that of the angle.
    covariance = torch.einsum("ij,i,j->", slanted, -center, center)
    if length >= 15:
        spread = (cols @ center.square(), rows @ center.square())
        assert float(covariance) > 0
        assert float(spread[1] / spread[0]) == pytest.approx(np.tan(np.pi / 6) ** 2, rel=0.1)


def test_random_paths_depend_on_the_seed_alone() -> None:
    before = torch.get_rng_state()
    one, again, other = random_path(9, 1), random_path(9, 1), random_path(9, 2)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert float(one.sum()) == pytest.approx(1)


def test_inpainting_keeps_some_pixels_and_starts_from_their_neighbors() -> None:
    problem = inpainting(64, keep=0.3, seed=2)
    x = images(problem)
    y = problem.measure(x)
    known = problem.physics.mask[0, 0] > 0
    assert float(known.float().mean()) == pytest.approx(0.3, abs=0.03)
    assert torch.equal(y[..., known], x[..., known])
    assert float(y[..., ~known].abs().max()) == 0
    assert not torch.equal(inpainting(64, keep=0.3, seed=3).physics.mask, problem.physics.mask)

    start = problem.initial(y)
    assert torch.equal(start[..., known], x[..., known])
    places = (~known).nonzero().tolist()[:50]
    for i, j in places:  # by hand: the smallest square that holds a measured pixel
        for radius in (1, 2, 4, 8):
            box = (
                slice(max(0, i - radius), i + radius + 1),
                slice(max(0, j - radius), j + radius + 1),
            )
            if bool(known[box].any()):
                expected = x[0, :, *box][:, known[box]].mean(1)
                torch.testing.assert_close(start[0, :, i, j], expected, rtol=0, atol=1e-5)
                break


def test_one_known_pixel_fills_the_image() -> None:
    mask = torch.zeros(7, 40)
    mask[3, 38] = 1
    problem = inpainting((7, 40), mask=mask)
    start = problem.initial(problem.measure(torch.full((1, 3, 7, 40), 0.25)))
    torch.testing.assert_close(start, torch.full_like(start, 0.25), rtol=0, atol=1e-6)


def test_denoising_with_no_prior_returns_the_data() -> None:
    problem = denoising(8)
    y = problem.measure(images(problem))
    assert torch.equal(problem.initial(y), y)
    run = pnp_pgd(lambda z, _: z, y, problem)
    torch.testing.assert_close(run.images, y)


def test_the_camera_measures_walsh_hadamard_coefficients() -> None:
    problem = compressed_sensing((8, 4), share=0.5, channels=1, dtype=torch.float64)
    x = images(problem, 1)
    rows, cols = (torch.from_numpy(hadamard(n) / np.sqrt(n)) for n in (8, 4))
    mask = problem.physics.mask
    assert float(mask.sum()) == 16
    found = problem.physics.A(x)
    # deepinv's order of the rows is its own: compare energies and the mean, which is always kept.
    assert float((found**2).sum()) <= float(((rows @ x @ cols) ** 2).sum()) + 1e-12
    assert float(found.abs().max()) == pytest.approx(float(x.sum() / np.sqrt(32)))
    everything = compressed_sensing((8, 4), share=1, channels=1, dtype=torch.float64)
    x0 = everything.initial(everything.measure(x))
    torch.testing.assert_close(x0, x, rtol=0, atol=1e-12)


def test_kernels_and_masks_from_pictures(tmp_path: Path) -> None:
    kernel = np.zeros((3, 5), np.uint8)
    kernel[1, 1:4] = (50, 100, 50)
    Image.fromarray(kernel).save(tmp_path / "kernel.png")
    file = tmp_path / "kernel.png"
    read = options("kernel-deblurring", [f"kernel={file}"])["kernel"]
    np.testing.assert_allclose(read, kernel / 200)
    x = torch.rand(1, 3, 6, 8)
    by_file, by_tensor = (kernel_deblurring((6, 8), kernel=k) for k in (str(file), read))
    torch.testing.assert_close(by_file.physics.A(x), by_tensor.physics.A(x), rtol=0, atol=0)
    mask = np.zeros((6, 8), np.uint8)
    mask[2:] = 255
    Image.fromarray(mask).save(tmp_path / "mask.png")
    problem = make_problem("inpainting", (6, 8), [f"mask={tmp_path / 'mask.png'}"])
    assert torch.equal(problem.physics.mask[0, 0] > 0, torch.from_numpy(mask > 0))


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("sharpening", [], "no problem 'sharpening'; there are box-inpainting"),
        ("deblurring", ["factor=2"], "an option of deblurring; there are kernel_size=..., kern"),
        ("deblurring", ["noise"], "not an option"),
        ("deblurring", ["noise=much"], "noise='much' cannot be read"),
        ("deblurring", ["noise=0.1", "noise=0.2"], "given twice"),
        ("deblurring", ["noise=-1"], "nonnegative"),
        ("super-resolution", ["factor=3"], "multiples of 3"),
        ("super-resolution", ["factor=1.5"], "cannot be read"),
        ("inpainting", ["keep=0"], "share of the pixels"),
        ("inpainting", ["mask=nowhere.png"], "nowhere.png: no such file, or not a regular one"),
        ("motion-deblurring", ["length=0"], "at least 1 pixel"),
        ("motion-deblurring", ["length=99"], "does not fit"),
        ("kernel-deblurring", [], "kernel-deblurring needs kernel=...: a picture of it"),
        ("kernel-deblurring", ["kernel=nowhere.png"], "nowhere.png"),
        ("box-inpainting", ["side=40"], "not inside images of 32 x 32"),
        ("box-inpainting", ["side=9", "row=24"], "not inside"),
        ("demosaicing", ["pattern=rgb"], "no pattern 'rgb'; there are rggb"),
        ("tomography", ["views=0"], "at least one view"),
        ("mri", ["acceleration=0"], "acceleration=0"),
        ("mri", ["acceleration=64"], "at least one"),
        ("mri", ["center=0.5"], "take a smaller center"),
        ("multicoil-mri", ["coils=0"], "at least one coil"),
        ("poisson-denoising", ["peak=0"], "positive number of photons"),
        ("poisson-denoising", ["background=0"], "positive background"),
        ("compressed-sensing", ["share=2"], "share must be in"),
    ],
)
def test_what_cannot_be_asked_for(name: str, given: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_problem(name, 32, given)


def test_more_that_cannot_be() -> None:
    with pytest.raises(InputError, match="powers of two"):
        compressed_sensing(12)
    with pytest.raises(InputError, match="mask is 3 x 3"):
        inpainting(4, mask=torch.ones(3, 3))
    with pytest.raises(InputError, match="no pixel"):
        inpainting(4, mask=torch.zeros(4, 4))
    with pytest.raises(InputError, match="finite numbers"):
        kernel_deblurring(8, kernel=torch.full((3, 3), float("nan")))
    with pytest.raises(InputError, match="finite numbers"):
        kernel_deblurring(8, kernel=torch.ones(3))
    with pytest.raises(InputError, match="square images, got 8 x 10"):
        tomography((8, 10))
    with pytest.raises(InputError, match="mask must be 8 x 8"):
        mri(8, mask=torch.ones(8, 9))
    with pytest.raises(InputError, match="mask must be 8 x 8 and measure something"):
        mri(8, mask=torch.zeros(8, 8))
    for make, number in ((mri, 3), (demosaicing, 1)):
        with pytest.raises(InputError, match=f"takes images of . channels, got {number}"):
            make(8, channels=number)
    with pytest.raises(InputError, match="'sigma' is not an option of denoising"):
        denoising(8, sigma=0.1)
    with pytest.raises(StepSizeError, match="eta"):
        denoising(8, eta=1.0)
