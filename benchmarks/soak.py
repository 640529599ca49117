"""An hour of mixed commands in too little memory, killed at random: what is lost or left behind?

    python -m benchmarks.soak [--minutes 60] [--megabytes 500] [--cgroup FOLDER] [--seed 0]

The jobs of :mod:`benchmarks.faults` (but Ray) follow each other in random rounds, each killed and
resumed up to five times. Beside them a balloon takes up to so many megabytes and gives them back,
every second; with ``--cgroup``, an empty memory control group with a limit that you made, both live
in it, and the kernel kills as well: the balloon or, as half of the commands ask for, the command.
One run in five has two writers: the same command is started twice in one folder, and one of them
has to be refused or to find all of it done.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.faults import (
    WRITTEN,
    Count,
    Job,
    disturbed,
    jobs,
    leftovers,
    start,
    undisturbed,
)

NAMES = ("train", "adapt", "reconstruct", "diagnose", "certify", "report")
#: Share of the runs that have two writers.
TWICE = 0.2


def balloon(megabytes: int, seed: int, before: Callable[[], None]) -> None:
    """Take memory and give it back, forever."""
    before()
    chance = random.Random(seed)  # noqa: S311
    while True:
        held = bytearray(chance.randrange(1, megabytes) << 20)
        held[::4096] = b"x" * len(held[::4096])  # touched, or it would not count
        time.sleep(chance.random())
        del held


def joining(cgroup: Path | None, first: float = 0.0) -> Callable[[], None]:
    """What puts a new process into a control group.

    Args:
        cgroup: the group, if there is one.
        first: how often the kernel is asked to kill that process first.
    """

    def join() -> None:
        if cgroup is not None:
            (cgroup / "cgroup.procs").write_text(str(os.getpid()))
        if random.SystemRandom().random() < first:
            Path("/proc/self/oom_score_adj").write_text("1000")

    return join


def twice(
    job: Job, out: Path, expected: dict[str, str], count: Count, before: Callable[[], None]
) -> int:
    """Two writers in one folder; how many of them were refused."""
    both = [start(job, out, before) for _ in range(2)]
    refused = 0
    for running in both:
        code = running.end()
        if code == 2 and "is in use by process" in running.log.read_text():
            refused += 1
        elif code is not None and code < 0:  # by the kernel
            count.kills += 1
            count.starved += 1
        elif code not in WRITTEN:
            count.failed.append(f"{job.name}, twice: {code}: {running.log.read_text()[-300:]}")
    disturbed(job, out, expected, 0, random.Random(0), count, most=0, before=before)  # noqa: S311
    return refused


def main() -> None:
    """Run for so long, then print what happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--megabytes", type=int, default=500, help="of the balloon, at most")
    parser.add_argument("--cgroup", type=Path, help="an empty memory control group with a limit")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    chance = random.Random(args.seed)  # noqa: S311
    before = joining(args.cgroup, first=0.5)
    counts = {name: Count() for name in NAMES}
    refused = balloons = 0
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = Path(name)
        (folder / "runs").mkdir()
        known = jobs(folder, pictures=6)
        expected = {name: undisturbed(known[name], folder) for name in NAMES}
        temporary = folder / "temporary"
        temporary.mkdir()
        tempfile.tempdir = str(temporary)
        context = multiprocessing.get_context("fork")
        pressure = None
        began, told, waiting = time.monotonic(), 0.0, list[str]()
        while time.monotonic() - began < 60 * args.minutes:
            if pressure is None or not pressure.is_alive():  # the kernel prefers large ones
                given = (args.megabytes, chance.randrange(1 << 30), joining(args.cgroup))
                pressure = context.Process(target=balloon, args=given, daemon=True)
                pressure.start()
                balloons += 1
            waiting = waiting or chance.sample(NAMES, len(NAMES))
            job = known[waiting.pop()]
            count = counts[job.name]
            out = folder / "runs" / f"{job.name}-{count.runs}"
            files, seconds = expected[job.name]
            if job.name != "report" and chance.random() < TWICE:
                refused += twice(job, out, files, count, before)
            else:
                disturbed(job, out, files, seconds, chance, count, before=before)
            if time.monotonic() - told > 300:
                told = time.monotonic()
                print(f"{(told - began) / 60:.0f} min: {counts}, {refused} refused", flush=True)
        if pressure is not None:
            pressure.kill()
            pressure.join()
        minutes = (time.monotonic() - began) / 60
        tempfile.tempdir = None
        left = [str(file) for file in temporary.iterdir()] + leftovers(folder)
    table = Table(title=f"{minutes:.0f} minutes of mixed commands, killed and resumed")
    for column in ("command", "runs", "kills", "starved", "different", "left behind", "failed"):
        table.add_column(column, justify="right" if column != "command" else "left")
    for name, count in counts.items():
        numbers = (len(found) for found in (count.different, count.left, count.failed))
        table.add_row(name, *map(str, (count.runs, count.kills, count.starved, *numbers)))
    console = Console()
    console.print(table)
    console.print(
        f"second writers refused: {refused}; balloons the kernel killed: {max(0, balloons - 1)}; "
        f"temporary files left: {len(left)}"
    )
    for count in counts.values():
        for trouble in (*count.different, *count.left, *count.failed):
            console.print(trouble)
    for trouble in left:
        console.print(trouble)


if __name__ == "__main__":
    main()
