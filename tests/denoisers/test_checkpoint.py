from __future__ import annotations

import hashlib
import json
import os
import pickle
from pathlib import Path

import pytest
import safetensors.torch
import torch

from proxmatch.denoisers import LPN, GradientStep, load, save, shipped
from proxmatch.errors import (
    CheckpointError,
    ConvexityError,
    FutureFormatError,
    UnsafeCheckpointError,
)
from tests.denoisers.zoo import DENOISERS, own, size


class Bomb:
    """A pickle that writes a file when it is loaded."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return (exec, (f"open({str(self.target)!r}, 'w').write('boom')",))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return save(DENOISERS["lpn"](), tmp_path / "model")


def edit(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config.update(changes)
    path.write_text(json.dumps(config))


@pytest.mark.parametrize("name", sorted(DENOISERS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_saved_comes_back(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    model = DENOISERS[name]().to(dtype)
    model.sigma, model.record = 0.07, {"trained": {"steps": 3}}
    if isinstance(model, GradientStep):
        model.lipschitz = 0.9
    folder = save(model, tmp_path / "deep" / "er")
    again = load(folder, network=own(model))
    x = torch.rand(1, 2, *size(name), dtype=dtype)
    assert torch.equal(again(x), model(x))
    assert (again.sigma, again.record, again.training) == (0.07, model.record, False)
    if isinstance(model, GradientStep):
        assert again.smoothness == pytest.approx(10)
    assert {p.name for p in folder.iterdir()} == {"config.json", "model.safetensors"}
    double = load(folder, network=own(model), dtype=torch.float64)
    assert double(x.double()).dtype == torch.float64


def test_saved_weights_are_nonnegative(tmp_path: Path) -> None:
    model = DENOISERS["lpn"]()
    assert isinstance(model, LPN)
    with torch.no_grad():
        model.tap[0].fill_(-1.0)
    again = load(save(model, tmp_path))
    assert isinstance(again, LPN)
    assert bool((again.tap[0] == 0).all())
    assert bool((model.tap[0] == -1).all())  # the model itself is left alone


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_truncated_weights(checkpoint: Path, keep: int) -> None:
    file = checkpoint / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match="truncated"):
        load(checkpoint)


def replace_weights(folder: Path, state: dict[str, torch.Tensor]) -> None:
    """Other weights under the same configuration, with the right hash."""
    content = safetensors.torch.save(state)
    (folder / "model.safetensors").write_bytes(content)
    edit(folder, weights=hashlib.sha256(content).hexdigest())


def test_foreign_weights(checkpoint: Path) -> None:
    replace_weights(checkpoint, {"a": torch.ones(2)})
    with pytest.raises(CheckpointError, match=r"missing .*unknown a"):
        load(checkpoint)


def test_a_pickle_is_never_loaded(checkpoint: Path, tmp_path: Path) -> None:
    target = tmp_path / "boom"
    for content in (pickle.dumps(Bomb(target)), b"PK\x03\x04 a zip"):
        (checkpoint / "model.safetensors").write_bytes(content)
        with pytest.raises(UnsafeCheckpointError, match="pickle"):
            load(checkpoint)
    torch.save({"x": Bomb(target)}, checkpoint / "model.safetensors")
    with pytest.raises(UnsafeCheckpointError):
        load(checkpoint)
    assert not target.exists()


def rewrite(folder: Path, name: str, value: torch.Tensor) -> None:
    state = safetensors.torch.load_file(folder / "model.safetensors")
    state[name] = value
    replace_weights(folder, state)


def test_weights_are_checked(checkpoint: Path) -> None:
    state = safetensors.torch.load_file(checkpoint / "model.safetensors")
    rewrite(checkpoint, "tap.0", state["tap.0"] - 10)
    with pytest.raises(ConvexityError, match=r"tap\.0 must be nonnegative"):
        load(checkpoint)
    rewrite(checkpoint, "tap.0", state["tap.0"] * float("nan"))
    with pytest.raises(CheckpointError, match=r"tap\.0 hold NaN"):
        load(checkpoint)
    rewrite(checkpoint, "tap.0", torch.ones(99))
    with pytest.raises(CheckpointError, match=r"tap\.0 has shape \(99,\)"):
        load(checkpoint)
    rewrite(checkpoint, "tap.0", state["tap.0"].long())
    with pytest.raises(CheckpointError, match="dtype"):
        load(checkpoint)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"version": 99}, FutureFormatError, "upgrade proxmatch"),
        ({"version": 3.0}, FutureFormatError, "upgrade proxmatch"),
        ({"version": 2.5}, FutureFormatError, "upgrade proxmatch"),
        ({"version": "2"}, CheckpointError, "version"),
        ({"version": True}, CheckpointError, "version"),
        ({"version": -3}, CheckpointError, "version"),
        ({"architecture": {"beta": float("inf")}}, CheckpointError, "beta"),
        ({"architecture": {"center": float("nan")}}, CheckpointError, "center"),
        ({"architecture": {"hidden": 10**9}}, CheckpointError, "does not fit|has shape"),
        (
            {"family": "gradient-step", "architecture": {"widths": [-1, 3]}},
            CheckpointError,
            "widths",
        ),
        (
            {"family": "gradient-step", "architecture": {"network": "drunet"}},
            CheckpointError,
            "four scales",
        ),
        ({"version": "x"}, CheckpointError, "version"),
        ({"format": "other"}, CheckpointError, "not the configuration"),
        ({"family": "cnn"}, CheckpointError, "family"),
        ({"surprise": 1}, CheckpointError, "surprise"),
        ({"architecture": {"alpha": 2}}, CheckpointError, "alpha"),
        ({"architecture": {"hidden": 7}}, CheckpointError, "does not fit|has shape"),
    ],
)
def test_configs_are_checked(
    checkpoint: Path, changes: dict[str, object], error: type[Exception], message: str
) -> None:
    edit(checkpoint, **changes)
    with pytest.raises(error, match=message):
        load(checkpoint)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'"text"', b"[" * 100_000])
def test_configs_that_are_no_json_objects(checkpoint: Path, content: bytes) -> None:
    (checkpoint / "config.json").write_bytes(content)
    with pytest.raises(CheckpointError):
        load(checkpoint)


def test_a_folder_with_the_name_of_a_shipped_model_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save(DENOISERS["lpn"](), "lpn-faces")
    with pytest.raises(CheckpointError, match=r"\./lpn-faces for the folder"):
        load("lpn-faces")
    assert load("./lpn-faces").channels == load(Path("lpn-faces")).channels == 2


def test_missing_things_are_named(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such folder, and no such model"):
        load(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="import_checkpoint"):
        load(checkpoint / "model.safetensors")
    (checkpoint / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"has no model\.safetensors"):
        load(checkpoint)


def test_a_failed_save_loses_nothing(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {p.name: p.read_bytes() for p in checkpoint.iterdir()}

    def full_disk(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(CheckpointError, match="No space left"):
        save(DENOISERS["gs"](), checkpoint)
    assert {p.name: p.read_bytes() for p in checkpoint.iterdir()} == before


def test_a_save_cut_between_its_two_files_is_noticed(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = DENOISERS["lpn"]()
    replace, calls = os.replace, []

    def cut(source: str, target: Path) -> None:
        calls.append(target)
        if len(calls) == 2:
            raise OSError("cut")
        replace(source, target)

    monkeypatch.setattr("os.replace", cut)
    with pytest.raises(CheckpointError, match="cut"):
        save(other, checkpoint)
    with pytest.raises(CheckpointError, match="not the file that its"):
        load(checkpoint)


def test_half_precision_is_read_as_float32(checkpoint: Path) -> None:
    state = safetensors.torch.load_file(checkpoint / "model.safetensors")
    replace_weights(checkpoint, {name: t.half() for name, t in state.items()})
    assert {p.dtype for p in load(checkpoint).parameters()} == {torch.float32}


def test_loading_draws_no_random_numbers_and_works_in_any_mode(checkpoint: Path) -> None:
    before = torch.random.get_rng_state()
    with torch.inference_mode():
        model = load(checkpoint)
    assert torch.equal(torch.random.get_rng_state(), before)
    x = torch.rand(1, 2, 8, 8)
    model(x).sum().backward()
    assert all(p.grad is not None for p in model.parameters() if p.dim() > 1)


def test_a_model_that_is_not_sound_is_not_saved(tmp_path: Path) -> None:
    model = DENOISERS["gs"]()
    with torch.no_grad():
        next(model.parameters()).fill_(float("inf"))
    with pytest.raises(CheckpointError, match="NaN or infinity"):
        save(model, tmp_path / "new")
    model = DENOISERS["gs"]()
    model.sigma = -1.0
    with pytest.raises(CheckpointError, match="sigma"):
        save(model, tmp_path / "new")
    model = DENOISERS["gs"]()
    model.record = {"what": object()}
    with pytest.raises(CheckpointError, match="record"):
        save(model, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_shipped_models_load_offline() -> None:
    for name in shipped():
        model = load(name)
        assert bool(torch.isfinite(model(torch.rand(1, model.channels, 64, 64))).all())


def test_a_checkpoint_of_the_first_layout_still_loads() -> None:
    """An LPN of one level and one size, written when these shipped; weights at random."""
    model = load(Path(__file__).parent / "old_lpn")
    assert isinstance(model, LPN)
    assert (model.sigma, model.conditional, model.native_size) == (0.07, False, 8)
    row = model(torch.linspace(0, 1, 64).view(1, 1, 8, 8))[0, 0, 0]
    was = [0.380494, 0.237295, 0.559106, 0.149613, 0.167404, 0.433532, 0.440552, 0.414401]
    assert row.tolist() == pytest.approx(was, abs=1e-5)
