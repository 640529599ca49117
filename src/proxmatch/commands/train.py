"""``proxmatch train``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proxmatch.commands import _options, _screen

if TYPE_CHECKING:
    from proxmatch.data.layouts import Split


def command(
    family: Annotated[
        str,
        typer.Argument(
            help="lpn, gs, or a preset: lpn-compact, gs-paper ...; or the folder of a model to "
            "continue from, such as `proxmatch import` writes"
        ),
    ],
    images: Annotated[Path, typer.Option(help="folder of clean images")],
    out: _options.Out,
    config: Annotated[
        Path | None, typer.Option(help="YAML file of settings (default: the preset's)")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="training steps (default: the preset's)")
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="images per step")] = None,
    channels: Annotated[
        int | None, typer.Option(help="1 for gray images, 3 for color (default: the preset's)")
    ] = None,
    downscale: _options.Downscale = 1,
    validation: Annotated[
        int,
        typer.Option(
            min=0, help="held-out crops to measure the model on; 0 holds out none and trains on all"
        ),
    ] = 16,
    seed: Annotated[
        int | None, typer.Option(min=0, help="seed for everything random (default: 0)")
    ] = None,
    device: _options.Device = "cpu",
    threads: _options.Threads = None,
    json: _options.Json = False,
) -> None:
    """Train a denoiser on a folder of images; the same command continues after an interruption.

    Example: proxmatch train lpn --images photographs --out runs/lpn --steps 2000

    Example: proxmatch train gs --channels 1 --images x-rays --out runs/gray

    Example: proxmatch train models/ffdnet --images photographs --out runs/ffdnet --steps 500
    """
    from proxmatch._internal.locks import owned
    from proxmatch.data import ImageDomain
    from proxmatch.errors import InputError
    from proxmatch.learning import PRESETS, RunStatus, TrainingSettings, state, train
    from proxmatch.learning.engine import one_process
    from proxmatch.learning.fine_tune import CROP
    from proxmatch.learning.progress import bar
    from proxmatch.learning.training import continued

    place = _options.compute(device, threads)
    name = family if family in PRESETS else f"{family}-compact"
    own = None
    if name not in PRESETS:
        if not Path(family).is_dir():
            raise InputError(
                f"no family or preset {family!r}; there are lpn, gs, {', '.join(PRESETS)}, and "
                "folders of models"
            )
        name, own = family, _options.load_model(family, place)
    preset = PRESETS[name] if own is None else continued(own, CROP)
    if own is not None and channels not in (None, own.channels):
        raise InputError(f"{family} is for {own.channels} channel(s), not {channels}")
    if channels not in (None, 1, 3):
        raise InputError(f"pictures have 1 or 3 channels, not {channels}")
    if channels is not None and own is None:
        model = preset.model.model_copy(update={"channels": channels})
        preset = preset.model_copy(update={"model": model})
    settings = TrainingSettings.from_yaml(config) if config else preset.settings
    changes = {"seed": seed, "steps": steps, "batch": batch}
    settings = settings.model_copy(update={k: v for k, v in changes.items() if v is not None})

    def opened(split: Split | None) -> ImageDomain:
        return ImageDomain(
            images, preset.size, split=split, downscale=downscale, channels=preset.channels
        )

    domain = opened("train" if validation else None)
    held_out = None
    if validation:
        others = opened("validation")
        held_out = others.tensor(range(0, len(others), max(1, len(others) // validation)))
        held_out = held_out[:validation]
    stop = _screen.interruptible(lambda: _go_on(out))
    with owned(out), stop, bar(settings.steps, f"training {name}") as on_step:
        before = state.read(out)
        news = [f"resumed at step {before.step} of {settings.steps}"] if before else []

        def stepped(step: int, loss: float) -> None:
            while news:  # not before it is known that the settings are the same
                _screen.say(news.pop())
            on_step(step, loss)

        result = train(
            preset if own is None else own,
            domain,
            out,
            settings=settings,
            validation=held_out,
            fabric=one_process(place),
            on_step=stepped,
        )
    record: dict[str, Any] = {
        "model": str(out / "model"),
        "status": str(result.run.status),
        "steps": result.run.steps,
        "minutes": round(result.run.seconds / 60, 2),
        "validation": result.validation and result.validation.means(),
    }
    _screen.show(
        record,
        json,
        f"{result.run.status} after {result.run.steps} steps, {record['minutes']} minutes",
        *_figures(record["validation"]),
        f"wrote {record['model']}",
    )
    if result.run.status is not RunStatus.COMPLETED:
        _screen.say("the loss was not finite: take a smaller learning rate (--config)")
        raise typer.Exit(1)


def _go_on(out: Path) -> str:
    from proxmatch.learning import state

    found = state.read(out)
    if found is None:
        return "no checkpoint was written yet; the same command starts again"
    return f"the same command continues from step {found.step} in {out}"


def _figures(validation: dict[str, Any] | None) -> list[str]:
    if validation is None:
        return []
    parts = [f"denoising at {level} {dB:.2f} dB" for level, dB in validation["denoising"].items()]
    parts += [f"{name} {dB:.2f} dB" for name, dB in validation["reconstruction"].items()]
    if validation["lipschitz"] is not None:
        parts.append(f"L {validation['lipschitz']:.2f}")
    return [f"held out: {', '.join(parts)}"]
