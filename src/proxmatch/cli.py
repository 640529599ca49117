"""The command line: thin wrappers around the library, and the only place that prints."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Plug-and-play reconstruction when the denoiser meets images it was not trained on.",
)


@app.callback()
def _common() -> None:
    """Keep subcommands even while there are few."""


@app.command()
def info() -> None:
    """Show versions, device, threads and the models that come with proxmatch."""
    import platform

    import deepinv
    import torch
    from rich import print as show

    from proxmatch import __version__
    from proxmatch.denoisers import shipped

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    show(f"proxmatch {__version__}, python {platform.python_version()}")
    show(f"torch {torch.__version__}, deepinv {deepinv.__version__}")
    show(f"device: {device}, {torch.get_num_threads()} threads")
    show(f"models: {', '.join(shipped()) or 'none'}")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="folder for what is written")] = Path("demo-out"),
) -> None:
    """Degrade embedded photographs and reconstruct them with the right and the wrong prior.

    Example: proxmatch demo --out demo-out
    """
    from rich.console import Console
    from rich.table import Table

    console = Console()
    with console.status("loading deepinv and the models") as status:
        from proxmatch import demo as job

        result = job.run(out, progress=status.update)
    table = Table(title="PnP-PGD on embedded photographs, mean PSNR in dB")
    for name in job.HEADER:
        left = name in job.HEADER[:3]
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    for row in result.rows:
        table.add_row(*job.cells(row))
    console.print(table)
    for file in result.files:
        console.print(f"wrote {file}", highlight=False, soft_wrap=True)


def main() -> None:
    """Run a command; what goes wrong on purpose is one line on stderr and exit code 2."""
    from proxmatch.errors import ProxmatchError

    try:
        app()
    except (ProxmatchError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
