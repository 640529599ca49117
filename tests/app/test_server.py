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
from torch import nn

from proxmatch import cli
from proxmatch.app.jobs import Job, JobStatus, Worker
from proxmatch.app.runs import offered


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
        ({"problem": "inpainting", "options": {"mask": "/etc/passwd"}}, "mask"),
        ({"problem": "kernel-deblurring"}, "command line"),
        ({"denoiser": "../weights"}, "no denoiser"),
        ({"problem": "deblurring", "options": {"kernel_size": 4}}, "kernel_size"),
    ],
)
def test_a_job_that_cannot_be_done_says_why(
    address: str, page: str, wish: dict[str, Any], named: str
) -> None:
    body = json.dumps({"picture": "cat", "side": 64, "iterations": 1, **wish}).encode()
    _, _, said = ask(address, "api/reconstruct", body, X_Proxmatch_Page=page)
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
