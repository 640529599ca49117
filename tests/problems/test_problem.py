import json
from dataclasses import replace

import deepinv
import numpy as np
import pytest
import torch
from deepinv.physics import Blur, BlurFFT, GaussianNoise, LinearPhysics
from hypothesis import given, settings, strategies as st

from proxmatch.errors import InputError, StepSizeError, StepSizeWarning
from proxmatch.problems import Problem, gaussian_deblurring, super_resolution
from proxmatch.problems.measuring import seed_of

POOL = torch.rand(5, 3, 8, 8, generator=torch.Generator().manual_seed(0))
DEBLURRING = gaussian_deblurring(8, noise=0.1)
WITH_GENERATOR = Problem.from_physics(
    BlurFFT(
        (3, 8, 8), torch.ones(1, 1, 3, 3) / 9, noise_model=GaussianNoise(0.1, torch.Generator())
    ),
    (3, 8, 8),
)
problems = pytest.mark.parametrize("problem", [DEBLURRING, WITH_GENERATOR], ids=["global", "own"])
ASYMMETRIC = torch.tensor([[1.0, 2.0, 0.0], [0.0, 3.0, 1.0], [0.5, 0.0, 0.0]])[None, None] / 7.5


# --- measurements --------------------------------------------------------------------------------


@problems
@settings(deadline=None, max_examples=30)
@given(
    batch=st.lists(st.integers(0, 4), min_size=1, max_size=6),
    seed=st.integers(-(2**70), 2**70),
    draws=st.integers(0, 3),
)
def test_noise_depends_on_the_image_and_the_seed_alone(problem, batch, seed, draws):
    alone = torch.cat([problem.measure(POOL[i : i + 1], seed=seed) for i in batch])
    torch.rand(draws)
    together = problem.measure(POOL[batch], seed=seed)
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-6)


@problems
def test_measuring_leaves_random_states_and_images_alone(problem):
    torch.manual_seed(7)
    own = problem.physics.noise_model.rng
    states = [torch.get_rng_state()] + ([own.get_state()] if own else [])
    x = POOL.clone()
    problem.measure(x)
    after = [torch.get_rng_state()] + ([own.get_state()] if own else [])
    assert all(map(torch.equal, states, after))
    assert torch.equal(x, POOL)
    assert problem.physics.noise_model.rng is own


def test_a_generator_is_restored_when_the_noise_fails():
    class Broken(GaussianNoise):
        def forward(self, x, **kwargs):
            self.randn_like(x)
            raise RuntimeError("broken")

    rng = torch.Generator().manual_seed(3)
    problem = Problem.from_physics(deepinv.physics.Denoising(Broken(0.1, rng)), (3, 8, 8))
    state = rng.get_state()
    with pytest.raises(RuntimeError, match="broken"):
        problem.measure(POOL)
    assert torch.equal(rng.get_state(), state)
    assert problem.physics.noise_model.rng is rng


@problems
def test_seeds_images_and_ids_draw_different_noise(problem):
    def noise(*args, **kwargs):
        return problem.measure(*args, **kwargs) - problem.physics.A(args[0])

    twice = POOL[[0, 0]]
    assert torch.equal(*noise(twice).split(1))
    assert not torch.allclose(noise(twice), noise(twice, seed=1))
    assert not torch.allclose(noise(POOL[:1]), noise(POOL[1:2]))
    one, other = noise(twice, ids=["a", "b"])
    assert not torch.allclose(one, other)
    assert torch.equal(noise(twice, ids=["b", "a"])[1], one)


def test_noise_is_the_same_in_both_precisions():
    double = DEBLURRING.to(torch.float64)
    y = double.measure(POOL.double())
    torch.testing.assert_close(DEBLURRING.measure(POOL).double(), y, rtol=0, atol=1e-6)


def test_seeds_are_stable_across_runs():
    assert seed_of(0, "a") == 70371372590122459
    assert seed_of(1, "a") != seed_of(0, "a") != seed_of(0, "b")


def test_one_id_per_image():
    with pytest.raises(InputError, match="3 ids for 5 images"):
        DEBLURRING.measure(POOL, ids=[1, 2, 3])


def test_noise_with_a_parameter_per_image_is_refused():
    physics = deepinv.physics.Denoising(GaussianNoise(torch.rand(5)))
    with pytest.raises(InputError, match="same for all images"):
        Problem.from_physics(physics, (3, 8, 8)).measure(POOL)


