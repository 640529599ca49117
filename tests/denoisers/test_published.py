from __future__ import annotations

import pickle
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from deepinv.models.GSPnP import GSDRUNet

from proxmatch.denoisers import LPN, GradientStep, import_checkpoint
from proxmatch.errors import (
    CheckpointError,
    ConvexityError,
    InputError,
    UnsafeCheckpointError,
)
from tests.denoisers.test_checkpoint import Bomb
from tests.denoisers.test_lpn import official_potential, official_state


def test_official_lpn(tmp_path: Path) -> None:
    state = official_state(hidden=32)
    file = tmp_path / "model.pt"
    torch.save(
        {
            "model_state_dict": state,
            "optimizer_state_dict": {"state": {}},
            "iteration": 7,
            "loss": 0.1,
        },
        file,
    )
    model = import_checkpoint(file, "lpn-official", sigma=0.05)
    assert isinstance(model, LPN)
    assert (model.config.hidden, model.sigma) == (32, 0.05)
    x = torch.rand(2, 3, 128, 128, requires_grad=True)
    (expected,) = torch.autograd.grad(official_potential(state, x, 100.0, 1e-6).sum(), x)
    assert (model(x).detach() - expected).norm() <= 1e-5 * expected.norm()


def test_deepinv_gsdrunet_and_prox_pnp(tmp_path: Path) -> None:
    theirs = GSDRUNet(nc=(4, 6, 8, 10), nb=1, act_mode="E", pretrained=None)
    x = torch.rand(1, 3, 32, 32)
    expected = theirs(x.clone(), 0.1).detach()
    torch.save(theirs.state_dict(), tmp_path / "gsdrunet.pth")
    lightning = {
        "state_dict": theirs.state_dict(),
        "hyper_parameters": Namespace(lr=1e-4),
        "epoch": 3,
    }
    torch.save(lightning, tmp_path / "prox.ckpt")
    for file, kind in (("gsdrunet.pth", "gsdrunet"), ("prox.ckpt", "prox-pnp")):
        model = import_checkpoint(tmp_path / file, kind, sigma=0.1)  # type: ignore[arg-type]
        assert isinstance(model, GradientStep)
        assert (model.config.widths, model.config.blocks) == ((4, 6, 8, 10), 1)
        assert torch.allclose(model(x), expected, atol=1e-5)


def test_code_in_a_file_does_not_run(tmp_path: Path) -> None:
    target = tmp_path / "boom"
    for file, write in (
        ("a.pt", torch.save),
        ("b.pt", lambda o, f: f.write_bytes(pickle.dumps(o))),
    ):
        write({"model_state_dict": Bomb(target)}, tmp_path / file)
        with pytest.raises(UnsafeCheckpointError, match="not loaded"):
            import_checkpoint(tmp_path / file, "lpn-official")
    assert not target.exists()


def test_wrong_files_are_named(tmp_path: Path) -> None:
    file = tmp_path / "f.pt"
    with pytest.raises(CheckpointError, match="no such file"):
        import_checkpoint(file, "gsdrunet")
    with pytest.raises(InputError, match="choose one of"):
        import_checkpoint(file, "other")  # type: ignore[arg-type]
    torch.save({"a": torch.ones(1)}, file)
    with pytest.raises(CheckpointError, match="another kind"):
        import_checkpoint(file, "lpn-official")
    with pytest.raises(CheckpointError, match="another kind"):
        import_checkpoint(file, "prox-pnp")
    torch.save({"a": 3}, file)
    with pytest.raises(CheckpointError, match="not a dense tensor"):
        import_checkpoint(file, "lpn-official")
    torch.save([1, 2], file)
    with pytest.raises(CheckpointError, match="no state dict"):
        import_checkpoint(file, "lpn-official")
    file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(CheckpointError):
        import_checkpoint(file, "lpn-official")
    for odd in (
        {"lin.0.weight": torch.tensor(1.0)},
        {"lin.0.weight": torch.ones(2, 2).to_sparse()},
        {"lin.0.weight": torch.ones(2, 3, 3, 3), "lin.6.weight": torch.tensor(1.0)},
    ):
        torch.save(odd, file)
        with pytest.raises(CheckpointError):
            import_checkpoint(file, "lpn-official")
    state = official_state(hidden=4)
    torch.save(state, file)
    for settings, message in (({"alpha": 3}, "alpha"), ({"hidden": 3}, "follow from the weights")):
        with pytest.raises(InputError, match=message):
            import_checkpoint(file, "lpn-official", **settings)
    state["lin.2.weight"][0, 0, 0, 0] = -1
    torch.save(state, file)
    with pytest.raises(ConvexityError, match=r"lin\.2\.weight"):
        import_checkpoint(file, "lpn-official")
