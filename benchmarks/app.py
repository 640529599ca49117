"""The app as a person meets it: seconds from the click to the first picture, and to the last.

    python -m benchmarks.app [--side 256] [--screens FOLDER]

The server is a process of its own, as a user would start it; Chromium is driven by Playwright. The
first click of a fresh server is the slowest, so that each denoiser is asked for on a fresh one.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright
from rich.console import Console
from rich.table import Table

#: The app's own choice, and what it chooses from.
DENOISERS = ("auto", "gs-photographs", "lpn-photographs", "tv")
FIRST = "() => Number(document.querySelector('#iteration').max) >= 1"
PATIENCE = 600_000  # ms


def main() -> None:
    """Measure each denoiser, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", default="256")
    parser.add_argument("--screens", type=Path, help="folder for pictures of the page")
    args = parser.parse_args()
    table = Table(title=f"seconds after the click, {args.side} x {args.side}")
    for column in ("denoiser", "first iterate", "done"):
        table.add_column(column, justify="left" if column == "denoiser" else "right")
    with sync_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for name in DENOISERS:
            with _server() as address:
                page = browser.new_page(viewport={"width": 1280, "height": 800})
                page.set_default_timeout(PATIENCE)
                page.goto(address)
                page.wait_for_selector("#run:enabled")
                page.select_option("#side", args.side)
                page.select_option("#denoiser", name)
                first, done = _clicked(page)
                if args.screens is not None:
                    args.screens.mkdir(parents=True, exist_ok=True)
                    page.screenshot(path=args.screens / f"{name}.png", full_page=True)
                    page.set_viewport_size({"width": 400, "height": 800})
                    page.screenshot(path=args.screens / f"{name}-phone.png", full_page=True)
                page.close()
            table.add_row(name, f"{first:.1f}", f"{done:.1f}")
        browser.close()
    Console().print(table)


def _clicked(page: Page) -> tuple[float, float]:
    began = time.perf_counter()
    page.click("#run")
    page.wait_for_function(FIRST)
    first = time.perf_counter() - began
    page.wait_for_selector("#run:enabled")
    return first, time.perf_counter() - began


@contextmanager
def _server() -> Iterator[str]:
    words = [sys.executable, "-m", "proxmatch", "app", "--port", "0", "--no-open"]
    run: subprocess.Popen[Any] = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert run.stderr is not None  # noqa: S101
    try:
        yield run.stderr.readline().split(" at ")[1].split()[0]
    finally:
        run.terminate()
        run.wait()


if __name__ == "__main__":
    main()
