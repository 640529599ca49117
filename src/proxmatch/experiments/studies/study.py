"""What a study is: cells that are pure functions of their settings, kept by content, and tables.

A cell's address is a hash of its settings and of the source code that computes it, so that a cell
of older code is never taken for a current one.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from proxmatch._internal.files import write_together
from proxmatch._internal.provenance import CORE, code_digest, versions
from proxmatch.errors import InputError
from proxmatch.experiments.bootstrap import Resampling, interval
from proxmatch.experiments.cells import Outcome, Store, address
from proxmatch.experiments.collect import markdown as markdown

#: A cell, its settings and result merged, or a part of one.
Line = Mapping[str, Any]
RESAMPLES = 2000
#: The file of the tables.
TABLES = "tables.md"


@dataclass(frozen=True)
class Work:
    """What a study is given."""

    data: Path  # folder of image folders, in the layout that the study's module names
    models: Sequence[str]  # names or folders of denoisers, or kind:file of published networks
    images: int | None = None  # number of test images; None for all of them
    seed: int = 0  # of everything that is drawn
    #: Values of settings by name: cells with other ones are left out.
    only: Mapping[str, Collection[str]] = field(default_factory=dict)
    steps: int | None = None  # of any training, at most; None for as many as it has


@dataclass(frozen=True)
class Study:
    """One study."""

    name: str  # on the command line and of its folder
    title: str  # of its tables
    plan: Callable[[Work], list[dict[str, Any]]]  # the settings of its cells, JSON values
    #: A cell: its settings to its result, JSON values.
    compute: Callable[[Mapping[str, Any], Work], dict[str, Any]]
    #: Text of its tables, in Markdown, from the cells (settings and result merged).
    tables: Callable[[Sequence[Mapping[str, Any]]], str]
    #: Modules and packages that compute its cells, beside its own and the core.
    code: tuple[str, ...] = ()
    #: Files beside the tables, from the same cells.
    pictures: Callable[[Sequence[Mapping[str, Any]]], dict[str, bytes]] | None = None


def run_study(
    study: Study,
    work: Work,
    out: Path,
    *,
    on_cell: Callable[[int, int, str], None] = lambda done, all_, what: None,
) -> Path:
    """Compute the cells that are missing, and write the tables of all that are there.

    The tables are a file of their own: a README beside it is never written.
    """
    if not work.data.is_dir():
        raise InputError(f"{work.data} is not a folder; give the one that holds the images")
    planned = study.plan(work)
    wanted = _kept(planned, work.only)
    if not wanted:
        why = "no cell has all of these settings" if planned else "name denoisers (--models)"
        raise InputError(f"there is nothing to compute for the study {study.name!r}: {why}")
    store = Store(out / "cells")
    code = source_digest(study)
    keys = [address({"study": study.name, "settings": s, "code": code}) for s in planned]
    for number, settings in enumerate(wanted):
        key = keys[planned.index(settings)]
        on_cell(number, len(wanted), ", ".join(str(v) for v in settings.values()))
        if key not in store:
            began = time.monotonic()
            result = study.compute(settings, work)
            about = {"seconds": round(time.monotonic() - began, 1), "versions": versions()}
            store.write(key, Outcome({"settings": settings, "code": code, **about, **result}, {}))
        cells = [store.result(key) for key in keys if key in store]
        merged = [{**cell["settings"], **cell} for cell in cells]
        page = f"# {study.title}\n\n{study.tables(merged)}\n".encode()
        drawn = study.pictures(merged) if study.pictures is not None else {}
        write_together(out, {**drawn, TABLES: page})
    on_cell(len(wanted), len(wanted), "")
    return out / TABLES


def _kept(
    planned: Sequence[dict[str, Any]], only: Mapping[str, Collection[str]]
) -> list[dict[str, Any]]:
    """The cells whose settings have one of the values asked for."""
    for name, values in only.items():
        there = {str(settings[name]) for settings in planned if name in settings}
        unknown = [value for value in values if value not in there]
        if unknown:
            raise InputError(
                f"no cell has {name} = {unknown[0]}; "
                + (f"there are {', '.join(sorted(there))}" if there else f"none has a {name}")
            )
    return [s for s in planned if all(str(s.get(k)) in values for k, values in only.items())]


def source_digest(study: Study) -> str:
    """A hash of the code that computes the cells of a study."""
    own = inspect.getsourcefile(inspect.unwrap(study.compute))  # torch.no_grad wraps it
    return code_digest(*CORE, "experiments/studies/priors.py", own or "", *study.code)


def grouped(lines: Sequence[Line], *names: str) -> dict[Any, list[Line]]:
    """Lines by their value of a setting, or by a tuple of values, in the order they first appear.

    Example:
        >>> grouped([{"n": 1, "psnr": 30.0}, {"n": 5, "psnr": 31.0}], "n")[5]
        [{'n': 5, 'psnr': 31.0}]
    """
    found: dict[Any, list[Line]] = {}
    for line in lines:
        key = line[names[0]] if len(names) == 1 else tuple(line[name] for name in names)
        found.setdefault(key, []).append(line)
    return found


def mean_and_interval(values: Sequence[float], sign: str = "+") -> str:
    """``mean [low, high]`` of values, with a 95 % bootstrap interval of the mean.

    Args:
        values: one for each image.
        sign: ``+`` for differences, which are shown with their sign; empty for others.
    """
    array = np.asarray(values, dtype=float)[None]
    resamples = Resampling.draw(1, array.shape[1], RESAMPLES, "study")
    found = interval(float(array.mean()), resamples.means(array))
    effect, low, high = (f"{v:{sign}.2f}" for v in (found.effect, found.low, found.high))
    return f"{effect} [{low}, {high}]"
