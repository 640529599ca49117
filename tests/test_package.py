"""What somebody gets who installs the wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

from proxmatch import __version__
from proxmatch.denoisers import shipped

ROOT = Path(__file__).parents[1]

#: Wrong uses are marked. mypy complains of a mark without an error, so each must be one.
CONSUMER = """
import proxmatch as pm
from proxmatch.metrics import psnr

crops = pm.embedded("photographs").test
few = pm.few_shot(pm.embedded("histology"), 5, set_seed=0)
names: tuple[str, ...] = few.names
problem: pm.Problem = pm.gaussian_deblurring(64)
denoiser: pm.ProximalDenoiser = pm.load("lpn-faces")

pm.embedded("cats")  # type: ignore[arg-type]
pm.gaussian_deblurring(64.0)  # type: ignore[arg-type]
pm.few_shot("photographs", 5, set_seed=0)  # type: ignore[arg-type]
pm.no_such_name  # type: ignore[attr-defined]
psnr(crops)  # type: ignore[call-arg]
numbers: tuple[int, ...] = few.names  # type: ignore[assignment]
"""
#: Followed, it would take three times as long.
SETTINGS = """
[mypy]
strict = True

[mypy-deepinv.*,torch.*,torchvision.*]
follow_imports = skip
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked where an installer would."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=120)
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_the_wheel_holds_everything_the_package_reads(installed: Path) -> None:
    there = {file.relative_to(installed).as_posix() for file in installed.rglob("*")}
    package = ROOT / "src" / "proxmatch"
    files = {
        f"proxmatch/{file.relative_to(package).as_posix()}"
        for file in package.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert files <= there
    for model in shipped():
        assert f"proxmatch/weights/{model}/model.safetensors" in there
    assert {
        "proxmatch/py.typed",
        "proxmatch/experiments/paper.csv",
        "proxmatch/report/templates/report.html.j2",
        "proxmatch/report/assets/story.js",
    } <= there
    assert not [name for name in there if name.startswith(("tests/", "tools/", "results/"))]


def test_the_wheel_names_every_license_and_holds_its_text(installed: Path) -> None:
    folder = installed / f"proxmatch-{__version__}.dist-info"
    metadata = message_from_string((folder / "METADATA").read_text(encoding="utf-8"))
    assert metadata["Version"] == __version__
    assert metadata["License"] is None  # the old field, which the expression replaces
    named = set(metadata["License-Expression"].split(" AND "))
    texts = {Path(file).stem for file in metadata.get_all("License-File", ())} - {"REUSE"}
    licenses = tomllib.loads((folder / "licenses" / "REUSE.toml").read_text(encoding="utf-8"))
    tables = licenses["annotations"]
    used = {one for table in tables for one in table["SPDX-License-Identifier"].split(" AND ")}
    assert named == texts == used
    for file in metadata.get_all("License-File", ()):
        assert (folder / "licenses" / file).stat().st_size > 0


def test_who_uses_the_package_gets_its_types(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "consumer.py").write_text(CONSUMER, encoding="utf-8")
    (tmp_path / "mypy.ini").write_text(SETTINGS, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", os.devnull, "consumer.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
