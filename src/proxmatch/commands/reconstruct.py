"""``proxmatch reconstruct``."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proxmatch.commands import _options, _screen

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Files that are listed on the screen; reconstruction.json has all of them.
SHOWN = 100


def command(
    model: _options.Model,
    files: Annotated[
        list[Path], typer.Argument(help="pictures, folders, .tar or HDF5 files of them")
    ],
    problem: _options.Problem,
    out: _options.Out,
    options: _options.Set = None,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="the files are clean: degrade them first")
    ] = False,
    bits: Annotated[
        int | None, typer.Option(help="8 or 16, for the output (default: as in the file)")
    ] = None,
    format: Annotated[str, typer.Option(help="for the output: png or tif")] = "png",
    iterations: _options.Iterations = None,
    batch: Annotated[int | None, typer.Option(min=1, help="images processed together")] = None,
    tile: Annotated[int, typer.Option(min=32, help="side of the tiles of large images")] = 512,
    sheet: Annotated[
        bool,
        typer.Option("--sheet", help="before/after sheets, metrics.csv and index.html beside them"),
    ] = False,
    engine: _options.Engine = _options.EngineChoice.LOCAL,
    workers: _options.WorkerCount = 2,
    address: _options.Address = None,
    seed: _options.Seed = 0,
    device: _options.Device = "cpu",
    threads: _options.Threads = None,
    json: _options.Json = False,
) -> None:
    """Reconstruct pictures from their measurements, of any size and number.

    Files that are already done are skipped, so that the same command continues after an
    interruption. With --engine ray the work is shared by the workers of a Ray cluster, which need
    no disk in common. Gray pictures stay gray. Exit code 1: some images diverged or are suspicious,
    that is, probably worse than their measurements.

    Example: proxmatch reconstruct lpn-photographs blurred/*.png --problem deblurring --out sharp

    A .tar is read picture by picture, without unpacking it. From an HDF5 file written by deepinv,
    the measurements are read, or the images with --simulate.

    Example: proxmatch reconstruct gs-faces faces --problem super-resolution --set factor=2
    --simulate --out measured
    """
    from proxmatch._internal.cluster import Workers
    from proxmatch._internal.locks import owned
    from proxmatch.reconstruction.batch import FileBatch

    place = _options.compute(device, threads)
    job = FileBatch.planned(
        _options.load_model(model, place),
        model,
        files,
        problem,
        options or [],
        out,
        simulate=simulate,
        bits=bits,
        format=format,
        iterations=iterations,
        batch=batch,
        tile=tile,
        seed=seed,
    )
    with owned(out), _screen.interruptible(lambda: f"the same command continues in {out}"):
        done = job.earlier()
        steps = job.steps(done)
        with _screen.bar(steps, "reconstructing") as advance:
            results = job.run(done, advance, Workers(engine.value, workers, address, threads or 1))
        if sheet:
            from proxmatch.report.sheets import write_sheets

            write_sheets(out, results, job.before, f"{problem}, {model}")
    record = {"out": str(out), "problem": problem, "model": model, "files": results}
    _screen.show(
        record, json, _table(results, problem, simulate), *_warned(results), f"wrote {out}"
    )
    if any(result["status"] in ("diverged", "suspicious") for result in results.values()):
        raise typer.Exit(1)


def _warned(results: dict[str, dict[str, Any]]) -> list[str]:
    """What is wrong with suspicious images, and what to try."""
    from proxmatch.reconstruction.signs import ADVICE, Sign

    why: dict[Sign, list[str]] = {}
    for name, result in results.items():
        if result["status"] == "suspicious":
            why.setdefault(Sign(result["signs"][0]), []).append(name)
    lines = [
        f"suspicious: {', '.join(names[:3])}{' ...' if len(names) > 3 else ''}: {ADVICE[sign]}"
        for sign, names in why.items()
    ]
    if lines:
        lines.append(
            "try: proxmatch diagnose MODEL --images CLEAN --problem ..., another model (proxmatch "
            "models), or proxmatch adapt MODEL --images CLEAN --problem ..., where CLEAN is a "
            "folder of a few clean pictures like these"
        )
    return lines


def _table(results: dict[str, dict[str, Any]], problem: str, simulate: bool) -> RenderableType:
    quality = ("start", "psnr", "ssim") if simulate else ()
    header = ("file", "size", "status", "steps", *quality)
    rows = [
        (name, str(r["size"]), str(r["status"]), str(r["steps"]), *(_number(r[q]) for q in quality))
        for name, r in islice(results.items(), SHOWN)
    ]
    if len(results) > SHOWN:
        rows.append((f"and {len(results) - SHOWN} more", *[""] * (len(header) - 1)))
    if simulate and len(results) > 1:
        from proxmatch.report.sheets import means

        found = means(results)
        rows.append(("mean", "", "", "", *(_number(found.get(q)) for q in quality)))
    return _screen.table(header, rows, problem)


def _number(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else "-"
