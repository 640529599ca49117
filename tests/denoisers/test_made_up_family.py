"""A family of one's own: a class, a configuration and one line, and everything works with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from pydantic import BaseModel
from torch import Tensor, nn

from proxmatch.cli import run as cli
from proxmatch.data.images import encode_image
from proxmatch.denoisers import ProximalDenoiser, import_checkpoint, load, save
from proxmatch.denoisers.base import Linearization, Reach, Reader
from proxmatch.denoisers.families import FAMILIES
from proxmatch.denoisers.tiles import SMALLEST, Tiled, tiled
from proxmatch.diagnosis import diagnose
from proxmatch.learning import Preset, TrainingSettings, adapt, run, stream
from proxmatch.problems import gaussian_deblurring
from proxmatch.reconstruction import reconstruct
from proxmatch.report import write_report
from proxmatch.theory import certify
from tests.report.fixture import write_folder


class ShrinkConfig(BaseModel):
    channels: int = 1
    sigma: float = 0.1


def from_factor(
    state: dict[str, Tensor], origin: str, settings: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A file that holds a itself."""
    return {"channels": 1, **settings}, {"logit": state["a"].logit()}


class Shrink(ProximalDenoiser):
    """D(x) = a x + (1 - a) / 2 with a learned a in (0, 1): the proximal map of a quadratic."""

    trainable: ClassVar[bool] = True
    published: ClassVar[dict[str, Reader]] = {"factor": from_factor}
    config: ShrinkConfig

    def __init__(self, config: ShrinkConfig) -> None:
        super().__init__(config.channels, config.sigma)
        self.config = config
        self.logit = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        a = self.logit.sigmoid()
        return a * x + (1 - a) / 2

    def potential(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        a = self.logit.sigmoid()
        return (a * x.square() / 2 + (1 - a) / 2 * x).flatten(1).sum(1)

    def linearize(self, x: Tensor, sigma: float | Tensor | None = None) -> Linearization:
        a = self.logit.detach().sigmoid()
        return self.forward(x.detach()).detach(), lambda v: a * v.detach()

    @property
    def reach(self) -> Reach:
        return Reach(0, 1)

    @property
    def smoothness(self) -> float:
        return 1 / float(self.logit.detach().sigmoid())


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    FAMILIES["shrink"] = (__name__, "Shrink")
    yield
    del FAMILIES["shrink"]


IMAGES = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
PROBLEM = gaussian_deblurring(8, channels=1, iterations=3)


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    denoiser = Shrink(ShrinkConfig())
    denoiser.logit.data.fill_(1.5)
    again = load(save(denoiser, tmp_path))
    assert isinstance(again, Shrink)
    assert torch.equal(again(IMAGES), denoiser(IMAGES))


def test_it_is_imported_from_a_file_of_its_own_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "shrink.pth"
    torch.save({"a": torch.tensor(0.25)}, file)
    model = import_checkpoint(file, "factor", sigma=0.2)
    assert isinstance(model, Shrink)
    assert (model.smoothness, model.sigma) == (pytest.approx(4), 0.2)
    out = tmp_path / "model"
    assert cli(["import", str(file), "--kind", "factor", "--out", str(out)]) == 0
    assert isinstance(load(out), Shrink)
    assert cli(["import", str(file), "--kind", "vgg", "--out", str(out)]) == 2
    assert "lpn-official" in (told := capsys.readouterr().err)
    assert "factor" in told


def test_it_is_trained(tmp_path: Path) -> None:
    preset = Preset(model=ShrinkConfig(), size=8, settings=TrainingSettings(steps=20, noise=0.3))
    assert preset.channels == 1
    denoiser = Shrink(ShrinkConfig())
    run(denoiser, stream(lambda count, generator: IMAGES[:1].expand(count, -1, -1, -1)),
        preset.settings, tmp_path)  # fmt: skip
    assert float(denoiser.logit.detach()) != 0


@pytest.mark.filterwarnings("ignore::proxmatch.errors.ProxmatchWarning")
def test_it_is_adapted_reconstructed_with_diagnosed_and_certified() -> None:
    source = Shrink(ShrinkConfig())
    found = adapt(source, IMAGES, PROBLEM, method="mse", draws=1, select="last", held_out=False)
    assert isinstance(found.denoiser, Shrink)
    assert float(found.denoiser.logit.detach()) != 0
    y = PROBLEM.measure(IMAGES)
    assert reconstruct(source, y, PROBLEM).images[0].shape == (1, 8, 8)
    assert diagnose(source, IMAGES, PROBLEM).problem == PROBLEM.name
    certificate = certify({"adapted": found.denoiser}, y, PROBLEM, reference=source, local=())
    assert certificate.runs["adapted"].share == 1


def test_it_is_tiled() -> None:
    model, x = Shrink(ShrinkConfig()), torch.rand(2, 1, 3 * SMALLEST, 2 * SMALLEST + 5)
    cut = tiled(model, SMALLEST)
    assert isinstance(cut, Tiled)
    assert len(cut._cuts(x.shape[-2])) == 3
    with torch.no_grad():
        assert torch.equal(cut(x), model(x))


@pytest.mark.filterwarnings("ignore::proxmatch.errors.ProxmatchWarning")
def test_auto_takes_it() -> None:
    """The only source: what is tried is tried with it."""
    images = torch.rand(2, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    problem = gaussian_deblurring(16, channels=1, iterations=3)
    found = adapt(Shrink(ShrinkConfig()), images, problem, method="auto", budget=0.05)
    assert {"source", "Wiener"} <= {row.name for row in found.table}
    assert found.denoiser(images).shape == images.shape


def test_a_report_shows_it(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    for file in folder.rglob("*.csv"):
        file.write_text(file.read_text().replace("lpn", "shrink"))
    for file in folder.rglob("*.json"):
        file.write_text(file.read_text().replace('"lpn"', '"shrink"'))
    page = write_report(folder).read_text(encoding="utf-8")
    assert "shrink, extreme source" in page
    assert "LPN, extreme source" not in page


@pytest.mark.filterwarnings("ignore::proxmatch.errors.ProxmatchWarning")
def test_the_command_line_takes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From its card to an adapted one: no command names a family."""
    folder = str(save(Shrink(ShrinkConfig()), tmp_path / "made"))
    assert cli(["models", folder, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "Shrink"
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    (pictures / "one.png").write_bytes(encode_image(torch.rand(1, 32, 32)))
    out = tmp_path / "adapted"
    options = ["--method", "mse", "--steps", "2", "--images", str(pictures), "--out", str(out)]
    assert cli(["adapt", folder, *options]) in (0, 1)
    again = load(out / "model")
    assert isinstance(again.core, Shrink)
    options = ["--problem", "deblurring", "--simulate", "--out", str(tmp_path / "sharp")]
    assert cli(["reconstruct", str(out / "model"), str(pictures), *options]) in (0, 1)
    assert (tmp_path / "sharp" / "one.png").is_file()
