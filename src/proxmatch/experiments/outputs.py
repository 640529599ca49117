"""Everything that is written from finished cells: tables, claims, figures, pictures, manifest."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from proxmatch._internal.files import write_json, write_together
from proxmatch._internal.hardware import peak_memory_mb
from proxmatch._internal.provenance import versions
from proxmatch.experiments import (
    certificates,
    collect,
    drawn,
    figures,
    panels,
    strips,
    whole_pictures,
)
from proxmatch.experiments.cells import Store
from proxmatch.experiments.claims import decide, listed
from proxmatch.experiments.findings import Findings
from proxmatch.experiments.inputs import Data
from proxmatch.experiments.plan import Plan
from proxmatch.experiments.scales import Scale, thinned
from proxmatch.experiments.statements import paper_claims
from proxmatch.experiments.tables import Table, main_table, overview, paper_table
from proxmatch.experiments.work import problem_of
from proxmatch.methods import FAMILIES


def write(
    out: Path,
    scale: Scale,
    data: Data,
    plan: Plan,
    store: Store,
    families: Sequence[str],
    *,
    minutes: float,
    workers: int,
    device: str,
    finished: bool,
    parquet: bool = False,
) -> list[Table]:
    """Write the results of the finished cells; pictures and figures once all are finished."""
    found = collect.reconstructions(plan.cells, store)
    collect.write(out, plan.cells, store, found, parquet)
    tables = [paper_table(found, problem, scale.budgets) for problem in scale.problems]
    tables += [main_table(found, scale.problems), overview(found, scale.problems)]
    (out / "tables").mkdir(exist_ok=True)
    for table in tables:
        texts = {"md": table.markdown().encode(), "tex": table.latex().encode()}
        files = {f"{table.name}.{ending}": text for ending, text in texts.items()}
        write_together(out / "tables", {**files, f"{table.name}.csv": table.csv()})
    evidence = Findings(found, scale.resamples)
    claims = decide(paper_claims(families, scale.problems, scale.budgets), evidence)
    write_json(out, "claims.json", [claim.model_dump() for claim in claims])
    write_together(out / "tables", {"claims.md": listed(claims).encode()})
    write_json(out, "manifest.json", _manifest(scale, data, plan, store, minutes, workers, device))
    if finished:
        channels = data.inputs.test.shape[1]
        common = {"size": scale.size, "iterations": scale.iterations}
        problems = {p: problem_of({**common, "problem": p}, channels) for p in scale.problems}
        strips.write(out, scale, data.inputs, plan.of("pictures"), store, problems)
        whole_pictures.write(out, plan.of("whole"), store, families)
        (out / "figures").mkdir(exist_ok=True)
        certified = certificates.write(out, plan.of("certificate"), store)
        drawn.write(out, draw(out, scale, found, evidence, families), certified)
    return tables


def draw(
    out: Path,
    scale: Scale,
    found: Sequence[collect.ReconstructionScores],
    evidence: Findings,
    families: Sequence[str],
) -> list[drawn.Drawn]:
    """All figures, in the order of the paper."""
    album = panels.StripIndex(out, found)
    done: list[drawn.Drawn | None] = [panels.domains(album)]
    for problem in scale.problems:
        done.append(figures.budgets(evidence, problem, families, scale.budgets))
        shown = [n for n in scale.budgets if _shown(album, families, n)]
        if shown and album.images:
            done.append(panels.reconstructions(album, problem, families, shown[-1]))
    for family in families:
        done.append(
            figures.trajectories(found, evidence, scale.problems, scale.budgets, family=family)
        )
    for problem in scale.problems:
        for family in families:
            done.append(panels.across_budgets(album, problem, family, scale.budgets))
    return [one for one in done if one is not None]


def _shown(album: panels.StripIndex, families: Sequence[str], n: int) -> bool:
    wanted = {(family, FAMILIES[family].proposed, n) for family in families}
    there = {(e["family"], e["method"], e["n"]) for e in album.index["entries"]}
    return bool(wanted & there)


def _manifest(
    scale: Scale,
    data: Data,
    plan: Plan,
    store: Store,
    minutes: float,
    workers: int,
    device: str,
) -> dict[str, Any]:
    keys = {cell.key for cell in plan.cells}
    done = [key for key in keys if key in store]
    results = {key: store.result(key) for key in done}
    worker = max((r.get("peak_memory_mb", 0.0) for r in results.values()), default=0.0)
    own = peak_memory_mb()
    return {
        "scale": scale.name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "minutes": round(minutes, 2),
        "core_minutes": round(sum(r.get("seconds", 0.0) for r in results.values()) / 60, 2),
        "workers": workers,
        "peak_memory_mb": round(own + workers * worker, 1),
        "settings": scale.model_dump(mode="json"),
        "seeds": {
            "measurements": scale.seed,
            "adaptation_sets": {k: 1000 * scale.seed + k for k in scale.sets},
            "adaptations": "that of the set",
        },
        "versions": {**versions(), "torch_threads": str(scale.threads)},
        "device": device,
        "data": data.record,
        "sets": {str(k): list(v) for k, v in data.inputs.names.items()},
        "models": {
            name: results[cell.key].get("record", {}) | {"key": cell.key}
            for name, cell in plan.models.items()
            if cell.key in results
        },
        "thinned": thinned(scale),
        "cells": {"done": len(done), "planned": len(keys)},
    }
