"""Behavior through the real command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from proxmatch.denoisers import shipped

PROXMATCH = Path(sys.executable).with_name("proxmatch")


def run(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(PROXMATCH), *args], capture_output=True, text=True, cwd=cwd, timeout=300
    )


def test_info_names_the_models() -> None:
    done = run("info")
    assert done.returncode == 0
    assert all(name in done.stdout.replace("\n", " ") for name in shipped())
    assert "deepinv" in done.stdout


def test_the_package_runs_as_a_module() -> None:
    wanted = run("--version").stdout
    command = [sys.executable, "-m", "proxmatch", "--version"]
    assert subprocess.run(command, capture_output=True, text=True).stdout == wanted != ""


@pytest.mark.parametrize("args", [("nonsense",), ("demo", "--nonsense"), ("demo", "--out")])
def test_wrong_use_exits_with_2(args: tuple[str, ...]) -> None:
    done = run(*args)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.strip()


def test_an_output_folder_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    done = run("demo", "--out", str(tmp_path / "file"))
    assert done.returncode == 2
    assert done.stderr.startswith("error:")
    assert len(done.stderr.strip().splitlines()) == 1
    assert (tmp_path / "file").read_text() == "mine"


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = (
        "import proxmatch, sys; print('torch' in sys.modules); proxmatch.load; proxmatch.pnp_pgd;"
        "print('torchmetrics' in sys.modules, 'matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.stdout.split() == ["False", "False", "False"], done.stderr


def test_every_public_name_exists() -> None:
    import proxmatch

    for name in proxmatch.__all__:
        assert getattr(proxmatch, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        _ = proxmatch.nothing  # type: ignore[attr-defined]
