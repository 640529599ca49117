from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor

import proxmatch as pm
from proxmatch.baselines import Wiener, total_variation, wiener_filter
from proxmatch.denoisers import LPN, LPNConfig
from proxmatch.diagnosis.mismatch import CHOSEN_ON, LOSSES, Grade, judge
from proxmatch.errors import InputError
from proxmatch.learning.evidence import SCATTER
from proxmatch.metrics import psnr
from proxmatch.pnp import pnp_pgd
from proxmatch.problems import denoising
from proxmatch.transforms import strength


@pytest.fixture(scope="module")
def images() -> Tensor:
    return pm.embedded("photographs", 32).test[::30][:4]


def test_the_loss_is_what_the_best_at_hand_reconstructs_better(images: Tensor) -> None:
    problem = pm.gaussian_deblurring(32, iterations=8)
    noise = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    wrong, right = Wiener.fit(noise, 0.05), Wiener.fit(images, 0.03)
    found = pm.diagnose(wrong, images, problem, sources={"right": right}, seed=3)
    y = problem.measure(images, seed=3)

    def each(denoiser: object) -> Tensor:
        run = pnp_pgd(denoiser, y, problem)  # type: ignore[arg-type]
        return psnr(run.images, images)

    def quality(denoiser: object) -> float:
        return float(each(denoiser).mean())

    some = images[:CHOSEN_ON]
    reached = {
        "right": quality(pm.choose_strength(right, some, problem, seed=3).denoiser),
        "Wiener filter": quality(wiener_filter(images, problem, seed=3).denoiser),
        "total variation": quality(total_variation(some, problem, seed=3).denoiser),
        "the denoiser": quality(pm.choose_strength(wrong, some, problem, seed=3).denoiser),
    }
    assert {c.name: c.score for c in found.standings} == pytest.approx(reached, abs=1e-3)
    scores = [c.score for c in found.standings]
    assert scores == sorted(scores, reverse=True)
    assert found.best == max(reached, key=lambda name: reached[name])
    assert found.loss == pytest.approx(max(reached.values()) - reached["the denoiser"], abs=1e-3)
    assert found.psnr == pytest.approx(reached["the denoiser"], abs=1e-3)
    assert found.as_it_is == pytest.approx(quality(wrong), abs=1e-3)
    low, high = found.interval
    assert low <= found.loss <= high
    assert found.verdict is (Grade.BADLY if low > LOSSES[1] else Grade.MISMATCHED)
    assert f"{found.best} reconstructs them {found.loss:.1f} dB better" in found.recommendation


