"""Anything at all as input: what is tried, and what a call does behind the scenes."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import settings, strategies as st

T = TypeVar("T")

#: Bytes written over others, at a place between the begin (0) and the end (1).
edits = st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=4)), max_size=4)
#: How much of a file is kept.
parts = st.one_of(st.just(1.0), st.floats(0, 1))
#: Whatever YAML and JSON can say.
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip

#: What opens a file for writing.
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: Audit events of writing, by the places of the paths among their arguments.
CHANGES = {
    "os.mkdir": (0,), "os.rename": (0, 1), "os.remove": (0,), "os.rmdir": (0,), "os.link": (1,),
    "os.symlink": (1,), "os.chmod": (0,), "os.truncate": (0,), "shutil.rmtree": (0,),
}  # fmt: skip
#: Audit events that no input may cause.
FORBIDDEN = (
    "os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "pickle.find_class",
    "socket.connect", "socket.getaddrinfo", "socket.bind", "webbrowser.open",
)  # fmt: skip
#: Part of the path of everything that a test gives as input.
GIVEN = "pytest-of-"

_seen: list[list[str]] = []


def usual(examples: int, share: float = 1.0) -> settings:
    """So many examples, or a share of those of the profile where that is more."""
    return settings(max_examples=max(examples, int(share * settings().max_examples)))


def attempt(
    call: Callable[[], T], kind: type[Exception], name: str = "", *folders: Path
) -> T | None:
    """What the call returns, or None and an error of this kind that names what is wrong.

    Args:
        call: does no harm in either case.
        kind: of the error.
        name: that it has to name.
        folders: where the call may write.
    """
    try:
        with harmless(*folders):
            return call()
    except kind as error:
        message = str(error)
    assert message
    assert name in message
    return None


def damaged(content: bytes, changes: list[tuple[float, bytes]], keep: float) -> bytes:
    """Content with bytes overwritten here and there, cut off at the end."""
    data = bytearray(content)
    for place, value in changes:
        start = int(place * len(data))
        data[start : start + len(value)] = value[: len(data) - start]
    return bytes(data[: int(keep * len(data)) + 1])


@contextmanager
def harmless(*folders: Path) -> Iterator[None]:
    """Fail if what happens inside writes elsewhere, runs a program, unpickles or uses a network.

    Threads that ran before, such as those of a Ray client, are not looked at.

    Args:
        folders: where it may write. Python may also write what it has compiled.
    """
    if not _hooked:
        sys.addaudithook(_hook)
        _hooked.append(True)
    mine = threading.get_ident()
    _others.update(thread.ident for thread in threading.enumerate() if thread.ident != mine)
    _seen.append([])
    try:
        yield
    finally:
        seen = _seen.pop()
        _others.clear()
    allowed = [folder.resolve() for folder in folders]
    for what in seen:
        event, _, place = what.partition(" ")
        assert place, f"it caused {event}"
        path = Path(place).resolve()
        if "__pycache__" not in path.parts and path != Path(os.devnull):
            assert any(path.is_relative_to(folder) for folder in allowed), what


_hooked: list[bool] = []
_others: set[int | None] = set()


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _seen or threading.get_ident() in _others:
        return
    # Modules load libraries when they are first imported; none may come from what is given.
    if event in FORBIDDEN or (event == "ctypes.dlopen" and GIVEN in str(arguments[0])):
        _seen[-1].append(event)
    elif event in CHANGES:
        _seen[-1] += [_told(event, arguments[i], arguments[-1]) for i in CHANGES[event]]
    elif event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES:
        _seen[-1].append(_told(event, arguments[0]))


def _told(event: str, path: Any, folder: Any = None) -> str:
    """An event and its path, which may be relative to an open folder, or be an open file."""
    if isinstance(path, int):
        return f"{event} {_opened(path)}"
    base = _opened(folder) if isinstance(folder, int) and folder >= 0 else "."
    return f"{event} {os.path.abspath(os.path.join(base, os.fsdecode(path)))}"


def _opened(handle: int) -> str:
    return os.readlink(f"/proc/self/fd/{handle}") if sys.platform == "linux" else os.devnull
