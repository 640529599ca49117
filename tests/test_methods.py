"""A loss and a way to adapt of one's own: one registration each, and known everywhere."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import torch
from torch import Tensor

from proxmatch._internal.palette import SKY
from proxmatch.denoisers import LPN, LPNConfig
from proxmatch.errors import InputError
from proxmatch.experiments.figures import drawn_as
from proxmatch.experiments.tables import main_table, overview, paper_table
from proxmatch.learning import TrainingSettings, adapt
from proxmatch.losses import LOSSES, register_loss
from proxmatch.methods import FAMILIES, METHODS, FamilyInTables, offered, register, title
from proxmatch.problems import gaussian_deblurring
from proxmatch.report.method_styles import styles
from tests.experiments.made_up import made_up

CHANGES = {"rate": 1e-4}


def charbonnier(output: Tensor, target: Tensor) -> Tensor:
    return ((output - target).square() + 1e-6).sqrt().flatten(1).sum(1)


@pytest.fixture
def made() -> Iterator[None]:
    register_loss("charbonnier", "a smooth L1")(charbonnier)
    register(
        "soft", "soft L1", "adapted", SKY, "long", "cross", False, loss="charbonnier",
        optimizer=CHANGES, option="soft", help="fine-tuning with a smooth absolute error",
    )  # fmt: skip
    yield
    del LOSSES["charbonnier"], METHODS["soft"]


@pytest.mark.usefixtures("made")
def test_it_adapts(tmp_path: Path) -> None:
    torch.manual_seed(0)
    source = LPN(LPNConfig(channels=1, size=8, hidden=4, features=3, strides=(2,), sigma=0.1))
    images = torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    problem = gaussian_deblurring(8, channels=1, iterations=2)
    found = adapt(source, images, problem, method="soft", select="last", draws=1, held_out=False)
    settings = found.denoiser.record["adapted"]["settings"]
    assert settings["loss"] == "charbonnier"
    assert settings["optimizer"]["rate"] == CHANGES["rate"]
    x = torch.rand(1, 1, 8, 8)
    assert not torch.equal(found.denoiser(x), source(x))


@pytest.mark.usefixtures("made")
def test_settings_know_the_loss() -> None:
    assert TrainingSettings(loss="charbonnier").loss == "charbonnier"
    with pytest.raises(ValueError, match="there are mse, l1, pm, scaled-mse, charbonnier"):
        TrainingSettings(loss="chabonnier")


@pytest.mark.usefixtures("made")
def test_tables_figures_page_and_documentation_know_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert title("soft", "lpn") == "LPN-soft L1"
    rows = [made_up("lpn", "soft", 1, [30.0])]
    assert "LPN-soft L1" in main_table(rows, ["deblurring"]).markdown()
    assert drawn_as("soft")["color"] == styles(["soft"])["soft"].color == SKY
    assert styles(["soft"])["soft"].label == "soft L1"
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "docs")
    page = ["before\n\n.. method-table::\n\nafter\n"]
    import_module("problem_table").insert(None, "adapt", page)
    assert "* - `soft`\n     - fine-tuning with a smooth absolute error\n" in page[0]


def test_tables_know_a_made_up_family(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [made_up("shrink", method, 1, [30.0], gap=[1.0]) for method in ("mse", "l1")]
    assert "*shrink*" in main_table(rows, ["deblurring"]).markdown()
    monkeypatch.setitem(FAMILIES, "shrink", FamilyInTables("SHRINK", "a shrinkage", "l1"))
    assert "*SHRINK*" in main_table(rows, ["deblurring"]).markdown()
    assert "SHRINK-MSE" in overview(rows, ["deblurring"]).markdown()
    table = paper_table(rows, "deblurring", (1,)).markdown()
    assert "*SHRINK proximal denoiser*" in table
    assert "SHRINK-L1" in table


def test_the_command_line_knows_it() -> None:
    code = (
        "from proxmatch.methods import register\n"
        "register('soft', 'soft', 'adapted', '#000000', loss='l1', option='soft', help='softly')\n"
        "from proxmatch.cli import run\n"
        "run(['adapt', '--help'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    told = " ".join(done.stdout.replace("│", " ").split())
    assert "soft: softly" in told
    assert all(f"{name}:" in told for name in offered())


def test_a_name_stands_for_one_thing() -> None:
    with pytest.raises(InputError, match="already"):
        register("mse", "MSE", "adapted", SKY)
    with pytest.raises(InputError, match="already"):
        register_loss("mse", "squared error")
