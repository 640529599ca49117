from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pretended import AVAILABLE


@pytest.mark.skipif(not AVAILABLE, reason="this PyTorch has no devices that are written in Python")
def test_everything_works_on_a_device_that_is_not_there() -> None:
    tests = Path(__file__).with_name("elsewhere.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", tests],
        cwd=tests.parent.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:]
