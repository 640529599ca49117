"""The paper's experiment from one call: checked first, computed by cells, resumable at any time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import torch

from proxmatch._internal.cluster import EngineName, check_address
from proxmatch._internal.files import UNFINISHED, write_json
from proxmatch._internal.locks import LOCK, owned
from proxmatch.errors import InputError
from proxmatch.experiments import engines, outputs
from proxmatch.experiments.cells import Cell, Store
from proxmatch.experiments.inputs import Data, look
from proxmatch.experiments.plan import Plan, plan
from proxmatch.experiments.scales import Scale, bounded
from proxmatch.experiments.sizes import SCALES
from proxmatch.experiments.tables import Table
from proxmatch.experiments.work import Workshop
from proxmatch.methods import FAMILIES

RUN = "run.json"
#: Seconds between two checks of the finished cells.
EVERY = 300.0

OnCell = Callable[[Cell, int, int], None]


@dataclass(frozen=True)
class Reproduction:
    """A finished experiment.

    Attributes:
        out: its folder.
        tables: Tables 2 and 3, the main table, and the overview.
        cells: how many it has.
        computed: how many of these were computed now.
    """

    out: Path
    tables: list[Table]
    cells: int
    computed: int


def reproduce(
    scale: str | Scale,
    out: str | Path,
    source: str | Path | None = None,
    target: str | Path | None = None,
    families: Sequence[str] = tuple(FAMILIES),
    engine: EngineName = "local",
    address: str | None = None,
    workers: int | None = None,
    resume: bool = True,
    *,
    seed: int | None = None,
    max_steps: int | None = None,
    max_images: int | None = None,
    models: Mapping[str, str | Path] | None = None,
    cells: str | Path | None = None,
    parquet: bool = False,
    on_plan: Callable[[int, int], None] = lambda planned, missing: None,
    on_cell: OnCell = lambda cell, done, planned: None,
) -> Reproduction:
    """Run the experiment, or the part of it that is missing.

    Everything that can be wrong with the arguments is found before any long work. The cells of two
    calls with different families go to the same folder: a long experiment can be run in parts.

    Args:
        scale: ``quick``, ``cpu``, ``paper``, or your own.
        out: folder for what comes out.
        source: folder of images the source denoisers know; with ``target`` left out, the embedded
            domains and the denoisers that come with proxmatch.
        target: folder of the images to adapt to and to test on.
        families: ``lpn``, ``gs`` or both.
        engine: ``local`` or ``ray``.
        address: of a Ray cluster.
        workers: processes; by default one per GPU where the scale runs on GPUs, else one per core.
        resume: continue with what is in ``out``; without it, a folder that holds a run is refused.
        seed: in place of that of the scale.
        max_steps: of any training and adaptation: to try a large scale on a small machine.
        max_images: to test on in any row, for the same purpose.
        models: denoisers to take, folders or names by ``family/kind`` such as ``lpn/reference``.
        cells: folder of the cells, ``out/work`` unless given. Experiments that differ in a few
            settings share what they have in common when they share it.
        parquet: write the tidy tables as Parquet too (needs pyarrow).
        on_plan: called with how many cells there are, and how many of them are missing.
        on_cell: called with each cell that was computed, how many there are now, and of how many.

    Raises:
        InputError: arguments that do not fit, or a folder that holds another run.
        DataError: a folder of images is missing or has too few.
        EngineError: a cell could not be computed.
    """
    began = time.monotonic()
    scale = _scale(scale, seed, max_steps, max_images)
    _check(scale, families, engine, address, workers, parquet)
    out = Path(out)
    place = Path(cells) if cells else out / "work"
    _check_folder(out, resume)
    data = look(scale, source, target)
    todo = plan(scale, data, families, models)
    identity = _identity(scale, data, todo)
    with ExitStack() as stack:
        for folder in {out.resolve(): out, place.resolve(): place}.values():  # may be the same
            stack.enter_context(owned(folder))
        _check_folder(out, resume)  # again: now nobody else writes to it
        before = _before(out, identity)
        known = {**before.get("models", {}), **identity["models"]}
        together = [f for f in scale.families if f in {*before.get("families", ()), *families}]
        whole = plan(scale, data, together, known=known) if set(together) != set(families) else todo
        write_json(out, RUN, {**identity, "models": known, "families": together})
        store = Store(place)
        for key, outcome in todo.taken.items():
            if key not in store:
                store.write(key, outcome)
        planned = {cell.key for cell in todo.cells}
        missing = {key for key in planned if key not in store}
        on_plan(len(planned), len(missing))
        spent = _minutes(out)
        device = _device(scale)
        workers = workers or engines.default_workers(device)
        shown = [time.monotonic()]

        def publish(finished: bool) -> list[Table]:
            return outputs.write(
                out,
                scale,
                data,
                whole,
                store,
                together,
                minutes=spent + (time.monotonic() - began) / 60,
                workers=workers or 1,
                device=device,
                finished=finished,
                parquet=parquet,
            )

        def on_done(cell: Cell) -> None:
            missing.discard(cell.key)
            on_cell(cell, len(planned) - len(missing), len(planned))
            if time.monotonic() - shown[0] > EVERY:
                publish(finished=False)
                shown[0] = time.monotonic()

        computed = len(missing)
        shop = Workshop(
            {name: str(folder) for name, folder in data.folders.items()},
            str(store.folder / "runs"),
            device,
            scale.threads,
        )
        try:
            engines.run(
                todo.cells,
                store,
                shop,
                data.inputs,
                engine=engine,
                workers=workers,
                address=address,
                on_done=on_done,
            )
        except BaseException:
            publish(finished=False)
            raise
        return Reproduction(out, publish(finished=True), len(planned), computed)


def _scale(
    scale: str | Scale, seed: int | None, max_steps: int | None, max_images: int | None
) -> Scale:
    if isinstance(scale, str):
        if scale not in SCALES:
            raise InputError(f"no scale {scale!r}; there are {', '.join(SCALES)}")
        scale = SCALES[scale]()
    for name, bound in (("max_steps", max_steps), ("max_images", max_images)):
        if bound is not None and bound < 1:
            raise InputError(f"{name} must be at least 1, not {bound}")
    scale = bounded(scale, max_steps, max_images)
    return scale if seed is None else scale.model_copy(update={"seed": seed})


def _check(
    scale: Scale,
    families: Sequence[str],
    engine: str,
    address: str | None,
    workers: int | None,
    parquet: bool,
) -> None:
    unknown = [family for family in families if family not in scale.families]
    if unknown or not families:
        there = ", ".join(scale.families)
        raise InputError(f"families are among {there}, not {', '.join(families) or 'none'}")
    if engine not in get_args(EngineName):
        raise InputError(f"no engine {engine!r}; there are {', '.join(get_args(EngineName))}")
    if engine == "ray" and find_spec("ray") is None:
        raise InputError(
            "the engine ray is not installed: pip install 'proxmatch[ray]', or use engine local"
        )
    if address is not None and engine != "ray":
        raise InputError("an address is for a Ray cluster: use engine ray with it")
    if address is not None:
        check_address(address)
    if workers is not None and workers < 1:
        raise InputError(f"there must be at least one worker, not {workers}")
    if parquet and find_spec("pyarrow") is None:
        raise InputError("Parquet needs pyarrow: pip install 'proxmatch[parquet]'")


def _check_folder(out: Path, resume: bool) -> None:
    if not out.exists():
        return
    if not out.is_dir():
        raise InputError(f"{out} is a file: give a folder for the results")
    if (out / RUN).is_file():
        if not resume:
            raise InputError(f"{out} holds a run already: resume it, or give another folder")
    elif any(not _passing(file) for file in out.rglob("*")):
        raise InputError(f"{out} holds other files: give an empty folder, or a new one")


def _passing(path: Path) -> bool:
    """Whether a run that was killed before it wrote any result may have left this behind."""
    return path.is_dir() or path.name == LOCK or path.name.endswith(UNFINISHED)


def _identity(scale: Scale, data: Data, todo: Plan) -> dict[str, Any]:
    """What makes two runs the same."""
    return {
        "scale": scale.model_dump(mode="json"),
        "data": data.record,
        "models": {name: dict(cell.settings) for name, cell in todo.models.items()},
    }


def _before(out: Path, identity: dict[str, Any]) -> dict[str, Any]:
    """The run that the folder holds, if any, after checking that it is this one."""
    if not (out / RUN).is_file():
        return {}
    before: dict[str, Any] = json.loads((out / RUN).read_text("utf-8"))
    now = json.loads(json.dumps(identity))
    common = set(before["models"]) & set(now["models"])
    then = {**before, "models": {name: before["models"][name] for name in common}}
    now["models"] = {name: now["models"][name] for name in common}
    changed = [
        path
        for part in ("scale", "data", "models")
        for path in _changes(then[part], now[part], part)
    ]
    if changed:
        more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        raise InputError(
            f"{out} holds a run with other settings: {'; '.join(changed[:5])}{more}. Give another "
            "folder (and the cells of this one, to compute only what is different)"
        )
    return before


def _changes(then: Any, now: Any, path: str) -> list[str]:
    if isinstance(then, dict) and isinstance(now, dict):
        keys = dict.fromkeys([*then, *now])
        return [c for k in keys for c in _changes(then.get(k), now.get(k), f"{path}.{k}")]
    if then == now:
        return []
    return [f"{path} was {_short(then)}, is {_short(now)}"]


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _minutes(out: Path) -> float:
    """Minutes that earlier parts of a run took, as far as they were recorded."""
    file = out / "manifest.json"
    return float(json.loads(file.read_text("utf-8"))["minutes"]) if file.is_file() else 0.0


def _device(scale: Scale) -> str:
    if scale.device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return scale.device
