"""Nothing wrong in silence."""

from __future__ import annotations

import json
from typing import Any

import deepinv
import pytest
import torch
from deepinv.optim import L2, PoissonLikelihood
from deepinv.physics import (
    BlurFFT,
    Denoising,
    GaussianNoise,
    LinearPhysics,
    PoissonGaussianNoise,
    PoissonNoise,
    Tomography,
)

from proxmatch.errors import InputError, MismatchedPhysicsWarning
from proxmatch.problems import (
    Problem,
    gaussian_deblurring,
    inpainting,
    motion_deblurring,
    mri,
    multicoil_mri,
    poisson_denoising,
    super_resolution,
    tomography,
)
from proxmatch.problems.response import digest

MAKERS: dict[str, Any] = {
    "deblurring": gaussian_deblurring,
    "super-resolution": super_resolution,
    "inpainting": inpainting,
    "tomography": tomography,
    "mri": mri,
    "multicoil-mri": multicoil_mri,
    "poisson-denoising": poisson_denoising,
}
makers = pytest.mark.parametrize("name", MAKERS)


def picture(problem: Problem) -> torch.Tensor:
    g = torch.Generator().manual_seed(0)
    return torch.rand(2, *problem.img_size, generator=g)


# --- units ---------------------------------------------------------------------------------------


@makers
def test_images_in_other_units_are_refused(name: str) -> None:
    problem = MAKERS[name](32)
    for white in (255, 65535):
        with pytest.raises(InputError, match="divide 8-bit images by 255, 16-bit ones by 65535"):
            problem.measure(white * picture(problem))
    problem.measure(3 * picture(problem))  # bright, not wrong


@makers
def test_measurements_in_other_units_are_refused(name: str) -> None:
    problem = MAKERS[name](32)
    y = problem.measure(picture(problem))
    with pytest.raises(InputError, match=r"far too large in \[0, 1\].*divide 8-bit"):
        problem.initial(255 * y)
    one = torch.stack([y[0], 255 * y[1]])
    with pytest.raises(InputError, match=r"far too large in \[1\]"):
        problem.check_measurement(one)
    problem.check_measurement(3 * y)


def test_line_integrals_in_pixels_are_refused() -> None:
    problem = tomography(64, channels=1)
    y = Tomography(40, 64, normalize=False).A(picture(problem))
    with pytest.raises(InputError, match="far too large"):
        problem.initial(y)
    problem.check_measurement(y / 64)


