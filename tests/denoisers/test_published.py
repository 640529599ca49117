from __future__ import annotations

import pickle
import warnings
from argparse import Namespace
from pathlib import Path
from typing import Any, cast

import deepinv
import pytest
import torch
import torch.nn.functional as F
from deepinv.models.GSPnP import GSDRUNet
from torch import Tensor

from proxmatch.denoisers import (
    LPN,
    GradientStep,
    import_checkpoint,
    import_network,
    load,
    save,
    smooth,
)
from proxmatch.denoisers.networks import DnCNN, FFDNet
from proxmatch.errors import (
    CheckpointError,
    ConvexityError,
    InputError,
    NotSmoothWarning,
    UnsafeCheckpointError,
)
from proxmatch.learning.training import SIGMA, continued
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
        model = import_checkpoint(
            tmp_path / file,
            kind,  # type: ignore[arg-type]
            sigma=0.1,
            activation="E",
        )
        assert isinstance(model, GradientStep)
        assert (model.config.widths, model.config.blocks) == ((4, 6, 8, 10), 1)
        assert torch.allclose(model(x), expected, atol=1e-5)


def softplus_denoiser() -> torch.nn.Module:
    """A GSDRUNet with N the mean of two by two pixels, if its activation is softplus.

    One residual block at the end adds -1/2 (S(a) - S(-a)) = -a/2, which the last layer doubles.
    With ELU it is not -a/2.
    """
    model = GSDRUNet(nc=(9, 3, 1, 1), nb=1, act_mode="s", pretrained=None)
    net, state = model.student_grad.model, {}
    for name, t in net.state_dict().items():
        state[name] = torch.zeros_like(t)
    for c in range(3):
        state["m_head.weight"][c, c, 1, 1] = 1
        state["m_down1.1.weight"][c, c] = 0.25
        state["m_up1.0.weight"][c, 3 + c] = 1
        state["m_up1.1.res.0.weight"][c, 3 + c, 1, 1] = 1
        state["m_up1.1.res.0.weight"][3 + c, 3 + c, 1, 1] = -1
        state["m_up1.1.res.2.weight"][3 + c, c, 1, 1] = -0.5
        state["m_up1.1.res.2.weight"][3 + c, 3 + c, 1, 1] = 0.5
        state["m_tail.weight"][c, 3 + c, 1, 1] = 2
    net.load_state_dict(state)
    return cast("torch.nn.Module", model)


def test_the_activation_of_a_gradient_step_file_is_found_out(tmp_path: Path) -> None:
    theirs, file = softplus_denoiser(), tmp_path / "prox.ckpt"
    x = torch.rand(1, 3, 32, 32)
    blocks = F.interpolate(F.avg_pool2d(x, 2), scale_factor=2)
    assert torch.allclose(theirs.student_grad(x, 0.1), blocks, atol=1e-5)
    expected = theirs(x.clone(), 0.1).detach()
    state = {"state_dict": theirs.state_dict()}
    settings = ({}, {"hyper_parameters": {"act_mode": "s"}}, {"hyper_parameters": Namespace()})
    for hyper in settings:
        torch.save({**state, **hyper}, file)
        model = import_checkpoint(file, "prox-pnp", sigma=0.1)
        assert isinstance(model, GradientStep)
        assert model.config.activation == "S"
        assert torch.allclose(model(x), expected, atol=1e-5)
    wrong = import_checkpoint(file, "prox-pnp", sigma=0.1, activation="E")
    assert (wrong(x) - expected).norm() > 0.3 * expected.norm()
    for hyper, message in (
        ({"act_mode": "E"}, None),
        ({"weight_Ds": 0.5}, "weight_Ds = 0.5"),
        ({"model_name": "DNCNN"}, "model_name"),
    ):
        torch.save({**state, "hyper_parameters": hyper}, file)
        if message is None:
            kept = import_checkpoint(file, "prox-pnp", sigma=0.1)
            assert torch.equal(kept(x), wrong(x))
            continue
        with pytest.raises(CheckpointError, match=message):
            import_checkpoint(file, "prox-pnp")


