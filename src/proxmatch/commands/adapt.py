"""``proxmatch adapt``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proxmatch.commands import _images, _options, _screen
from proxmatch.methods import chosen, offered

if TYPE_CHECKING:
    from proxmatch.learning import AdaptationResult

RECORD = "adaptation.json"
METHODS = "; ".join(f"{name}: {way.help}" for name, way in offered().items())


def command(
    out: _options.Out,
    model: _options.MaybeModel = None,
    sources: _options.From = None,
    images: Annotated[
        Path | None, typer.Option(help="clean images: a folder, .tar or HDF5 file")
    ] = None,
    method: Annotated[str, typer.Option(help=METHODS)] = "auto",
    number: Annotated[int, typer.Option(min=1, help="use at most this many pictures")] = 25,
    downscale: _options.Downscale = 1,
    steps: Annotated[int | None, typer.Option(min=1, help="optimizer steps")] = None,
    budget: Annotated[
        float | None, typer.Option(min=0, help="time limit for auto, in seconds")
    ] = None,
    measurements: Annotated[
        Path | None,
        typer.Option(
            help="measurements, if there are no clean images: also a folder, .tar or HDF5"
        ),
    ] = None,
    problem: Annotated[
        str | None,
        typer.Option(
            help="the problem to adapt for; required with --measurements (default: deblurring and "
            "super-resolution)"
        ),
    ] = None,
    options: _options.Set = None,
    engine: _options.Engine = _options.EngineChoice.LOCAL,
    workers: _options.WorkerCount = 2,
    address: _options.Address = None,
    seed: _options.Seed = 0,
    device: _options.Device = "cpu",
    threads: _options.Threads = None,
    json: _options.Json = False,
) -> None:
    """Adapt a denoiser to a few images, and say whether that helped.

    Given several denoisers (--from), the one nearest to the images is adapted; given none, the
    nearest of all that come with proxmatch. With --engine ray, candidates of auto that do not
    depend on each other are tried at the same time. The result is written to OUT/model. Exit code
    1: nothing better was found.

    Example: proxmatch adapt --images my-faces --problem deblurring --out adapted

    Example: proxmatch adapt gs-histology --images my-faces --method pm --out adapted

    Example: proxmatch adapt lpn-histology --measurements blurred --problem deblurring --out adapted
    """
    import torch

    from proxmatch._internal.cluster import Workers
    from proxmatch._internal.locks import owned
    from proxmatch.errors import InputError

    if (images is None) == (measurements is None):
        raise InputError("give either --images (clean ones) or --measurements")
    if measurements is not None and problem is None:
        raise InputError("--measurements needs --problem: name the problem that made them")
    if measurements is not None and downscale > 1:
        raise InputError("--downscale is for clean images; measurements are taken as they are")
    place = _options.compute(device, threads)
    choice = _options.load_sources(model, sources, place)
    source = next(iter(choice.values()))
    _check(method, images, steps, budget, engine is _options.EngineChoice.RAY)
    where, clean = images or measurements or out, images is not None
    given = _images.pictures(where, number, source.channels, downscale, clean=clean)
    by = Workers(engine.value, workers, address, threads or 1)
    arguments: dict[str, Any] = {"method": method, "seed": seed, "workers": by}
    if measurements is None:
        arguments["images"] = given
    elif len({y.shape for y in given}) > 1:
        raise InputError("the measurements must all have one size; sort them by size")
    else:
        arguments["measurements"] = torch.stack(given).to(place)
    if problem is not None:
        arguments["problem"] = _problem(source, given, problem, options or [], images is not None)
    elif options:
        raise InputError("--set changes a problem: name it with --problem")
    arguments |= {"steps": steps, "budget": budget}
    with owned(out), _screen.interruptible(lambda: "the same command continues, or starts again"):
        result = _run(choice, arguments, out, place)
        record = _record(list(choice), method, out, result)
    lines: list[Any] = [_tried(result) or f"{result.status}, weights of step {result.step}"]
    if len(result.nearness) > 1:
        told = ", ".join(f"{name} {value:.1f}" for name, value in result.nearness.items())
        lines.append(f"denoising these images, in dB: {told}; started from {result.source}")
    lines += [str(result.evidence)] if result.evidence is not None else []
    _screen.show(record, json, *lines, f"wrote {record['model']}")
    if not _helped(result):
        raise typer.Exit(1)


def _helped(result: AdaptationResult) -> bool:
    """Whether something better than the source was found, if that was measured."""
    if result.evidence is not None:
        return result.evidence.gain > 0
    return not any(candidate.chosen for candidate in result.table[:1])  # the source


def _tried(result: AdaptationResult) -> Any:
    """What was tried, as a table; None if there was no choice."""
    if not result.table:
        return None
    problems = list(result.table[0].scores)
    rows = [
        (
            f"{candidate.name} *" if candidate.chosen else candidate.name,
            *(f"{candidate.scores[name]:.2f}" for name in problems),
            f"{candidate.strength:.3g}"
            + ("" if candidate.sigma is None else f" at {candidate.sigma:.3g}"),
            f"{candidate.seconds:.0f}",
        )
        for candidate in result.table
    ]
    header = ("* chosen", *(f"{name}, dB" for name in problems), "strength", "seconds")
    where = "what was held out" if result.evidence else "reconstructions of half the size"
    return _screen.table(header, rows, f"tried, on {where}")


def _check(
    method: str, images: Path | None, steps: int | None, budget: float | None, ray: bool
) -> None:
    """Refuse options that do not apply to the method."""
    from proxmatch.errors import InputError

    way = chosen(method)
    if images is None and method != "auto":
        raise InputError(f"--method {method} needs clean --images; measurements are for auto")
    if steps is not None and way.role == "aligned":
        raise InputError(f"--steps is for methods that train, not {method}")
    if budget is not None and way.role != "auto":
        raise InputError("--budget is for --method auto")
    if ray and (way.role != "auto" or budget is not None):
        raise InputError("--engine ray is for --method auto without a --budget")


def _problem(source: Any, given: list[Any], problem: str, options: list[str], clean: bool) -> Any:
    """The problem for windows of clean images, or for measurements."""
    from proxmatch.errors import InputError
    from proxmatch.problems.catalog import entry, image_side, make_problem, options as read

    found = read(problem, options)
    if not clean and not entry(problem).pictures:
        raise InputError(f"measurements of {problem} are not pictures; give clean --images")
    place = next(source.parameters()).device

    def made(size: Any) -> Any:
        return make_problem(problem, size, found, channels=source.channels).to(place)

    if clean:
        return made  # for the windows that the library decides on
    height, width = given[0].shape[1:]
    return made(image_side(problem, (height, width), found))


def _run(
    choice: dict[str, Any], arguments: dict[str, Any], out: Path, place: Any
) -> AdaptationResult:
    from proxmatch.denoisers import save
    from proxmatch.learning import adapt
    from proxmatch.learning.engine import one_process
    from proxmatch.learning.progress import bar

    if arguments["method"] in ("auto", "align"):
        result = adapt(
            choice, **arguments, on_candidate=lambda name: _screen.say(f"trying: {name}")
        )
    else:
        with bar(arguments["steps"], "adapting") as on_step:
            result = adapt(
                choice, **arguments, folder=out / "run", fabric=one_process(place), on_step=on_step
            )
    save(result.denoiser, out / "model")
    return result


def _record(sources: list[str], method: str, out: Path, result: AdaptationResult) -> dict[str, Any]:
    from proxmatch._internal.files import write_json

    evidence = result.evidence
    record = {
        "source": result.source or sources[0],
        "nearness": result.nearness,
        "method": method,
        "model": str(out / "model"),
        "status": str(result.status),
        "step": result.step,
        "gains": evidence and {k: round(v, 3) for k, v in evidence.gains.items()},
        "interval": evidence and [round(v, 3) for v in evidence.interval],
        "before": evidence and evidence.before.means(),
        "after": evidence and evidence.after.means(),
        "saturated": result.saturated,
        "untried": list(result.untried),
        "tried": [asdict(candidate) for candidate in result.table],
    }
    write_json(out, RECORD, record)
    return record
