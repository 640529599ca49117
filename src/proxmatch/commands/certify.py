"""``proxmatch certify``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from proxmatch.commands import _images, _options, _screen


def command(
    model: _options.Model,
    reference: Annotated[str, typer.Option(help="a model trained on such images, or its folder")],
    images: Annotated[Path, typer.Option(help="folder of clean images to measure")],
    out: _options.Out,
    problem: _options.Problem = "deblurring",
    options: _options.Set = None,
    number: Annotated[int, typer.Option(min=1, help="number of crops")] = 2,
    size: Annotated[int, typer.Option(min=8, help="side of a crop")] = 64,
    downscale: _options.Downscale = 1,
    iterations: _options.Iterations = None,
    seed: _options.Seed = 0,
    device: _options.Device = "cpu",
    threads: _options.Threads = None,
    json: _options.Json = False,
) -> None:
    """Check every inequality of the theory along reconstructions, against a reference.

    Writes certificate.json and certificate.png. Exit code 1: some inequality does not hold.

    Example: proxmatch certify lpn-histology --reference lpn-faces --images faces --out certificate
    """
    from proxmatch._internal.files import write_together
    from proxmatch._internal.locks import owned
    from proxmatch.plots import rendered
    from proxmatch.problems import make_problem
    from proxmatch.theory import certify
    from proxmatch.theory.figure import draw

    place = _options.compute(device, threads)
    target = _options.load_model(reference, place)
    denoisers = {"matched": target, "deployed": _options.load_model(model, place)}
    solved = make_problem(problem, size, options or [], channels=target.channels, device=place)
    crops = _images.crops(images, number, size, downscale, target.channels).to(place)
    y = solved.measure(crops, seed=seed)
    with owned(out), _screen.interruptible(lambda: "the same command starts again"):
        with _screen.bar(len(denoisers) * len(y), "certifying") as advance:
            groups = dict.fromkeys(denoisers, 0)

            def on_group(name: str, done: int) -> None:
                advance(done - groups[name])
                groups[name] = done

            certificate = certify(
                denoisers,
                y,
                solved,
                reference=target,
                iterations=iterations,
                group=1,
                on_group=on_group,
            )
        picture = rendered(draw(certificate), "png", dpi=120)
        contents = {"certificate.json": certificate.to_json().encode(), "certificate.png": picture}
        write_together(out, contents)
    _screen.show(certificate.to_dict(), json, certificate.table(), f"wrote {out}")
    if any(run.share < 1 for run in certificate.runs.values()):
        raise typer.Exit(1)
