from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from proxmatch.experiments.bootstrap import Interval
from proxmatch.experiments.claims import Claim, decide, listed, verdict
from proxmatch.experiments.findings import Findings
from proxmatch.experiments.statements import paper_claims
from proxmatch.records import Setting
from tests.experiments.made_up import made_up

IMAGES = 40
BASE = np.random.default_rng(0).normal(20, 3, IMAGES)


def noise(seed: int) -> Any:
    return 0.1 * np.random.default_rng(seed).normal(size=IMAGES)


def claims(name: str, family: str = "lpn", n: int | None = None) -> list[Claim]:
    found = [c for c in paper_claims([family], ["deblurring"], (1, 5, 25, 50)) if
             c.id.startswith(f"{name}/{family}/extreme")]  # fmt: skip
    return [c for c in found if n is None or c.where.n == n]


@pytest.mark.parametrize(
    ("gains", "expected"),
    [((2.0, 2.5, 1.5), "holds"), ((-2.0, -1.0, -1.5), "does not hold"),
     ((4.0, -4.0, 0.1), "undecided")],
)  # fmt: skip
def test_a_claim_can_come_out_each_way(gains: tuple[float, ...], expected: str) -> None:
    cells = []
    for number, gain in enumerate(gains):
        cells.append(made_up("lpn", "mse", 5, BASE, number=number))
        cells.append(made_up("lpn", "pm", 5, BASE + gain + noise(number), number=number))
    [found] = decide(claims("proposed-beats-mse-psnr", n=5), Findings(cells, 1000))
    assert found.verdict == expected
    assert found.effect == pytest.approx(np.mean(gains), abs=0.1)
    assert (found.sets, found.images) == (3, IMAGES)
    assert found.low <= found.effect <= found.high


def test_pairs_are_compared_on_the_images_and_sets_they_share() -> None:
    cells = [
        made_up("lpn", "mse", 1, BASE),
        made_up("lpn", "mse", 1, BASE - 100, number=1),  # pm has no set 1
        made_up("lpn", "pm", 1, BASE[:10] + 1),
    ]
    [found] = decide(claims("proposed-beats-mse-psnr", n=1), Findings(cells, 200))
    assert (found.sets, found.images) == (1, 10)
    assert found.effect == found.low == found.high == pytest.approx(1)


def test_a_smaller_gap_and_a_smaller_constant_speak_for_a_claim() -> None:
    cells = [
        made_up("gs", "mse", 1, BASE, gap=BASE, lipschitz=BASE),
        made_up("gs", "adapm", 1, BASE, gap=BASE - 2 + noise(1), lipschitz=BASE + 2 + noise(2)),
    ]
    evidence = Findings(cells, 500)
    [gap] = decide(claims("proposed-beats-mse-gap", "gs", 1), evidence)
    [constant] = decide(claims("proposed-smaller-lipschitz", "gs", 1), evidence)
    assert (gap.verdict, constant.verdict) == ("holds", "does not hold")
    assert gap.effect == pytest.approx(2, abs=0.1)


def test_controls_say_what_drives_a_claim() -> None:
    cells = [
        made_up("lpn", "mse", 5, BASE),
        made_up("lpn", "pm", 5, BASE + 5 + noise(1)),
        made_up("lpn", "scaled-mse", 5, BASE + 5 + noise(2)),
        made_up("lpn", "mse-clip", 5, BASE + 6),
        made_up("lpn", "pm-clip", 5, BASE + 4),
        made_up("lpn", "l1", 5, BASE + 3 + noise(3)),
    ]
    [found] = decide(claims("proposed-beats-mse-psnr", n=5), Findings(cells, 500))
    drivers = {d.control: d for d in found.drivers}
    assert set(drivers) == {"gradient scale", "clipping", "loss"}
    assert drivers["gradient scale"].says.startswith("No difference can be seen")
    assert drivers["clipping"].says.startswith("There is a disadvantage")
    assert drivers["clipping"].effect == pytest.approx(-2)
    assert drivers["loss"].says.startswith("Replacing MSE by L1 does good by itself")


def test_far_below_means_far_below() -> None:
    name = "source-far-below-reference"
    for distance, expected in ((10.0, "holds"), (1.0, "does not hold")):
        cells = [
            made_up("lpn", "source", 0, BASE - distance),
            made_up("lpn", "reference", 0, BASE + noise(0)),
        ]
        [found] = decide(claims(name), Findings(cells, 200))
        assert found.verdict == expected


