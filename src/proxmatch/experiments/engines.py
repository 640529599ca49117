"""Who computes the cells: processes of this machine, or Ray.

Both compute a cell as soon as all it needs is there, by the same function with the same number of
threads, so that their results are equal. Both retry a cell whose worker died.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from functools import cache
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait as wait_for
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

import torch

from proxmatch._internal.cluster import (
    RETRIES,
    EngineName,
    check_versions,
    connected,
    fetched,
    gpu_share,
)
from proxmatch._internal.files import write_together
from proxmatch._internal.provenance import versions
from proxmatch.errors import EngineError
from proxmatch.experiments.cells import Cell, Outcome, Store
from proxmatch.experiments.inputs import Inputs
from proxmatch.experiments.work import Workshop, perform

OnDone = Callable[[Cell], None]


def run(
    cells: Iterable[Cell],
    store: Store,
    shop: Workshop,
    inputs: Inputs,
    *,
    engine: EngineName = "local",
    workers: int | None = None,
    address: str | None = None,
    on_done: OnDone = lambda cell: None,
) -> None:
    """Compute all cells that the store does not have; its folder must be owned.

    Raises:
        EngineError: a cell killed its worker again and again.
    """
    missing = {cell.key: cell for cell in cells if cell.key not in store}
    if not missing:
        return
    workers = workers or default_workers(shop.device)
    if engine == "ray":
        _ray(missing, store, shop, inputs, workers, address, on_done)
    elif workers == 1:
        for cell in missing.values():
            _here(cell, store, shop, inputs)
            on_done(cell)
    else:
        _local(missing, store, shop, inputs, workers, on_done)


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_workers(device: str) -> int:
    """One per GPU where the cells run on GPUs, else one per core."""
    return len(devices(device)) if device != "cpu" else available_cores()


def devices(device: str) -> list[str]:
    """What ``cpu``, ``cuda`` (all GPUs) or ``cuda:1`` stands for on this machine."""
    count = torch.cuda.device_count() if device == "cuda" else 0
    return [f"cuda:{index}" for index in range(count)] or [device]


def _local(
    missing: dict[str, Cell],
    store: Store,
    shop: Workshop,
    inputs: Inputs,
    workers: int,
    on_done: OnDone,
) -> None:
    images = _kept(inputs, store.folder)
    tries = dict.fromkeys(missing, 0)
    while missing:
        processes = pool(workers, devices(shop.device))
        running: dict[Future[None], Cell] = {}
        try:
            while missing:
                started = {cell.key for cell in running.values()}
                for cell in _ready(missing, store, started)[: workers - len(running)]:
                    running[processes.submit(_by_worker, cell, store, shop, images)] = cell
                if not running:
                    raise EngineError("no cell can be computed: what they need is not planned")
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    future.result()
                    cell = running.pop(future)
                    del missing[cell.key]
                    on_done(cell)
        except BrokenProcessPool:
            for cell in running.values():
                if cell.key in store:
                    missing.pop(cell.key, None)
                    on_done(cell)
                    continue
                tries[cell.key] += 1
                if tries[cell.key] > RETRIES:
                    raise EngineError(
                        f"the worker of the cell {cell.label} ({cell.kind}) died {RETRIES + 1} "
                        "times: it may need more memory than there is; use fewer workers"
                    ) from None
        finally:
            processes.shutdown(cancel_futures=True)


def pool(workers: int, among: Sequence[str]) -> ProcessPoolExecutor:
    """Worker processes with one device each; the devices are handed out in turn."""
    context = get_context("spawn")
    given: SimpleQueue[str] = context.SimpleQueue()
    for number in range(workers):
        given.put(among[number % len(among)])
    return ProcessPoolExecutor(workers, context, _begin, (given,))


def _begin(given: SimpleQueue[str]) -> None:
    """Give a new worker its device."""
    _leave_with_parent()
    _own.append(given.get())


_own: list[str] = []  # the device of this process, if it is a worker


def equipped(shop: Workshop) -> Workshop:
    """The shop with the device of this worker."""
    return replace(shop, device=_own[0])


def _by_worker(cell: Cell, store: Store, shop: Workshop, images: Path) -> None:
    _here(cell, store, equipped(shop), _inputs(images))


def _ready(missing: Mapping[str, Cell], store: Store, started: set[str]) -> list[Cell]:
    """Cells that can be computed now, in their order."""
    return [
        cell
        for cell in missing.values()
        if cell.key not in started and all(need in store for need in cell.needs.values())
    ]


def _here(cell: Cell, store: Store, shop: Workshop, inputs: Inputs) -> None:
    """Compute a cell in this process."""
    needs = {role: store.read(key) for role, key in cell.needs.items()}
    store.write(cell.key, perform(cell, inputs, needs, shop))


def _kept(inputs: Inputs, folder: Path) -> Path:
    """A file of the images for the workers, named after its content: experiments share a folder."""
    content = inputs.to_bytes()
    name = f"inputs-{hashlib.sha256(content).hexdigest()[:20]}.safetensors"
    write_together(folder, {name: content})
    return folder / name


@cache
def _inputs(images: Path) -> Inputs:
    return Inputs.from_bytes(images.read_bytes())


def _leave_with_parent() -> None:
    """End this worker when the process that started it is gone, for whatever reason."""
    parent = parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait_for([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _ray(
    missing: dict[str, Cell],
    store: Store,
    shop: Workshop,
    inputs: Inputs,
    workers: int,
    address: str | None,
    on_done: OnDone,
) -> None:
    """Cells as Ray tasks: images and outcomes go through its object store, so no disk is shared.

    Only a denoiser that has to be trained reads its images from their folder, which must then be
    there on every node.
    """
    gpus = 0 if shop.device == "cpu" else 1
    with connected(address, workers=workers, cpus=shop.threads, gpus=gpus) as ray:
        running: dict[Any, Cell] = {}
        try:
            share = gpus * gpu_share(workers, ray.cluster_resources().get("GPU", 0))
            task = ray.remote(_remote).options(
                num_cpus=shop.threads, num_gpus=share, max_retries=RETRIES, retry_exceptions=False
            )
            images = ray.put(inputs.to_bytes())
            promised: dict[str, Any] = {}
            for cell in missing.values():  # all at once: Ray lets each wait for its needs
                for key in cell.needs.values():
                    if key not in promised:
                        promised[key] = ray.put(store.read(key))
                needs = [promised[key] for key in cell.needs.values()]
                promised[cell.key] = task.remote(cell, shop, versions(), images, *needs)
                running[promised[cell.key]] = cell
            promised.clear()  # an outcome is kept only as long as a task waits for it
            while running:
                [done], _ = ray.wait(list(running), num_returns=1)
                cell = running[done]
                store.write(cell.key, fetched(ray, done, f"the cell {cell.label} ({cell.kind})"))
                del running[done], done
                on_done(cell)
        finally:
            for reference in running:
                ray.cancel(reference)


def _remote(
    cell: Cell, shop: Workshop, driver: dict[str, str], images: bytes, *needs: Outcome
) -> Outcome:
    """A cell as a Ray task."""
    check_versions(driver)
    given = dict(zip(cell.needs, needs, strict=True))
    return perform(cell, Inputs.from_bytes(images), given, shop)