def test_an_activation_that_cannot_be_found_out_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "random.ckpt"
    torch.save(GSDRUNet(nc=(4, 4, 4, 4), nb=1, pretrained=None).state_dict(), file)
    with pytest.raises(InputError, match="activation='E' or activation='S'"):
        import_checkpoint(file, "gsdrunet")


def test_the_lpn_of_learned_regularizers(tmp_path: Path) -> None:
    """D(x) = (grad psi(v) + 1) / 2 at v = 2 x - 1, with names under lpn. and a 1 x 1 top layer."""
    state, file = official_state(hidden=8, top=8), tmp_path / "lpn.pt"
    theirs = {f"lpn.{name}": t for name, t in state.items()}
    theirs["lpn.lin.7.weight"] = state["lin.7.weight"].view(1, 64, 1, 1)
    torch.save(theirs, file)
    model = import_checkpoint(file, "lpn-learned-regularizers")
    assert isinstance(model, LPN)
    x = torch.rand(2, 3, 64, 64)
    v = (2 * x - 1).requires_grad_()
    (slope,) = torch.autograd.grad(official_potential(state, v, 100.0, 1e-6).sum(), v)
    expected = (slope + 1) / 2
    assert (model(x).detach() - expected).norm() <= 1e-5 * expected.norm()
    theirs["lpn.lin.6.weight"] = theirs["lpn.lin.6.weight"][..., :7, :7]
    torch.save(theirs, file)
    with pytest.raises(CheckpointError, match="average pooling"):
        import_checkpoint(file, "lpn-learned-regularizers")


# --- plain networks ------------------------------------------------------------------------------


def kair(inputs: int, outputs: int, width: int = 5, depth: int = 4) -> dict[str, Tensor]:
    """Random weights under KAIR's names."""
    sizes = [inputs, *[width] * (depth - 1), outputs]
    state = {}
    for i in range(depth):
        state[f"model.{2 * i}.weight"] = torch.randn(sizes[i + 1], sizes[i], 3, 3) / 4
        state[f"model.{2 * i}.bias"] = torch.randn(sizes[i + 1]) / 4
    return state


def plain(state: dict[str, Tensor], y: Tensor) -> Tensor:
    """KAIR's chain of convolutions and ReLU."""
    depth = len(state) // 2
    for i in range(depth):
        y = F.conv2d(y, state[f"model.{2 * i}.weight"], state[f"model.{2 * i}.bias"], padding=1)
        y = F.relu(y) if i < depth - 1 else y
    return y