# --- the data fidelity ---------------------------------------------------------------------------


def test_fidelity_and_gradient():
    problem = super_resolution(8, kernel_size=5, dtype=torch.float64)
    x = POOL.double().requires_grad_()
    y = problem.measure(POOL.flip(0).double())
    value = problem.fidelity(x, y)
    expected = 0.5 * (problem.physics.A(x) - y).square().sum((1, 2, 3))
    torch.testing.assert_close(value, expected)
    (by_autograd,) = torch.autograd.grad(value.sum(), x)
    torch.testing.assert_close(problem.gradient(x, y), by_autograd, rtol=0, atol=1e-14)


# --- any physics, and the step size --------------------------------------------------------------


def test_from_physics():
    physics = Blur(2 * ASYMMETRIC, padding="circular")
    problem = Problem.from_physics(physics, (3, 8, 8))
    assert problem.physics is physics
    assert problem.name == "Blur"
    assert problem.gradient_bound.value == pytest.approx(4)
    assert problem.eta == pytest.approx(0.95 / 4)
    y = problem.measure(POOL)
    torch.testing.assert_close(problem.initial(y), physics.A_adjoint(y))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_precision_is_that_of_the_operator(dtype):
    noise = GaussianNoise(torch.tensor(0.1, dtype=torch.float64))
    for make in (lambda **k: Blur(padding="circular", **k), lambda **k: BlurFFT((3, 8, 8), **k)):
        physics = make(filter=ASYMMETRIC.to(dtype), noise_model=noise)
        problem = Problem.from_physics(physics, (3, 8, 8))
        assert problem.dtype == dtype
        assert problem.measure(POOL.to(dtype)).dtype == dtype


def test_initialization_of_ones_own():
    physics = Blur(ASYMMETRIC, padding="circular")
    problem = Problem.from_physics(physics, (3, 8, 8), initialization=lambda y, _: y + 1)
    torch.testing.assert_close(problem.initial(POOL), POOL + 1)
    wrong = Problem.from_physics(physics, (3, 8, 8), initialization=lambda y, _: y[..., :4])
    with pytest.raises(InputError, match="initialization"):
        wrong.initial(POOL)


def test_a_step_that_is_too_long():
    physics = deepinv.physics.Denoising()
    with pytest.raises(StepSizeError, match="below 1 "):
        Problem.from_physics(physics, (3, 8, 8), eta=1.0)
    with pytest.warns(StepSizeWarning, match="eta \\* L_f = 1.5"):
        problem = Problem.from_physics(physics, (3, 8, 8), eta=1.5, allow_large_step=True)
    with pytest.raises(StepSizeError):
        replace(problem, allow_large_step=False)


def test_only_linear_physics():
    with pytest.raises(InputError, match="LinearPhysics"):
        Problem.from_physics(deepinv.physics.Physics(A=lambda x: x**2), (3, 8, 8))
    stacked = deepinv.physics.stack(deepinv.physics.Denoising(), deepinv.physics.Denoising())
    with pytest.raises(InputError, match="stacked"):
        Problem.from_physics(stacked, (3, 8, 8))


# --- other devices and precisions ----------------------------------------------------------------


@pytest.mark.parametrize("make", [gaussian_deblurring, super_resolution])
def test_to_float64_builds_the_operator_anew(make):
    single = make(28)
    double = single.to(torch.float64)
    expected = make(28, dtype=torch.float64)
    x = torch.rand(1, 3, 28, 28, dtype=torch.float64)
    assert torch.equal(double.physics.A(x), expected.physics.A(x))
    assert double.gradient_bound == expected.gradient_bound
    rounded = single.physics.filter.double()
    assert not torch.equal(rounded, double.physics.filter)
    assert single.physics.filter.dtype == torch.float32
    assert (double.eta, double.name, double.build) == (single.eta, single.name, single.build)


def test_to_float64_casts_a_copy_of_any_other_physics():
    """Including the complex buffers of BlurFFT, of which Module.to would keep the real part."""
    single = Problem.from_physics(BlurFFT((3, 8, 8), ASYMMETRIC), (3, 8, 8))
    double = single.to(torch.float64)
    x = POOL.double()
    expected = Blur(ASYMMETRIC.double(), padding="circular").A(x)
    torch.testing.assert_close(double.physics.A(x), expected, rtol=0, atol=1e-6)
    assert double.measure(x).dtype == torch.float64
    assert single.physics.angle.dtype == torch.complex64
    assert single.measure(POOL).dtype == torch.float32


