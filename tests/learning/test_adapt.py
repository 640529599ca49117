from __future__ import annotations

import copy
import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from proxmatch.data import FewShot
from proxmatch.denoisers import LPN, GradientStep, GradientStepConfig, LPNConfig, load, save
from proxmatch.errors import AdaptationWarning, CheckpointError, InputError
from proxmatch.learning import (
    AdaptationResult,
    Optimizer,
    RunStatus,
    TrainingSettings,
    adapt,
    adaptation_settings,
    gentle_settings,
    run,
    stream,
)
from proxmatch.losses import Constant
from proxmatch.problems import gaussian_deblurring
from proxmatch.transforms import ColorStatistics, Relaxed

PROBLEMS = [gaussian_deblurring(8, channels=1, iterations=8)]
QUICK: dict[str, Any] = {"problem": PROBLEMS, "draws": 2}


def pictures(count: int, generator: torch.Generator, low: float = 0.0) -> torch.Tensor:
    """Two gray levels with a vertical edge between them, in [low, low + 0.5]."""
    levels = low + 0.5 * torch.rand(count, 2, generator=generator)
    edge = torch.randint(2, 6, (count,), generator=generator)
    left = torch.arange(8)[None] < edge[:, None]
    rows = torch.where(left, levels[:, :1], levels[:, 1:])
    return rows[:, None, None].expand(-1, 1, 8, 8).contiguous()


def few(number: int, seed: int = 3) -> torch.Tensor:
    return pictures(number, torch.Generator().manual_seed(seed), low=0.5)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> LPN:
    """A denoiser that has only seen dark pictures."""
    torch.manual_seed(0)
    denoiser = LPN(LPNConfig(channels=1, size=8, hidden=8, features=8, strides=(2,), sigma=0.1))
    settings = TrainingSettings(steps=300, noise=0.1, optimizer=Optimizer(rate=1e-2))
    run(denoiser, stream(pictures), settings, tmp_path_factory.mktemp("source"))
    denoiser.record = {"told": "by the test"}
    return denoiser


def quick(source: LPN, **changes: Any) -> TrainingSettings:
    return adaptation_settings(source, "mse", 8, steps=60, check_every=10, **changes)


