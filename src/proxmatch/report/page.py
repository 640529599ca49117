"""An experiment's folder to one HTML file: nothing is fetched, nothing of the folder is trusted.

Texts are escaped by Jinja, numbers and pictures travel as JSON that cannot close its element, and
the page's policy lets the browser run the page's own script and no other.
"""

from __future__ import annotations

import base64
import hashlib
import re
import warnings
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from proxmatch.errors import DataError, ThinnedWarning
from proxmatch.files import write_together
from proxmatch.report import words
from proxmatch.report.data import data
from proxmatch.report.digest import Digest, digest
from proxmatch.report.folder import Folder, read_folder
from proxmatch.report.pictures import Album, Drawn, album, figures
from proxmatch.report.story import tell
from proxmatch.report.summary import NOTHING

LIMIT = 15_000_000  # bytes of the page
STYLES = ("page.css", "parts.css")
SCRIPTS = (
    "common.js",
    "pictures.js",
    "story.js",
    "tables.js",
    "chart.js",
    "curves.js",
    "browser.js",
)
# What HTML does not allow in a text, and halves of surrogate pairs.
_FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def write_report(folder: Path, out: Path | None = None) -> Path:
    """Write an experiment's page, whatever the folder holds so far.

    Args:
        folder: what ``proxmatch reproduce`` or ``proxmatch demo`` wrote.
        out: the file; ``report.html`` in the folder by default. Its folder is made.

    Returns:
        The file.

    Raises:
        DataError: the folder holds nothing of an experiment or something damaged, or the page
            would be larger than 15 MB even without pictures.

    Warns:
        ThinnedWarning: pictures were compressed or left out.
    """
    read = read_folder(folder)
    page, notes = render(read, LIMIT)
    place = folder / "report.html" if out is None else out
    place.parent.mkdir(parents=True, exist_ok=True)
    write_together(place.parent, {place.name: page})
    if notes:
        warnings.warn(ThinnedWarning(" ".join(notes)), stacklevel=2)
    return place


def render(folder: Folder, limit: int) -> tuple[bytes, list[str]]:
    """The page of at most so many bytes, and what was done to the pictures to make it fit."""
    drawn, notes = figures(folder.path, folder.figures)
    said = digest(folder)
    bare = _fill(folder, said, drawn, None, notes)
    room = limit - len(bare)
    if folder.pictures is None and room >= 0:
        return bare, notes
    while folder.pictures is not None and room > 0:
        shown = album(folder.path, folder.pictures, room)
        done = [*notes, *shown.notes]
        page = _fill(folder, said, drawn, shown, done)
        if len(page) <= limit:
            return page, done
        room -= len(page) - limit
    raise DataError(
        f"the page would have {len(bare) / 1e6:.1f} MB without any reconstruction: "
        f"at most {limit / 1e6:.1f} are allowed; take figures out of {folder.path / 'figures'}"
    )


def _fill(
    folder: Folder, said: Digest, drawn: Drawn, shown: Album | None, notes: list[str]
) -> bytes:
    story = tell(said, folder.pictures, shown, folder.cells)
    numbers = data(folder, said, story, shown)
    style, script = _assets(STYLES), _assets(SCRIPTS)
    template = _environment().get_template("report.html.j2")
    html = template.render(
        vars(said),
        drawn=drawn,
        folder=folder,
        manifest=folder.manifest,
        story=story,
        shown=shown,
        notes=notes,
        style=Markup(style),  # noqa: S704  our own files
        script=Markup(script),  # noqa: S704
        policy=_policy(style, script),
        numbers=htmlsafe_json_dumps(numbers, separators=(",", ":"), allow_nan=False),
    )
    html = html.replace("\r\n", "\n").replace("\r", "\n")
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", html).encode("utf-8")


def _policy(style: str, script: str) -> str:
    """Inline only, and of that only what has these fingerprints."""
    return (
        f"default-src 'none'; img-src data:; style-src {_fingerprint(style)}; "
        f"script-src {_fingerprint(script)}; base-uri 'none'; form-action 'none'"
    )


def _fingerprint(text: str) -> str:
    hashed = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(hashed).decode('ascii')}'"


def _assets(names: tuple[str, ...]) -> str:
    folder = files("proxmatch.report") / "assets"
    return "".join((folder / name).read_text(encoding="utf-8") for name in names)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("proxmatch.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": words.number,
        "family": words.family,
        "denoiser": words.denoiser,
        "relaxation": words.relaxation,
        "flat": words.flat,
        "context": words.context,
    }
    environment.tests["match_certificate"] = lambda name: name.startswith("certificate")
    environment.globals.update({"long_families": words.LONG_FAMILIES, "nothing": NOTHING})
    return environment
