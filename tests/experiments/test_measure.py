from __future__ import annotations

import numpy as np
import pytest
import torch
from skimage.metrics import peak_signal_noise_ratio

from proxmatch.denoisers import GradientStep, GradientStepConfig
from proxmatch.experiments.measure import Effort, Measured, measure
from proxmatch.problems import gaussian_deblurring


@pytest.fixture
def setting():  # type: ignore[no-untyped-def]
    torch.manual_seed(3)
    made = [GradientStep(GradientStepConfig(widths=(3, 4))) for _ in range(2)]
    with torch.no_grad():
        for model in made:
            for p in model.parameters():
                p.normal_(0, 0.08)
    return gaussian_deblurring(16, iterations=4), made, torch.rand(5, 3, 16, 16), list("abcde")


def test_the_gap_is_that_of_the_paper(setting) -> None:  # type: ignore[no-untyped-def]
    problem, (model, reference), truth, ids = setting
    effort = Effort(gap_images=3, lipschitz_images=2, lipschitz_at=(1, 4), lanczos=5, batch=2)
    found = measure(model, truth, problem, ids, reference=reference, effort=effort)
    written = found.to_json(ids, curves=True)
    for i in range(5):
        y = problem.measure(truth[i : i + 1], ids=ids[i : i + 1])
        x = problem.physics.A_adjoint(y)
        gaps, quality = [], []
        for _ in range(4):
            z = x - problem.eta * problem.physics.A_adjoint(problem.physics.A(x) - y)
            x, target = model(z).detach(), reference(z).detach()
            gaps.append(
                float(np.linalg.norm((x - target).numpy()))
                / max(float(np.linalg.norm(target.numpy())), 1e-12)
            )
            quality.append(
                peak_signal_noise_ratio(truth[i].numpy(), x[0].clamp(0, 1).numpy(), data_range=1.0)
            )
        images = written["images"]
        assert images["psnr"][i] == pytest.approx(quality[-1], abs=1e-2)
        assert written["curves"][i][1:] == pytest.approx(quality, abs=1e-2)
        if i < 3:
            assert images["gap"][i] == pytest.approx(100 * np.mean(gaps), rel=1e-4)
        else:
            assert images["gap"][i] is None
        assert (images["lipschitz"][i] is None) == (i >= 2)
    assert written["means"]["gap_images"] == 3
    assert written["means"]["gap"][0] is None
    assert set(written["means"]["lipschitz"]) == {"1", "4"}


def test_images_do_not_depend_on_their_batch(setting) -> None:  # type: ignore[no-untyped-def]
    problem, (model, reference), truth, ids = setting
    one, two = (
        measure(model, truth, problem, ids, reference=reference, effort=Effort(gap, 0, (), 1, b))
        for gap, b in ((5, 5), (2, 1))
    )
    assert torch.allclose(one.psnr, two.psnr, atol=1e-3)
    assert torch.allclose(one.gap[:2], two.gap[:2], rtol=1e-4)


def test_an_image_that_diverges_counts_as_it_was_left(setting) -> None:  # type: ignore[no-untyped-def]
    problem, _, truth, ids = setting
    found = measure(lambda z, _: 60 * z, truth, problem, ids)
    assert found.diverged == 5
    assert bool(found.psnr.isfinite().all())
    assert torch.equal(found.psnr[:, -1], found.psnr[:, -2])


def test_stopping_early_keeps_the_curves_at_their_last_value(setting) -> None:  # type: ignore[no-untyped-def]
    problem, (model, _), truth, ids = setting
    effort = Effort(lipschitz_images=2, lipschitz_at=(4,))
    found = measure(model, truth, problem, ids, effort=effort, iterations=2)
    assert found.psnr.shape == (5, 5)
    assert torch.equal(found.psnr[:, 2], found.psnr[:, 4])
    assert found.to_json(ids, curves=False)["images"]["lipschitz"] == [None] * 5


def test_the_constant_is_the_largest_along_the_trajectory() -> None:
    nan = float("nan")
    found = Measured(
        torch.zeros(3, 2), torch.zeros(3), torch.zeros(3, 1),
        torch.tensor([[0.5, 2.0], [nan, 0.25], [nan, nan]]), (1, 4), 0,
    ).to_json("abc", curves=False)  # fmt: skip
    assert found["images"]["lipschitz"] == [2.0, 0.25, None]
    assert found["means"]["lipschitz"] == {"1": 0.5, "4": 1.125}
