"""One run per folder: a lock file that names its owner, and is ignored once the owner is gone.

The operating system holds the lock (``flock``) and drops it when the process ends in whatever way,
so that a file left behind by a killed run is recognized as stale. Where there is no ``flock``, a
file that names an owner is believed, and has to be removed by hand if it is stale.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from proxmatch._internal.files import NO_LINK, clear_unfinished
from proxmatch.errors import FolderInUseError, InputError

_fcntl: Any = import_module("fcntl") if os.name == "posix" else None

LOCK = ".proxmatch.lock"


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Make a folder if needed, and own it for the length of the block; remove it if left empty.

    What an earlier owner left half written, because it was killed, is removed.

    Raises:
        FolderInUseError: another run owns it; it says which.
        InputError: it is a file.
        OSError: the folder cannot be made or written to.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; choose a folder to write to")
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK
    handle = _acquire(path)
    try:
        owner = {"pid": os.getpid(), "host": socket.gethostname(), "since": _now()}
        os.ftruncate(handle, 0)
        os.write(handle, json.dumps(owner).encode())
        clear_unfinished(folder, unless=LOCK)
        yield
    except OSError as error:
        if error.filename is None and error.strerror:  # a full disk names no file
            raise OSError(error.errno, error.strerror, str(folder)) from error
        raise
    finally:
        with suppress(OSError):  # a disk that has become read-only: the lock is worth nothing now
            path.unlink(missing_ok=True)
        os.close(handle)
        if new:  # removed if it is empty
            with suppress(OSError):
                folder.rmdir()


def _acquire(path: Path) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | NO_LINK, 0o644)
        if not _held(handle, path):
            try:
                same = os.fstat(handle).st_ino == path.stat().st_ino
            except FileNotFoundError:
                same = False
            if same:
                return handle
            os.close(handle)  # its owner removed it in the meantime
            continue
        owner = _owner(path)
        os.close(handle)
        raise FolderInUseError(
            f"{path.parent} is in use by process {owner.get('pid', '?')} on "
            f"{owner.get('host', 'an unknown machine')} since {owner.get('since', '?')}; wait for "
            f"it, or choose another folder (its lock is {path.name})"
        )


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M")


def _held(handle: int, path: Path) -> bool:
    """Whether another process has the lock; if not, it is ours now."""
    if _fcntl is None:
        return bool(_owner(path))
    try:
        _fcntl.flock(handle, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _owner(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
