from __future__ import annotations

from pathlib import Path

import pytest
import torch

from proxmatch.denoisers import LPN, GradientStep, LPNConfig
from proxmatch.errors import InputError
from proxmatch.learning import PRESETS, TrainingSettings, run, stream


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_yaml_round_trip(name: str, tmp_path: Path) -> None:
    settings = PRESETS[name].settings
    file = tmp_path / "settings.yaml"
    file.write_text(settings.to_yaml())
    assert TrainingSettings.from_yaml(file) == settings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stepz: 3", "stepz"),
        ("steps: 0", "steps"),
        ("loss: huber", "loss"),
        ("noise: [0.2, 0.1]", "noise"),
        ("gamma: {kind: linear}", "gamma"),
        ("optimizer: {rate: -1}", "rate"),
        ("- 1", "value"),
        (": : :", "YAML"),
        ("!!python/object/apply:os.system ['true']", "YAML"),
    ],
)
def test_wrong_settings_are_named(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        TrainingSettings.from_yaml(file)
    with pytest.raises(InputError, match="cannot be read"):
        TrainingSettings.from_yaml(tmp_path / "missing.yaml")


@pytest.mark.parametrize("name", ["lpn-compact", "gs-compact"])
def test_compact_presets_run(name: str, tmp_path: Path) -> None:
    preset = PRESETS[name]
    config = preset.model
    denoiser = LPN(config) if isinstance(config, LPNConfig) else GradientStep(config)
    settings = preset.settings.model_copy(update={"steps": 3, "batch": 2})
    size = preset.size
    result = run(
        denoiser, stream(lambda n, g: torch.rand(n, 3, size, size, generator=g)), settings, tmp_path
    )
    assert result.steps == 3
    assert result.denoiser.sigma == preset.model.sigma
