from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from proxmatch.experiments import outputs
from proxmatch.experiments.cells import Store
from proxmatch.experiments.inputs import Data, Inputs, look
from proxmatch.experiments.plan import Plan, plan
from proxmatch.experiments.scales import Scale, ScaleRow, bounded, thinned
from proxmatch.experiments.sizes import SCALES
from proxmatch.experiments.work import search_of
from proxmatch.learning.auto import Search
from proxmatch.learning.settings import PRESETS
from proxmatch.methods import METHODS
from tests.experiments import tiny


@pytest.fixture(scope="module")
def data() -> Data:
    return look(tiny.SCALE, None, None)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return tiny.models(tmp_path_factory.mktemp("models"))


def changed(scale: Scale, **settings: Any) -> Scale:
    return scale.model_copy(update=settings)


def keys(found: Plan) -> set[str]:
    return {c.key for c in found.cells}


def test_what_is_needed_comes_first(data: Data, given: dict[str, Path]) -> None:
    seen: set[str] = set()
    for cell in plan(tiny.SCALE, data, ("lpn", "gs"), given).cells:
        assert set(cell.needs.values()) <= seen
        seen.add(cell.key)


def test_a_plan_is_the_same_every_time_and_families_do_not_disturb_each_other(
    data: Data, given: dict[str, Path]
) -> None:
    both = plan(tiny.SCALE, data, ("lpn", "gs"), given)
    assert keys(both) == keys(plan(tiny.SCALE, data, ("lpn", "gs"), given))
    assert keys(both) == keys(plan(tiny.SCALE, data, ("lpn",), given)) | keys(
        plan(tiny.SCALE, data, ("gs",), given)
    )


def test_one_changed_setting_recomputes_only_what_depends_on_it(
    data: Data, given: dict[str, Path]
) -> None:
    before = plan(tiny.SCALE, data, ("lpn",), given)

    def new(scale: Scale) -> set[str]:
        after = plan(scale, data, ("lpn",), given)
        return {c.kind for c in after.cells if c.key not in keys(before)}

    assert new(changed(tiny.SCALE, resamples=7, threads=2)) == set()
    assert new(changed(tiny.SCALE, lanczos=5)) == {"reconstruction", "pictures"}
    assert "model" not in new(changed(tiny.SCALE, max_steps=3))
    own = tiny.SCALE.families["lpn"]
    rows = [r.model_copy(update={"gap_images": 1}) if r.method == "pm" else r for r in own.rows]
    lpn = own.model_copy(update={"rows": tuple(rows)})
    after = plan(changed(tiny.SCALE, families={"lpn": lpn}), data, ("lpn",), given)
    fresh = {c.label.method for c in after.cells if c.key not in keys(before)}
    assert fresh == {"pm"}


def test_another_seed_is_another_experiment(given: dict[str, Path], data: Data) -> None:
    scale = changed(tiny.SCALE, seed=1)
    other = look(scale, None, None)
    assert other.inputs.names[0] != data.inputs.names[0]
    after = plan(scale, other, ("lpn",), given)
    shared = keys(after) & keys(plan(tiny.SCALE, data, ("lpn",), given))
    assert {c.kind for c in after.cells if c.key in shared} == {"model"}


def test_other_weights_change_what_uses_them(
    data: Data, given: dict[str, Path], tmp_path: Path
) -> None:
    before = plan(tiny.SCALE, data, ("lpn",), given)
    swapped = {**given, "lpn/reference": given["lpn/extreme"]}
    after = plan(tiny.SCALE, data, ("lpn",), swapped)
    same = {c.kind for c in after.cells if c.key in keys(before) and c.label.family == "lpn"}
    assert "adaptation" in same  # they do not look at the reference
    at_one = [
        c for c in after.cells
        if c.kind == "reconstruction" and c.label.relaxation == "paper" and c.label.family == "lpn"
    ]  # fmt: skip
    assert not {c.key for c in at_one} & keys(before)


def test_images_survive_the_way_to_a_worker(data: Data) -> None:
    there = Inputs.from_bytes(data.inputs.to_bytes())
    assert there.ids == data.inputs.ids
    assert there.names == data.inputs.names
    assert there.test.equal(data.inputs.test)
    assert all(there.sets[k].equal(v) for k, v in data.inputs.sets.items())


