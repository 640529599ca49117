"""``proxmatch app``: a page in the browser, on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from proxmatch.commands import _screen
from proxmatch.commands._options import Open, Threads, compute
from proxmatch.errors import InputError


def command(
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any free port")] = 8765,
    host: Annotated[
        str,
        typer.Option(help="address to listen on; with any other, other machines may use the app"),
    ] = "127.0.0.1",
    show: Open = None,
    threads: Threads = None,
) -> None:
    """Try denoisers on pictures in the browser: damage, reconstruct, adapt, compare, download.

    Unless --host says otherwise, only this machine can open the page. Ctrl-C ends it.

    Example: proxmatch app --port 8765
    """
    try:
        import starlette
        import uvicorn
    except ImportError as error:
        raise InputError(
            "the app needs starlette and uvicorn: pip install 'proxmatch[app]'"
        ) from error
    del starlette
    import asyncio
    import contextlib
    import socket

    kind = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(kind)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen()
    except OSError as error:
        listening.close()
        reason = error.strerror or str(error)
        raise InputError(
            f"cannot listen at {host}, port {port}: {reason}; choose another --port"
        ) from error
    from proxmatch.app.server import application

    compute("cpu", threads)
    names = {"localhost", "127.0.0.1", "::1", host.lower()}
    if host in ("0.0.0.0", "::"):  # noqa: S104  asked for
        names |= {socket.gethostname().lower(), *_addresses()}
    config = uvicorn.Config(
        application(frozenset(names)),
        log_level="warning",
        lifespan="on",
        timeout_graceful_shutdown=2,
    )
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}/"
    _screen.say(f"proxmatch app at {address} (Ctrl-C ends it)")
    if _screen.there_is_one() if show is None else show:
        typer.launch(address)
    server = uvicorn.Server(config)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(server.serve(sockets=[listening]))
    _screen.say("the app has ended")


def _addresses() -> set[str]:
    """The addresses of this machine, for a server that listens at all of them."""
    import socket

    try:
        found = socket.getaddrinfo(socket.gethostname(), None)
    except OSError:
        return set()
    return {str(each[4][0]).lower() for each in found}
