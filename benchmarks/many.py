"""Many small measurements through `proxmatch reconstruct`: by one process, and by Ray with kills.

    python -m benchmarks.many [--files 20000] [--engine local|ray] [--unharmed] [--iterations 2]
        [--keep FOLDER]

Measurements of 64 x 64 (blurred embedded photographs, gray, shifted) are written to a folder. With
``local``, one process reconstructs them. With ``ray``, two workers do: one of them is killed after
a quarter of the files, the driver after half of them, and the same command goes on; ``--unharmed``
leaves them alone, to compare seconds with those of one process. What is printed are seconds, the
driver's memory at several counts and whether the results are byte for byte those of the local run
in the same ``--keep`` folder. ``--journal`` measures what a line of the journal costs after so many
others, ``--listing`` what a folder of so many entries costs before the work.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.faults import workers_of
from proxmatch._internal.journal import Journal
from proxmatch.data import embedded, encode_image
from proxmatch.denoisers import LPN, LPNConfig, load, save
from proxmatch.problems import gaussian_deblurring
from proxmatch.reconstruction.batch import JOURNAL, RECORD, FileBatch

SIDE = 64
#: Files that are simulated together.
TOGETHER = 64
#: Hard links that one file may have on common disks.
LINKS = 60_000


def measurements(folder: Path, number: int) -> None:
    """Blurred gray photographs, each at another place, as PNG files."""
    if folder.exists():
        return
    folder.mkdir(parents=True)
    domain = embedded("photographs", SIDE)
    photographs = torch.cat([domain.test, domain.adaptation]).mean(1, keepdim=True)
    problem = gaussian_deblurring(SIDE, channels=1)
    for begin in range(0, number, TOGETHER):
        numbers = range(begin, min(begin + TOGETHER, number))
        rounds = [divmod(n // len(photographs), SIDE) for n in numbers]
        images = torch.stack(
            [
                photographs[n % len(photographs)].roll(shift, (1, 2))
                for n, shift in zip(numbers, rounds, strict=True)
            ]
        )
        for n, y in zip(numbers, problem.measure(images, ids=list(map(str, numbers))), strict=True):
            (folder / f"{n:06}.png").write_bytes(encode_image(y))


def model(folder: Path) -> Path:
    """A denoiser that takes next to no time."""
    torch.manual_seed(0)
    denoiser = LPN(LPNConfig(channels=1, size=SIDE, hidden=4, features=3, strides=(2,)))
    return save(denoiser, folder)


def start(keep: Path, engine: str, iterations: int) -> subprocess.Popen[bytes]:
    """The command."""
    ray = ("--engine", "ray", "--workers", "2") if engine == "ray" else ()
    command = [
        sys.executable, "-c", "from proxmatch.cli import main; main()",
        "reconstruct", str(keep / "model"), str(keep / "measured"), "--problem", "deblurring",
        "--iterations", str(iterations), "--threads", "1", "--out", str(keep / engine), *ray,
    ]  # fmt: skip
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def done(out: Path) -> int:
    """Lines of the journal, but for the settings."""
    journal = out / JOURNAL
    return max(0, journal.read_bytes().count(b"\n") - 1) if journal.exists() else 0


def memory(pid: int) -> float:
    """Resident memory of a process, in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def watched(
    process: subprocess.Popen[bytes], out: Path, until: int, marks: dict[int, float]
) -> int:
    """Wait until so many files are done, taking the driver's memory at every tenth of them.

    Args:
        process: the driver.
        out: its folder.
        until: files.
        marks: gets the memory in MB, by the number of files that were done.

    Returns:
        How many are done; fewer if it ended before.
    """
    while process.poll() is None:
        count = done(out)
        if count // max(1, until // 10) > max(marks, default=-1) // max(1, until // 10):
            marks[count] = memory(process.pid)
        if count >= until:
            return count
        time.sleep(0.2)
    return done(out)


def unharmed(keep: Path, engine: str, files: int, iterations: int) -> None:
    """From the beginning to the end."""
    began, marks = time.monotonic(), dict[int, float]()
    process = start(keep, engine, iterations)
    watched(process, keep / engine, 2 * files, marks)
    code, seconds = process.wait(), time.monotonic() - began
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{engine}: exit {code}, {seconds:.0f} s, {done(keep / engine)} files")
    print(f"CPU seconds: {used.ru_utime + used.ru_stime:.0f}")
    print("memory of the driver, MB:", {n: round(m) for n, m in marks.items()})


