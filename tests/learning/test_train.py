from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from proxmatch.data import ImageDomain
from proxmatch.denoisers import (
    GradientStep,
    GradientStepConfig,
    LPNConfig,
    ProximalDenoiser,
    load,
    shipped,
)
from proxmatch.errors import CheckpointError, InputError
from proxmatch.learning import Optimizer, Preset, TrainingSettings, train
from proxmatch.learning.assess import Assessment
from proxmatch.learning.progress import bar
from proxmatch.learning.training import continued
from proxmatch.metrics import psnr
from proxmatch.problems import gaussian_deblurring
from proxmatch.transforms import Relaxed

SETTINGS = TrainingSettings(steps=100, batch=4, noise=0.1, optimizer=Optimizer(rate=1e-2))
PRESETS = {
    "lpn": Preset(
        model=LPNConfig(channels=1, size=8, hidden=8, features=8, strides=(2,), sigma=0.1),
        size=8,
        settings=SETTINGS,
    ),
    "gs": Preset(
        model=GradientStepConfig(channels=1, widths=(4, 6), sigma=0.1), size=8, settings=SETTINGS
    ),
}
PROBLEMS = [gaussian_deblurring(12, channels=1, iterations=5)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few smooth gray pictures."""
    root = tmp_path_factory.mktemp("pictures")
    rows, columns = np.mgrid[:24, :24] / 24
    for number in range(10):
        wave = 0.5 + 0.4 * np.sin(3 * rows + number) * np.cos(2 * columns - number)
        Image.fromarray((255 * wave).astype(np.uint8)).save(root / f"{number}.png")
    return root


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_folder_of_images_becomes_a_denoiser_with_a_card(
    folder: Path, tmp_path: Path, name: str
) -> None:
    images = ImageDomain(folder, 12, split="train", channels=1)
    held_out = ImageDomain(folder, 12, split="validation", channels=1).tensor()
    result = train(PRESETS[name], images, tmp_path, validation=held_out, problems=PROBLEMS)
    noisy = held_out + 0.1 * torch.randn(held_out.shape, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        better = psnr(result.denoiser(noisy), held_out) - psnr(noisy, held_out)
    assert float(better.mean()) > 2
    card = result.denoiser.record
    assert card["data"]["fingerprint"] == images.fingerprint
    assert card["settings"] == SETTINGS.model_dump(mode="json")
    assert set(card["validation"]["denoising"]) == {"0.05", "0.025", "0.1"}
    assert card["validation"]["images"] == len(held_out)
    again: ProximalDenoiser = load(tmp_path / "model")
    assert again.record == card
    assert torch.equal(again(noisy), result.denoiser(noisy))
    if name == "gs":
        assert isinstance(again, GradientStep)
        assert again.lipschitz == card["validation"]["lipschitz"]


def test_it_starts_from_the_seed_and_goes_on_with_the_same_images_only(
    folder: Path, tmp_path: Path
) -> None:
    images = ImageDomain(folder, 8, split="train", channels=1)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = train(PRESETS["lpn"], images, tmp_path / "a").denoiser
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    second = train(PRESETS["lpn"], images, tmp_path / "b").denoiser
    x = torch.rand(2, 1, 8, 8)
    assert torch.equal(first(x), second(x))
    others = ImageDomain(folder, 8, split="test", channels=1)
    with pytest.raises(CheckpointError, match=r"other settings \(data\)"):
        train(PRESETS["lpn"], others, tmp_path / "a")


def test_what_does_not_fit_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="size=8"):
        train(PRESETS["lpn"], ImageDomain(folder, 4, channels=1), tmp_path)
    with pytest.raises(InputError, match="channels=1"):
        train(PRESETS["lpn"], ImageDomain(folder, 8), tmp_path)
    with pytest.raises(InputError, match="there are lpn-compact"):
        train("lpn-tiny", ImageDomain(folder, 8, channels=1), tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_bar_tells_rate_and_loss() -> None:
    from io import StringIO

    from rich.console import Console

    out = StringIO()
    with bar(5, "train", Console(file=out, force_terminal=True, width=120)) as on_step:
        for step in range(5):
            on_step(step + 1, 0.125)
    assert "5/5" in out.getvalue()
    assert "loss 0.125" in out.getvalue()


@pytest.mark.parametrize("name", shipped())
def test_shipped_models_have_a_card(name: str) -> None:
    model = load(name)
    card = model.record
    for entry in ("source", "license", "data", "settings", "minutes", "versions"):
        assert entry in card, entry
    validation = card["validation"]
    assert set(validation["denoising"]) == {"0.05", "0.025", "0.1"}
    assert set(validation["reconstruction"]) == {"deblurring", "super-resolution"}
    assert model.conditional
    assert model.levels == (0.003, 0.25)
    # L of a gradient step may pass one: its strength is then chosen so that t L does not.
    assert 0 < validation["lipschitz"] < (2.5 if model.penalized else 5)
    assert model.lipschitz == (validation["lipschitz"] if model.penalized else None)


def test_a_record_holds_none_for_what_was_not_measured() -> None:
    found = Assessment({0.05: torch.ones(2)}, {}, {}).means()
    assert found["lipschitz"] is found["largest_eigenvalue"] is None
    json.dumps(found, allow_nan=False)


def test_a_training_can_start_from_another_denoiser(folder: Path, tmp_path: Path) -> None:
    images = ImageDomain(folder, 12, split="train", channels=1)
    torch.manual_seed(3)
    start = GradientStep(GradientStepConfig(channels=1, widths=(4, 6), sigma=0.1))
    slow = SETTINGS.model_copy(update={"steps": 1, "optimizer": Optimizer(rate=1e-12)})
    found = train(PRESETS["gs"], images, tmp_path, settings=slow, start=start).denoiser
    for mine, theirs in zip(found.parameters(), start.parameters(), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-9)
    assert "weights" in load(tmp_path / "model").record["start"]


def test_a_denoiser_of_another_layout_is_no_start(folder: Path, tmp_path: Path) -> None:
    images = ImageDomain(folder, 12, split="train", channels=1)
    other = GradientStep(GradientStepConfig(channels=1, widths=(4, 8)))
    with pytest.raises(InputError, match="layout"):
        train(PRESETS["gs"], images, tmp_path, start=other)


def test_a_denoiser_at_hand_is_trained_on(folder: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 8, 3, padding=1), nn.Softplus(), nn.Conv2d(8, 1, 3, padding=1))
    own = GradientStep.of(nn.Sequential(*layers), channels=1, sigma=0.1)
    before = {name: t.clone() for name, t in own.state_dict().items()}
    images = ImageDomain(folder, 12, channels=1)
    settings = SETTINGS.model_copy(update={"steps": 60})
    found = train(own, images, tmp_path, settings=settings).denoiser
    assert all(torch.equal(before[name], t) for name, t in own.state_dict().items())
    x = images.tensor()
    noisy = x + 0.1 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert float((psnr(found(noisy), x) - psnr(own(noisy), x)).mean()) > 1
    assert found.record["start"]["weights"]
    again = load(tmp_path / "model", network=nn.Sequential(*layers))
    torch.testing.assert_close(again(noisy), found(noisy))


def test_a_transformed_denoiser_is_not_trained() -> None:
    with pytest.raises(InputError, match="is not trained"):
        continued(Relaxed(GradientStep(), 0.5), 64)