def test_to_keeps_a_bound():
    weight = torch.rand(3, 8, 8)
    physics = LinearPhysics(A=lambda x: weight.to(x) * x, A_adjoint=lambda y: weight.to(y) * y)
    problem = Problem.from_physics(physics, (3, 8, 8))
    assert not problem.gradient_bound.exact
    double = problem.to(torch.float64)
    assert double.gradient_bound == problem.gradient_bound
    assert double.measure(POOL.double()).dtype == torch.float64


def test_to_a_device():
    problem = DEBLURRING.to("cpu")
    torch.testing.assert_close(problem.measure(POOL), DEBLURRING.measure(POOL))
    assert problem.physics is not DEBLURRING.physics


# --- bad inputs ----------------------------------------------------------------------------------

BAD = {
    "no image": (3.0, "tensors, arrays, files or folders"),
    "8-bit": ((255 * POOL).to(torch.uint8), "dividing by 255"),
    "another precision": (POOL.double(), "problem.to"),
    "empty": (POOL[:0], "empty"),
    "NaN": (POOL.index_fill(0, torch.tensor([1, 3]), float("nan")), r"NaN or infinity.*\[1, 3\]"),
    "infinity": (POOL.index_fill(0, torch.tensor([2]), float("-inf")), r"infinity.*\[2\]"),
    "gray": (POOL[:, :1], r"\(B, 3, 8, 8\)|\(5, 3, 8, 8\)"),
    "small": (POOL[..., :7], r"\(B, 3, 8, 8\)|\(5, 3, 8, 8\)"),
    "a number": (torch.tensor(1.0), r"batch|\(B, 3, 8, 8\)"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("method", ["measure", "initial"])
def test_bad_inputs(method, name):
    value, message = BAD[name]
    with pytest.raises(InputError, match=message):
        getattr(DEBLURRING, method)(value)


def test_a_single_measurement_is_a_batch_of_one_and_an_image_is_not():
    y = DEBLURRING.measure(POOL[:1])
    torch.testing.assert_close(DEBLURRING.initial(y[0]), DEBLURRING.initial(y))
    with pytest.raises(InputError, match="batch"):
        DEBLURRING.measure(POOL[0])


@pytest.mark.parametrize("make", [gaussian_deblurring, super_resolution])
def test_a_large_step_can_be_asked_for(make):
    with pytest.raises(StepSizeError, match="allow_large_step"):
        make(32, eta=100.0)
    with pytest.warns(StepSizeWarning):
        assert make(32, eta=100.0, allow_large_step=True).eta == 100.0


@pytest.mark.parametrize("make", [gaussian_deblurring, super_resolution])
def test_sizes_and_precisions_are_checked(make):
    assert make(np.int64(32)).img_size == (3, 32, 32)
    for size in (32.0, "32", (32,), (32, 0)):
        with pytest.raises(InputError, match="size must be"):
            make(size)
    with pytest.raises(InputError, match="float16"):
        make(32, dtype=torch.float16)
    with pytest.raises(InputError, match="bfloat16"):
        make(32).to(torch.bfloat16)


def test_a_physics_must_take_the_images_it_is_given():
    with pytest.raises(InputError, match=r"cannot be applied|give the img_size"):
        Problem.from_physics(deepinv.physics.Inpainting((1, 8, 8), mask=0.5), (1, 9, 9))


@pytest.mark.parametrize(
    "other",
    [
        gaussian_deblurring(12, noise=0.05),
        gaussian_deblurring(12, kernel_sigma=1.1),
        gaussian_deblurring(12, eta=0.5),
        gaussian_deblurring(12, iterations=3),
        gaussian_deblurring((12, 11)),
    ],
    ids=["noise", "operator", "step", "iterations", "size"],
)
def test_problems_that_differ_are_described_differently(other: Problem) -> None:
    found = gaussian_deblurring(12).describe()
    assert found == json.loads(json.dumps(gaussian_deblurring(12).describe()))
    assert found != other.describe()