def by_ray_with_kills(keep: Path, files: int, iterations: int) -> None:
    """Two workers, one killed; the driver killed; and to the end."""
    out, marks = keep / "ray", dict[int, float]()
    began = time.monotonic()
    process = start(keep, "ray", iterations)
    watched(process, out, files // 4, marks)
    victim = next(iter(workers_of(process.pid)), None)
    if victim is not None:
        os.kill(victim, signal.SIGKILL)
    print(f"killed the worker {victim} after {done(out)} files")
    watched(process, out, files // 2, marks)
    process.kill()
    process.wait()
    first = time.monotonic() - began
    print(f"killed the driver after {done(out)} files, {first:.0f} s")
    again = time.monotonic()
    process = start(keep, "ray", iterations)
    before, more = done(out), dict[int, float]()
    watched(process, out, before + 1, more)
    print(f"the first new file after {time.monotonic() - again:.0f} s, {before} files known")
    watched(process, out, 2 * files, marks)
    code = process.wait()
    second = time.monotonic() - again
    print(f"ray: exit {code}, {first:.0f} + {second:.0f} s, {done(out)} files")
    print("memory of the driver, MB:", {n: round(m) for n, m in marks.items()})


def compare(keep: Path, files: int) -> None:
    """The results of Ray beside those of one process, if both are there."""
    if not ((keep / "local").exists() and (keep / "ray").exists()):
        return
    names = [*(f"{n:06}.png" for n in range(files)), RECORD]
    same, other, missing = filecmp.cmpfiles(keep / "local", keep / "ray", names, shallow=False)
    print(f"as by one process: {len(same)}, others: {len(other)}, missing: {len(missing)}")


def journal_costs(counts: tuple[int, ...] = (100, 1000, 10_000, 20_000), lines: int = 64) -> None:
    """Milliseconds a line, appended in groups after so many others; with and without the disk."""
    result = {"source": "000000.png", "digest": "0" * 64, "size": "64 x 64", "status": "completed"}
    with tempfile.TemporaryDirectory() as name:
        for there in counts:
            journal = Journal(Path(name) / f"{there}.jsonl")
            journal.begin({}, {})
            journal.append({f"{n:06}.png": result for n in range(there)})
            times = []
            for group in range(10):
                new = {f"{group}-{n}.png": result for n in range(lines)}
                began = time.perf_counter()
                journal.append(new)
                times.append(time.perf_counter() - began)
            cost = 1e3 * sorted(times)[len(times) // 2] / lines
            print(f"a line of the journal after {there}: {cost:.3f} ms")


def listing_costs(keep: Path, entries: int) -> None:
    """A folder of so many hard links: seconds and MB before the first file is read."""
    folder = keep / f"linked-{entries}"
    measurements(keep / "one", 1)
    content = (keep / "one" / "000000.png").read_bytes()
    if not folder.exists():
        folder.mkdir(parents=True)
        for n in range(entries):
            place = folder / f"{n:09}.png"
            if n % LINKS == 0:
                place.write_bytes(content)
                first = place
            else:
                os.link(first, place)
    denoiser = load(model(keep / "model"))
    before, began = memory(os.getpid()), time.monotonic()
    how = {"simulate": False, "bits": None, "format": "png", "iterations": 1, "batch": None}
    batch = FileBatch.planned(
        denoiser, "model", [folder], "deblurring", [], keep / "new", **how, tile=512, seed=0
    )
    planned = time.monotonic() - began
    batch.earlier()
    found = {
        "entries": len(batch.files),
        "planned, s": round(planned, 2),
        "with earlier(), s": round(time.monotonic() - began, 2),
        "MB": round(memory(os.getpid()) - before),
    }
    print(json.dumps(found))


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--engine", choices=["local", "ray"])
    parser.add_argument("--unharmed", action="store_true", help="kill nothing")
    parser.add_argument("--iterations", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="folder for measurements and results")
    parser.add_argument("--journal", action="store_true")
    parser.add_argument("--listing", type=int, help="entries")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        keep = args.keep or Path(name)
        if args.journal:
            journal_costs()
        if args.listing:
            listing_costs(keep, args.listing)
        if args.engine:
            measurements(keep / "measured", args.files)
            model(keep / "model")
            if args.engine == "ray" and not args.unharmed:
                by_ray_with_kills(keep, args.files, args.iterations)
            else:
                unharmed(keep, args.engine, args.files, args.iterations)
            compare(keep, args.files)


if __name__ == "__main__":
    main()
