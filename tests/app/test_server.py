"""The server without a browser: what it refuses, and that it ends cleanly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from proxmatch import cli
from proxmatch.app.jobs import Job, JobStatus, Worker
from proxmatch.app.limits import Limits
from proxmatch.app.pages import Pages, crops_of, uploaded
from proxmatch.app.runs import offered
from proxmatch.data import encode_image
from proxmatch.errors import InputError


def ask(
    address: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, dict[str, str], Any]:
    request = urllib.request.Request(  # noqa: S310
        address + path, body, {key.replace("_", "-"): value for key, value in headers.items()}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read()


@pytest.fixture(scope="module")
def page(address: str) -> str:
    status, _, said = ask(address, "api/page", b"", X_Proxmatch_Page="new")
    assert status == 200
    name: str = json.loads(said)["page"]
    return name


def test_the_browser_is_told_to_fetch_nothing_from_elsewhere(address: str) -> None:
    status, headers, text = ask(address, "")
    assert status == 200
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert b"http" not in text.replace(b"http-equiv", b"")


@pytest.mark.parametrize(
    "headers", [{"Host": "attacker.example"}, {"Origin": "http://attacker.example"}]
)
def test_strangers_are_refused(address: str, page: str, headers: dict[str, str]) -> None:
    assert ask(address, "api/choices", **headers)[0] == 403
    sent = {"X_Proxmatch_Page": page, **headers}
    assert ask(address, "api/reconstruct", b'{"picture": "cat"}', **sent)[0] == 403


def test_a_request_without_a_page_changes_nothing(address: str) -> None:
    status, _, said = ask(address, "api/reconstruct", b'{"picture": "cat"}')
    assert status == 400
    assert "load it again" in json.loads(said)["error"]


@pytest.mark.parametrize(
    ("wish", "named"),
    [
        (b"not json", "JSON"),
        (b'{"picture": "cat", "iterations": 1000000}', "iterations"),
        (b'{"picture": "cat", "strength": -1}', "strength"),
        (b'{"picture": "cat", "more": 1}', "more"),
        (b'{"picture": "../../etc/passwd"}', "picture"),
    ],
)
def test_nonsense_is_named(address: str, page: str, wish: bytes, named: str) -> None:
    status, _, said = ask(address, "api/reconstruct", wish, X_Proxmatch_Page=page)
    assert status == 400
    assert named in json.loads(said)["error"]


@pytest.mark.parametrize(
    ("wish", "named"),
    [
        ({"problem": "inpainting", "options": {"mask": "/etc/passwd"}}, "no option 'mask'"),
        ({"problem": "inpainting", "options": {"unknown": 1}}, "no option 'unknown'"),
        ({"problem": "deblurring", "options": {"noise": "loud"}}, "noise cannot be 'loud'"),
        ({"problem": "kernel-deblurring"}, "command line"),
        ({"problem": "deblurring", "options": {"kernel_size": 4}}, "kernel_size"),
        ({"denoiser": "../weights"}, "no denoiser"),
    ],
)
@pytest.mark.parametrize("work", ["reconstruct", "adapt"])
def test_a_job_that_cannot_be_done_says_why(
    address: str, page: str, work: str, wish: dict[str, Any], named: str
) -> None:
    usual = {
        "reconstruct": {"picture": "cat", "side": 64, "iterations": 1},
        "adapt": {"pictures": ["cat"], "denoiser": "gs-photographs", "budget": 1, "side": 128},
    }
    body = json.dumps({**usual[work], **wish}).encode()
    _, _, said = ask(address, f"api/{work}", body, X_Proxmatch_Page=page)
    job = json.loads(said)["job"]
    for _ in range(600):
        state = json.loads(ask(address, f"api/jobs/{page}/{job}")[2])
        if state["status"] in ("done", "failed"):
            break
        time.sleep(0.05)
    assert state["status"] == "failed"
    assert named in state["error"]


def test_no_option_on_offer_names_a_file() -> None:
    names = {option["name"] for each in offered() for option in each["options"]}
    assert {"noise", "factor"} <= names
    assert not {"mask", "kernel"} & names


def test_an_upload_is_cut_off_at_its_limit(address: str, page: str) -> None:
    status, _, said = ask(address, "api/pictures", bytes(3_000_000), X_Proxmatch_Page=page)
    assert status == 400
    assert "too large" in json.loads(said)["error"]


def test_pictures_are_kept_as_their_files_up_to_a_bound() -> None:
    """A picture of 16 bits is what it was, and one too many is named; the others stay."""
    pixels = torch.rand(3, 200, 200, generator=torch.Generator().manual_seed(0))
    content = encode_image(pixels, bits=16)
    picture = uploaded("C:\\deep\\one.png", content)
    assert (picture.name, picture.bits, picture.size) == ("one.png", 16, (200, 200))
    torch.testing.assert_close(picture.pixels, pixels, rtol=0, atol=1e-5)
    assert not any(isinstance(value, torch.Tensor) for value in vars(picture).values())
    pages = Pages(Limits(pictures=4, kept=2 * len(content) + 9))
    page = pages.find(pages.open()[0])
    kept = [pages.keep(page, picture) for _ in range(2)]
    with pytest.raises(InputError, match=r"with one.png the pictures .* load the page again"):
        pages.keep(page, picture)
    assert list(page.pictures) == kept
    small = uploaded("small.png", encode_image(torch.zeros(1, 16, 16)))
    pages = Pages(Limits(pictures=2, kept=len(content) + 2 * len(small.content)))
    page = pages.find(pages.open()[0])
    for each in (picture, small, picture):  # the first one is forgotten for the last
        pages.keep(page, each)
    assert len(page.pictures) == 2


def test_what_is_adapted_to_has_a_bound() -> None:
    picture = uploaded("one.png", encode_image(torch.rand(1, 100, 100)))
    assert len(crops_of([picture] * 3, 64, None, Limits(adapted=30_000))) == 3
    with pytest.raises(InputError, match=r"up to one\.png these are more than 29,999 pixels"):
        crops_of([picture] * 3, 64, None, Limits(adapted=29_999))


def test_a_job_is_cancelled_inside_its_network() -> None:
    worker, began = Worker(), threading.Event()
    layer = nn.Identity()

    def endless(job: Job) -> None:
        began.set()
        while True:
            layer(1)
            time.sleep(0.001)

    first, second, third = Job(endless, ""), Job(endless, ""), Job(lambda job: None, "")
    for job in (first, second, third):
        worker.submit(job)
    assert began.wait(30)
    assert worker.ahead(third) == 2
    worker.cancel(second)  # it waits
    assert second.status is JobStatus.CANCELLED
    worker.cancel(first)  # it runs
    for _ in range(1000):
        if third.ended:
            break
        time.sleep(0.01)
    assert (first.status, third.status) == (JobStatus.CANCELLED, JobStatus.DONE)
    worker.close()


def test_a_defect_in_a_job_does_not_end_the_worker(caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker()
    bad, good = Job(lambda job: 1 / 0, ""), Job(lambda job: None, "")  # type: ignore[arg-type, return-value]
    worker.submit(bad)
    worker.submit(good)
    for _ in range(1000):
        if good.ended:
            break
        time.sleep(0.01)
    worker.close()
    assert good.status is JobStatus.DONE
    assert bad.status is JobStatus.FAILED
    assert "ZeroDivisionError" in bad.error


def test_ctrl_c_ends_it_cleanly(tmp_path: Path) -> None:
    run = subprocess.Popen(
        [sys.executable, "-m", "proxmatch", "app", "--port", "0", "--no-open", "--threads", "1"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert run.stderr is not None
    address = run.stderr.readline().split(" at ")[1].split()[0]
    assert ask(address, "")[0] == 200
    run.send_signal(signal.SIGINT)
    said = run.stderr.read()
    assert run.wait(30) == 0
    assert "ended" in said
    assert "Traceback" not in said
    assert not list(tmp_path.iterdir())


def test_a_port_in_use_is_named(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    port = address.rstrip("/").rpartition(":")[2]
    assert cli.run(["app", "--no-open", "--port", port]) == 2
    assert "--port" in capsys.readouterr().err
