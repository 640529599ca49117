"""What a device is, and how much memory a process has had."""

from __future__ import annotations

import sys

import pytest
import torch

from proxmatch._internal.hardware import peak_memory_mb


def test_peak_memory_grows_by_what_is_allocated() -> None:
    before = peak_memory_mb()
    assert torch.ones(64 + int(before), 2**18).sum() > 0  # rows of 1 MiB, more than all before
    assert peak_memory_mb() >= before + 60


def test_bytes_are_told_apart_from_kilobytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    kilobytes = peak_memory_mb()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert peak_memory_mb() == pytest.approx(kilobytes / 1024, rel=0.01)
