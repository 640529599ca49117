from __future__ import annotations

import copy
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from proxmatch._internal.cluster import Workers, spread
from proxmatch._internal.randomness import generator_of
from proxmatch.baselines import Identity, Wiener
from proxmatch.baselines.wiener import SIGMAS
from proxmatch.denoisers import (
    LPN,
    GradientStep,
    GradientStepConfig,
    LPNConfig,
    load,
    save,
    shipped,
)
from proxmatch.errors import AdaptationWarning, CheckpointError, InputError
from proxmatch.learning import (
    Levels,
    Optimizer,
    TrainingSettings,
    adapt,
    adaptation_settings,
    auto as module,
    blind,
    pairs,
    plan_adaptation,
    run,
    stream,
)
from proxmatch.learning.assess import Assessment, assess
from proxmatch.learning.auto import EDGE, MARGIN, Search, auto, halfway
from proxmatch.learning.evidence import Evidence
from proxmatch.learning.fine_tune import fine_tune, gentle_settings
from proxmatch.learning.frame import around, core, inside
from proxmatch.learning.hold_out import hold_out
from proxmatch.learning.start import sources_of
from proxmatch.metrics import psnr
from proxmatch.pnp import pnp_pgd
from proxmatch.problems import denoising, gaussian_deblurring, super_resolution
from proxmatch.transforms import Aligned, Blended, Relaxed, align, choose_strength, color_statistics

DEBLURRING = gaussian_deblurring(16, channels=3, noise=0.02, iterations=10)
PROBLEMS = [DEBLURRING, super_resolution(16, factor=2, kernel_size=5, channels=3, iterations=10)]


def pictures(
    count: int, generator: torch.Generator, *, low: float = 0.0, size: int = 16
) -> torch.Tensor:
    """Two colors with a vertical edge between them, in [low, low + 0.4]."""
    levels = low + 0.4 * torch.rand(count, 3, 2, generator=generator)
    edge = torch.randint(2, size - 2, (count,), generator=generator)
    left = (torch.arange(size)[None] < edge[:, None])[:, None]
    rows = torch.where(left, levels[..., :1], levels[..., 1:])
    return rows[:, :, None].expand(-1, -1, size, -1).contiguous()


def bright(number: int, seed: int = 3) -> torch.Tensor:
    return pictures(number, torch.Generator().manual_seed(seed), low=0.55)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> LPN:
    """A denoiser that has only seen dark pictures."""
    torch.manual_seed(0)
    denoiser = LPN(LPNConfig(size=16, hidden=8, features=8, strides=(2,), sigma=0.1))
    settings = TrainingSettings(steps=300, noise=0.1, optimizer=Optimizer(rate=1e-2))
    run(denoiser, stream(pictures), settings, tmp_path_factory.mktemp("source"))
    dark = pictures(64, torch.Generator().manual_seed(5))
    denoiser.record = {"colors": color_statistics(dark).to_json()}
    return denoiser


def test_what_is_known_not_to_be_a_proximal_map_is_not_returned_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    source = GradientStep(GradientStepConfig(widths=(8, 8), sigma=0.1, lipschitz=1.5))
    monkeypatch.setattr(module, "LEEWAY", math.inf)

    def best(lipschitz: float | None, measured: float | None = None) -> str:
        source.lipschitz = lipschitz
        trials = module.explore(
            {"mine": source},
            hold_out(bright(4), 16),
            bright(2),
            problems=[DEBLURRING],
            size=16,
            search=Search(steps=0, compare=False),
        )
        # as if the source were far better than all others
        first = trials.tried[0]
        seen = dict.fromkeys(first.candidate.scores, 99.0)
        trials.tried[0] = replace(first, candidate=replace(first.candidate, scores=seen))
        second = trials.tried[1]
        assert second.candidate.name == "relaxed"
        margin = measured and measured * second.candidate.strength
        trials.tried[1] = replace(second, candidate=replace(second.candidate, margin=margin))
        return trials.best().candidate.name

    assert best(0.5) == "source"
    assert best(1.5) != "source"
    assert best(None) == "source"
    assert best(None, measured=0.9) == "source"
    assert best(None, measured=1.2) != "source"