def weights(denoiser: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: t.clone() for name, t in denoiser.state_dict().items()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_it_helps_and_says_by_how_much(source: LPN) -> None:
    before = weights(source)
    result = adapt(source, few(5), method="mse", settings=quick(source), **QUICK)
    assert same(weights(source), before)
    assert result.status is RunStatus.COMPLETED
    assert result.evidence is not None
    assert result.evidence.gain > 1
    assert result.evidence.gains == {"deblurring": result.evidence.gain}
    after, then = result.evidence.after, result.evidence.before
    assert float(after.denoising[0.1].mean()) > float(then.denoising[0.1].mean()) + 1
    assert "deblurring" in str(result.evidence)
    assert not same(weights(result.denoiser), before)
    assert result.denoiser.record["told"] == "by the test"
    assert result.denoiser.record["adapted"]["number"] == 5


def test_the_best_step_is_the_one_with_the_best_held_out_score(source: LPN, tmp_path: Path) -> None:
    def once(select: Any) -> AdaptationResult:
        return adapt(
            source, few(5), settings=quick(source), select=select, folder=tmp_path, **QUICK
        )

    best, last = once("best"), once("last")  # the second finds the finished run of the first
    assert best.history == last.history
    scores = {line["step"]: line["score"] for line in best.history if "score" in line}
    assert best.step == max(scores, key=lambda step: scores[step] or -math.inf)
    assert last.step == 60
    assert best.evidence is not None
    assert best.evidence.gain == pytest.approx(scores[best.step], abs=1e-4)
    with pytest.raises(CheckpointError, match=r"other settings \(images\)"):
        adapt(source, few(5, seed=4), settings=quick(source), folder=tmp_path, **QUICK)


def test_ruin_is_announced_or_undone(source: LPN) -> None:
    ruinous, hopeless = (
        quick(source, optimizer=Optimizer(rate=rate, warmup=0, final=1)) for rate in (10.0, 100.0)
    )
    with pytest.warns(AdaptationWarning, match="made things worse"):
        last = adapt(source, few(5), settings=ruinous, select="last", **QUICK)
    assert last.evidence is not None
    assert last.evidence.gain < 0
    with pytest.warns(AdaptationWarning, match="returned as it is"):
        best = adapt(source, few(5), settings=hopeless, select="best", **QUICK)
    assert best.step == 0
    assert same(weights(best.denoiser), weights(source))


def test_an_alignment_that_harms_is_announced(source: LPN) -> None:
    """The colors of the source are said to be others than they are."""
    wrong = copy.deepcopy(source).train()
    wrong.record = {"colors": ColorStatistics(torch.ones(1), 4 * torch.ones(1, 1)).to_json()}
    with pytest.warns(AdaptationWarning, match="alignment made things worse"):
        result = adapt(wrong, few(5), method="align", problem=PROBLEMS)
    assert result.evidence is not None
    assert result.evidence.gain < 0
    assert wrong.training


def test_a_problem_is_not_sacrificed_for_another(source: LPN) -> None:
    """A step that loses more than the leeway on one problem is never the best."""
    problems = [*PROBLEMS, gaussian_deblurring(8, channels=1, noise=0.5, iterations=8)]
    renamed = [problems[0], type(problems[1])(**{**vars(problems[1]), "name": "noisy"})]
    result = adapt(source, few(5), settings=quick(source), problem=renamed, draws=2)
    assert result.evidence is not None
    assert min(result.evidence.gains.values()) >= -0.05 - 1e-4


@pytest.mark.parametrize("number", [1, 2])
def test_one_image_is_enough(source: LPN, number: int) -> None:
    result = adapt(source, few(number), settings=quick(source), **QUICK)
    assert result.evidence is not None
    assert result.evidence.gain > 0.5


def test_held_out_pixels_have_no_influence(source: LPN) -> None:
    image = few(1)
    changed = image.clone()
    changed[..., 6:] = 0.7
    ends = [
        adapt(source, x, settings=quick(source), select="last", **QUICK).denoiser
        for x in (image, changed)
    ]
    assert same(weights(ends[0]), weights(ends[1]))


def test_images_of_several_sizes(source: LPN) -> None:
    wide = torch.cat([few(1)[0], few(1, seed=8)[0], few(1, seed=9)[0]], 2)
    result = adapt(source, [wide, few(1)[0]], settings=quick(source), **QUICK)
    assert result.evidence is not None
    assert result.evidence.gain > 0.5
    shots = FewShot(few(2), (0, 1), ("a", "b"))
    assert adapt(source, shots, settings=quick(source), **QUICK).evidence is not None


def test_without_hold_out_there_is_no_evidence(source: LPN) -> None:
    result = adapt(
        source, few(1), settings=quick(source), select="last", held_out=False, draws=None
    )
    assert result.evidence is None
    assert result.step == 60


def test_every_method_gets_the_same_budget(source: LPN) -> None:
    told = [
        adaptation_settings(source, method, 16).model_dump(exclude={"loss"})
        for method in ("mse", "l1", "pm", "scaled-mse")
    ]
    assert all(settings == told[0] for settings in told)


@pytest.mark.filterwarnings("ignore::proxmatch.errors.AdaptationWarning")  # nothing better, too
def test_proximal_matching_says_when_it_has_lost_its_gradient(source: LPN) -> None:
    from proxmatch.losses import Constant

    tiny = quick(source, loss="pm", gamma=Constant(gamma=1e-3), log_every=1)
    with pytest.warns(AdaptationWarning, match="no gradient left at 100 %"):
        assert adapt(source, few(5), settings=tiny, **QUICK).saturated == 1.0
    wide = quick(source, loss="pm", gamma=Constant(gamma=0.5), log_every=1)
    assert adapt(source, few(5), settings=wide, **QUICK).saturated == 0.0


def test_adapm_keeps_l_down(tmp_path: Path) -> None:
    torch.manual_seed(0)
    start = GradientStep(GradientStepConfig(channels=1, widths=(6, 8), sigma=0.1))
    settings = TrainingSettings(steps=100, noise=0.1, optimizer=Optimizer(rate=5e-3))
    run(start, stream(pictures), settings, tmp_path)

    def adapted(method: Any) -> AdaptationResult:
        changes = {
            "steps": 40,
            "check_every": 20,
            "optimizer": Optimizer(rate=5e-3, warmup=0, final=1),
        }
        told = adaptation_settings(start, method, 8, **changes)
        if told.penalty is not None:
            penalty = told.penalty.model_copy(update={"limit": 0.5, "weight": 1.0})
            told = told.model_copy(update={"penalty": penalty})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AdaptationWarning)
            return adapt(start, few(5), settings=told, select="last", **QUICK)

    free, bound = adapted("pm"), adapted("adapm")
    assert free.evidence is not None
    assert bound.evidence is not None
    assert bound.evidence.after.lipschitz < free.evidence.after.lipschitz - 0.05
    model = bound.denoiser
    assert isinstance(model, GradientStep)
    assert model.lipschitz == pytest.approx(bound.evidence.after.lipschitz, abs=1e-4)
    loaded = load(save(model, tmp_path / "saved"))
    assert loaded.record["adapted"]["settings"]["loss"] == "pm"
    assert same(weights(loaded), weights(model))


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.empty(0, 1, 8, 8), "no images"),
        (few(2)[0, 0], "image 0 should be"),
        (few(2).expand(-1, 3, -1, -1), "is for images of 1 channel"),
        (255 * few(2), "divide 8-bit"),
        (few(2) * math.nan, "finite"),
        ((255 * few(2)).byte(), "floating-point"),
        (few(2)[..., :5], "at least 8 x 8|too small"),
        (["a.png"], "no file or folder a.png"),
    ],
)
def test_bad_images_are_refused(source: LPN, images: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        adapt(source, images, **QUICK)


def test_bad_choices_are_refused(source: LPN) -> None:
    with pytest.raises(InputError, match="gradient-step"):
        adapt(source, few(2), method="adapm", problem=PROBLEMS)
    with pytest.raises(InputError, match="there are auto"):
        adapt(source, few(2), method="magic")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'best' or 'last'"):
        adapt(source, few(2), select="first")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="select='last'"):
        adapt(source, few(2), held_out=False, settings=quick(source))
    with pytest.raises(InputError, match="auto compares on held-out"):
        adapt(source, few(2), held_out=False)
    with pytest.raises(InputError, match="give images"):
        adapt(source)
    with pytest.raises(InputError, match="one problem that made them"):
        adapt(source, measurements=few(2))
    with pytest.raises(InputError, match="one size"):
        adapt(source, few(2), problem=[*PROBLEMS, gaussian_deblurring(6, channels=1)])
    relaxed = Relaxed(source, 0.5)
    with pytest.raises(InputError, match="cannot be trained"):
        adapt(relaxed, few(2), method="mse", problem=PROBLEMS)