def test_a_trajectory_is_higher_only_if_it_is_so_at_every_iteration() -> None:
    k = np.linspace(0, 1, 5)
    mse = BASE[:, None] + k
    above, crossing = mse + 1, mse + np.array([1, 1, -1, 1, 1])
    for pm, expected in ((above, "holds"), (crossing, "does not hold")):
        cells = [
            made_up("lpn", "mse", 1, mse[:, -1], curves=mse),
            made_up("lpn", "pm", 1, pm[:, -1], curves=pm),
        ]
        [found] = decide(claims("proposed-above-mse-at-all-iterations", n=1), Findings(cells, 200))
        assert found.verdict == expected


def test_the_correlation_is_spearmans() -> None:
    generator = np.random.default_rng(3)
    cells, points = [], []
    for n in (1, 5, 25, 50):
        for method in ("pm", "mse"):
            psnr, gap = generator.normal(20, 5), generator.uniform(1, 50)
            cells.append(made_up("lpn", method, n, BASE - 20 + psnr, gap=np.full(IMAGES, gap)))
            points.append((psnr, gap))
    [found] = decide(claims("lower-gap-higher-psnr"), Findings(cells, 100))
    assert found.effect == pytest.approx(-spearmanr(*zip(*points, strict=True))[0], abs=1e-4)


def test_gains_are_largest_with_few_images_or_not() -> None:
    for gains, expected in (((3, 4, 1, 1), "holds"), ((1, 1, 4, 3), "does not hold")):
        cells = []
        for n, gain in zip((1, 5, 25, 50), gains, strict=True):
            cells += [made_up("lpn", "mse", n, BASE), made_up("lpn", "pm", n, BASE + gain)]
        [found] = decide(claims("gain-largest-with-few"), Findings(cells, 100))
        assert found.verdict == expected


def test_nothing_is_claimed_without_the_cells_for_it() -> None:
    evidence = Findings([made_up("lpn", "mse", 1, BASE)], 100)
    assert decide(paper_claims(["lpn", "gs"], ["deblurring"], (1, 5)), evidence) == []
    assert not evidence.has(Setting("lpn", "extreme", "pm", 1, "deblurring"))


def test_every_claim_has_a_name_of_its_own() -> None:
    found = paper_claims(["lpn", "gs"], ["deblurring", "super-resolution"], (1, 5, 25, 50))
    assert len({c.id for c in found}) == len(found)


def test_the_threshold_itself_is_not_above_it() -> None:
    assert verdict(Interval(3, 3, 3), 3) == "does not hold"
    assert verdict(Interval(3, 2, 4), 3) == "undecided"


def test_the_list_has_a_line_for_every_claim_and_counts_the_verdicts() -> None:
    cells = [made_up("lpn", "mse", 5, BASE), made_up("lpn", "pm", 5, BASE - 2 + noise(1))]
    decided = decide(claims("proposed-beats-mse-psnr", n=5), Findings(cells, 200))
    text = listed(decided)
    assert text.startswith("**Claims of the paper, 1: 0 hold, 1 do not hold, 0 undecided**")
    [line] = [line for line in text.splitlines() if decided[0].statement in line]
    assert f"{decided[0].effect:+.2f} dB" in line
    assert line.count(" | ") == 4


DIRECTIONS = [
    ("mse-below-source", "lpn", 1, ("source", 0), ("mse", 1)),
    ("mse-below-source", "gs", 5, ("source", 0), ("mse", 5)),
    ("proposed-above-source", "lpn", 1, ("pm", 1), ("source", 0)),
    ("gain-above-ten", "gs", 1, ("adapm", 1), ("mse", 1)),
]


@pytest.mark.parametrize(("name", "family", "n", "better", "worse"), DIRECTIONS)
def test_which_way_round_a_claim_is(
    name: str, family: str, n: int, better: tuple[str, int], worse: tuple[str, int]
) -> None:
    edge = 10 if name == "gain-above-ten" else 0
    for lead, expected in ((edge + 1, "holds"), (edge - 1, "does not hold")):
        cells = [made_up(family, *better, BASE + lead + noise(1)), made_up(family, *worse, BASE)]
        [found] = decide(claims(name, family, n), Findings(cells, 200))
        assert found.verdict == expected


def test_the_largest_step_is_early_for_lpn_and_late_for_gs() -> None:
    for family, method, levels in (("lpn", "pm", (0, 4, 5)), ("gs", "adapm", (0, 1, 5))):
        for values, expected in ((levels, "holds"), ((0, 5 - levels[1], 5), "does not hold")):
            pairs = zip((1, 5, 25), values, strict=True)
            cells = [made_up(family, method, n, BASE + v + noise(n)) for n, v in pairs]
            [found] = decide(claims("largest-step", family), Findings(cells, 200))
            assert found.verdict == expected