@torch.no_grad()
def quality(model: object, problem=DEBLURRING) -> float:  # type: ignore[no-untyped-def]
    test = bright(8, seed=77)
    run = pnp_pgd(model, problem.measure(test), problem, record=())  # type: ignore[arg-type]
    return float(psnr(run.images, test).mean())


@pytest.mark.parametrize("number", [1, 5])
def test_it_is_better_than_doing_nothing_on_images_it_has_not_seen(
    source: LPN, number: int, tmp_path: Path
) -> None:
    result = adapt(source, bright(number), problem=DEBLURRING)
    assert result.evidence is not None
    assert result.evidence.gain > 1
    assert quality(result.denoiser) > quality(source) + 1
    names = [candidate.name for candidate in result.table]
    assert names == [
        "source",
        "relaxed",
        "Wiener",
        "aligned + relaxed",
        *(["aligned + fine-tuned + relaxed"] if number > 1 else []),  # one image: half the way
        "aligned + half fine-tuned + relaxed",
        "blended",
        "total variation",
    ]
    chosen = [candidate for candidate in result.table if candidate.chosen]
    assert len(chosen) == 1
    held = 1 if number == 1 else 2  # images
    margin = {
        "total variation": math.inf,
        "Wiener": math.inf,  # it is in the blend
        "aligned + fine-tuned + relaxed": MARGIN / math.sqrt(held),
    }
    if number == 1:  # parts of one image: the blended one is preferred
        margin["blended"] = -EDGE
    possible = [c.score - margin.get(c.name, 0) for c in result.table]
    assert chosen[0].score - margin.get(chosen[0].name, 0) == max(possible)
    again = load(save(result.denoiser, tmp_path / "saved"))
    assert quality(again) == pytest.approx(quality(result.denoiser), abs=1e-4)
    assert result.denoiser.record["auto"]["chosen"] == chosen[0].name


@pytest.mark.parametrize("number", [2, 5])
def test_the_evidence_is_of_the_denoiser_that_is_returned(source: LPN, number: int) -> None:
    """The winner was once fitted anew, to all images, after its figures had been taken."""
    images = bright(number)
    result = adapt(source, images, DEBLURRING, search=Search(steps=0, compare=False))
    assert result.evidence is not None
    assert [c.name for c in result.table if c.chosen] != ["source"]
    split = hold_out(list(images), 16)
    again = assess(result.denoiser, split.crops, [DEBLURRING], first=split.first, spectrum=False)
    told = result.evidence.after.reconstruction["deblurring"]
    torch.testing.assert_close(again.reconstruction["deblurring"], told, atol=1e-3, rtol=0)


@pytest.mark.filterwarnings("ignore::proxmatch.errors.ProxmatchWarning")
@pytest.mark.parametrize("number", [1, 4])
def test_held_out_pixels_have_no_part_in_any_candidate(source: LPN, number: int) -> None:
    """Strengths were once chosen on all images, the held-out ones too."""
    images = bright(number)
    changed = images.clone()
    if number < 3:
        changed[..., 12:] = 1 - changed[..., 12:]  # the right quarter
    else:
        changed[-1] = 1 - changed[-1]  # the last third
    one, other = (
        adapt(source, x, DEBLURRING, search=Search((1.0, 0.7, 0.4), steps=2, compare=False))
        for x in (images, changed)
    )
    assert [(c.name, c.strength, c.sigma) for c in one.table if c.name != "blended"] == [
        (c.name, c.strength, c.sigma) for c in other.table if c.name != "blended"
    ]
    assert [c.score for c in one.table] != [c.score for c in other.table]
    x = bright(2, seed=8)
    with torch.no_grad():
        for name in one.tried.keys() - {"blended"}:  # made of the one with the best score
            torch.testing.assert_close(one.tried[name](x), other.tried[name](x), atol=0, rtol=0)


