"""``proxmatch reproduce``: the paper's experiment."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proxmatch._internal.bars import progress
from proxmatch.commands import _screen
from proxmatch.commands._options import Address, Engine, EngineChoice
from proxmatch.errors import InputError

if TYPE_CHECKING:
    from proxmatch.experiments.cells import Cell
    from proxmatch.experiments.reproduction import Reproduction

#: The studies, for the help; they are imported when one is run.
STUDY_NAMES = (
    "denoising",
    "reconstruction",
    "ceiling",
    "proximal",
    "solver",
    "whole",
    "certificates",
    "adaptation",
    "detector",
    "modalities",
)


#: Options of a scale alone, and of a study alone.
OF_A_SCALE = (
    "source",
    "target",
    "families",
    "resume",
    "engine",
    "address",
    "workers",
    "cells",
    "parquet",
)
OF_A_STUDY = ("data", "models", "only")
AGAIN = "the same command continues where it stopped"


class ScaleChoice(StrEnum):
    """How large."""

    QUICK = "quick"
    CPU = "cpu"
    PAPER = "paper"


def command(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="folder for the results")],
    scale: Annotated[
        ScaleChoice | None, typer.Argument(help="quick: ten minutes; cpu: hours; paper: for a GPU")
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(help="images to train the source denoisers on (default: embedded)"),
    ] = None,
    target: Annotated[
        Path | None, typer.Option(help="images to adapt to and to test on (default: embedded)")
    ] = None,
    families: Annotated[str, typer.Option(help="lpn, gs, or both")] = "lpn,gs",
    resume: Annotated[bool, typer.Option(help="continue the run in the folder")] = True,
    engine: Engine = EngineChoice.LOCAL,
    address: Address = None,
    workers: Annotated[
        int | None, typer.Option(help="processes (default: one per core or GPU)")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="seed for everything random (default: 0)")
    ] = None,
    max_steps: Annotated[
        int | None,
        typer.Option(min=1, help="most steps of any training or adaptation, for a trial"),
    ] = None,
    max_images: Annotated[
        int | None, typer.Option(min=1, help="most test images of any row, for a trial")
    ] = None,
    cells: Annotated[
        Path | None,
        typer.Option(help="folder for finished pieces of work, which several runs may share"),
    ] = None,
    parquet: Annotated[bool, typer.Option(help="also write the CSV tables as Parquet")] = False,
    study: Annotated[
        str | None, typer.Option(help=f"in place of a scale: one of {', '.join(STUDY_NAMES)}")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="for a study: the folder that holds the image folders")
    ] = None,
    models: Annotated[
        str, typer.Option(help="for a study: names, folders, or kind:file of published networks")
    ] = "",
    only: Annotated[
        list[str] | None,
        typer.Option(help="for a study: name=value, to compute only the cells with that setting"),
    ] = None,
) -> None:
    """Run the paper's experiment: tables, claims with verdicts, figures, the page; or a study.

    An interrupted run continues where it stopped. Without folders it uses embedded images.

    Example: proxmatch reproduce quick --out quick-out
    """
    from rich.console import Console

    _check(context, study)
    if study is not None:
        _study(study, data, models, out, max_images, seed or 0, only or [], max_steps)
        return
    if scale is None:
        raise InputError("choose a scale (quick, cpu or paper), or name a study with --study")
    result, page = _run(
        scale.value,
        out,
        source,
        target,
        [family.strip() for family in families.split(",") if family.strip()],
        engine.value,
        address,
        workers,
        resume,
        seed=seed,
        max_steps=max_steps,
        max_images=max_images,
        cells=cells,
        parquet=parquet,
    )
    console = Console()
    drawn = [table.rich() for table in result.tables]
    wide = console.options.update(width=1000)
    fitting = [
        table for table in drawn if console.measure(table, options=wide).maximum <= console.width
    ]
    console.print(*fitting)
    narrow = f"; tables wider than this window are in {out / 'tables'}"
    console.print(
        f"{result.computed} of {result.cells} cells computed now; see {page}"
        f"{narrow if len(fitting) < len(drawn) else ''}",
        highlight=False,
        soft_wrap=True,
    )


def _check(context: typer.Context, study: str | None) -> None:
    """Refuse what the run would ignore."""
    if study is not None and context.params["scale"] is not None:
        raise InputError("give either a scale or --study, not both")
    for name in OF_A_STUDY if study is None else OF_A_SCALE:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            right, wrong = ("--study", "a scale") if study is None else ("a scale", "--study")
            raise InputError(f"--{name} is for a run with {right}, not with {wrong}")


def _run(*arguments: Any, **options: Any) -> tuple[Reproduction, Path]:
    """Run the experiment below a bar; its result and page."""
    with (
        _screen.interruptible(lambda: AGAIN),
        progress("bar", "count", "elapsed", "remaining", "{task.description}") as shown,
    ):
        bar = shown.add_task("looking at the images", total=None)
        from proxmatch.experiments.reproduction import reproduce
        from proxmatch.report import write_report

        def on_plan(planned: int, missing: int) -> None:
            done = planned - missing
            shown.update(bar, description="computing", total=planned, completed=done)

        def on_cell(cell: Cell, done: int, planned: int) -> None:
            now = f"{cell.kind}: {cell.label}" if done < planned else "figures and page"
            shown.update(bar, description=now, completed=done)

        result = reproduce(*arguments, **options, on_plan=on_plan, on_cell=on_cell)
        return result, write_report(result.out)


def _study(
    name: str,
    data: Path | None,
    models: str,
    out: Path,
    images: int | None,
    seed: int,
    only: list[str],
    steps: int | None,
) -> None:
    """Run a study and show its tables."""
    from rich.console import Console

    from proxmatch.experiments.studies import STUDIES, Work, run_study

    if name not in STUDIES:
        raise InputError(f"no study {name!r}; there are {', '.join(STUDIES)}")
    if data is None:
        raise InputError("a study needs --data: the folder that holds the image folders")
    wanted: dict[str, list[str]] = {}
    for text in only:
        key, equals, value = text.partition("=")
        if not (key and equals and value):
            raise InputError(f"--only {text}: write name=value, for example problem=deblurring")
        wanted.setdefault(key, []).append(value)
    chosen = tuple(name.strip() for name in models.split(",") if name.strip())
    log = Console(stderr=True, log_path=False)
    with _screen.interruptible(lambda: AGAIN):
        page = run_study(
            STUDIES[name],
            Work(data, chosen, images, seed, wanted, steps),
            out,
            on_cell=lambda done, all_, what: log.log(f"{done} of {all_} done", what),
        )
    Console().print(page.read_text("utf-8"), highlight=False, markup=False, soft_wrap=True)
