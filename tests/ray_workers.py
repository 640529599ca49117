"""The workers of a Ray that a test started, to be killed."""

from __future__ import annotations

import os
from pathlib import Path


def working() -> list[int]:
    """Processes that this one's own Ray has computing something now."""
    named = {int(p.parent.name): p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline")}
    mine = []
    for worker in (pid for pid, name in named.items() if name.startswith(b"ray::_remote")):
        pid = worker
        while pid > 1 and pid != os.getpid():  # up to this process, or to that of another
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        if pid == os.getpid():
            mine.append(worker)
    return mine
