"""The app on a free port, in a thread, as ``proxmatch app`` runs it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

uvicorn = pytest.importorskip("uvicorn")


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    from proxmatch.app.limits import Limits
    from proxmatch.app.server import application

    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    app = application(limits=Limits(upload=2_000_000, pixels=1_000_000))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    server.should_exit = True
    thread.join()
