"""Sphinx settings: ``make docs``."""

from __future__ import annotations

import re
import sys
import urllib.request
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from proxmatch import __version__

project = "proxmatch"
author = "The proxmatch developers"
copyright = author
version = release = __version__

extensions = [
    "problem_table",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
    "sphinxcontrib.bibtex",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "gallery/GALLERY_HEADER.rst"]
default_role = "literal"

napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_preprocess_types = False
autosummary_generate = True
autosummary_imported_members = False
autosummary_ignore_module_all = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False

bibtex_bibfiles = ["references.bib"]
bibtex_default_style = "plain"

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "filename_pattern": r"plot_",
    "example_extensions": {".py"},
    "doc_module": ("proxmatch",),
    "backreferences_dir": None,
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_memory": False,
    "abort_on_example_error": True,
    "plot_gallery": True,
}

html_theme = "pydata_sphinx_theme"
html_title = "proxmatch"
html_show_sourcelink = False
html_sidebars = {page: [] for page in ("start", "commands", "theory", "bibliography")}
html_theme_options = {
    "show_prev_next": False,
    "navbar_align": "left",
    "header_links_before_dropdown": 8,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}


def _reachable(inventory: str) -> bool:
    """Whether another project can be linked to: a build offline goes without."""
    try:
        with urllib.request.urlopen(inventory + "objects.inv", timeout=5):  # noqa: S310
            return True
    except OSError:
        return False


_others = {
    "python": "https://docs.python.org/3/",
    "torch": "https://docs.pytorch.org/docs/stable/",
    "deepinv": "https://deepinv.github.io/deepinv/",
}
intersphinx_mapping = {name: (url, None) for name, url in _others.items() if _reachable(url)}


def _mathematics(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings speak plain mathematics: |x| is no substitution, indented formulas are literal."""
    if what in ("property", "attribute") and lines:  # napoleon takes "L_H: ..." for a type
        lines[0] = lines[0].replace(": ", ", ", 1)
    found: list[str] = []
    formula, before = False, ""
    for line in lines:
        indented = line.startswith("    ")
        if formula and line and not indented:
            formula = False
        if indented and not formula and found and not found[-1] and before and before[0] != " ":
            formula = True
            found += ["::", ""]
        before = line or before
        found.append(line if formula else _escaped(line))
    lines[:] = found


def _escaped(line: str) -> str:
    parts = re.split(r"(``.*?``|:\w+:`.*?`)", line)
    return "".join(part if i % 2 else part.replace("|", r"\|") for i, part in enumerate(parts))


def setup(app: Any) -> None:
    """Look at docstrings before napoleon does."""
    app.connect("autodoc-process-docstring", _mathematics, priority=400)
