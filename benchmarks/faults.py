"""Commands killed at random moments: are they resumed to what they would have made undisturbed?

    python -m benchmarks.faults [--kills 20] [--jobs train,adapt,...] [--seed 0]

Each job is a command at a tiny size. It runs once undisturbed; then it is started in a new folder,
killed (SIGKILL) at a random moment of its work and started again, until it ends by itself, again
and again until enough kills have landed. What it left must be byte for byte what the undisturbed
run left, with no lock, no half-written and no temporary file beside it.

Jobs are forked from this process, which has imported everything, so that the moments are moments
of their work; those with Ray are processes of their own, of which a worker or the driver is killed.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table
from tests.experiments import tiny

from proxmatch._internal.files import UNFINISHED
from proxmatch._internal.locks import LOCK
from proxmatch.denoisers import LPN, GradientStep, GradientStepConfig, LPNConfig, save
from proxmatch.experiments.scales import Scale

#: Files of an experiment that do not say when or how long.
SAME = ("images.csv", "iterations.csv", "claims.json", "tables/*", "pictures/index.json")
#: Exit codes of a job that has written everything: untrained denoisers are suspicious.
WRITTEN = (0, 1)
#: Seconds after which a job hangs, if it has computed for as long or does nothing now.
LONGEST = 600.0
#: Seconds in which a job that computes, on however slow a machine, is seen to.
LOOK = 60.0


@dataclass(frozen=True)
class Job:
    """A command that is to be disturbed.

    Attributes:
        name: for the table.
        work: does it, into a folder, and returns its exit code.
        kept: patterns of the files that must be the same.
        forked: it runs in a fork of this process; else in a new one that may have children.
    """

    name: str
    work: Callable[[Path], int]
    kept: tuple[str, ...]
    forked: bool = True


@dataclass
class Count:
    """What happened to a job.

    Attributes:
        runs: times it was begun in a new folder.
        kills: processes that were killed.
        starved: of them, by the kernel for want of memory.
        different: files that were not what they should be.
        left: locks, half-written and temporary files that were left.
        failed: starts that ended by themselves with an error.
    """

    runs: int = 0
    kills: int = 0
    starved: int = 0
    different: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


@dataclass
class Running:
    """A job that was started.

    Attributes:
        process: it.
        out: its folder.
        log: what it prints.
    """

    process: multiprocessing.process.BaseProcess
    out: Path
    log: Path

    def working(self) -> bool:
        """Whether it owns its folder, or has written to it."""
        return self.out.is_dir() and any(self.out.iterdir())

    def join(self, seconds: float) -> int | None:
        """Wait for its end; its exit code, negative for a signal, None if it goes on."""
        self.process.join(seconds)
        return self.process.exitcode

    def end(self) -> int | None:
        """Wait for its end as long as it does not hang; as :meth:`join`.

        A slow machine is no hang: who computes nothing any more, or far too much, hangs.
        """
        began, before = time.monotonic(), -1.0
        while (code := self.join(LOOK)) is None:
            now = self.computed()
            waited = time.monotonic() - began
            hangs = now > LONGEST or now - before < 0.01 or waited > 6 * LONGEST
            if hangs and waited > LONGEST:
                break
            before = now
        return code

    def computed(self) -> float:
        """CPU seconds of it and its children that ended."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def command(*arguments: object) -> Callable[[Path], int]:
    """A command of proxmatch, with its ``--out`` left open."""

    def work(out: Path) -> int:
        from proxmatch.cli import run

        return run([*map(str, arguments), "--out", str(out)])

    return work


