"""A denoiser that is not proximal is served wherever no potential is needed."""

from __future__ import annotations

import math

import deepinv as dinv
import pytest
from torch import Tensor

import proxmatch as pm
from proxmatch.errors import NotProximalError
from proxmatch.problems import denoising

IMAGES = pm.embedded("photographs").adaptation[:2, :, :32, :32].contiguous()
PROBLEM = denoising(32, noise=0.1, iterations=4)


def shrink(x: Tensor) -> Tensor:
    """Towards the mean of each image: no network at all."""
    mean = x.mean((2, 3), keepdim=True)
    return mean + 0.8 * (x - mean)


def test_its_strength_is_chosen() -> None:
    found = pm.choose_strength(shrink, IMAGES, PROBLEM)
    assert found.lipschitz is None
    tried = {trial.strength: trial.psnr for trial in found.table}
    assert found.chosen.psnr == max(tried.values()) >= tried[1.0]


def test_it_is_aligned_with_what_it_was_trained_on() -> None:
    found = pm.align(shrink, IMAGES, source=IMAGES.flip(1))
    assert found(IMAGES).shape == IMAGES.shape
    with pytest.raises(NotProximalError):
        found.potential(IMAGES)


def test_it_is_diagnosed() -> None:
    found = pm.diagnose(shrink, IMAGES, PROBLEM, sources=())
    assert math.isnan(found.lipschitz)
    assert "no potential" in [row for line in found._rows() for row in line]
    assert found.psnr > 15


def test_a_drunet_is_diagnosed_and_reconstructs() -> None:
    network = dinv.models.DRUNet(3, 3, nc=(4, 4, 4, 4), nb=1, pretrained=None).eval()
    found = pm.diagnose(network, IMAGES[:1], PROBLEM, sources=(), iterations=2)
    assert math.isfinite(found.psnr)


def test_it_is_adapted() -> None:
    images = pm.embedded("photographs").adaptation[:3]
    found = pm.adapt(shrink, images, denoising(64, noise=0.1, iterations=3), budget=20)
    assert found.table
    with pytest.raises(NotProximalError, match="only a denoiser with a potential is trained"):
        pm.adapt(shrink, images, denoising(64), method="pm")


def test_it_is_no_reference_of_a_certificate() -> None:
    y = PROBLEM.measure(IMAGES)
    with pytest.raises(NotProximalError, match="needs a proximal map as its reference"):
        pm.certify({"own": shrink}, y, PROBLEM, reference=shrink)  # type: ignore[arg-type]


def test_a_network_that_is_told_the_level_has_one_to_begin_with() -> None:
    drunet = dinv.models.DRUNet(3, 3, nc=(4, 4, 4, 4), nb=1, pretrained=None).eval()
    told = pm.GradientStep.of(drunet, smooth=True)
    assert told.sigma == 0.05
    assert pm.GradientStep.of(drunet, smooth=True, sigma=0.1).sigma == 0.1
    assert told(IMAGES).equal(told(IMAGES, 0.05))
    dncnn = dinv.models.DnCNN(3, 3, depth=3, nf=4, pretrained=None).eval()
    assert pm.GradientStep.of(dncnn, smooth=True).sigma is None