@pytest.mark.parametrize("channels", [1, 3])
def test_networks_of_kair(channels: int, tmp_path: Path) -> None:
    x, levels = torch.rand(2, channels, 8, 10), torch.tensor([0.1, 0.2])
    state = kair(4 * channels + 1, 4 * channels)
    torch.save(state, tmp_path / "ffdnet.pth")
    ffdnet = import_network(tmp_path / "ffdnet.pth", "ffdnet")
    assert isinstance(ffdnet, FFDNet)
    packed = torch.stack(  # KAIR: channel c, row i and column j of a block, in this order
        [x[:, c, i::2, j::2] for c in range(channels) for i in (0, 1) for j in (0, 1)], 1
    )
    level = levels.view(2, 1, 1, 1).expand(-1, 1, 4, 5)
    found = plain(state, torch.cat([packed, level], 1))
    expected = torch.empty_like(x)
    for n in range(4 * channels):
        expected[:, n // 4, n % 4 // 2 :: 2, n % 2 :: 2] = found[:, n]
    assert torch.allclose(ffdnet(x, levels), expected, atol=1e-5)
    odd = ffdnet(x[..., :7, :9], levels)
    replicated = F.pad(x[..., :7, :9], (0, 1, 0, 1), mode="replicate")
    assert torch.allclose(odd, ffdnet(replicated, levels)[..., :7, :9], atol=1e-6)
    state = kair(channels, channels)
    torch.save(state, tmp_path / "dncnn.pth")
    dncnn = import_network(tmp_path / "dncnn.pth", "dncnn")
    assert isinstance(dncnn, DnCNN)
    assert torch.allclose(dncnn(x, 0.1), x - plain(state, x), atol=1e-5)


def test_networks_of_deepinv(tmp_path: Path) -> None:
    x, file = torch.rand(2, 3, 32, 40), tmp_path / "theirs.pth"
    levels = torch.tensor([0.1, 0.2])
    for kind, theirs in (
        ("ffdnet", deepinv.models.FFDNet(4, 6, 3, pretrained=None)),
        ("dncnn", deepinv.models.DnCNN(3, 3, 4, nf=6, pretrained=None)),
        ("drunet", deepinv.models.DRUNet(nc=(4, 6, 8, 10), nb=1, pretrained=None)),
    ):
        torch.save(theirs.state_dict(), file)
        ours = import_network(file, kind)  # type: ignore[arg-type]
        assert isinstance(ours, deepinv.models.base.Denoiser)
        assert torch.allclose(ours(x, levels), theirs(x, levels), atol=1e-5), kind
        assert ours(x, 0.1, physics=None).shape == x.shape


def test_a_plain_network_becomes_a_smooth_gradient_step_denoiser(tmp_path: Path) -> None:
    torch.save(kair(13, 12), tmp_path / "ffdnet.pth")
    bare = import_network(tmp_path / "ffdnet.pth", "ffdnet").double()
    x = torch.rand(1, 3, 12, 9, dtype=torch.float64)

    def written_out(network: torch.nn.Module) -> Tensor:
        leaf = x.clone().requires_grad_()
        h = (leaf.square().sum() - (leaf - network(leaf, 0.1)).square().sum()) / 2
        return torch.autograd.grad(h, leaf)[0]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = import_checkpoint(tmp_path / "ffdnet.pth", "ffdnet", sigma=0.1)
    assert isinstance(model, GradientStep)
    assert model.levels == pytest.approx((1e-3, 75 / 255))
    assert torch.allclose(model.double()(x), written_out(smooth(bare)), atol=1e-9)
    again = load(save(model, tmp_path / "model"))
    assert torch.equal(again(x), model(x))
    with pytest.warns(NotSmoothWarning, match=r"model\.1 \(relu\)"):
        rough = import_checkpoint(tmp_path / "ffdnet.pth", "ffdnet", sigma=0.1, smooth=False)
    assert torch.allclose(rough.double()(x), written_out(bare), atol=1e-9)


@pytest.mark.parametrize("layers", [17, 20])
def test_blind_networks_are_trained_at_all_levels(layers: int, tmp_path: Path) -> None:
    """KAIR's DnCNN has 20 layers where it is blind, up to 55/255, and 17 where it is not."""
    torch.save(
        deepinv.models.DnCNN(1, 1, layers, nf=4, pretrained=None).state_dict(), tmp_path / "f"
    )
    model = import_checkpoint(tmp_path / "f", "dncnn")
    noise = continued(model, 64).settings.noise
    assert not model.conditional
    if layers == 20:
        assert (noise.low, noise.high) == pytest.approx((1e-3, 55 / 255))
    else:
        assert noise == SIGMA


def test_plain_networks_of_another_kind_are_told(tmp_path: Path) -> None:
    file = tmp_path / "f.pth"
    dncnn: dict[str, Any] = kair(3, 3)
    torch.save(dncnn, file)
    with pytest.raises(CheckpointError, match="another kind"):
        import_network(file, "ffdnet")
    with pytest.raises(CheckpointError, match="another kind"):
        import_network(file, "drunet")
    with pytest.raises(InputError, match="choose one of ffdnet, dncnn, drunet"):
        import_network(file, "gsdrunet")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="follow from the weights"):
        import_checkpoint(file, "dncnn", channels=3)
    torch.save(kair(13, 12), file)
    with pytest.raises(CheckpointError, match="reads 13 channels and returns 12"):
        import_network(file, "dncnn")
    torch.save(kair(1, 1), file)
    with pytest.raises(CheckpointError, match=r"reads 1 channel\(s\), FFDNet four for each"):
        import_network(file, "ffdnet")
    torch.save({**dncnn, "model.3.running_mean": torch.ones(5)}, file)
    with pytest.raises(CheckpointError, match="batch normalization"):
        import_network(file, "dncnn")
    theirs = deepinv.models.DnCNN(3, 3, 4, nf=6, pretrained=None, bias=False)
    torch.save(theirs.state_dict(), file)
    with pytest.raises(CheckpointError, match=r"no in_conv\.bias"):
        import_network(file, "dncnn")


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
