"""Pieces of work side by side: at once, on one thread each, and ended when nobody waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
import torch

from proxmatch.demo.cores import Stopped, side_by_side


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_two_pieces_run_at_once_on_one_thread_each() -> None:
    meeting = threading.Barrier(2)

    def piece() -> int:
        meeting.wait(60)  # raises if the other one is not there
        return torch.get_num_threads()

    with side_by_side() as begin:
        found = [begin(piece) for _ in range(2)]
        assert [each.result() for each in found] == [1, 1]
    assert torch.get_num_threads() == 2


def test_an_error_in_a_piece_is_that_of_the_block() -> None:
    with pytest.raises(ZeroDivisionError), side_by_side() as begin:
        begin(divmod, 1, 0).result()


def test_ctrl_c_ends_what_runs_and_what_waits() -> None:
    network, running = torch.nn.Identity(), threading.Event()

    def endless() -> None:
        while True:
            network(torch.zeros(1))
            running.set()

    pieces: list[Future[Any]] = []

    def interrupted() -> None:
        with side_by_side() as begin:
            pieces.extend(begin(endless) for _ in range(3))
            running.wait(60)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [type(each.exception()) for each in pieces[:2]] == [Stopped, Stopped]
    assert pieces[2].cancelled()
    network(torch.zeros(1))  # the next one is not ended
