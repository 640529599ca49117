"""From a scale and the images to the cells that have to be computed, in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from proxmatch.experiments.cells import Cell, Outcome, cell
from proxmatch.experiments.inputs import Data, first
from proxmatch.experiments.origins import REFERENCE, Origin, origin
from proxmatch.experiments.scales import FamilyScale, Scale, ScaleRow
from proxmatch.methods import BASELINE, FAMILIES, METHODS, Method
from proxmatch.records import SOURCE, Label

#: Iterations that are kept as pictures.
FRAMES = (0, 1, 2, 3, 5, 8, 12, 16, 20, 25, 30, 35, 40)


@dataclass(frozen=True)
class Plan:
    """All cells, each after those it needs."""

    cells: tuple[Cell, ...]  # with their labels; two may have one address
    taken: dict[str, Outcome]  # outcomes that need no work, by address
    models: dict[str, Cell]  # cells of the source and reference denoisers, by family/kind

    def of(self, kind: str) -> list[Cell]:
        """The cells of a kind."""
        return [c for c in self.cells if c.kind == kind]


def plan(
    scale: Scale,
    data: Data,
    families: Sequence[str],
    given: Mapping[str, str | Path] | None = None,
    known: Mapping[str, Mapping[str, Any]] | None = None,
) -> Plan:
    """The cells of some families and the baselines."""
    cells: list[Cell] = []
    taken: dict[str, Outcome] = {}
    models: dict[str, Cell] = {}
    for family in families:
        own = scale.families[family]
        for kind in dict.fromkeys((REFERENCE, *(row.source for row in own.rows if row.source))):
            name = f"{family}/{kind}"
            if known and name in known:
                came = Origin(dict(known[name]))
            else:
                came = origin(scale, data, family, kind, given or {})
            source = "" if kind == REFERENCE else kind
            method = REFERENCE if kind == REFERENCE else "source"
            made = cell("model", came.settings, Label(family, source, method))
            cells.append(made)
            models[name] = made
            if came.outcome is not None:
                taken[made.key] = came.outcome
        for row in own.rows:
            cells += _row(scale, data, family, own, row, models)
        if family == next(iter(scale.families)) and scale.certificate_images:
            cells += _certificates(scale, data, family, cells, models)
    for row in scale.baselines:
        own = next(iter(scale.families.values()))  # for the number of images to tune on
        cells += _row(scale, data, BASELINE, own, row, {})
    return Plan(tuple(cells), taken, models)


def _row(
    scale: Scale,
    data: Data,
    family: str,
    own: FamilyScale,
    row: ScaleRow,
    models: Mapping[str, Cell],
) -> Iterator[Cell]:
    method = METHODS[row.method]
    reference = models.get(f"{family}/{REFERENCE}")
    start = models.get(f"{family}/{row.source or REFERENCE}")
    for n, count in row.sets.items():
        for number in range(count):
            label = Label(family, row.source, row.method, n, number)
            model = start if method.role == "model" else None
            for problem in scale.problems:
                where = replace(label, problem=problem)
                if method.role in ("adapted", "aligned", "auto"):
                    adapted = _adaptation(scale, data, method, where, start)
                    if model is None or adapted.key != model.key:
                        yield adapted
                    model = adapted
                yield from _reconstructions(scale, data, own, row, method, where, model, reference)


def _adaptation(scale: Scale, data: Data, method: Method, label: Label, model: Cell | None) -> Cell:
    """The adaptation to a set: one for all problems; only ``auto`` knows which one it is for."""
    alone = method.role == "auto"
    settings = {
        **method.spec,
        "set": label.set,
        "images": first(data.inputs.sets[label.set], label.n),
        "seed": 1000 * scale.seed + label.set,
        "max_steps": scale.steps(label.family),
        "size": scale.size,
        "problems": [label.problem] if alone else list(scale.problems) if method.best else None,
        "iterations": scale.iterations,
    }
    search = scale.families[label.family].auto
    if alone and search is not None:
        settings["search"] = asdict(search)
    where = label if alone else replace(label, problem="")
    return cell("adaptation", settings, where, model=model)


def _reconstructions(
    scale: Scale,
    data: Data,
    own: FamilyScale,
    row: ScaleRow,
    method: Method,
    label: Label,
    model: Cell | None,
    reference: Cell | None,
) -> Iterator[Cell]:
    common: dict[str, Any] = {
        "problem": label.problem,
        "size": scale.size,
        "iterations": scale.iterations,
        "seed": scale.seed,
    }
    baseline = {"baseline": method.name} if method.role == "baseline" else {}
    tuning: dict[str, Any] | None = _tuning(scale, data, own, label, method)
    at_one = method.role not in ("baseline", "auto") or method.name == "none"
    if method.role == "auto":
        tuning = None  # it has chosen its own strength
    for relaxation, images in (("paper", row.test_images), ("chosen", row.chosen_images)):
        if not images or (relaxation == "paper" and not at_one):
            continue
        gap = min(row.gap_images, images) if relaxation == "paper" and reference else 0
        settings = {
            **common,
            **baseline,
            "test": first(data.inputs.test, images),
            "tuning": tuning if relaxation == "chosen" else None,
            "gap_images": gap,
            "lipschitz_images": row.lipschitz_images if relaxation == "paper" else 0,
            "lipschitz_at": list(scale.lipschitz_at),
            "lanczos": scale.lanczos,
            "batch": own.batch,
            "curves": row.curves,
        }
        labeled = replace(label, relaxation=relaxation)
        found = cell(
            "reconstruction", settings, labeled, model=model, reference=reference if gap else None
        )
        yield found
        as_it_is = relaxation == ("paper" if at_one else "chosen")
        if label.n in row.pictures and label.set == 0 and scale.picture_images and as_it_is:
            shown = {
                **common,
                **baseline,
                "tuning": settings["tuning"],
                "images": first(data.inputs.test, scale.picture_images),
                "frames": [k for k in FRAMES if k <= scale.iterations],
            }
            yield cell("pictures", shown, labeled, model=model, reconstruction=found)
        if (
            data.embedded
            and scale.whole
            and relaxation == "chosen"
            and label.problem == scale.problems[0]
            and label.n in row.pictures
            and label.set == 0
        ):
            drawn = {**common, **baseline, "tuning": tuning, "whole": list(scale.whole)}
            yield cell("whole", drawn, labeled, model=model, reconstruction=found)


def _certificates(
    scale: Scale, data: Data, family: str, cells: Sequence[Cell], models: Mapping[str, Cell]
) -> Iterator[Cell]:
    """The source, what MSE and the proposed loss make of it, and the reference."""
    wanted = {"mse", FAMILIES[family].proposed}
    adapted = {
        c.label.method: c
        for c in cells
        if c.kind == "adaptation"
        and (c.label.family, c.label.n, c.label.set) == (family, scale.certificate_budget, 0)
        and c.label.source == SOURCE
        and c.label.method in wanted
    }
    for problem in scale.certificate_problems or scale.problems:
        settings = {
            "problem": problem,
            "size": scale.size,
            "iterations": scale.certificate_iterations or scale.iterations,
            "seed": scale.seed,
            "test": first(data.inputs.test, scale.certificate_images),
        }
        yield cell(
            "certificate",
            settings,
            Label(family, SOURCE, n=scale.certificate_budget, problem=problem),
            source=models[f"{family}/{SOURCE}"],
            **adapted,
            reference=models[f"{family}/{REFERENCE}"],
        )


def _tuning(
    scale: Scale, data: Data, own: FamilyScale, label: Label, method: Method
) -> dict[str, Any]:
    """Which images the strength is chosen on; rows without any have those of set 0."""
    count = own.tuning_images if not label.n else min(label.n, own.tuning_images)
    if method.name == "wiener":
        count = label.n  # fitted on all of them
    return {
        "set": label.set,
        "strengths": None if method.role == "baseline" else list(own.strengths),
        **first(data.inputs.sets[label.set], count),
    }
