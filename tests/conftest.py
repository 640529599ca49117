from __future__ import annotations

import os

import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile(
    "proxmatch",
    deadline=None,
    max_examples=25,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
# HYPOTHESIS_PROFILE=many: for a night, with other examples each time; none may hang.
settings.register_profile(
    "many", settings.get_profile("proxmatch"), max_examples=2500, derandomize=False, deadline=10_000
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "proxmatch"))


def pytest_configure(config: pytest.Config) -> None:
    """Make our own warnings errors.

    Not in pyproject.toml: pytest would import proxmatch before coverage begins to measure it.
    """
    config.addinivalue_line("filterwarnings", "error::proxmatch.errors.ProxmatchWarning")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