def jobs(folder: Path, pictures: int = 12) -> dict[str, Job]:
    """All jobs by name, and what they read, in a folder."""
    given, models = folder / "pictures", folder / "models"
    _pictures(given, pictures)
    torch.manual_seed(0)
    gs = save(GradientStep(GradientStepConfig(widths=(4, 4), sigma=0.05)), models / "gs")
    lpn = save(LPN(LPNConfig(size=32, hidden=4, features=3, strides=(2,))), models / "lpn")
    settings = folder / "settings.yaml"
    settings.write_text("{steps: 60, batch: 2, checkpoint_every: 5, log_every: 5}")
    experiment = folder / "experiment"
    experiment.mkdir()
    (experiment / "manifest.json").write_text('{"scale": "quick"}')
    many = ("reconstruct", gs, given, "--problem", "denoising", "--iterations", 20, "--batch", 1)
    seen = ("--images", given, "--problem", "denoising")
    size = ("--size", 32, "--number", 2, "--iterations", 4)
    weights = "model/model.safetensors"
    of_tiny = tiny.models(models / "tiny")

    def reproduce(out: Path) -> int:
        from proxmatch.experiments.reproduction import reproduce

        reproduce(_smaller(tiny.SCALE), out, families=("lpn",), workers=1, models=of_tiny)
        return 0

    def report(out: Path) -> int:
        from proxmatch.cli import run

        return run(["report", str(experiment), "--out", str(out / "report.html")])

    found = (
        Job(
            "train",
            command("train", "gs", "--images", given, "--config", settings, "--validation", 0),
            (weights,),
        ),
        Job("adapt", command("adapt", gs, *seen, "--method", "mse", "--steps", 40), (weights,)),
        Job("reconstruct", command(*many), ("*.png", "reconstruction.json")),
        Job(
            "reconstruct-ray",
            command(*many, "--engine", "ray", "--workers", 2, "--threads", 1),
            ("*.png", "reconstruction.json"),
            forked=False,
        ),
        Job("reproduce", reproduce, SAME),
        Job("diagnose", command("diagnose", gs, *seen, *size, "--from", lpn), ("diagnosis.json",)),
        Job("certify", command("certify", gs, "--reference", gs, *seen, *size), ("*.json",)),
        Job("report", report, ("report.html",)),
    )
    return {job.name: job for job in found}


def _smaller(scale: Scale) -> Scale:
    """The source, the reference and one adaptation to one image, of LPNs: 25 cells."""
    lpn = scale.families["lpn"]
    rows = [row for row in lpn.rows if row.method in ("source", "reference")]
    [adapted] = [row for row in lpn.rows if row.method == "mse"]
    rows.append(adapted.model_copy(update={"sets": {1: 1}, "pictures": (1,)}))
    return scale.model_copy(
        update={
            "families": {"lpn": lpn.model_copy(update={"rows": tuple(rows)})},
            "baselines": scale.baselines[:1],
            "budgets": (1,),
        }
    )


def _pictures(folder: Path, number: int) -> None:
    """Smooth pictures of 64 x 64."""
    folder.mkdir()
    generator = np.random.default_rng(0)
    for k in range(number):
        coarse = generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        smooth = Image.fromarray(coarse).resize((64, 64), Image.Resampling.BICUBIC)
        smooth.save(folder / f"{k}.png")


def start(job: Job, out: Path, before: Callable[[], None] = lambda: None) -> Running:
    """Start a job.

    Args:
        job: it.
        out: its folder.
        before: called in the new process first.
    """
    log = out.with_suffix(".log")
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_inside, args=(job, out, log, before))
    process.start()
    return Running(process, out, log)


def _inside(job: Job, out: Path, log: Path, before: Callable[[], None]) -> None:
    """What the new process does."""
    before()
    with log.open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    code = job.work(out)
    sys.stdout.flush()
    os._exit(code)


def contents(out: Path, kept: tuple[str, ...]) -> dict[str, str]:
    """Digests of the files that must be the same but for the seconds they tell, by name."""
    files = sorted(file for pattern in kept for file in out.glob(pattern))
    return {
        str(file.relative_to(out)): hashlib.sha256(
            re.sub(rb'"seconds": [0-9.e+-]+', b"", file.read_bytes())
        ).hexdigest()
        for file in files
    }


def leftovers(*folders: Path) -> list[str]:
    """Locks and half-written files below folders."""
    return [
        str(file)
        for folder in folders
        for file in folder.rglob("*")
        if file.name == LOCK or file.name.endswith(UNFINISHED)
    ]


