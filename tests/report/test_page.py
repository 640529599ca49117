"""The page of an experiment: what it shows, what it refuses, and that nothing of it is trusted."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from PIL import Image
from typer import Typer
from typer.testing import CliRunner

from proxmatch.commands.report import command
from proxmatch.errors import DataError, ThinnedWarning
from proxmatch.records import Manifest
from proxmatch.report import write_report
from proxmatch.report.folder import PARTS, read_folder
from proxmatch.report.page import LIMIT, render
from tests.report.fixture import write_csv, write_folder, write_json
from tests.report.html import Page


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("experiment") / "out")


@pytest.fixture(scope="module")
def source(folder: Path) -> str:
    path = write_report(folder)
    assert path == folder / "report.html"
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(source: str) -> Page:
    return Page(source)


def test_every_id_is_unique_and_every_reference_has_one(page: Page) -> None:
    assert [name for name, count in page.ids.items() if count > 1] == []
    assert page.references
    assert page.references <= page.ids.keys()


def test_nothing_is_fetched(page: Page, source: str) -> None:
    assert all(address.startswith(("data:", "#")) for address in page.addresses)
    script = "".join(text for kind, text in page.scripts if not kind)
    assert not re.findall(r"fetch\(|XMLHttpRequest|import\(|WebSocket|sendBeacon", script)
    outside = set(re.findall(r"(?:https?:)?//[\w.]+\.\w+[^\s\"']*", source))
    assert outside <= {"http://www.w3.org/2000/svg"}  # a name, not an address


def test_the_policy_allows_the_pages_own_script_and_no_other(page: Page) -> None:
    (policy,) = [
        meta["content"]
        for meta in page.metas
        if meta.get("http-equiv") == "Content-Security-Policy"
    ]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    (script,) = [text for kind, text in page.scripts if not kind]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert rules["script-src"] == f"'sha256-{digest}'"
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    assert "unsafe" not in policy
    assert not [name for name in page.attributes if name == "style" or name.startswith("on")]


def test_landmarks_headings_and_alternatives(page: Page) -> None:
    for tag in ("main", "nav", "header", "footer", "h1", "title"):
        assert page.tags[tag] == 1
    assert page.images
    assert all(image["alt"] for image in page.images)
    assert "two decaying curves over 40 iterations" in " ".join(i["alt"] for i in page.images)


def test_the_numbers_are_those_of_the_folder(folder: Path, page: Page) -> None:
    rows = [line.split(",") for line in (folder / "images.csv").read_text().splitlines()]
    head, body = rows[0], rows[1:]
    take = {name: np.array([row[place] for row in body]) for place, name in enumerate(head)}
    chosen = (take["method"] == "pm") & (take["n"] == "5") & (take["problem"] == "deblurring")
    chosen &= (take["source"] == "extreme") & (take["relaxation"] == "paper")
    expected = take["psnr"][chosen].astype(float).mean()
    (cell,) = [
        cell
        for cell in page.numbers["cells"]
        if (cell["method"], cell["n"], cell["problem"]) == ("pm", 5, "deblurring")
        and (cell["source"], cell["relaxation"]) == ("extreme", "paper")
    ]
    assert cell["psnr"] == pytest.approx(expected, abs=1e-3)
    assert cell["images"] == 4
    assert len(cell["sets"]) == 3
    assert f"{expected:.2f}" in page.text
    assert f"it ends at {expected:.1f} dB" in page.text


@pytest.mark.parametrize(("auto", "told"), [(27.0, "auto"), (20.0, "pm")])
def test_the_story_is_told_with_ours_where_it_is_the_best(
    tmp_path: Path, auto: float, told: str
) -> None:
    """Auto has a relaxation of its own; source and reference stand beside it as they are."""
    values = {
        ("source", 0, "paper"): 7.0,
        ("source", 0, "chosen"): 25.0,
        ("reference", 0, "paper"): 28.0,
        ("reference", 0, "chosen"): 29.0,
        ("pm", 5, "paper"): 21.0,
        ("auto", 5, "chosen"): auto,
    }
    common = {"family": "lpn", "source": "extreme", "set": 0, "problem": "deblurring"}
    rows = [
        common | {"method": method, "n": n, "relaxation": relaxation, "image": "i", "psnr": psnr}
        for (method, n, relaxation), psnr in values.items()
    ]
    write_csv(tmp_path / "images.csv", rows)
    done = common | {"n": 5, "kind": "adaptation"}
    chose = done | {"method": "auto", "status": "chose Wiener"}
    other = chose | {"set": 1, "status": "chose aligned"}
    trained = done | {"method": "pm", "status": "completed"}
    write_csv(tmp_path / "cells.csv", [trained, chose, other])
    found = Page(write_report(tmp_path).read_text(encoding="utf-8"))
    assert found.numbers["story"]["method"] == told
    choice = "auto (which chose: Wiener or aligned) with 5 images"
    assert (choice in found.text) == (told == "auto")
    assert "deblurring at 7.0 dB" in found.text
    assert f"it ends at {max(auto, 21.0):.1f} dB" in found.text
    assert "trained on the right ones, 28.0 dB" in found.text
    assert ("or 29.0 dB with its strength chosen as well" in found.text) == (told == "auto")


def test_claims_settings_and_fingerprints_are_shown(folder: Path, page: Page) -> None:
    for claim in json.loads((folder / "claims.json").read_text()):
        assert claim["statement"] in page.text
        assert f"{claim['effect']:+.2f}".replace("-", "\N{MINUS SIGN}") in page.text
        assert all(driver["says"] in page.text for driver in claim["drivers"])
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["data"]["target"]["fingerprint"] in page.text
    assert manifest["versions"]["torch"] in page.text
    assert manifest["thinned"][0] in page.text
    assert "2 of 120 cells are still to come" in page.text


def test_pictures_are_embedded_without_loss_when_they_fit(folder: Path, page: Page) -> None:
    index = json.loads((folder / "pictures" / "index.json").read_text())
    shown = page.numbers["pictures"]
    assert len(shown["entries"]) == len(index["entries"])
    wanted, found = index["entries"][3], shown["entries"]
    names = ("family", "source", "method", "n", "problem", "image")
    (entry,) = [e for e in found if all(e[name] == wanted[name] for name in names)]
    content = base64.b64decode(shown["files"][entry["file"]].partition(",")[2])
    assert content == (folder / wanted["file"]).read_bytes()


@pytest.mark.parametrize("missing", PARTS)
def test_without_any_one_part_there_is_still_a_page(
    folder: Path, tmp_path: Path, missing: str
) -> None:
    rest = tmp_path / "rest"
    shutil.copytree(folder, rest, ignore=shutil.ignore_patterns("report.html"))
    place = rest / missing
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    page = Page(write_report(rest).read_text(encoding="utf-8"))
    assert page.references <= page.ids.keys()
    section = {
        "claims.json": "claims",
        "pictures": "browser",
        "figures": "figures",
    }.get(missing)
    assert section is None or section not in page.ids


@pytest.mark.parametrize("only", [part for part in PARTS if "." in part])
def test_one_part_alone_makes_a_page(folder: Path, tmp_path: Path, only: str) -> None:
    shutil.copy(folder / only, tmp_path / only)
    page = Page(write_report(tmp_path, tmp_path / "deep" / "page.html").read_text(encoding="utf-8"))
    assert page.references <= page.ids.keys()
    assert (tmp_path / "deep" / "page.html").is_file()


HOSTILE = [
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "<!--<script>",
    "]]>&lt;{{ 7 * 7 }}{% raw %}",
    "'; alert(1); //\u2028\u2029",
    "javascript:alert(1)",
]


def write_named(out: Path, name: str) -> None:
    """A folder in which every text is this one."""
    setting = {"family": name, "source": name, "method": name, "n": 1, "set": 0, "problem": name}
    measured = setting | {"relaxation": name, "t": 1, "image": name, "psnr": 20.5, "gap": 3}
    write_csv(out / "images.csv", [measured, measured | {"method": "pm"}])
    write_csv(
        out / "iterations.csv",
        [setting | {"relaxation": name, "iteration": k, "psnr": 20 + k} for k in range(2)],
    )
    write_csv(out / "cells.csv", [setting | {"status": name, "key": name}])
    driver = {"control": name, "effect": 1, "low": 0, "high": 2, "says": name}
    claim = {"id": name, "statement": name, "paper": name, "family": name, "problem": name}
    claim |= {"n": 1, "effect": 1, "low": 0.5, "high": 2, "unit": name, "verdict": "holds"}
    write_json(out / "claims.json", [claim | {"drivers": [driver], "images": 1, "sets": 1}])
    record = {name: {"fingerprint": name}}
    write_json(
        out / "manifest.json",
        {"scale": name, "created": name, "settings": record, "seeds": record, "versions": record}
        | {"data": record, "models": record, "thinned": [name], "minutes": float("nan")},
    )
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "PNG")
    tall = io.BytesIO()
    Image.new("RGB", (8, 16)).save(tall, "PNG")
    strip = setting | {"relaxation": name, "image": name, "file": "s.png"}
    for place, content in (("figures/a.png", file), ("p.png", file), ("s.png", tall)):
        (out / place).parent.mkdir(exist_ok=True)
        (out / place).write_bytes(content.getvalue())
    write_json(
        out / "figures" / "index.json", [{"name": "a", "title": name, "caption": name, "alt": name}]
    )
    write_json(
        out / "pictures" / "index.json",
        {"size": 8, "frames": [0], "images": [name], "problems": [name]}
        | {"entries": [strip | {"method": method} for method in (name, "pm")]}
        | {"truth": {name: "p.png"}, "degraded": {name: {name: "p.png"}}},
    )


@pytest.fixture(scope="module")
def harmless(tmp_path_factory: pytest.TempPathFactory) -> Page:
    out = tmp_path_factory.mktemp("harmless")
    write_named(out, "name")
    return Page(write_report(out).read_text(encoding="utf-8"))


@given(st.text(min_size=1, max_size=30) | st.sampled_from(HOSTILE))
@example(HOSTILE[0])
@example(HOSTILE[1])
@example(HOSTILE[2])
def test_no_text_of_the_folder_becomes_markup(
    harmless: Page, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    out = tmp_path_factory.mktemp("hostile")
    write_named(out, name)
    page = Page(write_report(out).read_text(encoding="utf-8"))
    assert page.tags == harmless.tags
    assert page.attributes == harmless.attributes
    assert page.scripts[-1] == harmless.scripts[-1]
    assert all(address.startswith(("data:", "#")) for address in page.addresses)
    cell = page.numbers["cells"][0]
    if name.isprintable():
        assert cell["problem"] == name
        assert page.numbers["pictures"]["truth"] == {name: 0}
        assert " ".join(name.split()) in page.text


@pytest.mark.parametrize("text", HOSTILE)
def test_tables_in_markdown_bring_no_markup_of_their_own(tmp_path: Path, text: str) -> None:
    (tmp_path / "tables").mkdir()
    link = (
        "[a](https://elsewhere.example) ![b](https://elsewhere.example/b.png) <https://c.example>"
    )
    content = f"| a | b |\n| --- | --- |\n| {text} | {link} |\n\n{text}\n"
    (tmp_path / "tables" / "main.md").write_text(content, encoding="utf-8")
    page = Page(write_report(tmp_path).read_text(encoding="utf-8"))
    assert page.tags["script"] == 2
    assert page.tags["img"] == 0
    assert page.tags["td"] == 2
    assert all(address.startswith(("data:", "#")) for address in page.addresses)


def test_files_outside_the_folder_are_not_read(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    write_named(out, "name")
    shutil.copy(out / "s.png", tmp_path / "secret.png")
    index = json.loads((out / "pictures" / "index.json").read_text())
    for stolen in ("../secret.png", str(tmp_path / "secret.png"), "link.png"):
        (out / "link.png").unlink(missing_ok=True)
        (out / "link.png").symlink_to(tmp_path / "secret.png")
        index["entries"][0]["file"] = stolen
        write_json(out / "pictures" / "index.json", index)
        with pytest.raises(DataError, match="outside"):
            write_report(out)
        assert not (out / "report.html").exists()


@pytest.mark.parametrize(
    ("part", "content", "says"),
    [
        ("claims.json", "[{", "not JSON"),
        ("claims.json", '[{"statement": "a", "verdict": "maybe"}]', "0.verdict"),
        ("manifest.json", "[" * 100_000, "not JSON"),
        ("manifest.json", "\udcff", "not UTF-8"),
        ("images.csv", "family,source\na,b\n", "no column method"),
        ("images.csv", "family,source,method,n,problem,relaxation,image,psnr\na,b,c,1,d,e,f,x\n",
         "line 2: psnr is 'x'"),
        ("pictures/index.json", '{"size": 0, "frames": [0]}', "size"),
    ],
)  # fmt: skip
def test_a_damaged_part_is_named(tmp_path: Path, part: str, content: str, says: str) -> None:
    (tmp_path / part).parent.mkdir(exist_ok=True)
    (tmp_path / part).write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(DataError, match=says) as caught:
        write_report(tmp_path)
    assert part.rpartition("/")[2] in str(caught.value)
    assert not (tmp_path / "report.html").exists()


def test_a_strip_of_the_wrong_size_is_refused(tmp_path: Path) -> None:
    write_named(tmp_path, "name")
    shutil.copy(tmp_path / "p.png", tmp_path / "s.png")
    with pytest.raises(DataError, match=r"s\.png has \(8, 8\) pixels, \(8, 16\) were expected"):
        write_report(tmp_path)


def test_a_large_folder_is_thinned_and_says_so(folder: Path) -> None:
    read = read_folder(folder)
    full, none = render(read, LIMIT)
    assert none == []
    strips = sum(p.stat().st_size for p in (folder / "pictures").glob("0*.png"))
    text = len(full) - 4 * strips // 3
    small = text + strips
    page, notes = render(read, limit=small)
    assert len(page) <= small
    assert "JPEG files of quality" in notes[0]
    assert notes[0] in Page(page.decode()).text
    less = text + strips // 6
    tiny, notes = render(read, limit=less)
    assert len(tiny) <= less
    assert "left out" in notes[-1]
    kept = Page(tiny.decode()).numbers["pictures"]["entries"]
    assert 0 < len(kept) < len(read.pictures.entries if read.pictures else [])
    assert {"source", "pm"} <= {entry["method"] for entry in kept}
    with pytest.raises(DataError, match="take figures out"):
        render(read, limit=100_000)


def test_the_command(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = Typer()
    app.command("report")(command)
    opened: list[str] = []
    monkeypatch.setattr("typer.launch", opened.append)
    out = tmp_path / "page.html"
    done = CliRunner().invoke(app, [str(folder), "--out", str(out), "--open"])
    assert done.exit_code == 0, done.output
    assert str(out) in done.output.replace("\n", "")
    assert opened == [out.resolve().as_uri()]
    assert isinstance(CliRunner().invoke(app, [str(tmp_path / "no")]).exception, DataError)


def test_the_page_says_how_to_make_the_run_again() -> None:
    assert Manifest(scale="cpu", data={"source": "odd"}).command == (
        "proxmatch reproduce cpu --source DIR --target DIR --out DIR"
    )
    bounds = {"seed": 3, "max_steps": 2, "max_images": None}
    short = Manifest(scale="quick", settings=bounds, data={"source": {"embedded": "histology"}})
    assert short.command == "proxmatch reproduce quick --out DIR --seed 3 --max-steps 2"


def test_thinning_warns(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = read_folder(folder)
    size = len(render(read, LIMIT)[0])
    monkeypatch.setattr("proxmatch.report.page.LIMIT", size - 100_000)
    with pytest.warns(ThinnedWarning, match="JPEG"):
        write_report(folder, tmp_path / "page.html")
