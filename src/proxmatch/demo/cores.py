"""Pieces of work side by side, one per core.

On small pictures one piece on two cores is hardly faster than on one: two pieces at a time are.
Each is done on a single thread, so what it finds does not depend on how many there are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

T = TypeVar("T")
Begin = Callable[..., "Future[Any]"]


class Stopped(BaseException):
    """Raised inside a piece of work whose result nobody waits for any more."""


@contextmanager
def side_by_side() -> Iterator[Begin]:
    """Yields a function that begins work; as many pieces run at once as PyTorch has threads.

    When the block ends with an exception, such as Ctrl-C, the pieces end at their next call of a
    network.

    Example:
        >>> with side_by_side() as begin:
        ...     found = [begin(pow, 2, n) for n in (3, 4)]
        >>> [each.result() for each in found]
        [8, 16]
    """
    threads = torch.get_num_threads()
    stopped, caller = threading.Event(), threading.get_ident()

    def look(module: nn.Module, inputs: Any) -> None:
        if stopped.is_set() and threading.get_ident() != caller:
            raise Stopped

    hook = register_module_forward_pre_hook(look)
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads, "proxmatch-demo", torch.set_num_threads, (1,)) as pool:
            try:
                yield pool.submit
            except BaseException:
                stopped.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
    finally:
        hook.remove()
        torch.set_num_threads(threads)
