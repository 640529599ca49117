"""Every inequality of the theory along real runs: share that holds, tightness, cost.

The reference D* of a family is its model called ``...-faces``; every model that begins with the
same name is deployed against it, D* itself too. Runs are of 64 x 64 center crops of test faces, in
float64. Denoisers of many levels are certified at the strength that suits D* on validation faces.

A gray model has no model of faces beside it: D* is the model at the level 0.015, and the same is
deployed at that level and at twice that level, on gray faces. No constant is estimated there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from proxmatch.denoisers import ProximalDenoiser
from proxmatch.experiments.studies.priors import (
    CHOSEN_ON,
    DOMAINS,
    GRAY,
    cell_of,
    fitting,
    identity_of,
    images_of,
    label_of,
    prior_of,
    problem_of,
)
from proxmatch.experiments.studies.study import Study, Work, markdown
from proxmatch.problems import Problem
from proxmatch.theory import certify
from proxmatch.theory.certificate import LOCAL
from proxmatch.transforms import Relaxed, choose_strength

SIZE = 64
PROBLEMS = ("deblurring", "super-resolution")
REFERENCE = "-faces"
#: The noise level of a gray D*, and in units of it those that are deployed.
LEVEL, FACTORS = 0.015, (1, 2)


def plan(work: Work) -> list[dict[str, Any]]:
    """A cell for each reference, problem and deployed denoiser."""
    references = [m for m in work.models if label_of(m).endswith(REFERENCE)]
    pairs: list[tuple[str, str, dict[str, Any]]] = [
        (reference, model, {})
        for reference in references
        for model in work.models
        if label_of(model).startswith(label_of(reference).removesuffix(REFERENCE))
    ]
    gray = fitting(list(work.models), DOMAINS[GRAY].channels)
    pairs += [(m, m, {"level": LEVEL, "factor": factor}) for m in gray for factor in FACTORS]
    return [
        {
            **cell_of(model, work, work.images or 20, problem=problem),
            "reference": reference,
            "reference_identity": identity_of(reference),
            **levels,
        }
        for reference, model, levels in pairs
        for problem in PROBLEMS
    ]


def compute(settings: Mapping[str, Any], work: Work) -> dict[str, Any]:
    """What the certificate says, and what it cost."""
    level = settings.get("level")
    faces = "faces" if level is None else GRAY
    test, fingerprint = images_of(faces, "test", work, settings["images"], SIZE)
    problem = problem_of(settings["problem"], test.shape[1], SIZE)
    y = problem.measure(test, seed=settings["seed"])
    reference, deployed = prior_of(settings["reference"]), prior_of(settings["model"])
    strength: dict[str, Any] = {}
    if level is not None:
        reference, deployed = (
            _at_level(reference, factor * level) for factor in (1, settings["factor"])
        )
    elif reference.conditional:
        reference, deployed, strength = _at_strength(reference, deployed, problem, work)
    began, processor = time.monotonic(), time.process_time()
    local = LOCAL if level is None else ()
    found = certify({"deployed": deployed}, y, problem, reference=reference, local=local)
    run = found.to_dict()["runs"]["deployed"]
    del run["curves"]
    return {
        **{key: value for key, value in run.items() if key != "seconds"},
        **strength,
        "minutes": round((time.monotonic() - began) / 60, 2),
        "processor_minutes": round((time.process_time() - processor) / 60, 2),
        "data": fingerprint,
    }


def _at_strength(
    reference: ProximalDenoiser, deployed: ProximalDenoiser, problem: Problem, work: Work
) -> tuple[Relaxed, Relaxed, dict[str, Any]]:
    """Both at the strength that is best for the reference."""
    chosen_on, _ = images_of("faces", "validation", work, CHOSEN_ON, SIZE)
    tuned = choose_strength(reference, chosen_on, problem)
    t, level = tuned.chosen.strength, tuned.chosen.sigma
    told = {"strength": t, "sigma": level, "margin": tuned.margin}
    return tuned.denoiser, Relaxed(deployed, t, level, tuned.lipschitz), told


def _at_level(model: ProximalDenoiser, level: float) -> ProximalDenoiser:
    """A copy at a noise level."""
    told = deepcopy(model)
    told.sigma = level
    return told


def tables(cells: Sequence[Mapping[str, Any]]) -> str:
    """One row per run."""
    header = [
        "problem",
        "denoiser",
        "reference",
        "rows that hold, of those that apply",
        "worst slack",
        "tightness of Theorem 3.1",
        "L_H",
        "not inverted",
        "minutes",
    ]
    rows = []
    for cell in cells:
        known = [row for row in cell["rows"] if row["share"] is not None]
        slack = [s for row in known if (s := row["worst_relative_slack"]) is not None]
        theorem = [r["tightness"] for r in known if "Theorem" in r["reference"] and r["tightness"]]
        rows.append(
            [
                cell["problem"],
                cell["prior"] + (f" at {cell['factor']} x s" if "factor" in cell else ""),
                label_of(cell["reference"]),
                "" if cell["share"] is None else f"{100 * cell['share']:.2f} %",
                f"{min(slack):.2g}" if slack else "",
                f"{max(theorem):.2g}" if theorem else "",
                f"{_number(cell['smoothness'])} ({cell['smoothness_is']})",
                str(cell["not_inverted"]),
                f"{cell['processor_minutes']:.1f}",
            ]
        )
    return markdown(header, rows)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3g}"


CERTIFICATES = Study(
    "certificates",
    "The inequalities of the theory along reconstructions of faces",
    plan,
    compute,
    tables,
    code=("theory",),
)
