import numpy as np
import pytest
import torch
from deepinv.physics import Downsampling
from deepinv.physics.functional import gaussian_blur
from scipy import ndimage

from proxmatch.errors import InputError, StepSizeError
from proxmatch.problems import super_resolution

CASES = [
    {"size": (32, 28)},
    {"size": (12, 9), "factor": 3, "kernel_size": 7, "kernel_sigma": 0.8},
    {"size": (10, 6), "factor": 2, "kernel_size": 5, "kernel_sigma": 2.0},
    {"size": (5, 7), "factor": 1, "kernel_size": 3},
]
cases = pytest.mark.parametrize("case", CASES, ids=str)


def images(problem, n=2, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.rand(n, *problem.img_size, generator=g, dtype=torch.float64).to(problem.dtype)


@cases
def test_operator_is_a_circular_convolution_and_every_factor_th_pixel(case):
    problem = super_resolution(**case, dtype=torch.float64)
    taps, sigma = case.get("kernel_size", 25), case.get("kernel_sigma", 1.6)
    factor = case.get("factor", 4)
    k = np.exp(-((np.arange(taps) - taps // 2) ** 2) / (2 * sigma**2))
    kernel = np.outer(k, k) / k.sum() ** 2
    x = images(problem)
    expected = [
        [ndimage.convolve(c, kernel, mode="wrap")[::factor, ::factor] for c in image]
        for image in x.numpy()
    ]
    np.testing.assert_allclose(problem.physics.A(x), expected, atol=1e-13)


@cases
def test_adjoint(case):
    problem = super_resolution(**case, dtype=torch.float64)
    x = images(problem, 1)
    y = torch.rand_like(problem.physics.A(x))
    left = (problem.physics.A(x) * y).sum()
    right = (x * problem.physics.A_adjoint(y)).sum()
    assert abs(left - right) < 1e-12 * abs(left)


def test_operator_is_that_of_deepinv():
    problem = super_resolution((32, 28), dtype=torch.float64)
    kernel = gaussian_blur(psf_size=(25, 25), sigma=1.6, dtype=torch.float64)
    other = Downsampling((3, 32, 28), kernel, factor=4, padding="circular")
    x = images(problem)
    y = other.A(x)
    torch.testing.assert_close(problem.physics.A(x), y, rtol=0, atol=1e-13)
    torch.testing.assert_close(problem.physics.A_adjoint(y), other.A_adjoint(y), rtol=0, atol=1e-13)


def test_inherited_proximal_map_of_the_fidelity():
    problem = super_resolution((28, 32), dtype=torch.float64)
    z, truth = images(problem, seed=1), images(problem)
    y = problem.measure(truth)
    x = problem.physics.prox_l2(z, y, gamma=7.0)
    torch.testing.assert_close(x + 7.0 * problem.gradient(x, y), z, rtol=0, atol=1e-12)


def bicubic(line, factor):
    """Cubic convolution with a = -0.75 and repeated borders, pixel j at coordinate j / factor."""
    n, a = len(line), -0.75
    out = np.zeros((n * factor, *line.shape[1:]))
    for j in range(n * factor):
        t = j / factor
        for i in range(int(t) - 1, int(t) + 3):
            d = abs(t - i)
            if d <= 1:
                weight = (a + 2) * d**3 - (a + 3) * d**2 + 1
            else:
                weight = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
            out[j] += weight * line[min(max(i, 0), n - 1)]
    return out


@cases
def test_start_is_bicubic_without_a_shift(case):
    problem = super_resolution(**case, dtype=torch.float64)
    factor = case.get("factor", 4)
    y = problem.measure(images(problem))
    x = problem.initial(y)
    rows = np.moveaxis(y.numpy(), (2, 3), (0, 1))
    both = np.swapaxes(bicubic(np.swapaxes(bicubic(rows, factor), 0, 1), factor), 0, 1)
    np.testing.assert_allclose(x, np.moveaxis(both, (0, 1), (2, 3)), atol=1e-12)
    torch.testing.assert_close(x[..., ::factor, ::factor], y, rtol=0, atol=1e-12)


def test_defaults_are_those_of_the_paper():
    problem = super_resolution(64)
    assert (problem.img_size, problem.eta, problem.iterations) == ((3, 64, 64), 15.0, 40)
    assert problem.eta * problem.gradient_bound.value == pytest.approx(0.9443, abs=1e-4)
    assert problem.measure(images(problem)).shape == (2, 3, 16, 16)


@pytest.mark.parametrize("change", [{"factor": 2}, {"kernel_size": 9}, {"kernel_sigma": 1.0}])
def test_other_operators_get_a_step_of_their_own(change):
    problem = super_resolution(32, **change)
    assert problem.eta * problem.gradient_bound.value == pytest.approx(0.95)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 30}, "multiples of 4"),
        ({"size": (32, 34)}, "multiples of 4"),
        ({"size": 24}, "at least 25 x 25"),
        ({"size": 32, "factor": 0}, "factor"),
        ({"size": 32, "kernel_size": 24}, "odd"),
        ({"size": 32, "noise": -1}, "nonnegative"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        super_resolution(**arguments)


def test_a_step_that_is_too_long():
    with pytest.raises(StepSizeError, match="eta"):
        super_resolution(32, eta=16)


def test_the_operator_is_fixed():
    physics = super_resolution(32).physics
    with pytest.raises(InputError, match="fixed"):
        physics.A(torch.rand(1, 3, 32, 32), factor=2)
    with pytest.raises(InputError, match="fixed"):
        physics.update(filter=torch.ones(1, 1, 3, 3))
