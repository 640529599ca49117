"""The server: a page, a few addresses that speak JSON, and nothing that leaves this machine.

- Only requests to this machine's own names are answered, against DNS rebinding, and only those
  from this page may change anything.
- The page runs its own script and style; the browser is told to fetch nothing from elsewhere.
- Uploads are cut off at their limit while they are read.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxmatch import __version__
from proxmatch.app import pages
from proxmatch.app.adapting import AdaptWish, adapt
from proxmatch.app.denoisers import Denoisers, choices
from proxmatch.app.jobs import Job, Worker
from proxmatch.app.limits import LIMITS, Limits
from proxmatch.app.pages import EMBEDDED, Dropped, Page, Pages
from proxmatch.app.runs import Wish, offered, reconstruct
from proxmatch.errors import InputError, ProxmatchError

#: Files of the page, by name: package, folder and kind.
ASSETS = {
    "page.css": ("proxmatch.report", "assets", "text/css"),
    "parts.css": ("proxmatch.report", "assets", "text/css"),
    "common.js": ("proxmatch.report", "assets", "text/javascript"),
    "chart.js": ("proxmatch.report", "assets", "text/javascript"),
    "app.css": ("proxmatch.app", "static", "text/css"),
    "app.js": ("proxmatch.app", "static", "text/javascript"),
}
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}
#: The page sends its id in this header, which no form and no other page can.
PAGE = "x-proxmatch-page"
#: Bytes of a request that is no picture.
SMALL = 100_000

Answer = Callable[[Request], Awaitable[Response]]


class Guard:
    """Refuses what does not come from this machine's own page, and adds the headers."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)

        async def dressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        if not self._ours(headers.get("host", ""), headers.get("origin")):
            refusal = JSONResponse({"error": "this address is not served here"}, status_code=403)
            await refusal(scope, receive, dressed)
            return
        await self.app(scope, receive, dressed)

    def _ours(self, host: str, origin: str | None) -> bool:
        """Whether a request is to this machine, and from its page or from no page."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
            return name in self.hosts and (origin is None or urlsplit(origin).netloc == host)
        except ValueError:  # no address at all
            return False


class Server:
    """What the addresses do."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.limits = limits
        self.pages, self.worker, self.denoisers = Pages(limits), Worker(), Denoisers()
        self._thumbs: dict[str, bytes] = {}
        self._choices: dict[str, Any] | None = None

    def routes(self) -> list[Route]:
        """All addresses."""
        return [
            Route("/", self._html),
            Route("/assets/{name}", self._asset),
            Route("/api/choices", _safe(self._offer)),
            Route("/api/page", _safe(self._open), methods=["POST"]),
            Route("/api/embedded/{name}", _safe(self._embedded)),
            Route("/api/pictures", _safe(self._upload), methods=["POST"]),
            Route("/api/reconstruct", _safe(self._reconstruct), methods=["POST"]),
            Route("/api/adapt", _safe(self._adapt), methods=["POST"]),
            Route("/api/jobs/{page}/{job}", _safe(self._state)),
            Route("/api/jobs/{page}/{job}", _safe(self._cancel), methods=["DELETE"]),
            Route("/api/jobs/{page}/{job}/frames/{run:int}/{number:int}", _safe(self._frame)),
            Route("/api/jobs/{page}/{job}/pictures/{name}", _safe(self._picture)),
            Route("/api/jobs/{page}/{job}/files/{name}", _safe(self._file)),
        ]

    async def _html(self, request: Request) -> Response:
        text = (files("proxmatch.app") / "static" / "app.html").read_text(encoding="utf-8")
        return Response(text, media_type="text/html")

    async def _asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in ASSETS:
            return Response(status_code=404)
        package, folder, kind = ASSETS[name]
        return Response((files(package) / folder / name).read_bytes(), media_type=kind)

    async def _offer(self, request: Request) -> Response:
        if self._choices is None:
            self._choices = {
                "version": __version__,
                "pictures": list(EMBEDDED),
                "problems": offered(),
                "denoisers": await run_in_threadpool(choices),
                "limits": {"upload": self.limits.upload, "iterations": self.limits.iterations},
            }
        return JSONResponse(self._choices)

    async def _open(self, request: Request) -> Response:
        if request.headers.get(PAGE) != "new":
            raise InputError("a new page must say that it is new")
        name, gone = self.pages.open()
        for job in gone:
            self.worker.cancel(job)
        return JSONResponse({"page": name})

    async def _embedded(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._thumbs:
            picture = pages.embedded(name)
            self._thumbs[name] = await run_in_threadpool(pages.thumbnail, picture)
        return Response(self._thumbs[name], media_type="image/png")

    async def _upload(self, request: Request) -> Response:
        page = self._page(request)
        content = await _body(request, self.limits.upload)
        name = request.query_params.get("name", "picture")
        picture = await run_in_threadpool(pages.uploaded, name, content, self.limits)
        height, width = picture.size
        key = self.pages.keep(page, picture)
        return JSONResponse(
            {"id": key, "name": picture.name, "width": width, "height": height}, status_code=201
        )

    async def _reconstruct(self, request: Request) -> Response:
        page = self._page(request)
        wish = await _wish(request, Wish)
        picture = _found(page, wish.picture)
        return self._submit(
            request, page, lambda job: reconstruct(job, wish, picture, page, self.denoisers)
        )

    async def _adapt(self, request: Request) -> Response:
        page = self._page(request)
        wish = await _wish(request, AdaptWish)
        pictures = [_found(page, each) for each in wish.pictures]
        return self._submit(
            request, page, lambda job: adapt(job, wish, pictures, page, self.denoisers)
        )

    def _submit(self, request: Request, page: Page, work: Callable[[Job], None]) -> Response:
        job = Job(work, request.headers[PAGE])
        self.pages.add(page, job)
        self.worker.submit(job)
        return JSONResponse({"job": job.id}, status_code=202)

    async def _state(self, request: Request) -> Response:
        job = self._job(request)
        return JSONResponse({**job.state(), "ahead": self.worker.ahead(job)})

    async def _cancel(self, request: Request) -> Response:
        self._page(request)
        self.worker.cancel(self._job(request))
        return Response(status_code=204)

    async def _frame(self, request: Request) -> Response:
        job = self._job(request)
        run, number = request.path_params["run"], request.path_params["number"]
        with job.lock:
            if run != job.run or not 0 <= number < len(job.frames):
                return Response(status_code=404)
            return Response(job.frames[number], media_type="image/jpeg")

    async def _picture(self, request: Request) -> Response:
        job = self._job(request)
        content = job.pictures.get(request.path_params["name"])
        if content is None:
            return Response(status_code=404)
        return Response(content, media_type="image/png")

    async def _file(self, request: Request) -> Response:
        job, name = self._job(request), request.path_params["name"]
        if name not in job.files:
            return Response(status_code=404)
        told = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(job.files[name], media_type="application/zip", headers=told)

    def _page(self, request: Request) -> Page:
        return self.pages.find(request.headers.get(PAGE, ""))

    def _job(self, request: Request) -> Job:
        page = self.pages.find(request.path_params["page"])
        job = page.jobs.get(request.path_params["job"])
        if job is None:
            raise InputError("this run is no longer here; start it again")
        return job


def application(
    hosts: frozenset[str] = frozenset({"localhost", "127.0.0.1", "::1"}), limits: Limits = LIMITS
) -> ASGIApp:
    """The app, which answers under the given names of this machine."""
    server = Server(limits)

    @asynccontextmanager
    async def life(app: Starlette) -> Any:
        yield
        await run_in_threadpool(server.worker.close)

    return Guard(Starlette(routes=server.routes(), lifespan=life), hosts)


def _safe(answer: Answer) -> Answer:
    """Errors raised on purpose as one line of JSON."""

    async def answered(request: Request) -> Response:
        try:
            return await answer(request)
        except ProxmatchError as error:
            return JSONResponse({"error": str(error)}, status_code=400)

    return answered


async def _body(request: Request, most: int) -> bytes:
    """The body of a request; one that is too long is an error."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise InputError(f"the file is too large: at most {most // 10**6} MB")
        parts.append(part)
    return b"".join(parts)


async def _wish(request: Request, kind: type[Any]) -> Any:
    try:
        given: Mapping[str, Any] = json.loads(await _body(request, SMALL))
        wish: BaseModel = kind.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"{where}: {first['msg']}") from None
    except (ValueError, RecursionError):
        raise InputError("the request is not JSON") from None
    return wish


def _found(page: Page, key: str) -> Dropped:
    if key in EMBEDDED:
        return pages.embedded(key)
    if key not in page.pictures:
        raise InputError("this picture is no longer here; add it again")
    return page.pictures[key]
