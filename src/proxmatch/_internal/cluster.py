"""Start or join a Ray cluster for the length of a block, and refuse one that lacks resources."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

import torch

from proxmatch._internal.parcels import Parcel, packed, unpacked
from proxmatch._internal.provenance import versions
from proxmatch.errors import EngineError, InputError

EngineName = Literal["local", "ray"]
#: How often a task is tried again after its worker died.
RETRIES = 3
#: Settings that quiet Ray, unless the user has set them.
QUIET = {"RAY_BACKEND_LOG_LEVEL": "error", "RAY_USAGE_STATS_ENABLED": "0"}
#: Begins some work; what it returns waits for the result.
Begin = Callable[[Callable[[], Any]], Callable[[], Any]]


@dataclass(frozen=True)
class Workers:
    """Who computes: this process, or the workers of a Ray cluster.

    Attributes:
        engine: ``local`` or ``ray``.
        number: workers of a cluster that is started on this machine.
        address: of a running cluster, host:port. It needs no shared disk.
        threads: of a worker.
    """

    engine: EngineName = "local"
    number: int = 1
    address: str | None = None
    threads: int = 1


@contextmanager
def connected(address: str | None, *, workers: int, cpus: int = 1, gpus: int = 0) -> Iterator[Any]:
    """The module ``ray``, connected to a cluster; one on this machine unless an address is given.

    Raises:
        InputError: Ray is not installed.
        EngineError: no cluster answers, or no node of it has the cores and GPUs of a task.
    """
    os.environ.update(QUIET | os.environ)
    try:
        ray: Any = import_module("ray")
    except ImportError:
        raise InputError(
            "the engine ray is not installed: pip install 'proxmatch[ray]', or use --engine local"
        ) from None
    if address is not None:
        check_address(address)
    mine = not ray.is_initialized()
    if mine:
        # Without "local" Ray joins the cluster it finds in its folder, even a dead one.
        here = {"address": "local", "num_cpus": workers * cpus, "include_dashboard": False}
        try:
            ray.init(
                **({"address": address} if address else here),
                log_to_driver=False,
                logging_level="error",
            )
        except Exception as error:  # of any type, and bare ones: Ray has no class for these
            raise EngineError(
                f"no Ray cluster answers at {address}: {error}. If it asks for a token, set "
                "RAY_AUTH_MODE=token"
                if address
                else f"Ray does not start: {error}"
            ) from error
    try:
        _demand(ray, {"CPU": cpus, "GPU": gpus})
        yield ray
    finally:
        if mine:
            ray.shutdown()


def at_once(work: Callable[[], Any]) -> Callable[[], Any]:
    """Work that this process does when its result is wanted."""
    return work


@contextmanager
def spread(by: Workers, gpus: int = 0) -> Iterator[Begin]:
    """Yields a function that begins work, in this process or on the workers of a cluster."""
    if by.engine == "local":
        yield at_once
        return
    with connected(by.address, workers=by.number, cpus=by.threads, gpus=gpus) as ray:
        share = gpus * gpu_share(by.number, ray.cluster_resources().get("GPU", 0))
        task = ray.remote(_remote).options(num_cpus=by.threads, num_gpus=share, max_retries=RETRIES)
        running = []

        def begin(work: Callable[[], Any]) -> Callable[[], Any]:
            sent = packed(work)
            reference = task.remote(by.threads, versions(), sent)
            running.append(reference)
            return lambda: unpacked(fetched(ray, reference, "a candidate"), sent.sender)

        try:
            yield begin
        finally:
            for reference in running:
                ray.cancel(reference)


def _remote(threads: int, driver: dict[str, str], work: Parcel) -> Parcel:
    """What a worker does, on its own device."""
    check_versions(driver)
    torch.set_num_threads(threads)
    return packed(unpacked(work)())


def gpu_share(workers: int, gpus: float) -> float:
    """The part of a GPU for each of several tasks at once: 1, or 1/2, 1/3, ... of one."""
    return 1 / math.ceil(max(1.0, workers / max(1.0, gpus)))


def check_address(address: str) -> None:
    """Raise EngineError if nothing listens at host:port, for which Ray itself waits minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdecimal():  # auto, or a name that Ray knows
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise EngineError(
            f"nothing answers at {address} ({error}): start the cluster with `ray start --head`, "
            "or give the address that it printed"
        ) from error


def check_versions(driver: dict[str, str]) -> None:
    """Raise EngineError where a worker has other versions than the driver."""
    mine = versions()
    other = [f"{n} {mine.get(n)} and not {v}" for n, v in driver.items() if mine.get(n) != v]
    if other:
        raise EngineError(
            f"the worker on {socket.gethostname()} has {', '.join(other)} as here: install the "
            "same versions on every node"
        )


def fetched(ray: Any, reference: Any, what: str) -> Any:
    """The result of a task; an error of its own is raised as it was.

    Raises:
        EngineError: its workers died, again and again.
    """
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, Exception):
            raise cause from error
        raise
    except ray.exceptions.RayError as error:
        raise EngineError(f"Ray could not compute {what}: {error}") from error


def _demand(ray: Any, needed: dict[str, int]) -> None:
    """Raise EngineError if no node has all that one task needs, for which Ray waits forever."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if any(all(node.get(what, 0) >= n for what, n in needed.items()) for node in nodes):
        return
    asked = " and ".join(f"{n} {what}(s)" for what, n in needed.items() if n)
    most = {what: max((node.get(what, 0) for node in nodes), default=0) for what in needed}
    there = ", ".join(f"{n:g} {what}(s)" for what, n in most.items())
    raise EngineError(
        f"a task needs {asked} on one node, and none of the cluster's {len(nodes)} node(s) has "
        f"that (at most {there}): use fewer --threads, or another --device"
    )
