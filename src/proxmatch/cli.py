"""The command line. Each command is a module of :mod:`proxmatch.commands`; nothing else prints."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

import typer

from proxmatch import commands
from proxmatch.errors import ProxmatchError, ProxmatchWarning

DEBUG = "PROXMATCH_DEBUG"

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Plug-and-play reconstruction when the denoiser meets images it was not trained on.",
)


def _version(asked: bool) -> None:
    if asked:
        from proxmatch import __version__

        typer.echo(f"proxmatch {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="show the version")
    ] = False,
) -> None:
    """Options before a command."""


for _name in commands.names():
    _module = import_module(f"proxmatch.commands.{_name}")
    app.command(_name.rstrip("_"))(_module.command)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; an error is one line on standard error.

    With the environment variable PROXMATCH_DEBUG, errors come with their traceback.
    """
    if hasattr(sys.stdout, "reconfigure"):  # file names may not be valid text
        sys.stdout.reconfigure(errors="backslashreplace")
    with warnings.catch_warnings():
        if DEBUG not in os.environ:
            warnings.simplefilter("ignore")
            warnings.filterwarnings("always", category=ProxmatchWarning)
            warnings.showwarning = _warn
        try:
            app(None if arguments is None else list(arguments), prog_name="proxmatch")
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else 0 if end.code is None else 2
        except Exception as error:
            if DEBUG in os.environ:
                raise
            typer.echo(f"error: {_explained(error)}", err=True)
            return 2
    return 0


def main() -> None:
    """The entry point of ``proxmatch``."""
    sys.exit(run())


def _explained(error: Exception) -> str:
    if isinstance(error, MemoryError) and not isinstance(error, ProxmatchError):
        return "not enough memory; take smaller tiles (--tile), fewer or smaller images"
    if isinstance(error, ProxmatchError | OSError):
        return str(error)
    kind = type(error).__name__
    return f"unexpected {kind}: {error}. This is a defect; {DEBUG}=1 shows where"


def _warn(message: object, *_: object, **__: object) -> None:
    typer.echo(f"warning: {message}", err=True)
