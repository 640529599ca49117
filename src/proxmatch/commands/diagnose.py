"""``proxmatch diagnose``."""

from __future__ import annotations

import shlex
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from proxmatch.commands import _images, _options, _screen


def command(
    images: Annotated[Path, typer.Option(help="folder of clean images of the new domain")],
    model: _options.MaybeModel = None,
    sources: _options.From = None,
    reference: Annotated[
        str | None, typer.Option(help="a model trained on such images, if you have one")
    ] = None,
    problem: Annotated[
        list[str] | None,
        typer.Option(help="can be repeated (default: deblurring, super-resolution)"),
    ] = None,
    options: _options.Set = None,
    number: Annotated[int, typer.Option(min=1, help="number of crops")] = 8,
    size: Annotated[int, typer.Option(min=25, help="side of a crop")] = 64,
    downscale: _options.Downscale = 1,
    iterations: _options.Iterations = None,
    out: Annotated[Path | None, typer.Option(help="folder for diagnosis.json")] = None,
    seed: _options.Seed = 0,
    device: _options.Device = "cpu",
    threads: _options.Threads = None,
    json: _options.Json = False,
) -> None:
    """Is this denoiser mismatched for these images, and what does it cost?

    It is compared with a Wiener filter, total variation, and the two models that denoise the images
    best, among those of --from or all that come with proxmatch. Without a name, the nearest model
    is diagnosed. Exit code 1: mismatched for one of the problems.

    Example: proxmatch diagnose gs-histology --images my-faces
    """
    from proxmatch._internal.files import write_json
    from proxmatch._internal.locks import owned
    from proxmatch.diagnosis import Grade, diagnose
    from proxmatch.problems import make_problem

    place = _options.compute(device, threads)
    hand = _options.load_sources(model, sources or ["all"], place)
    named = None if model is None or model == "all" else {model: hand[model]}
    channels = next(iter(hand.values())).channels
    target = None if reference is None else _options.load_model(reference, place)
    solved = [
        make_problem(name, size, options or [], channels=channels, device=place)
        for name in problem or ("deblurring", "super-resolution")
    ]
    crops = _images.crops(images, number, size, downscale, channels).to(place)
    found = []
    stop = _screen.interruptible(lambda: "nothing was written; the same command starts again")
    with nullcontext() if out is None else owned(out):
        with stop, _screen.bar(len(solved), "diagnosing") as advance:
            for one in solved:
                common: dict[str, Any] = {"sources": hand, "iterations": iterations, "seed": seed}
                found.append(diagnose(named, crops, one, target, **common))
                advance(1)
        record = {"model": found[0].name, "diagnoses": {d.problem: d.to_dict() for d in found}}
        if out is not None:
            write_json(out, "diagnosis.json", record)
    worst = max(found, key=lambda d: list(Grade).index(d.verdict))
    texts = [f"{worst.problem}: {worst.advice()}"]
    if worst.verdict is not Grade.MATCHED:
        words = ["proxmatch", "adapt", *([model, "--from", "all"] if model else [])]
        words += ["--images", str(images)]
        words += ["--downscale", str(downscale)] if downscale > 1 else []
        words += ["--problem", worst.problem] if problem else []
        words += [part for option in options or [] for part in ("--set", option)]
        texts.append(f"    {shlex.join([*words, '--out', 'adapted'])}")
    _screen.show(record, json, *(d.table() for d in found), *texts)
    if worst.verdict is not Grade.MATCHED:
        raise typer.Exit(1)
