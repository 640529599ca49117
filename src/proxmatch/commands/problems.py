"""``proxmatch problems``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from proxmatch.commands import _screen
from proxmatch.commands._options import Json

if TYPE_CHECKING:
    from proxmatch.problems import RegisteredProblem


def command(
    name: Annotated[str | None, typer.Argument(help="a problem, to see its options")] = None,
    json: Json = False,
) -> None:
    """List the inverse problems, or show the options of one.

    Example: proxmatch problems tomography
    """
    from proxmatch.problems import PROBLEMS
    from proxmatch.problems.catalog import entry

    if name is None:
        found = {known: _summary(PROBLEMS[known]) for known in sorted(PROBLEMS)}
        rows = [
            (known, one["title"], str(one["channels"]), ", ".join(one["options"]))
            for known, one in found.items()
        ]
        _screen.show(
            found, json, _screen.table(("name", "what it is", "channels", "options"), rows)
        )
        return
    one = _summary(entry(name))
    lines = [
        (key, "needed" if option["needed"] else _text(option["default"]), option["help"])
        for key, option in one["options"].items()
    ]
    title = f"{name}: {one['title']}"
    _screen.show(one, json, _screen.table(("--set", "default", "meaning"), lines, title))


def _summary(registration: RegisteredProblem) -> dict[str, Any]:
    return {
        "title": registration.title,
        "channels": registration.channels or "any",
        "pictures": registration.pictures,
        "options": {
            option.name: {
                "needed": option.required,
                "default": None if option.required else option.default,
                "help": option.help,
            }
            for option in registration.options.values()
        },
    }


def _text(default: object) -> str:
    return "-" if default is None else str(default)