def workers_of(driver: int) -> list[int]:
    """Ray workers below a process that compute something now."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            if (place / "cmdline").read_bytes().startswith(b"ray::_remote"):
                pid = worker = int(place.name)
                while pid not in (1, driver):
                    pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
                found += [worker] if pid == driver else []
    return found


def undisturbed(job: Job, folder: Path) -> tuple[dict[str, str], float]:
    """What a job writes when nobody disturbs it, and how many seconds it works.

    Raises:
        RuntimeError: it fails.
    """
    running = start(job, folder / f"{job.name}-undisturbed")
    while not running.working() and running.join(0.01) is None:
        pass
    began = time.monotonic()
    if running.end() not in WRITTEN:
        raise RuntimeError(f"{job.name} fails undisturbed: {running.log.read_text()[-2000:]}")
    found = contents(running.out, job.kept)
    if not found:
        raise RuntimeError(f"{job.name} wrote nothing")
    return found, time.monotonic() - began


def disturbed(
    job: Job,
    out: Path,
    expected: dict[str, str],
    seconds: float,
    chance: random.Random,
    count: Count,
    most: int = 5,
    before: Callable[[], None] = lambda: None,
) -> None:
    """Begin a job in a new folder, kill and restart it until it is done, and look at the result.

    Args:
        job: it.
        out: the new folder.
        expected: what an undisturbed run wrote.
        seconds: that it worked.
        chance: decides the moments.
        count: gets what happened.
        most: kills; then it is left alone.
        before: called in each new process first.
    """
    count.runs += 1
    killed = 0
    while True:
        running = start(job, out, before)
        if killed < most:
            while not running.working() and running.join(0.005) is None:
                pass
            code = running.join(chance.uniform(0, seconds))
            if code is None:
                _kill(job, running, chance)
                killed += 1
                count.kills += 1
                if job.forked or not running.process.is_alive():
                    running.process.join()
                    continue
        code = running.end()
        if code == -signal.SIGKILL:  # by the kernel, which had no memory left
            count.kills += 1
            count.starved += 1
            killed += 1
            continue
        if code not in WRITTEN:
            running.process.kill()
            count.failed.append(f"{job.name}: exit {code}: {running.log.read_text()[-300:]}")
        break
    found = contents(out, job.kept)
    names = expected.keys() | found.keys()
    count.different += [f"{job.name}: {n}" for n in names if expected.get(n) != found.get(n)]
    count.left += leftovers(out.parent)
    shutil.rmtree(out, ignore_errors=True)
    running.log.unlink(missing_ok=True)


def _kill(job: Job, running: Running, chance: random.Random) -> None:
    """Kill a process; of those of Ray a worker, or the driver."""
    driver = running.process.pid
    assert driver is not None  # noqa: S101
    workers = [] if job.forked else workers_of(driver)
    victim = chance.choice(workers) if workers and chance.random() < 0.5 else driver
    with suppress(ProcessLookupError):
        os.kill(victim, signal.SIGKILL)
    if victim == driver:
        running.process.join()


def main() -> None:
    """Kill, resume, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="of each job")
    parser.add_argument("--jobs", default="train,adapt,reconstruct,reconstruct-ray,reproduce")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    chance = random.Random(args.seed)  # noqa: S311
    table = Table(title="Killed at random moments and resumed")
    for column in ("command", "runs", "kills", "files that differ", "left behind", "failed"):
        table.add_column(column, justify="right" if column != "command" else "left")
    troubles: list[str] = []
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        folder = Path(name)
        temporary = folder / "t"
        temporary.mkdir()
        known = jobs(folder)
        for chosen in args.jobs.split(","):
            job, count = known[chosen], Count()
            expected, seconds = undisturbed(job, folder)
            if job.forked:  # Ray has its own sessions there
                tempfile.tempdir = str(temporary)
            while count.kills < args.kills:
                out = folder / "runs" / f"{chosen}-{count.runs}"
                out.parent.mkdir(exist_ok=True)
                disturbed(job, out, expected, seconds, chance, count)
            tempfile.tempdir = None
            count.left += [str(left) for left in temporary.iterdir()]
            shutil.rmtree(temporary)
            temporary.mkdir()
            table.add_row(
                chosen,
                *(str(n) for n in (count.runs, count.kills)),
                *(str(len(n)) for n in (count.different, count.left, count.failed)),
            )
            troubles += [*count.different, *count.left, *count.failed]
            print(chosen, count, flush=True)
    console = Console()
    console.print(table)
    for trouble in troubles:
        console.print(trouble)


if __name__ == "__main__":
    main()