@pytest.mark.parametrize("name", SCALES)
def test_scales_name_what_exists_and_say_what_they_leave_out(name: str) -> None:
    scale = SCALES[name]()
    assert scale.name == name
    for family, row in scale.rows:
        assert row.method in METHODS
        assert row.gap_images <= row.test_images
        assert set(row.sets) == {0} or set(row.sets) <= set(scale.budgets)
        if family in scale.families:
            own = scale.families[family]
            assert own.preset in PRESETS
            assert PRESETS[own.preset].size <= scale.size
            if name == "demo":
                assert not own.training  # it has only what comes with proxmatch
            else:
                assert row.source in {*own.training, ""} - {"reference"}
    said = " ".join(thinned(scale))
    if name == "cpu":
        assert scale.test_images == 100
        assert scale.budgets == (1, 5, 25, 50)
        assert "gs mse (extreme source): 24 of 100 test images" in said
        for family in scale.families.values():
            main = [r for r in family.rows if r.method in ("mse", "pm", "adapm") and r.curves]
            assert all(min(r.sets[n] for n in scale.budgets) >= 3 for r in main)


def test_only_auto_is_told_the_problem(data: Data, given: dict[str, Path]) -> None:
    own = tiny.SCALE.families["lpn"]
    rows = (
        ScaleRow(method="auto", sets={1: 1}, test_images=3, chosen_images=3),
        ScaleRow(method="pm", sets={1: 1}, test_images=3, chosen_images=3),
    )
    scale = changed(tiny.SCALE, families={"lpn": own.model_copy(update={"rows": rows})})
    found = plan(scale, data, ("lpn",), given)
    adaptations = [c.label for c in found.of("adaptation")]
    assert [(c.method, c.problem) for c in adaptations] == [
        ("auto", "deblurring"), ("auto", "super-resolution"), ("pm", ""),
    ]  # fmt: skip
    relaxations = {(c.label.method, c.label.relaxation) for c in found.of("reconstruction")}
    assert ("auto", "paper") not in relaxations
    assert {("auto", "chosen"), ("pm", "paper"), ("pm", "chosen")} <= relaxations


def test_a_bounded_scale_has_the_cells_of_the_whole_one_each_of_them_short() -> None:
    whole = SCALES["paper"]()
    short = bounded(whole, steps=2, images=1)
    assert short.max_steps == 2
    assert short.test_images == 1
    for (family, row), (_, other) in zip(short.rows, whole.rows, strict=True):
        assert (family, row.method, row.sets) == (family, other.method, other.sets)
        for name in ("test_images", "chosen_images", "gap_images", "lipschitz_images"):
            assert getattr(row, name) == min(1, getattr(other, name))
    said = " ".join(thinned(short))
    assert "more than 2 steps" in said
    assert "more test images than 1." in said
    assert bounded(whole) == whole


def test_no_adaptation_has_more_steps_than_its_family_and_its_scale_allow() -> None:
    quick = SCALES["quick"]()
    bounds = {"lpn": None, "gs": 15}
    families = {
        name: family.model_copy(update={"max_steps": bounds[name], "auto": Search(crops=1)})
        for name, family in quick.families.items()
    }
    scale = changed(quick.model_copy(update={"families": families}), max_steps=40)
    assert (scale.steps("lpn"), scale.steps("gs")) == (40, 15)
    assert SCALES["cpu"]().steps("lpn") is None
    found = plan(scale, look(scale, None, None), ("lpn", "gs"))
    for cell in found.of("adaptation"):
        assert cell.settings["max_steps"] == (40 if cell.label.family == "lpn" else 15)
        assert ("search" in cell.settings) == (cell.label.method == "auto")


@pytest.mark.parametrize(
    ("bound", "steps", "expected"), [(None, None, None), (3, 10, 3), (3, None, 3), (3, 0, 0)]
)
def test_auto_keeps_to_the_bound_as_well(
    bound: int | None, steps: int | None, expected: int | None
) -> None:
    told = {"max_steps": bound, "search": asdict(Search(crops=2, steps=steps))}
    assert search_of(told) == Search(crops=2, steps=expected)
    assert search_of({"max_steps": bound}) == Search(steps=bound)


def test_the_manifest_names_the_device_of_the_run(
    data: Data, given: dict[str, Path], tmp_path: Path
) -> None:
    todo = plan(tiny.SCALE, data, ("lpn",), given)
    store = Store(tmp_path / "work")
    outputs.write(
        tmp_path, changed(tiny.SCALE, device="mps"), data, todo, store, ("lpn",),
        minutes=0.0, workers=1, device="mps", finished=False,
    )  # fmt: skip
    assert json.loads((tmp_path / "manifest.json").read_text())["device"] == "mps"
