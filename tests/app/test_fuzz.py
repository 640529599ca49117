"""Anything at all sent to the app: an answer in one line, no defect."""

from __future__ import annotations

import asyncio
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from PIL import Image

pytest.importorskip("starlette")

from proxmatch.app.adapting import AdaptWish
from proxmatch.app.jobs import Worker
from proxmatch.app.limits import Limits
from proxmatch.app.runs import Wish
from proxmatch.app.server import application
from tests.fuzz import damaged, edits, harmless, parts, usual, values

PATHS = (
    "/", "/assets/app.js", "/api/choices", "/api/page", "/api/embedded/cat", "/api/pictures",
    "/api/reconstruct", "/api/adapt", "/api/jobs/a/b", "/api/jobs/a/b/frames/0/0",
    "/api/jobs/a/b/pictures/x", "/api/jobs/a/b/files/x",
)  # fmt: skip
LIMITS = Limits(upload=20_000, pixels=10_000)


@pytest.fixture(scope="module")
def app() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Worker, "submit", lambda self, job: None)  # what is asked for is not done
        yield application(limits=LIMITS)


@pytest.fixture(scope="module")
def page(app: Any) -> str:
    _, said = ask(app, "/api/page", "POST", b"", {"x-proxmatch-page": "new"})
    name: str = json.loads(said)["page"]
    return name


@pytest.fixture(scope="module")
def picture() -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (20, 24, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def ask(
    app: Any, path: str, method: str, body: bytes, headers: dict[str, str], query: bytes = b""
) -> tuple[int, bytes]:
    """One request, without a socket; whatever the app raises is raised."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    named = {"host": "127.0.0.1:8000", **headers}
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
        "scheme": "http", "path": path, "raw_path": path.encode("utf-8", "surrogatepass"),
        "query_string": query, "root_path": "", "client": ("127.0.0.1", 1), "server": None,
        "headers": [(k.encode(), v.encode("latin-1", "replace")) for k, v in named.items()],
    }  # fmt: skip
    with harmless(Path(tempfile.gettempdir())):
        asyncio.run(app(scope, receive, send))
    policy = dict(sent[0]["headers"])[b"content-security-policy"]
    assert b"default-src 'none'" in policy
    return sent[0]["status"], b"".join(part.get("body", b"") for part in sent[1:])


def check(answer: tuple[int, bytes]) -> None:
    status, said = answer
    assert status < 500
    if status == 400:
        assert json.loads(said)["error"]


@usual(80)
@given(
    path=st.sampled_from(PATHS) | st.text(max_size=30).map(lambda text: f"/{text}"),
    method=st.sampled_from(["GET", "POST", "DELETE", "PUT", "HEAD", "OPTIONS"]),
    body=st.binary(max_size=60),
    name=st.sampled_from(["host", "origin", "x-proxmatch-page", "content-length", "other"]),
    value=st.text(max_size=20),
    query=st.binary(max_size=20),
)
@example(path="/", method="GET", body=b"", name="host", value="[", query=b"")
@example(path="/", method="GET", body=b"", name="origin", value="http://[", query=b"")
def test_requests(
    app: Any, path: str, method: str, body: bytes, name: str, value: str, query: bytes
) -> None:
    check(ask(app, path, method, body, {name: value}, query))


fields = st.sampled_from([*Wish.model_fields, *AdaptWish.model_fields, "more"])


@usual(80)
@given(
    path=st.sampled_from(["/api/reconstruct", "/api/adapt"]),
    wish=st.dictionaries(fields, values, max_size=5) | values,
    known=st.booleans(),
)
@example(path="/api/adapt", wish=b"[" * 90_000, known=False)
def test_wishes(app: Any, page: str, path: str, wish: Any, known: bool) -> None:
    if known and isinstance(wish, dict):
        wish |= {"picture": "cat"} if path.endswith("reconstruct") else {"pictures": ["cat"]}
    body = wish if isinstance(wish, bytes) else json.dumps(wish).encode()
    check(ask(app, path, "POST", body, {"x-proxmatch-page": page}))


@usual(60)
@given(changes=edits, keep=parts, data=st.none() | st.binary(max_size=200), query=st.binary())
def test_uploads(
    app: Any,
    page: str,
    picture: bytes,
    changes: list[tuple[float, bytes]],
    keep: float,
    data: bytes | None,
    query: bytes,
) -> None:
    content = damaged(picture, changes, keep) if data is None else data
    sent = {"x-proxmatch-page": page}
    check(ask(app, "/api/pictures", "POST", content, sent, b"name=" + query))
