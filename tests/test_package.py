"""What somebody gets who installs the wheel."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from proxmatch.denoisers import shipped

ROOT = Path(__file__).parents[1]


def test_the_wheel_holds_everything_the_package_reads(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=120)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        there = set(archive.namelist())
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