# --- sizes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ((3, 4, 8, 8), "volumes are not supported, reconstruct them slice by slice"),
        ((8, 8), r"for gray images give \(1, 8, 8\)"),
        (8, "channels, height, width"),
        ((3, 0, 8), "channels, height, width"),
        ((3, 8.0, 8), "channels, height, width"),
    ],
)
def test_sizes_of_images(size: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Problem.from_physics(Denoising(), size)


# --- physics that do not fit ---------------------------------------------------------------------


@pytest.mark.parametrize("noise", [PoissonNoise(0.1), PoissonGaussianNoise(0.1, 0.01)])
def test_poisson_noise_with_a_gaussian_data_term(noise: Any) -> None:
    physics = Denoising(noise_model=noise)
    for fidelity in (None, L2(0.1)):
        with pytest.warns(MismatchedPhysicsWarning, match="poisson-denoising"):
            Problem.from_physics(physics, (1, 8, 8), data_fidelity=fidelity)


def test_an_adjoint_that_is_none() -> None:
    angles = torch.linspace(0, 180, 8)[:-1]
    physics = Tomography(angles, 16, normalize=False, adjoint_via_backprop=False)
    with pytest.warns(MismatchedPhysicsWarning, match="adjoint_via_backprop=True"):
        Problem.from_physics(physics, (1, 16, 16))
    exact = Tomography(angles, 16, normalize=False)
    assert Problem.from_physics(exact, (1, 16, 16)).eta > 0
    scaled = LinearPhysics(A=lambda x: 2 * x, A_adjoint=lambda y: 1.99 * y)
    with pytest.warns(MismatchedPhysicsWarning, match="relative error 0.005"):
        Problem.from_physics(scaled, (1, 4, 4))


def test_looking_at_the_adjoint_leaves_the_random_state_alone() -> None:
    before = torch.get_rng_state()
    Problem.from_physics(Denoising(), (1, 4, 4))
    assert torch.equal(before, torch.get_rng_state())


def test_noise_of_a_physics_is_where_the_physics_puts_it() -> None:
    mask = (torch.rand(1, 16, 16, generator=torch.Generator().manual_seed(0)) < 0.5).float()
    physics = deepinv.physics.Inpainting((1, 16, 16), mask, noise_model=GaussianNoise(0.1))
    problem = Problem.from_physics(physics, (1, 16, 16))
    y = problem.measure(torch.rand(1, 1, 16, 16))
    assert bool((y[0][mask == 0] == 0).all())


# --- data terms ----------------------------------------------------------------------------------


def test_a_data_term_needs_a_known_constant() -> None:
    with pytest.raises(InputError, match=r"no Lipschitz constant .* of PoissonLikelihood"):
        Problem.from_physics(Denoising(), (1, 8, 8), data_fidelity=PoissonLikelihood())


def test_any_data_term_with_a_constant() -> None:
    """Huber's, with the second derivative 1 / 0.1 at most."""

    class Huber(deepinv.optim.DataFidelity):
        curvature = 10.0

        def __init__(self) -> None:
            super().__init__(lambda u, y: self.huber(u - y))

        @staticmethod
        def huber(r: torch.Tensor) -> torch.Tensor:
            large = r.abs() - 0.05
            return torch.where(r.abs() < 0.1, 5 * r.square(), large).flatten(1).sum(1)

    kernel = torch.tensor([[0.5, 1.0, 0.5]])[None, None]
    problem = Problem.from_physics(BlurFFT((1, 8, 8), kernel), (1, 8, 8), data_fidelity=Huber())
    assert problem.gradient_bound.value == pytest.approx(10 * 4)
    x, y = torch.rand(2, 1, 8, 8), torch.rand(2, 1, 8, 8)
    residual = problem.physics.A(x) - y
    torch.testing.assert_close(problem.fidelity(x, y), Huber.huber(residual))
    expected = problem.physics.A_adjoint((10 * residual).clamp(-1, 1))
    torch.testing.assert_close(problem.gradient(x, y), expected)
    torch.testing.assert_close(problem.gradient_at(y)(x), expected)
    assert problem.describe()["data"] == "Huber"


def test_a_gaussian_likelihood() -> None:
    problem = Problem.from_physics(Denoising(), (1, 8, 8), data_fidelity=L2(0.1))
    assert problem.gradient_bound.value == pytest.approx(100)
    assert problem.gradient_bound.exact
    x, y = torch.rand(2, 1, 8, 8), torch.rand(2, 1, 8, 8)
    torch.testing.assert_close(problem.gradient(x, y), 100 * (x - y))
    torch.testing.assert_close(problem.gradient_at(y)(x), 100 * (x - y))
    torch.testing.assert_close(problem.fidelity(x, y), 50 * (x - y).square().sum((1, 2, 3)))
    assert problem.to(torch.float64).gradient_bound == problem.gradient_bound


# --- descriptions --------------------------------------------------------------------------------


def test_operators_of_one_norm_are_told_apart() -> None:
    """One response to five digits does not: a permutation of pixels keeps every norm."""

    def rolled(by: int) -> Problem:
        physics = LinearPhysics(A=lambda x: x.roll(by, -1), A_adjoint=lambda y: y.roll(-by, -1))
        return Problem.from_physics(physics, (1, 8, 8), name="rolled")

    assert rolled(1).describe() == rolled(1).describe() != rolled(2).describe()
    masks = [inpainting(16, seed=seed).describe() for seed in (0, 1)]
    assert masks[0] != masks[1]
    assert (
        motion_deblurring(16, angle=20.0).describe() != motion_deblurring(16, angle=21.0).describe()
    )


@makers
def test_a_description_does_not_depend_on_the_precision(name: str) -> None:
    single = MAKERS[name](32)
    found = single.describe()
    assert found == json.loads(json.dumps(found))
    assert found == single.to(torch.float64).describe()


def test_the_digest_of_a_physics_of_ones_own_does_not_depend_on_the_precision() -> None:
    kernels = torch.rand(20, 1, 1, 3, 3, generator=torch.Generator().manual_seed(0))
    seen = set()
    for kernel in kernels:
        single, double = (BlurFFT((1, 8, 8), k) for k in (kernel, kernel.double()))
        assert digest(single, (1, 8, 8)) == digest(double, (1, 8, 8))
        seen.add(digest(single, (1, 8, 8)))
    assert len(seen) == 20


def test_noise_and_data_term_are_described() -> None:
    physics = Denoising(noise_model=GaussianNoise(0.1, rng=torch.Generator()))
    found = Problem.from_physics(physics, (1, 8, 8)).describe()
    assert (found["noise"], found["levels"]) == ("GaussianNoise", {"sigma": [0.1]})
    assert (found["data"], found["parameters"]) == ("L2", {"norm": 1.0})
    photons = poisson_denoising(8, peak=20.0).describe()
    assert photons["data"] == "PhotonFidelity"
    told = {"gain": 0.05, "background": 0.1, "curvature": 800.0, "read_noise": 0.0}
    assert photons["parameters"] == told
    levels = {"gain": [0.05], "background": [0.1], "normalize": [1.0], "read_noise": [0.0]}
    assert photons["levels"] == levels
    assert photons != poisson_denoising(8, peak=21.0).describe()