def test_the_number_of_steps_is_that_of_the_paper(source: LPN) -> None:
    gs = GradientStep(GradientStepConfig(widths=(4, 6)))
    assert adaptation_settings(source, "pm", 100).steps == 200 * 100 / 4
    assert adaptation_settings(gs, "pm", 100).steps == 20 * 100 / 4
    assert adaptation_settings(gs, "pm", 100).gamma == Constant(gamma=0.025)


def test_the_constant_of_the_source_is_not_that_of_the_adapted() -> None:
    start = GradientStep(GradientStepConfig(channels=1, widths=(4, 6), sigma=0.1, lipschitz=0.5))
    settings = adaptation_settings(start, "mse", 1, steps=1)
    adapted = adapt(start, few(1), settings=settings, select="last", held_out=False, draws=None)
    assert isinstance(adapted.denoiser, GradientStep)
    assert adapted.denoiser.lipschitz is None
    assert start.lipschitz == 0.5


@pytest.mark.filterwarnings("ignore::proxmatch.errors.AdaptationWarning")  # one step does not help
def test_query_points_are_as_large_as_the_images_of_the_problem() -> None:
    """Windows of 64 pixels once met a problem of 72."""
    torch.manual_seed(0)
    source = GradientStep(GradientStepConfig(channels=1, widths=(3, 4)))
    settings = gentle_settings(source, 1, steps=1, penalty=None)
    assert settings.trajectory is not None
    problem = gaussian_deblurring(72, channels=1, iterations=2)
    found = adapt(source, torch.rand(1, 1, 72, 72), problem, settings=settings, select="last")
    assert found.step == 1
