"""One HTML file from a template, styles and scripts: nothing is fetched, nothing is trusted.

Texts are escaped by Jinja, numbers and pictures travel as JSON that cannot close its element, and
the page's policy lets the browser run the page's own script and no other.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from proxmatch.methods import FAMILIES, family_label
from proxmatch.records import VERDICTS
from proxmatch.report import wording
from proxmatch.report.summary import NOTHING

# What HTML does not allow in a text, and halves of surrogate pairs.
_FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def document(
    template: str,
    styles: Sequence[str],
    scripts: Sequence[str],
    numbers: Any,
    *,
    local_pictures: bool = False,
    **values: Any,
) -> bytes:
    """The page.

    Args:
        template: of ``templates/``. It is given ``policy``, ``style``, ``script``, ``numbers``.
        styles: of ``assets/``.
        scripts: of ``assets/``.
        numbers: JSON for the scripts.
        local_pictures: the page shows pictures of its own folder, not only those inside it.
        values: what else the template needs.
    """
    style, script = _assets(styles), _assets(scripts)
    html = (
        _environment()
        .get_template(template)
        .render(
            **values,
            style=Markup(style),  # noqa: S704  our own files
            script=Markup(script),  # noqa: S704
            policy=_policy(style, script, local_pictures),
            numbers=htmlsafe_json_dumps(numbers, separators=(",", ":"), allow_nan=False),
        )
    )
    html = html.replace("\r\n", "\n").replace("\r", "\n")
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", html).encode("utf-8")


def _policy(style: str, script: str, local_pictures: bool) -> str:
    """A policy that allows inline content only, and only with these fingerprints."""
    pictures = "data: file: 'self'" if local_pictures else "data:"
    return (
        f"default-src 'none'; img-src {pictures}; style-src {_fingerprint(style)}; "
        f"script-src {_fingerprint(script)}; base-uri 'none'; form-action 'none'"
    )


def _fingerprint(text: str) -> str:
    hashed = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(hashed).decode('ascii')}'"


def _assets(names: Sequence[str]) -> str:
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
        "number": wording.number,
        "family": family_label,
        "denoiser": wording.denoiser,
        "relaxation": wording.relaxation,
        "flat": wording.flat,
        "context": wording.context,
    }
    environment.tests["match_certificate"] = lambda name: name.startswith("certificate")
    environment.globals.update({"families": FAMILIES, "nothing": NOTHING, "verdicts": VERDICTS})
    return environment
