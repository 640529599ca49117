from __future__ import annotations

import math
import warnings
from copy import deepcopy

import pytest
import torch
from torch import Tensor

import proxmatch as pm
from proxmatch.baselines import Wiener
from proxmatch.errors import MismatchedPhysicsWarning, SuspiciousWarning
from proxmatch.pnp import Status
from proxmatch.problems import denoising, gaussian_deblurring, inpainting
from proxmatch.reconstruction.linear import reconstruct_linearly
from proxmatch.reconstruction.signs import Sign
from proxmatch.reconstruction.soundness import check_measured_noise, examine, noise_level
from proxmatch.transforms.colors import ColorStatistics

PICTURES = pm.embedded("photographs").test[:2]


def noise(x: Tensor, level: float) -> Tensor:
    return level * torch.randn(x.shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("level", [0.01, 0.05, 0.2])
def test_the_noise_of_a_flat_picture_is_found(level: float) -> None:
    flat = torch.full((3, 3, 65, 64), 0.5)
    assert noise_level(flat + noise(flat, level)).tolist() == pytest.approx([level] * 3, rel=0.1)


def test_the_truth_is_sound() -> None:
    for problem in (gaussian_deblurring(64), inpainting(64), denoising(64, noise=0.1)):
        found = examine(PICTURES, problem.measure(PICTURES), problem)
        # Where nothing is measured, the truth has more detail than anything linear can know.
        unknown = {Sign.FAR} if problem.name == "inpainting" else set()
        assert all(set(signs) <= unknown for signs in found.signs())
        assert float(found.misfit.max()) < 0.1 * float(found.change.min())


def test_parts_of_the_error_are_those_that_were_put_there() -> None:
    problem = denoising(64, noise=0.05)
    y = problem.measure(PICTURES)
    darker = examine(PICTURES - 0.2, y, problem)
    assert darker.misfit.tolist() == pytest.approx([0.04, 0.04], rel=0.1)
    noisy = examine(PICTURES + noise(PICTURES, 0.3), y, problem)
    white = 8 / 9 * (0.3**2 - 0.05**2)  # what noise keeps without its mean over nine pixels
    assert noisy.noise.tolist() == pytest.approx([white] * 2, rel=0.25)
    bright = examine(PICTURES + 3, y, problem)
    assert (
        float((bright.range.sqrt() - (2 + PICTURES).flatten(1).square().mean(1).sqrt()).abs().max())
        < 0.1
    )


@pytest.mark.parametrize(
    ("ruin", "sign"),
    [
        (lambda x: x.mean((2, 3), keepdim=True).expand_as(x), Sign.MISFIT),
        (lambda x: x + noise(x, 0.2), Sign.NOISE),
        (lambda x: 6 * x - 2, Sign.RANGE),
    ],
)
def test_ruins_are_noticed(ruin: object, sign: Sign) -> None:
    problem = gaussian_deblurring(64)
    found = examine(ruin(PICTURES), problem.measure(PICTURES), problem)  # type: ignore[operator]
    assert all(sign in signs for signs in found.signs())


def test_what_is_farther_than_the_start_from_a_linear_reconstruction_is_noticed() -> None:
    """Texture where nothing was measured: no misfit shows it."""
    problem = inpainting(64)
    y = problem.measure(PICTURES)
    mask = problem.physics.A(torch.ones_like(PICTURES))
    stripes = 0.2 * (torch.arange(64) // 2 % 2 - 0.5).expand_as(PICTURES)
    wrong = PICTURES + (1 - mask) * stripes * (PICTURES.median() < PICTURES)
    found = examine(wrong, y, problem)
    assert float(found.misfit.max()) < 1e-3 * float(found.change.min())
    assert all(signs[0] is Sign.FAR for signs in found.signs())


def test_the_linear_reconstruction_is_the_posterior_mean() -> None:
    """For denoising it has a closed form: one application of the filter of the noise's level."""
    problem = denoising(32, noise=0.1)
    x = PICTURES[:1, :, :32, :32]
    y = problem.measure(x)
    linear = reconstruct_linearly(y, problem, y, torch.tensor([0.01]))
    [exact] = deepcopy(linear.priors)
    exact.log_snr.data -= math.log(0.01 / exact.sigma**2)  # type: ignore[operator]
    torch.testing.assert_close(linear.images, exact(y).detach(), atol=2e-3, rtol=0)


def test_together_pictures_are_reconstructed_as_one_by_one() -> None:
    problem = gaussian_deblurring(64)
    y = problem.measure(PICTURES)
    start, variance = problem.initial(y), torch.tensor([4e-4, 1e-3])
    both = reconstruct_linearly(y, problem, start, variance)
    for i in range(2):
        one = slice(i, i + 1)
        alone = reconstruct_linearly(y[one], problem, start[one], variance[one])
        torch.testing.assert_close(both.images[one], alone.images, atol=1e-5, rtol=0)
        torch.testing.assert_close(both.missed[one], alone.missed, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("steeper", [-0.5, 1.0])
def test_the_spectrum_and_the_error_of_a_picture_are_found(steeper: float) -> None:
    """Of pictures that are drawn from another spectrum than 1 / f^2.5, which is known then."""
    problem = gaussian_deblurring(64, noise=0.05)
    colors = ColorStatistics(torch.full((3,), 0.5).double(), 0.002 * torch.eye(3).double() + 0.001)
    truth = Wiener.natural(colors, 0.1, (64, 64))
    octaves = torch.linspace(-8, -0.5, truth.config.knots)
    truth.log_snr.data -= steeper * (octaves + 4) * math.log(2)
    expected, missed = 0.0, 0.0
    for seed in range(3):
        x = truth.draw(1, (64, 64), seed)
        y = problem.measure(x.clamp(0, 1))
        linear = reconstruct_linearly(y, problem, problem.initial(y), torch.tensor([0.05**2]))
        expected += float(linear.missed.sum())
        missed += float((linear.images - x.clamp(0, 1)).square().sum())
    assert expected == pytest.approx(missed, rel=0.35)
    [prior] = linear.priors
    fitted = (prior.log_snr.detach() + 2 * math.log(prior.sigma or 0)).mean(0)
    wanted = (truth.log_snr.detach() + 2 * math.log(0.1)).mean(0)
    slope = (fitted - wanted)[7:12].diff().mean() / math.log(2) / 0.5  # of octaves
    assert abs(float(slope)) < 0.5


def test_a_run_that_goes_on_is_noticed() -> None:
    problem = gaussian_deblurring(64)
    y = problem.measure(PICTURES)
    found = examine(PICTURES, y, problem, residual=torch.tensor([0.0, 0.2]))
    assert found.signs() == ((), (Sign.UNSETTLED,))


def test_a_start_that_was_not_changed_is_sound() -> None:
    problem = gaussian_deblurring(64)
    y = problem.measure(PICTURES)
    assert examine(problem.initial(y), y, problem).signs() == ((), ())


def test_reconstruct_says_so() -> None:
    y = gaussian_deblurring(64).measure(PICTURES)
    with pytest.warns(SuspiciousWarning, match=r"\[0, 1\] are probably worse .*choose_strength"):
        found = pm.reconstruct(lambda z: z.mean((2, 3), keepdim=True).expand_as(z), y, "deblurring")
    assert found.status == (Status.SUSPICIOUS,) * 2
    assert Sign.MISFIT in found.signs[0]


def test_a_good_denoiser_is_not_suspicious() -> None:
    y = gaussian_deblurring(64).measure(PICTURES)
    wiener = pm.baselines.Wiener.fit(pm.embedded("photographs").adaptation[:8], 0.05)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = pm.reconstruct(wiener, y, "deblurring")
    assert found.status == (Status.COMPLETED,) * 2
    assert found.signs == ((), ())


@pytest.mark.parametrize(("said", "there"), [(0.02, 0.2), (0.1, 0.01), (0.0, 0.1)])
def test_noise_far_from_that_of_the_problem_is_told(said: float, there: float) -> None:
    y = denoising(64, noise=there).measure(PICTURES)
    with pytest.warns(MismatchedPhysicsWarning, match=f"is for {said:.2g}"):
        check_measured_noise(denoising(64, noise=said), y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_measured_noise(denoising(64, noise=there), y)
