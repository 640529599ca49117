"""What is sent to the workers of a cluster, whose devices have other numbers than the driver's."""

from __future__ import annotations

import pickle
from functools import partial

import pytest
import torch

from proxmatch._internal.parcels import Parcel, packed, unpacked
from tests.denoisers.zoo import DENOISERS

CPU = torch.device("cpu")


def test_a_parcel_holds_what_was_packed() -> None:
    model = DENOISERS["gs"]().eval()
    x = torch.rand(1, model.channels, 16, 16)
    sent = packed(partial(model, x))
    assert sent.sender == CPU
    assert torch.equal(unpacked(pickle.loads(pickle.dumps(sent)))(), model(x))


def test_functions_without_a_name() -> None:
    pytest.importorskip("ray")
    x = torch.rand(3)
    assert torch.equal(unpacked(packed(lambda: 2 * x))(), 2 * x)


def test_nothing_in_a_parcel_names_a_device_of_the_sender() -> None:
    """The second GPU here is the first of a worker, and the other way round."""
    place = torch.device("cuda", 1)
    content = packed([place, place]).content
    for receiver in (CPU, torch.device("cuda", 0)):
        assert unpacked(Parcel(content, place), receiver) == [receiver] * 2
