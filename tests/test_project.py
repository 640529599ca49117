"""What is written down in several files of the project says the same in all of them."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from proxmatch import __version__

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
LICENSES = tomllib.loads((ROOT / "REUSE.toml").read_text(encoding="utf-8"))["annotations"]
PINS = {
    canonicalize_name(name): version
    for name, version in (
        line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines()
    )
}
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
CARDS = sorted((ROOT / "src" / "proxmatch" / "weights").glob("*/config.json"))


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def jobs(name: str) -> dict[str, Any]:
    found: dict[str, Any] = read(ROOT / ".github" / "workflows" / f"{name}.yml")["jobs"]
    return found


def python_versions() -> list[str]:
    """Those of the classifiers, oldest first."""
    kinds = PROJECT["project"]["classifiers"]
    found = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", kind) for kind in kinds]
    return [each[1] for each in found if each]


def commands(path: Path) -> Iterator[str]:
    for job in read(path)["jobs"].values():
        yield from (step["run"] for step in job.get("steps", ()) if "run" in step)


def license_of(path: str) -> dict[str, Any]:
    """The table of REUSE.toml for a file: the last that matches, * being any part of one name."""

    def matches(pattern: str) -> bool:
        parts = (re.escape(part).replace(r"\*", "[^/]*") for part in pattern.split("**"))
        return re.fullmatch(".*".join(parts), path) is not None

    patterns = [each["path"] for each in LICENSES]
    listed = [each if isinstance(each, list) else [each] for each in patterns]
    found: dict[str, Any] = [
        table for table, each in zip(LICENSES, listed, strict=True) if any(map(matches, each))
    ][-1]
    return found


def identifiers(table: dict[str, Any]) -> list[str]:
    """The licenses that all hold."""
    return str(table["SPDX-License-Identifier"]).split(" AND ")


def origins(card: dict[str, Any] | None) -> dict[str, str]:
    """Licenses of the images a model was trained on, by dataset, where it began included."""
    if card is None:
        return {}
    return {card["source"].split(",")[0]: card["license"], **origins(card.get("start"))}


def test_workflows_run_what_the_makefile_has() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    run = [command for path in WORKFLOWS for command in commands(path)]
    assert {command.split()[1] for command in run} >= {"test", "coverage", "docs", "audit"}
    for command in run:
        make, target, *settings = command.replace("${{ ", "${{").replace(" }}", "}}").split()
        assert make == "make"
        assert target in targets
        assert all(re.fullmatch(r"(PYTHON|EXTRA|RESOLUTION)=\S+", each) for each in settings)


def test_workflows_take_every_python_and_every_extra() -> None:
    versions = python_versions()
    assert PROJECT["project"]["requires-python"] == f">={versions[0]}"
    assert PROJECT["tool"]["mypy"]["python_version"] == versions[0]
    tests = jobs("tests")
    matrix = tests["tests"]["strategy"]["matrix"]
    assert matrix["python"] == versions
    assert {os.split("-")[0] for os in matrix["os"]} == {"ubuntu", "macos"}
    bounds = {
        each["resolution"]: each["python"]
        for each in tests["versions"]["strategy"]["matrix"]["include"]
    }
    assert bounds == {"lowest-direct": versions[0], "highest": versions[-1]}
    nightly = jobs("nightly")
    assert set(nightly["extras"]["strategy"]["matrix"]["extra"]) == set(EXTRAS) - {"dev"}
    assert (ROOT / nightly["tests"]["uses"]).samefile(ROOT / ".github/workflows/tests.yml")


@pytest.mark.parametrize("extra", [None, "dev", "docs", "ray"])
def test_dependencies_are_pinned_within_their_bounds(extra: str | None) -> None:
    for text in EXTRAS[extra] if extra else PROJECT["project"]["dependencies"]:
        wanted = Requirement(text)
        assert PINS[canonicalize_name(wanted.name)] in wanted.specifier, text
        assert [each.operator for each in wanted.specifier], f"{text}: no lowest version"


def test_pre_commit_has_the_ruff_of_the_tests() -> None:
    listed = read(ROOT / ".pre-commit-config.yaml")["repos"]
    hooks = {each["repo"].rpartition("/")[2]: each for each in listed}
    assert hooks["ruff-pre-commit"]["rev"] == f"v{PINS['ruff']}"
    assert re.fullmatch(r"v\d+\.\d+\.\d+", hooks["pre-commit-hooks"]["rev"])


def test_the_citation_is_of_this_version() -> None:
    citation = read(ROOT / "CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == __version__
    project = PROJECT["project"]
    assert citation["title"] == project["name"]
    assert citation["abstract"] == project["description"]
    assert citation["keywords"] == project["keywords"]
    assert [each["name"] for each in citation["authors"]] == [e["name"] for e in project["authors"]]


def test_the_changelog_has_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heads = re.findall(r"^## (.*)$", text, re.M)
    assert heads[0] == "Unreleased"
    assert heads[1].split()[0] == __version__


def test_issue_forms_can_be_filled_in() -> None:
    forms = {path.stem: read(path) for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")}
    assert set(forms) == {"bug", "question", "feature", "config"}
    for name in set(forms) - {"config"}:
        assert forms[name]["name"]
        assert forms[name]["description"]
        ids = [each["id"] for each in forms[name]["body"]]
        assert len(set(ids)) == len(ids) > 0


def test_every_license_has_its_text_and_is_in_the_metadata() -> None:
    used = {one for table in LICENSES for one in identifiers(table)}
    assert {path.stem for path in (ROOT / "LICENSES").glob("*.txt")} == used
    assert set(PROJECT["project"]["license"].split(" AND ")) == used
    text = (ROOT / "LICENSES" / "BSD-3-Clause.txt").read_bytes()
    assert text == (ROOT / "LICENSE").read_bytes()
    assert license_of("src/proxmatch/pnp.py")["SPDX-License-Identifier"] == "BSD-3-Clause"


@pytest.mark.parametrize("path", CARDS, ids=lambda path: path.parent.name)
@pytest.mark.parametrize("root", ["src/proxmatch", "proxmatch"])  # here, and installed
def test_weights_have_the_licenses_of_all_they_were_trained_on(path: Path, root: str) -> None:
    card = json.loads(path.read_text(encoding="utf-8"))["record"]
    tables = [
        license_of(f"{root}/weights/{path.parent.name}/{name}")
        for name in ("config.json", "model.safetensors")
    ]
    assert tables[0] == tables[1]
    named, held = identifiers(tables[0]), origins(card)
    assert len(named) == len(held)
    for license, (source, terms) in zip(named, held.items(), strict=True):
        if terms.startswith("CC"):
            assert license == terms.replace(" ", "-")
        else:
            assert "research" in terms
            assert license.startswith("LicenseRef-")
        # The images are named by who holds their rights, or in the terms of their use.
        text = (ROOT / "LICENSES" / f"{license}.txt").read_text(encoding="utf-8")
        assert source in text + str(tables[0]["SPDX-FileCopyrightText"])
