"""The app in a real browser: every control, good and bad files, two pages at once."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from proxmatch import cli
from proxmatch.data import encode_image

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
#: Milliseconds before a test gives up: how fast this machine is, is not what is tested.
PATIENCE = 240_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=CHROMIUM, args=FLAGS, timeout=PATIENCE
        )
        yield chromium
        chromium.close()


def opened(browser: Any, address: str, troubles: list[str], width: int = 1280) -> Any:
    """A page on its own, with the smallest work it can ask for."""
    context = browser.new_context(viewport={"width": width, "height": 800}, accept_downloads=True)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("request", lambda sent: sent.url.startswith((address, "data:", "blob:"))
            or troubles.append(sent.url))  # fmt: skip
    page.goto(address)
    page.wait_for_selector("#run:enabled")
    page.select_option("#side", "128")
    page.fill("#iterations", "4")
    page.select_option("#denoiser", "gs-photographs")
    page.evaluate("() => { const s = document.querySelector('#strength'); s.value = 45;"
                  " s.dispatchEvent(new Event('input')); }")  # fmt: skip
    return page


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    troubles: list[str] = []
    page = opened(browser, address, troubles)
    yield page
    page.context.close()
    assert [each for each in troubles if "400 (Bad Request)" not in each] == []


def done(page: Any) -> None:
    page.wait_for_selector("#run:enabled")
    assert page.inner_text("#status") == "Done."


def run(page: Any) -> None:
    page.click("#run")
    done(page)


def drawn(page: Any, canvas: str) -> str:
    shown: str = page.eval_on_selector(f"#compare {canvas}", "c => c.toDataURL()")
    return shown


#: Everything on the page that can be used; each is, in one of the tests below.
CONTROLS = [
    "#file", "#simulate", "#side", "#problem", "#denoiser", "#strength", "#usual", "#reference",
    "#iterations", "#run", "#cancel", "#source", "#budget", "#adapt", "#compare > input",
    "#compare .left select", "#compare .right select", "#play", "#iteration", "#download",
]  # fmt: skip
#: Those that the script adds: pictures, options of the problem, samples, runs, what to download.
ADDED = "#gallery, #options, #samples, #history, #adapted-download"


def test_there_is_no_control_that_is_not_tested(page: Any) -> None:
    rest = page.evaluate(
        """([known, added]) => [...document.querySelectorAll('input, select, button, a[download]')]
        .filter(e => !e.closest(added) && !known.some(one => e.matches(one)))
        .map(e => e.outerHTML)""",
        [CONTROLS, ADDED],
    )
    assert rest == []
    assert all(page.locator(one).count() == 1 for one in CONTROLS)


def test_a_reconstruction_can_be_watched_and_done_again(page: Any, tmp_path: Path) -> None:
    page.click("#gallery [data-id=rocket]")
    run(page)
    facts = page.inner_text("#facts")
    shown = float(re.search(r"PSNR\s+([\d.]+) dB", facts)[1])  # type: ignore[index]
    assert "gain over the start" in facts
    # the film
    last = drawn(page, ".under")
    page.locator("#iteration").press("Home")
    assert page.inner_text("#iteration-value") == "k = 0"
    assert drawn(page, ".under") != last
    page.click("#play")
    page.wait_for_function(
        "() => document.querySelector('#iteration-value').textContent === 'k = 4'"
    )
    page.wait_for_selector("#play[aria-label='Play the iterations']")
    assert drawn(page, ".under") == last
    # the divider, and what is on its two sides
    for side, canvas in ((".left", ".over"), (".right", ".under")):
        seen = set()
        for name in ("measured", "film", "truth"):
            page.select_option(f"#compare {side} select", name)
            seen.add(drawn(page, canvas))
        assert len(seen) == 3
    page.locator("#compare > input").press("Home")
    assert (
        page.eval_on_selector("#compare .over", "e => e.style.clipPath")
        == "inset(0px 100% 0px 0px)"
    )
    # the curves tell their values
    page.locator("#chart-psnr svg[role=img]").press("End")
    assert f"{shown:.2f} dB" in page.inner_text("#chart-psnr .tip")
    for chart in ("#chart-psnr", "#chart-fit"):
        page.click(f"{chart} summary")
        assert page.locator(f"{chart} .values tbody td").count() == 5  # x_0 ... x_4
    # the download does the same on the command line
    with page.expect_download() as found:
        page.click("#download")
    with zipfile.ZipFile(found.value.path()) as archive:
        archive.extractall(tmp_path)
    command = page.inner_text("#command").split()
    assert (tmp_path / "command.sh").read_text().split() == command
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        assert cli.run(command[1:]) == 0
        again = re.search(r'"psnr": ([\d.]+)', Path("again/reconstruction.json").read_text())
        assert float(again[1]) == pytest.approx(shown, abs=0.006)  # type: ignore[index]
        with contextlib.redirect_stdout(io.StringIO()) as said:
            exec((tmp_path / "again.py").read_text(), {})  # noqa: S102
        assert float(said.getvalue().split()[0]) == pytest.approx(shown, abs=0.006)
    # and the runs so far
    assert "rocket" in page.inner_text("#history")
    page.click("#history button")
    assert page.inner_text("#iteration-value") == "k = 4"


def test_the_result_follows_the_strength(page: Any) -> None:
    run(page)
    before = drawn(page, ".under")
    page.locator("#strength").press("End")
    page.wait_for_function("() => document.querySelectorAll('#history tr').length === 2")
    done(page)
    assert "level 0.17" in page.inner_text("#strength-value")
    assert drawn(page, ".under") != before
    assert not page.locator("#usual").is_checked()
    page.check("#usual")
    assert page.inner_text("#strength-value") == "chosen for you"
    page.uncheck("#usual")
    assert "level 0.17" in page.inner_text("#strength-value")


def test_every_choice_counts(page: Any) -> None:
    seen = set()
    for name in page.locator("#problem option").evaluate_all("o => o.map(e => e.value)"):
        page.select_option("#problem", name)
        seen.add(page.inner_html("#options"))
    assert len(seen) > 5
    page.select_option("#problem", "super-resolution")
    page.fill("#option-factor", "2")
    page.select_option("#reference", "gs-histology")
    run(page)
    assert page.locator("#chart-mismatch svg[role=img]").is_visible()
    assert "--set factor=2" in page.inner_text("#command")
    page.select_option("#denoiser", "none")
    assert not page.locator("#strength-control").is_visible()
    page.select_option("#reference", "")
    run(page)
    assert not page.locator("#chart-mismatch").is_visible()
    page.select_option("#denoiser", "tv")
    page.locator("#strength").press("ArrowRight")
    page.wait_for_function("() => document.querySelectorAll('#history tr').length === 3")
    done(page)
    assert "weight" in page.inner_text("#facts")
    page.fill("#option-factor", "0")
    page.click("#run")
    page.wait_for_selector("#error:not([hidden])")
    assert "factor" in page.inner_text("#error")


def deep_gray() -> bytes:
    array = np.linspace(0, 65535, 96 * 80).reshape(80, 96).astype(np.uint16)
    file = io.BytesIO()
    Image.fromarray(array).save(file, format="png")
    return file.getvalue()


def bomb() -> bytes:
    """A PNG file that announces 5,000 x 5,000 pixels."""
    head = struct.pack(">IIBBBBB", 5_000, 5_000, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(b"")), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )


def file(name: str, content: bytes) -> dict[str, Any]:
    return {"name": name, "mimeType": "application/octet-stream", "buffer": content}


def test_files_that_are_no_good_are_named_and_the_others_used(page: Any) -> None:
    good = encode_image(torch.rand(3, 70, 90))
    page.set_input_files("#file", [
        file("good.png", good), file("gray.png", deep_gray()), file("cut.png", good[:2000]),
        file("bomb.png", bomb()), file("notes.txt", b"no picture at all"),
        file("big.png", good + bytes(3_000_000)), file("<img src=x>.png", b""),
    ])  # fmt: skip
    page.wait_for_selector("#refused:not([hidden])")
    said = page.inner_text("#refused").splitlines()
    assert [line.split(":")[0] for line in said] == [
        "cut.png", "bomb.png", "notes.txt", "big.png", "<img src=x>.png",
    ]  # fmt: skip
    assert "damaged" in said[0]
    assert "5000 x 5000" in said[1]
    assert "no picture" in said[2]
    assert "too large" in said[3]
    assert page.locator("#gallery button").count() == 8
    assert page.get_attribute("#gallery [aria-label='gray.png']", "aria-pressed") == "true"
    run(page)  # gray stays gray
    pixels = page.evaluate(
        "() => [...document.querySelector('#compare .under').getContext('2d')"
        ".getImageData(40, 40, 1, 1).data]"
    )
    assert pixels[0] == pixels[1] == pixels[2]
    # the same kinds dropped together: one is good
    page.evaluate(
        """bytes => { const files = new DataTransfer();
        const parts = {"cut again.png": bytes.slice(0, 2000), "more.txt": [110, 111],
          "huge.png": new Array(3000000).fill(0), "dropped.png": bytes};
        for (const [name, part] of Object.entries(parts))
          files.items.add(new File([new Uint8Array(part)], name));
        window.dispatchEvent(new DragEvent("drop", {dataTransfer: files, cancelable: true})); }""",
        list(good),
    )
    page.wait_for_selector("#gallery [aria-label='dropped.png'][aria-pressed=true]")
    assert [line.split(":")[0] for line in page.inner_text("#refused").splitlines()] == [
        "cut again.png", "more.txt", "huge.png",
    ]  # fmt: skip
    assert page.locator("#gallery button").count() == 9
    # damaged already
    page.select_option("#simulate", "no")
    assert page.locator("#side").is_disabled()
    run(page)
    assert "PSNR" not in page.inner_text("#facts")
    assert "--simulate" not in page.inner_text("#command")


def test_a_long_run_is_cancelled_while_another_page_waits(browser: Any, address: str) -> None:
    troubles: list[str] = []
    first, second = (opened(browser, address, troubles, width) for width in (1280, 400))
    first.fill("#iterations", "200")
    first.select_option("#side", "512")
    first.click("#run")
    first.wait_for_function("() => Number(document.querySelector('#iteration').max) >= 1")
    second.click("#run")
    second.wait_for_function(
        "() => document.querySelector('#status').textContent.includes('before')"
    )
    first.click("#cancel")
    first.wait_for_selector("#run:enabled")
    assert first.inner_text("#status") == "Cancelled."
    done(second)
    assert second.evaluate("document.documentElement.scrollWidth") <= 400
    box = second.locator("#compare").bounding_box()
    assert box["width"] == pytest.approx(box["height"], rel=0.02)  # astronaut is square
    assert first.locator("#history tr").count() == 0
    assert second.locator("#history tr").count() == 1
    assert troubles == []
    first.context.close()
    second.context.close()


def test_a_denoiser_is_adapted_and_used(page: Any) -> None:
    page.click("#adapting > summary")
    assert page.locator("#adapt").is_disabled()
    page.check("#samples [value=immunohistochemistry]")
    page.select_option("#source", "lpn-photographs")
    page.fill("#budget", "1")
    page.click("#adapt")
    page.wait_for_selector("#evidence:not([hidden])")
    page.wait_for_selector("#run:enabled")
    assert page.locator("#candidates tr").count() >= 1
    assert "held-out" in page.inner_text("#evidence-text")
    assert page.input_value("#denoiser") == "lpn-photographs adapted 1"
    with page.expect_download() as found:
        page.click("#adapted-download a")
    with zipfile.ZipFile(found.value.path()) as archive:
        assert any(name.endswith("config.json") for name in archive.namelist())
    run(page)
    assert "adapted 1" in page.inner_text("#history")


def test_a_choice_that_is_left_to_the_app_begins_with_a_first_look(page: Any) -> None:
    page.select_option("#denoiser", "auto")
    page.click("#run")
    page.wait_for_function(
        "() => document.querySelector('#facts').textContent.includes('first look')"
    )
    page.wait_for_function("() => document.querySelector('#facts').textContent.includes('tried')")
    page.click("#cancel")
    page.wait_for_selector("#run:enabled")
    assert page.inner_text("#status") == "Cancelled."
