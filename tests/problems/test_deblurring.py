import numpy as np
import pytest
import torch
from scipy import ndimage

from proxmatch.errors import InputError, StepSizeError
from proxmatch.problems import gaussian_deblurring

SIZES = [(16, 16), (9, 14), (5, 31)]


def images(problem, n=2, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.rand(n, *problem.img_size, generator=g, dtype=torch.float64).to(problem.dtype)


def gaussian(size, sigma):
    k = np.exp(-((np.arange(size) - size // 2) ** 2) / (2 * sigma**2))
    return np.outer(k, k) / k.sum() ** 2


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("taps", "sigma"), [(5, 1.0), (3, 2.5)])
def test_operator_is_a_circular_convolution(size, taps, sigma):
    problem = gaussian_deblurring(size, kernel_size=taps, kernel_sigma=sigma, dtype=torch.float64)
    x = images(problem)
    expected = [
        [ndimage.convolve(c, gaussian(taps, sigma), mode="wrap") for c in image]
        for image in x.numpy()
    ]
    np.testing.assert_allclose(problem.physics.A(x), expected, atol=1e-13)


@pytest.mark.parametrize("size", SIZES)
def test_adjoint(size):
    problem = gaussian_deblurring(size, dtype=torch.float64)
    x, y = images(problem, 1), images(problem, 1, seed=1)
    left = (problem.physics.A(x) * y).sum()
    right = (x * problem.physics.A_adjoint(y)).sum()
    assert abs(left - right) < 1e-12 * abs(left)


def test_start_and_defaults_are_those_of_the_paper():
    problem = gaussian_deblurring(16)
    y = problem.measure(images(problem))
    torch.testing.assert_close(problem.initial(y), problem.physics.A_adjoint(y))
    assert (problem.img_size, problem.eta, problem.iterations) == ((3, 16, 16), 0.95, 40)
    assert problem.gradient_bound.exact
    assert problem.gradient_bound.value == pytest.approx(1, abs=1e-6)


def test_noise():
    problem = gaussian_deblurring(64, noise=0.02)
    x = images(problem, 4)
    noise = problem.measure(x) - problem.physics.A(x)
    assert noise.std().item() == pytest.approx(0.02, rel=0.02)
    assert abs(noise.mean().item()) < 3e-4
    silent = gaussian_deblurring(64, noise=0)
    torch.testing.assert_close(silent.measure(x), silent.physics.A(x), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 0}, "positive"),
        ({"size": (3, 16, 16)}, "pair"),
        ({"size": 16, "channels": 0}, "channels"),
        ({"size": 16, "kernel_size": 4}, "odd"),
        ({"size": 16, "kernel_sigma": 0}, "kernel_sigma"),
        ({"size": (16, 4)}, "at least 5 x 5"),
        ({"size": 16, "noise": -0.1}, "nonnegative"),
        ({"size": 16, "noise": float("nan")}, "nonnegative"),
        ({"size": 16, "iterations": 0}, "iterations"),
        ({"size": 16, "eta": 0}, "eta"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        gaussian_deblurring(**arguments)


def test_a_step_that_is_too_long():
    with pytest.raises(StepSizeError, match="eta"):
        gaussian_deblurring(16, eta=1.01)