@pytest.mark.parametrize("where", ["ahead", "ray"])
def test_candidates_that_are_made_elsewhere_are_the_same(source: LPN, where: str) -> None:
    other = copy.deepcopy(source)
    with torch.no_grad():
        for p in other.parameters():
            p += 0.003 * torch.randn(p.shape, generator=torch.Generator().manual_seed(1))
    sources, images = {"one": source, "other": other}, list(bright(5))
    how: dict[str, Any] = {"problems": [DEBLURRING], "size": 16, "search": Search(steps=20)}

    def ahead(work: Callable[[], Any]) -> Callable[[], Any]:
        found = work()
        return lambda: found

    expected = auto(sources, images, **how)
    if where == "ahead":
        found = auto(sources, images, **how, begin=ahead)
    else:
        pytest.importorskip("ray")
        with spread(Workers("ray", 2, threads=torch.get_num_threads())) as begin:
            found = auto(sources, images, **how, begin=begin)
    assert [replace(c, seconds=0) for c in found.table] == [
        replace(c, seconds=0) for c in expected.table
    ]
    assert found.source == expected.source
    for a, b in zip(found.denoiser.parameters(), expected.denoiser.parameters(), strict=True):
        assert torch.equal(a, b)
    assert found.evidence is not None
    assert str(found.evidence) == str(expected.evidence)


def test_workers_are_for_candidates_without_a_budget(source: LPN) -> None:
    many = Workers("ray", 2)
    with pytest.raises(InputError, match="only share the candidates of auto"):
        adapt(source, bright(2), DEBLURRING, method="mse", workers=many)
    y = DEBLURRING.measure(bright(2))
    for given in ({"images": bright(2)}, {"measurements": y}):
        with pytest.raises(InputError, match="a budget is for a single process"):
            adapt(source, problem=DEBLURRING, budget=10, workers=many, **given)  # type: ignore[arg-type]


def test_what_a_method_has_no_use_for_is_refused(source: LPN) -> None:
    with pytest.raises(InputError, match="a budget is for the method auto, not for mse"):
        adapt(source, bright(2), DEBLURRING, method="mse", budget=10)
    with pytest.raises(InputError, match="steps are for methods that train, not for align"):
        adapt(source, bright(2), DEBLURRING, method="align", steps=10)
    with pytest.raises(InputError, match="leave out steps"):
        adapt(source, bright(2), DEBLURRING, steps=3, settings=TrainingSettings(steps=5))
    with pytest.raises(InputError, match="select is 'best' or 'last', not 'first'"):
        adapt(
            source, measurements=DEBLURRING.measure(bright(2)), problem=DEBLURRING, select="first"
        )  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::proxmatch.errors.AdaptationWarning")
