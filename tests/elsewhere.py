"""Everything on a device that is not there (tests/pretended.py): nothing mixes devices, the numbers
are those of the CPU, and the host seldom waits.

PyTorch takes notice of a device only before its first backward pass, so that these tests have a
process of their own: test_devices.py starts it.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from proxmatch._internal.parcels import packed, unpacked
from proxmatch.baselines import TotalVariation, Wiener
from proxmatch.denoisers import (
    LPN,
    GradientStep,
    GradientStepConfig,
    LPNConfig,
    ProximalDenoiser,
    ScaledLPN,
    ScaledLPNConfig,
    jacobian_spectrum,
)
from proxmatch.denoisers.inverse import conjugate_gradient, quasi_newton
from proxmatch.diagnosis import diagnose
from proxmatch.learning import Optimizer, Penalty, TrainingSettings, adapt, run, stream
from proxmatch.losses import Staged, contractivity_penalty, top_direction
from proxmatch.pnp import pnp_pgd
from proxmatch.problems import gaussian_deblurring, super_resolution
from proxmatch.reconstruction import reconstruct
from proxmatch.transforms import Relaxed, align, choose_strength, color_statistics
from tests.denoisers.zoo import DENOISERS, size
from tests.pretended import NAME, Elsewhere, MixedDevicesError, pretended_device, register

register()

SIDE = 16
DEBLURRING = gaussian_deblurring(SIDE, channels=3, iterations=4)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tiny denoisers that nobody trained
        yield


@pytest.fixture
def waits() -> Iterator[Counter[str]]:
    with pretended_device() as seen:
        yield seen


def images(number: int = 2, channels: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    smooth = torch.rand(number, channels, 5, 5, generator=generator)
    return torch.nn.functional.interpolate(smooth, (SIDE, SIDE), mode="bilinear")


def gs() -> GradientStep:
    torch.manual_seed(0)
    model = GradientStep(
        GradientStepConfig(channels=3, network="scaled-unet", widths=(4, 6), blocks=1, sigma=0.1)
    )
    model.record = {"colors": color_statistics(images(4)).to_json()}
    model.eval()
    return model


def scaled_lpn() -> ScaledLPN:
    """As the models ``lpn-*`` that come with proxmatch."""
    torch.manual_seed(0)
    config = ScaledLPNConfig(channels=3, direct=(2, 2, 2), hidden=(4, 2, 4), sigma=0.1)
    model = ScaledLPN(config)
    model.eval()
    return model


def lpn() -> LPN:
    torch.manual_seed(0)
    model = LPN(LPNConfig(size=SIDE, hidden=4, features=4, strides=(2,), sigma=0.1))
    model.record = {"colors": color_statistics(images(4)).to_json()}
    model.eval()
    return model


def here(value: Any) -> Tensor:
    return (value.numbers if isinstance(value, Elsewhere) else value).detach()


def test_the_device_notices_what_is_mixed(waits: Counter[str]) -> None:
    """A seeded defect: a constant that stayed on the CPU."""
    x = images().to(NAME)

    class Forgetful(Wiener):
        def _gain(self, x: Tensor) -> Tensor:
            gain = super()._gain(x)
            return gain * torch.ones(SIDE)

    model = Wiener.fit(images(), 0.1).to(NAME)
    model(x)
    model.__class__ = Forgetful
    with pytest.raises(MixedDevicesError, match=r"aten.mul"):
        model(x)


def test_the_device_notices_what_waits(waits: Counter[str]) -> None:
    x = images().to(NAME)
    assert waits == {"upload": 1}
    float(x.sum()), x[x > 0.5], x.cpu(), bool((x > 0).all()), x.nonzero()
    assert waits["_local_scalar_dense"] + waits["is_nonzero"] >= 2
    assert waits["boolean indexing"] == waits["_to_copy"] == waits["nonzero"] == 1


@pytest.mark.parametrize("name", [name for name in DENOISERS if name != "lpn-by-patches"])
def test_denoisers(name: str) -> None:
    """Each operation takes a hundred times its time here: patches are in the next test."""
    torch.manual_seed(0)
    model, (height, width) = DENOISERS[name](), size(name)
    x = images(channels=model.channels)[..., :height, :width].contiguous()
    steps = 4
    if name == "lpn-sharp":
        # Products J v in float32, of a matrix so badly conditioned that other layouts of memory
        # lead another way to the inverse: only its end is comparable.
        model, x, steps = model.double(), x.double(), 60
    expected = everything(copy.deepcopy(model), x, steps)
    with pretended_device():
        found = everything(model.to(NAME), x.to(NAME), steps)
    for a, b in zip(expected, found, strict=True):
        assert b.device.type == NAME
        torch.testing.assert_close(here(b), a, rtol=1e-3, atol=1e-4)


def test_patches() -> None:
    model, x = DENOISERS["lpn-by-patches"](), images(1, 2)[..., :5, :4].contiguous()
    expected = model(x), model.potential(x)
    with pretended_device():
        moved, there = copy.deepcopy(model).to(NAME), x.to(NAME)
        found = moved(there), moved.potential(there)
    for a, b in zip(expected, found, strict=True):
        torch.testing.assert_close(here(b), a.detach())


def everything(model: ProximalDenoiser, x: Tensor, steps: int) -> list[Tensor]:
    """All that a denoiser can do."""
    v = x.flip(3)
    value, product = model.linearize(x)
    found = [model(x), model.potential(x), value, product(v)]
    found += [jacobian_spectrum(model, x, iterations=3).constant]
    solved = model.inverse(value, max_iterations=steps)
    found += [solved.z, solved.residual]
    if isinstance(model, GradientStep):
        direction = top_direction(model, x, v, iterations=2)
        found += [contractivity_penalty(model, x, direction, 0.1)]
    model.zero_grad()
    model(x).square().sum().backward()  # type: ignore[no-untyped-call]
    return [t.detach() for t in (*found, *(p.grad for p in model.parameters())) if t is not None]


@pytest.mark.parametrize("make", [gs, lpn])
def test_reconstructions(make: Callable[[], ProximalDenoiser], waits: Counter[str]) -> None:
    model, x = make(), images()
    for problem in (
        DEBLURRING,
        super_resolution(SIDE, factor=2, kernel_size=5, channels=3, iterations=4),
    ):
        y = problem.measure(x)
        expected = pnp_pgd(model, y, problem, truth=x).images
        there = problem.to(torch.device(NAME))
        moved = copy.deepcopy(model).to(NAME)
        found = pnp_pgd(moved, y.to(NAME), there, truth=x.to(NAME), reference=moved)
        torch.testing.assert_close(here(found.images), expected, rtol=1e-4, atol=1e-5)
        assert found.psnr is not None
        assert found.psnr.device.type == NAME
        level = 0.1 if moved.conditional else None
        many = reconstruct(moved, y.to(NAME), problem, sigma=level)
        torch.testing.assert_close(many.images[0], expected[0], rtol=1e-4, atol=1e-5)


UPLOADS = ("upload",)


def waited(seen: Counter[str]) -> int:
    return sum(number for what, number in seen.items() if what not in UPLOADS)


@pytest.mark.parametrize("name", ["gs", "lpn", "wiener", "aligned"])
def test_pnp_waits_at_most_once_in_ten_steps(name: str, waits: Counter[str]) -> None:
    x, problem = images().to(NAME), DEBLURRING.to(torch.device(NAME))
    model = {  # type: ignore[no-untyped-call]
        "gs": lambda: Relaxed(gs(), 0.01).to(NAME),
        "lpn": lambda: lpn().to(NAME),
        "wiener": lambda: Wiener.fit(images(), 0.1).to(NAME),
        "aligned": lambda: align(lpn().to(NAME), 0.5 * x),
    }[name]()
    y = problem.measure(x)
    pnp_pgd(model, y, problem, iterations=2)  # what is sent to the device once
    seen = []
    for iterations in (10, 30):
        waits.clear()
        found = pnp_pgd(model, y, problem, truth=x, iterations=iterations)
        assert set(found.status) == {"completed"}
        seen.append(Counter(waits))
    more = {
        what: seen[1][what] - seen[0][what] for what in seen[1] if seen[1][what] > seen[0][what]
    }
    assert waited(Counter(more)) <= 2, more
    assert not more.get("upload")


SELDOM = dict.fromkeys(("log_every", "check_every", "checkpoint_every"), 1000)


@pytest.mark.parametrize(
    "changes",
    [
        {"loss": "mse"},
        {"loss": "l1", "averaging": 0.9},
        {"loss": "pm", "gamma": Staged(pretraining=0.0)},
        {"penalty": Penalty(limit=0.1, weight=1, iterations=2)},
        {"optimizer": Optimizer(matrices=0.01, clip=0.1)},
    ],
)
def test_a_training_waits_only_where_it_logs(
    changes: dict[str, Any], waits: Counter[str], tmp_path: Path
) -> None:
    def cost(steps: int, **often: int) -> int:
        settings = TrainingSettings(steps=steps, batch=2, noise=0.1, **changes, **SELDOM | often)
        model = gs().to(NAME)
        waits.clear()
        run(model, stream(lambda n, generator: images(n)), settings, tmp_path / f"{often}{steps}")
        assert next(model.parameters()).device.type == NAME
        return waited(waits)

    few = cost(4)
    assert cost(9) == few
    assert cost(9, log_every=2) == few + 4


def test_steps_that_were_not_finite_are_left_out_as_on_the_cpu(tmp_path: Path) -> None:
    def draw(count: int, generator: torch.Generator) -> Tensor:
        found = torch.rand(count, 3, SIDE, SIDE, generator=generator)
        return found * math.nan if 0.3 < float(found[0, 0, 0, 0]) < 0.5 else found

    settings = TrainingSettings(
        steps=12,
        batch=2,
        noise=0.1,
        averaging=0.9,
        log_every=3,
        check_every=100,
        checkpoint_every=6,
    )
    here_, there = gs(), gs()
    expected = run(here_, stream(draw), settings, tmp_path / "here")
    with pretended_device():
        found = run(there.to(NAME), stream(draw), settings, tmp_path / "there")
    assert 0 < expected.skipped == found.skipped < 8
    assert [line["step"] for line in found.history] == [line["step"] for line in expected.history]
    for a, b in zip(found.history, expected.history, strict=True):
        assert a == pytest.approx(b, rel=1e-3)
    for a, b in zip(there.parameters(), here_.parameters(), strict=True):
        torch.testing.assert_close(here(a), b.detach(), rtol=1e-3, atol=1e-5)


def test_an_inversion_indexes_by_no_mask_and_seldom_waits(waits: Counter[str]) -> None:
    model = DENOISERS["gs"]().to(NAME)
    u = model(images(channels=2).to(NAME)).detach()
    seen = []
    for iterations in (10, 30):
        waits.clear()
        model.inverse(u, tolerance=1e-30, max_iterations=iterations)
        seen.append(Counter(waits))
    assert seen[1]["boolean indexing"] == 0
    assert waited(seen[1]) - waited(seen[0]) <= 2 * 20 // 5


def test_conjugate_gradients_wait_once_in_five_products(waits: Counter[str]) -> None:
    b = images(channels=1).to(NAME)
    scale = torch.linspace(1, 50, SIDE).to(NAME)
    products: list[int] = []

    def product(v: Tensor) -> Tensor:
        products.append(1)
        return scale * v

    waits.clear()
    found = conjugate_gradient(product, b, torch.full((2,), 1e-5).to(NAME), 100)
    assert waited(waits) <= len(products) // 5 + 1
    assert len(products) > 10
    torch.testing.assert_close(here(scale * found), here(b), rtol=1e-3, atol=1e-4)


def test_a_quasi_newton_method_waits_once_in_five_evaluations(waits: Counter[str]) -> None:
    u = images(channels=1)
    scale = torch.linspace(0.01, 5, SIDE)
    expected = quasi_newton(lambda z, places: scale * z, u, u, 1e-5, 100)
    there, far = u.to(NAME), scale.to(NAME)
    waits.clear()
    found = quasi_newton(lambda z, places: far * z, there, there, 1e-5, 100)
    evaluations = int(found.iterations.cpu().max())
    assert waits["boolean indexing"] == 0
    assert waited(waits) <= evaluations // 5 + 2  # one of them by this test
    torch.testing.assert_close(here(found.z), expected.z, rtol=1e-3, atol=1e-3)


def test_a_ridge_waits_once_in_five_iterations(
    waits: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = DENOISERS["ridge"](), images()
    x = x[:, : model.channels].contiguous()
    expected, analyses = model(x), list[int]()
    model, there = copy.deepcopy(model).to(NAME), x.to(NAME)
    solver = import_module("proxmatch.denoisers.ridge.proximal")
    analyze: Callable[[Tensor, Tensor], Tensor] = solver.analyze

    def counted(u: Tensor, kernel: Tensor) -> Tensor:
        analyses.append(1)
        return analyze(u, kernel)

    monkeypatch.setattr(solver, "analyze", counted)
    waits.clear()
    with torch.no_grad():
        found = model(there)
    assert waits["boolean indexing"] == 0
    assert waited(waits) <= 2 * (len(analyses) // 5 + 1)  # who is done, and which are left
    assert len(analyses) > 10
    torch.testing.assert_close(here(found), expected.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [gs, lpn, scaled_lpn])
def test_a_compiler_makes_one_graph(make: Callable[[], ProximalDenoiser]) -> None:
    model = make().requires_grad_(False)
    with torch.no_grad():
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(images()), model(images()))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("make", [lpn, scaled_lpn])
def test_a_compiler_makes_one_graph_of_the_training_of_an_lpn(
    make: Callable[[], ProximalDenoiser],
) -> None:
    model, gradients = make().train(), list[list[Tensor]]()
    for forward in (model, torch.compile(model, backend="aot_eager", fullgraph=True)):
        model.zero_grad()
        forward(images()).square().sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    assert gradients[0]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b)


def test_the_jobs(waits: Counter[str]) -> None:
    model, x = lpn().to(NAME), images(4)
    there, problem = x.to(NAME), DEBLURRING.to(torch.device(NAME))
    assert next(align(model, there).parameters()).device.type == NAME
    tuned = choose_strength(model, there, problem)
    assert tuned.denoiser(there).device.type == NAME
    diagnose(model, there, problem, model)
    y = problem.measure(there)
    for result in (
        adapt(model, problem=problem, measurements=y),
        adapt(model, x, problem, budget=0.1),
        adapt(
            model, x, problem, method="mse", settings=TrainingSettings(steps=2, batch=2, noise=0.1)
        ),
    ):
        assert result.denoiser(there).device.type == NAME
    TotalVariation(0.1)(there, None)


def test_what_is_sent_to_a_worker_is_on_the_cpu_and_arrives_on_its_device() -> None:
    """Ray's workers have other devices than the driver: here, none at all, and then this one."""
    there = torch.device(NAME, 0)
    with pretended_device():
        model, x = gs().to(NAME), images().to(NAME)
        sent = packed((model, x, x.device))
        assert sent.sender == there
        for place in (torch.device("cpu"), there):
            moved, y, device = unpacked(sent, place)
            parameters = list(moved.parameters())
            assert {p.device for p in (y, *parameters, *moved.buffers())} == {place} == {device}
            assert all(isinstance(p, torch.nn.Parameter) for p in parameters)
            expected = [p.requires_grad for p in model.parameters()]
            assert [p.requires_grad for p in parameters] == expected
            torch.testing.assert_close(moved(y).cpu(), model(x).cpu())
