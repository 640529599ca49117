"""Jobs, one at a time: a queue, one thread that works, and what it has to show so far.

A job is cancelled at the next call of any network: the thread looks before each one. So a run, a
search for a strength and a training all stop within a fraction of a second.
"""

from __future__ import annotations

import logging
import secrets
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from proxmatch.errors import ProxmatchError, ProxmatchWarning

log = logging.getLogger("proxmatch.app")


class JobStatus(StrEnum):
    """Where a job is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED = (JobStatus.DONE, JobStatus.FAILED, JobStatus.CANCELLED)


class Cancelled(BaseException):
    """Raised inside a job that was cancelled."""


@dataclass(eq=False)
class Job:
    """A piece of work of a page. The thread writes and the server reads, both under ``lock``."""

    work: Callable[[Job], None]
    page: str
    id: str = field(default_factory=lambda: secrets.token_urlsafe(16))  # no other page can guess it
    status: JobStatus = JobStatus.WAITING  # where it is
    stage: str = "waiting"  # what is being done, in words
    run: int = 0  # counts the runs of the job; the film begins anew with each
    frames: list[bytes] = field(default_factory=list)  # the film: JPEG files
    pictures: dict[str, bytes] = field(default_factory=dict)  # PNG files by name
    curves: dict[str, list[float | None]] = field(default_factory=dict)  # one value per iterate
    #: What else there is to tell, as JSON values.
    facts: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)  # to download, by name
    error: str = ""  # why it failed
    warnings: list[str] = field(default_factory=list)  # what was warned of
    lock: threading.Lock = field(default_factory=threading.Lock)
    cancelled: threading.Event = field(default_factory=threading.Event)

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.status in ENDED

    def begin(self, stage: str) -> None:
        """Say what comes next."""
        self.look()
        with self.lock:
            self.stage = stage

    def look(self) -> None:
        """End here if the job was cancelled."""
        if self.cancelled.is_set():
            raise Cancelled

    def again(self) -> None:
        """A new run: the film and the curves begin anew."""
        with self.lock:
            self.run += 1
            self.frames, self.curves = [], {}

    def add(self, frame: bytes, values: dict[str, float | None]) -> None:
        """One more iterate."""
        with self.lock:
            self.frames.append(frame)
            for name, value in values.items():
                self.curves.setdefault(name, []).append(value)

    def tell(self, **facts: Any) -> None:
        """Add to the facts."""
        with self.lock:
            self.facts |= facts

    def show(self, name: str, png: bytes) -> None:
        """Add a picture, or replace it."""
        with self.lock:
            self.pictures[name] = png

    def state(self) -> dict[str, Any]:
        """Everything but pictures and files, as JSON values."""
        with self.lock:
            return {
                "id": self.id,
                "status": str(self.status),
                "stage": self.stage,
                "run": self.run,
                "frames": len(self.frames),
                "pictures": sorted(self.pictures),
                "curves": {name: list(values) for name, values in self.curves.items()},
                "facts": dict(self.facts),
                "files": sorted(self.files),
                "error": self.error,
                "warnings": list(self.warnings),
            }


class Worker:
    """One thread, one job at a time, first come, first served."""

    def __init__(self) -> None:
        self._waiting: deque[Job] = deque()
        self._current: Job | None = None
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name="proxmatch-app", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Put a job at the end of the queue."""
        with self._changed:
            self._waiting.append(job)
            self._changed.notify()

    def ahead(self, job: Job) -> int:
        """How many jobs come before this one."""
        with self._changed:
            if job not in self._waiting:
                return 0
            return self._waiting.index(job) + (self._current is not None)

    def cancel(self, job: Job) -> None:
        """End a job: at once if it waits, very soon if it runs."""
        with self._changed:
            job.cancelled.set()
            if job in self._waiting:
                self._waiting.remove(job)
                _end(job, JobStatus.CANCELLED)

    def close(self, seconds: float = 10.0) -> None:
        """Cancel everything and wait for the thread."""
        with self._changed:
            self._closed = True
            for job in (*self._waiting, *((self._current,) if self._current else ())):
                job.cancelled.set()
            self._changed.notify()
        self._thread.join(seconds)

    def _loop(self) -> None:
        while True:
            with self._changed:
                self._current = None
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                self._current = job = self._waiting.popleft()
            _do(job)


def _do(job: Job) -> None:
    with job.lock:
        job.status = JobStatus.RUNNING
    try:
        with warnings.catch_warnings(record=True) as told, _cancellable(job):
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", ProxmatchWarning)
            job.work(job)
            job.look()
        job.warnings = [str(each.message) for each in told]
        _end(job, JobStatus.DONE)
    except Cancelled:
        _end(job, JobStatus.CANCELLED)
    except (ProxmatchError, MemoryError) as error:
        _end(job, JobStatus.FAILED, str(error) or "not enough memory; take a smaller picture")
    except Exception as error:
        log.exception("a job failed")
        _end(job, JobStatus.FAILED, f"unexpected {type(error).__name__}: {error}. This is a defect")


def _end(job: Job, status: JobStatus, error: str = "") -> None:
    with job.lock:
        job.status, job.stage, job.error = status, str(status), error


@contextmanager
def _cancellable(job: Job) -> Iterator[None]:
    """Check at every call of a network in this thread whether the job was cancelled."""
    thread = threading.get_ident()

    def look(module: nn.Module, inputs: Any) -> None:
        if threading.get_ident() == thread:
            job.look()

    hook = register_module_forward_pre_hook(look)
    try:
        yield
    finally:
        hook.remove()