def test_the_source_is_the_one_that_the_winner_was_made_from(
    source: LPN, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first candidate is of the nearest; it may win where another one fits better."""
    sources = {"one, a": source, "two": copy.deepcopy(source)}
    monkeypatch.setattr(module, "nearest_first", lambda *_, **__: {"one, a": 30.0, "two": 20.0})
    best = module.Trials.best
    for place, whose in ((0, "one, a"), (1, "one, a"), (2, "two")):
        monkeypatch.setattr(
            module.Trials,
            "best",
            lambda self, but=None, place=place: best(self, but) if but else self.tried[place],
        )
        found = auto(
            sources,
            list(bright(4)),
            problems=[DEBLURRING],
            size=16,
            search=Search(steps=0, compare=False, strengths=(0.5,)),
        )
        assert [c.kind for c in found.table[:3]] == ["source", "relaxed", "relaxed"]
        assert found.source == whose


@pytest.mark.filterwarnings("ignore::proxmatch.errors.LevelWarning")  # a level is chosen below
def test_a_gain_of_strength_alone_is_none() -> None:
    """A denoiser that takes a level is compared with itself at its best strength."""
    torch.manual_seed(0)
    config = GradientStepConfig.scaled(widths=(4, 4), levels=(0.01, 0.1))
    images, given = bright(5), GradientStep(config)
    search = Search(steps=0, compare=False)
    result = adapt(given, images, DEBLURRING, search=search)
    first, *rest = result.table
    assert first.name == "relaxed"
    assert first.sigma is not None
    assert "source" not in [candidate.name for candidate in rest]
    assert result.evidence is not None
    split = hold_out(list(images), 16)
    weaker = Relaxed(given, first.strength, first.sigma)
    again = assess(weaker, split.crops, [DEBLURRING], first=split.first, spectrum=False)
    told = result.evidence.before.reconstruction["deblurring"]
    torch.testing.assert_close(again.reconstruction["deblurring"], told, atol=1e-3, rtol=0)
    if first.chosen:
        assert result.evidence.gain == 0
    assert result.denoiser.record["auto"]["chosen"] in {c.name for c in result.table}


def test_several_problems_share_a_strength_and_none_is_sacrificed(source: LPN) -> None:
    result = adapt(source, bright(5), problem=PROBLEMS)
    chosen = next(c for c in result.table if c.chosen)
    assert set(chosen.scores) == {p.name for p in PROBLEMS}
    for name, score in chosen.scores.items():
        assert score >= result.table[0].scores[name] - 0.05


@pytest.mark.filterwarnings("ignore::proxmatch.errors.SuspiciousWarning")  # toys
def test_one_busy_image_does_not_make_the_prior_too_weak(source: LPN) -> None:
    noise = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    busy = bright(1) + 0.15 * (noise - 0.5)
    paler = (busy + busy.mean((-2, -1), keepdim=True)) / 2
    alone = choose_strength(source, busy, DEBLURRING).chosen.strength
    beside = choose_strength(source, torch.cat([busy, paler]), DEBLURRING).chosen.strength
    assert beside > alone
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AdaptationWarning)
        table = adapt(source, busy, problem=DEBLURRING).table
    assert [c.strength for c in table if c.name == "relaxed"] == [beside]


def test_a_prior_that_helps_nowhere_is_told() -> None:
    """The winner is compared with the start of the iteration, on what was held out."""
    nothing = denoising(16, channels=3, noise=1e-4, iterations=5)
    filtered = Wiener.fit(bright(3), 0.1)
    with pytest.warns(AdaptationWarning, match="even the best has only .* dB on what was held"):
        adapt(filtered, bright(5), nothing, search=Search(steps=0, compare=False))


def test_out_of_time_there_is_the_first_and_the_filter(source: LPN) -> None:
    told = "budget of 0 s left no time for relaxed, aligned"
    with pytest.warns(AdaptationWarning, match=told):
        result = adapt(source, bright(1), problem=DEBLURRING, budget=0.0)
    assert [c.name for c in result.table] == ["source", "Wiener"]
    assert "total variation" in result.untried
    unhurried = adapt(source, bright(1), problem=DEBLURRING).table
    strengths = {c.name: c.strength for c in unhurried}
    assert result.table[1].strength == strengths["Wiener"] != SIGMAS[0]  # all of them were tried
    assert (result.denoiser is source) is result.table[0].chosen


def test_what_is_done_once_for_many_steps_counts_a_little_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Query points were once counted as if three steps needed them all."""
    clock = 0.0
    monkeypatch.setattr(module.time, "monotonic", lambda: clock)

    def run(settings: TrainingSettings) -> None:
        nonlocal clock
        clock += settings.steps * 0.5 + 10 * (settings.trajectory is not None)

    settings = gentle_settings(GradientStep(GradientStepConfig(widths=(4, 4), sigma=0.05)), 5)
    assert settings.trajectory is not None
    assert module._seconds(settings, run) == 0.5 + 10 / settings.trajectory.refresh


def test_gradient_step_denoisers_of_one_level_get_the_penalty() -> None:
    torch.manual_seed(0)
    model = GradientStep(GradientStepConfig(widths=(4, 4), sigma=0.05))
    problem = gaussian_deblurring(16, channels=3, iterations=2)
    result = adapt(model, bright(5), problem=problem)
    assert [c.name for c in result.table if "fine-tuned" in c.name] == [
        "fine-tuned + relaxed",
        "half fine-tuned + relaxed",
    ]  # nothing is known of the colors of this one
    assert gentle_settings(model, 5).penalty is not None


def test_trained_on_one_image_a_denoiser_goes_half_the_way_and_keeps_its_level() -> None:
    torch.manual_seed(0)
    given = GradientStep(GradientStepConfig.scaled(widths=(4, 4), levels=(0.01, 0.3)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AdaptationWarning)
        table = adapt(given, bright(1), DEBLURRING, search=Search(steps=2, compare=False)).table
    levels = {c.name: c.sigma for c in table if c.name not in ("Wiener", "blended")}
    assert list(levels) == ["relaxed", "half fine-tuned + relaxed"]
    [level] = set(levels.values())
    assert level is not None


def test_half_way_between_two_denoisers_is_the_mean_of_their_weights(source: LPN) -> None:
    other = copy.deepcopy(source)
    with torch.no_grad():
        for p in other.parameters():
            p.mul_(3)
    found = halfway(source, other)
    for mean, one in zip(found.parameters(), source.parameters(), strict=True):
        torch.testing.assert_close(mean, 2 * one)


@pytest.mark.parametrize("there", [{"avx512_bf16": True}, {"avx512_bf16": False}, {}])
def test_fine_tuning_is_in_bfloat16_where_that_is_fast(
    there: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: there, raising=False)
    assert gentle_settings(load("gs-faces"), 1).mixed is there.get("avx512_bf16", False)
    assert not gentle_settings(load("lpn-faces"), 1).mixed


def test_a_denoiser_is_fine_tuned_at_the_levels_it_knows() -> None:
    network = GradientStepConfig(network="scaled-unet", widths=(4, 8), levels=(0.02, 0.1))
    noise = gentle_settings(GradientStep(network), 1).noise
    assert isinstance(noise, Levels)
    assert (noise.low, noise.high) == (0.02, 0.1)


def test_alignment_alone(source: LPN) -> None:
    result = adapt(source, bright(3), method="align", problem=DEBLURRING)
    assert isinstance(result.denoiser, Aligned)
    assert result.evidence is not None
    assert quality(result.denoiser) > quality(source)


@pytest.mark.parametrize("method", ["auto", "align"])
def test_a_color_denoiser_is_adapted_to_gray_images(source: LPN, method: str) -> None:
    assert source.channels == 3
    problem = denoising(source.native_size or 0, channels=1, iterations=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AdaptationWarning)
        found = adapt(source, bright(2).mean(1, keepdim=True), problem, method=method)
    assert found.denoiser.channels == 1


def test_measurements_are_enough(source: LPN) -> None:
    y = DEBLURRING.measure(bright(12, seed=21))
    seen: list[str] = []
    result = adapt(source, measurements=y, problem=DEBLURRING, on_candidate=seen.append)
    assert isinstance(result.denoiser, Relaxed | Blended)
    assert result.evidence is None
    assert seen == [c.name for c in result.table]
    names = ["source", "relaxed", "Wiener", "aligned + relaxed", "blended"]
    assert [c.name for c in result.table] == names
    assert quality(result.denoiser) > quality(source) + 1
    with pytest.warns(AdaptationWarning, match="budget of 0 s left no time for relaxed"):
        adapt(source, measurements=y, problem=DEBLURRING, budget=0)


def test_the_steps_count_beside_a_search(source: LPN) -> None:
    search = Search(strengths=(1.0,), steps=3)
    assert plan_adaptation(source, bright(3), DEBLURRING, search=search).search == search
    plan = plan_adaptation(source, bright(3), DEBLURRING, search=search, steps=7)
    assert plan.search == replace(search, steps=7)


def test_the_evidence_of_an_alignment_has_the_seed_that_is_given(source: LPN) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AdaptationWarning)
        found = [adapt(source, bright(4), DEBLURRING, method="align", seed=s) for s in (0, 0, 1)]
    first, again, other = (
        f.evidence.before.reconstruction["deblurring"] for f in found if f.evidence is not None
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_denoiser_without_weights_can_be_a_source() -> None:
    gray = bright(3).mean(1, keepdim=True)
    problem = denoising(16, channels=1, noise=0.1, iterations=3)
    found = adapt(Identity(1), gray, problem)
    assert found.evidence is not None
    assert found.evidence.gain > 0
    with pytest.raises(InputError, match="which colors"):
        adapt(Identity(1), gray, problem, method="align")


def test_windows_suit_the_problems_that_are_taken_by_default() -> None:
    level = GradientStep(GradientStepConfig.scaled(widths=(4, 4), levels=(0.01, 0.1)))
    plan = plan_adaptation(level, torch.rand(1, 3, 50, 47))
    assert (plan.size, [p.img_size[1] for p in plan.problems]) == (44, [44, 44])
    given = plan_adaptation(level, torch.rand(1, 3, 50, 47), lambda side: denoising(side))
    assert given.size == 47


def test_a_source_may_be_a_folder(source: LPN, tmp_path: Path) -> None:
    save(source, tmp_path)
    for folder in (tmp_path, str(tmp_path), [tmp_path]):
        assert list(sources_of(folder)) == [str(tmp_path)]


def test_measurements_are_planned_like_images(source: LPN) -> None:
    y = DEBLURRING.measure(bright(5))
    plan = plan_adaptation(source, problem=DEBLURRING, measurements=y, steps=7)
    assert plan.measurements is not None
    assert torch.equal(plan.measurements, y)
    assert (plan.images, plan.size, plan.held_out) == ([], 16, True)
    assert plan_adaptation(source, problem=DEBLURRING, measurements=y, size=8).size == 8
    with pytest.raises(InputError, match="windows of 32 x 32 do not fit images of 16 x 16"):
        plan_adaptation(source, problem=DEBLURRING, measurements=y, size=32)
    assert (plan.search.steps, plan.search.compare) == (0, False)  # the source has one level
    level = GradientStep(GradientStepConfig.scaled(widths=(4, 4), levels=(0.01, 0.1)))
    assert plan_adaptation(level, None, DEBLURRING, measurements=y, steps=7).search.steps == 7
    few = plan_adaptation(level, None, DEBLURRING, measurements=y[:3], steps=7)
    assert (few.search.steps, few.held_out) == (0, False)
    with pytest.raises(InputError, match="nor a method"):
        plan_adaptation(source, None, DEBLURRING, measurements=y, method="mse")


def test_a_budget_counts_what_comes_before_the_candidates(
    source: LPN, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measurements are reconstructed first, which once took as long as it took."""
    late, real, before = [0.0], time.monotonic, blind.stand_ins

    def slow(*given: Any) -> torch.Tensor:
        late[0] = 1000.0
        return before(*given)

    monkeypatch.setattr(time, "monotonic", lambda: real() + late[0])
    monkeypatch.setattr(blind, "stand_ins", slow)
    y = DEBLURRING.measure(bright(4))
    with pytest.warns(AdaptationWarning, match="left no time") as told:
        found = adapt(source, measurements=y, problem=DEBLURRING, budget=900)
    assert [c.name for c in found.table][:1] == ["source"]
    assert "relaxed" in found.untried
    assert told[0].filename == __file__  # a warning is about the line that calls adapt


def test_training_in_the_frame_of_an_alignment_is_training_the_aligned_denoiser(
    source: LPN,
) -> None:
    aligned = align(source, bright(4), scale=0.4)
    batch = inside(aligned, pairs(list(bright(4)), 16, None))(0, TrainingSettings(noise=0.1))
    plain = pairs(list(bright(4)), 16, None)(0, TrainingSettings(noise=0.1))
    inner = (core(aligned)(batch.noisy) - batch.clean).square().sum()
    outer = (aligned(plain.noisy) - plain.clean).square().sum()
    torch.testing.assert_close(inner, 0.4**2 * outer, rtol=1e-4, atol=1e-6)
    assert core(around(aligned, core(aligned))) is source


@pytest.mark.filterwarnings("ignore::proxmatch.errors.AdaptationWarning")  # 20 steps do not help
def test_an_aligned_denoiser_is_fine_tuned_where_it_is(source: LPN) -> None:
    aligned = align(source, bright(4))
    settings = adaptation_settings(aligned, "mse", 8, steps=20, check_every=10)
    result = adapt(aligned, bright(5), settings=settings, problem=DEBLURRING, select="last")
    assert isinstance(result.denoiser, Aligned)
    assert result.denoiser.settings == aligned.settings
    assert core(result.denoiser) is not source
    changed = [
        not torch.equal(a, b)
        for a, b in zip(core(result.denoiser).parameters(), source.parameters(), strict=True)
    ]
    assert any(changed)
    with pytest.raises(InputError, match="cannot be trained"):
        adapt(Relaxed(source, 0.5), bright(5), settings=settings, problem=DEBLURRING)


def test_a_search_can_be_made_smaller(source: LPN, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []

    def watched(*arguments: Any, **options: Any) -> Any:
        steps.append(arguments[2].steps)
        return fine_tune(*arguments, **options)

    monkeypatch.setattr(module, "fine_tune", watched)
    search = Search((1.0, 0.5), crops=1, steps=2, compare=False)
    told: dict[str, Any] = {"problems": [DEBLURRING], "size": 16}
    found = auto({"source": source}, list(bright(1)), search=search, **told)
    names = ["source", "relaxed", "Wiener", "aligned + relaxed"]
    trained = "aligned + half fine-tuned + relaxed"
    assert [candidate.name for candidate in found.table] == [*names, trained, "blended"]
    assert {c.strength for c in found.table if c.name != "Wiener"} <= {1.0, 0.5}
    assert steps == [2]
    less = auto({"source": source}, list(bright(1)), search=replace(search, steps=0), **told)
    assert [candidate.name for candidate in less.table] == [*names, "blended"]
    assert steps == [2]


@pytest.mark.parametrize("channels", [1, 3])
def test_nobody_gets_a_slow_denoiser_without_asking_for_it(channels: int) -> None:
    slow = [name for name in shipped() if load(name).solved]
    fitting = [name for name in slow if load(name).channels == channels]
    found = sources_of(None, channels)
    assert "gs-photographs" in found
    assert not found.keys() & set(slow)
    assert fitting
    assert list(sources_of(fitting, channels)) == fitting


def test_the_nearest_of_several_is_adapted(source: LPN) -> None:
    right = Wiener.fit(bright(8, seed=9), 0.05)
    result = adapt({"dark": source, "bright": right}, bright(5), DEBLURRING, steps=2)
    assert result.source == "bright"
    assert list(result.nearness) == ["bright", "dark"]
    test = bright(5)[:3]
    unit = torch.randn(test.shape, generator=generator_of(0, "noise"))
    with torch.no_grad():
        expected = float(psnr(right(test + 0.05 * unit, 0.05), test).mean())
    assert result.nearness["bright"] == pytest.approx(expected, abs=1e-3)
    names = [c.name for c in result.table]
    assert {"bright, relaxed", "dark, relaxed"} <= set(names)
    assert not any("tuned" in name for name in names)  # a filter has no weights
    with pytest.raises(InputError, match="is for images of 1 channel"):
        adapt([source, "gs-faces", LPN(LPNConfig(channels=1, size=8, hidden=4, features=3))],
              bright(2), DEBLURRING)  # fmt: skip
    with pytest.raises(CheckpointError, match="no such model"):
        adapt("nobody", bright(2), DEBLURRING)


def test_the_interval_holds_for_other_images(source: LPN) -> None:
    """Nine times in ten: over six sets of images, the gain on others is inside at least four."""
    inside = 0
    for seed in range(6):
        result = adapt(source, bright(5, seed=100 + seed), DEBLURRING, method="align")
        assert result.evidence is not None
        low, high = result.evidence.interval
        assert low < result.evidence.gain < high
        inside += low <= quality(result.denoiser) - quality(source) <= high
    assert inside >= 4


def test_fewer_and_less_similar_images_make_a_wider_interval() -> None:
    def width(gains: list[float], owners: tuple[int, ...], whole: bool = True) -> float:
        before = torch.zeros(len(gains))
        evidence = Evidence(
            Assessment({}, {"p": before}, {}),
            Assessment({}, {"p": torch.tensor(gains)}, {}),
            owners,
            whole,
        )
        low, high = evidence.interval
        assert low + high == pytest.approx(2 * evidence.gain)
        return high - low

    four = width([1.0] * 4, (0, 1, 2, 3))
    one = width([1.0], (0,))
    assert width([1.0] * 4, (0, 0, 0, 0)) == pytest.approx(one)
    assert one > four
    assert width([0.0, 2.0, 0.0, 2.0], (0, 1, 2, 3)) > four
    assert width([1.0] * 4, (0, 1, 2, 3), whole=False) == pytest.approx(2 * four)