def test_all_strengths_are_chosen_for_the_number_of_steps_that_is_asked_for(
    images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The filter's and total variation's were once chosen for that of the problem."""
    seen = set()
    run = strength.pnp_pgd

    def counting(*args: Any, **options: Any) -> Any:
        seen.add(options["iterations"])
        return run(*args, **options)

    monkeypatch.setattr(strength, "pnp_pgd", counting)
    given, problem = Wiener.fit(images, 0.05), pm.gaussian_deblurring(32)
    pm.diagnose(given, images[:1], problem, sources=(), iterations=2)
    assert seen == {2}


def test_without_a_name_it_is_about_the_best_denoiser_at_hand(images: Tensor) -> None:
    problem = pm.gaussian_deblurring(32, iterations=6)
    noise = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    hand = {"wrong": Wiener.fit(noise, 0.05), "right": Wiener.fit(images, 0.03)}
    found = pm.diagnose(None, images, problem, sources=hand)
    assert found.name == "right"
    assert found.psnr > next(c.score for c in found.standings if c.name == "wrong")
    assert found.untried == ()
    with pytest.raises(InputError, match="no denoiser to diagnose"):
        pm.diagnose(None, images, problem, sources=())


def test_those_that_were_not_tried_are_named(images: Tensor) -> None:
    """The loss is behind the best of those that were tried, so which ones is a part of it."""
    hand = {f"{sigma}": Wiener.fit(images, sigma) for sigma in (0.05, 0.1, 0.5, 1.0)}
    problem = pm.gaussian_deblurring(32, iterations=2)
    found = pm.diagnose({"1.0": hand["1.0"]}, images, problem, sources=hand)
    tried = {c.name for c in found.standings} - {"Wiener filter", "total variation"}
    assert len(found.untried) == 1
    assert tried | set(found.untried) == set(hand)
    assert tried.isdisjoint(found.untried)
    assert found.to_dict()["untried"] == list(found.untried)
    assert ("at hand, not tried", "1", found.untried[0]) in found._rows()


def test_with_a_reference_the_gap_along_the_run_is_told(images: Tensor) -> None:
    problem = pm.gaussian_deblurring(32)
    model, reference = (Wiener.fit(images, sigma) for sigma in (0.2, 0.05))
    found = pm.diagnose(model, images, problem, reference, sources=(), iterations=4, seed=3)
    y = problem.measure(images, seed=3)
    run = pnp_pgd(model, y, problem, reference=reference, truth=images, iterations=4)
    assert run.gap is not None
    assert found.gap == pytest.approx(float(run.gap.mean()))
    assert found.gap_curve == pytest.approx(run.gap.mean(0).tolist())
    assert found.reference_psnr in [c.score for c in found.standings if c.name == "reference"]
    alone = pm.diagnose(model, images, problem, sources=(), iterations=4, seed=3)
    assert (alone.gap, alone.reference_psnr, alone.gap_curve) == (None, None, None)


def test_verdicts() -> None:
    def told(*losses: float) -> Grade:
        return judge(torch.tensor(losses))

    assert told(0.0) is Grade.MATCHED
    assert told(math.nan) is Grade.BADLY
    # The same mean loss: certain enough with many images that agree, not with a few that do not.
    assert told(*[0.2] * 10) is Grade.MATCHED
    assert told(0.2) is Grade.MISMATCHED
    assert told(*[0.0, 0.4] * 5) is Grade.MISMATCHED
    assert told(*[LOSSES[0]] * 100) is Grade.MISMATCHED
    assert told(*[2.0] * 4) is Grade.BADLY
    assert told(LOSSES[1] + 0.01) is Grade.MISMATCHED
    assert told(0.0, 4.0) is Grade.MISMATCHED


@pytest.mark.parametrize(
    ("loss", "verdict"), [(LOSSES[0], Grade.MATCHED), (LOSSES[1], Grade.BADLY)]
)
def test_at_the_bound_itself_a_verdict_is_given_one_time_in_ten_at_most(
    loss: float, verdict: Grade
) -> None:
    scatter = SCATTER[0] + SCATTER[1] * loss  # from image to image, as it usually is
    generator = torch.Generator().manual_seed(0)
    losses = loss + scatter * torch.randn(2000, 5, generator=generator)
    found = [judge(row) for row in losses]
    assert 0 < found.count(verdict) < 200
    assert found.count(Grade.MISMATCHED) + found.count(verdict) == len(found)


def test_divergence_is_counted_and_everything_is_json(images: Tensor) -> None:
    model = LPN(LPNConfig(size=8, hidden=4, features=3, strides=(2,)))
    with torch.no_grad():
        for p in model.constrained().values():
            p.mul_(1e4)
    found = pm.diagnose(model, images, denoising(32), sources=(), iterations=30)
    assert found.diverged == 4
    assert found.verdict is Grade.BADLY
    told = json.loads(found.to_json())
    assert told["verdict"] == "badly mismatched"
    assert told["denoising_trained"] is None
    console = Console(record=True, width=100)
    console.print(found.table())
    assert "4 of 4" in console.export_text()
    assert found.advice().startswith("badly mismatched: ")


def test_a_name_stands_for_one_denoiser(images: Tensor) -> None:
    models = [Wiener.fit(images, sigma) for sigma in (0.2, 0.05, 0.1)]
    problem = denoising(32, iterations=2)
    found = pm.diagnose(models[0], images, problem, sources=models[1])
    assert {c.name for c in found.standings} >= {"the denoiser", "denoiser 1"}
    for name in ("reference", "Wiener filter", "total variation"):
        with pytest.raises(InputError, match=f"name .{name}. is taken"):
            pm.diagnose({name: models[0]}, images, problem, models[2], sources=())
    assert pm.diagnose({"reference": models[0]}, images, problem, sources=()).name == "reference"
    with pytest.raises(InputError, match="no denoiser"):
        pm.diagnose(None, images, problem, sources=())


def test_what_does_not_fit(images: Tensor) -> None:
    model = Wiener.fit(images, 0.1)
    with pytest.raises(InputError, match="must have the shape"):
        pm.diagnose(model, images[:, :1], denoising(32), sources=())
    with pytest.raises(InputError, match="must have the shape"):
        pm.diagnose(model, images, denoising(16), sources=())


def test_what_is_compared_in_bfloat16_is_as_in_float32(
    images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = pm.gaussian_deblurring(32, iterations=2)
    found = []
    for fast in (False, True):
        monkeypatch.setattr(strength, "bfloat16_is_fast", lambda place, fast=fast: fast)
        hand = {name: pm.load(name) for name in ("gs-histology", "gs-photographs")}
        found.append(pm.diagnose("gs-histology", images[:1], problem, sources=hand))
    exact, quick = found
    assert [c.name for c in quick.standings] == [c.name for c in exact.standings]
    assert quick.psnr != exact.psnr  # it was another precision
    for one in ("psnr", "as_it_is", "loss"):
        assert getattr(quick, one) == pytest.approx(getattr(exact, one), abs=0.02)
