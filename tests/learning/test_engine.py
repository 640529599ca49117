from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch

from proxmatch.denoisers import LPN, GradientStep, GradientStepConfig, ProximalDenoiser
from proxmatch.errors import CheckpointError, InputError
from proxmatch.learning import (
    Check,
    Optimizer,
    Penalty,
    RunStatus,
    TrainingSettings,
    pairs,
    run,
    stream,
)
from proxmatch.learning.engine import schedule
from proxmatch.learning.sources import Batch
from proxmatch.losses import Constant
from tests.denoisers.zoo import DENOISERS
from tests.learning.worker import SETTINGS, images, model

#: ``PROXMATCH_KILLS=20 pytest tests/learning/test_engine.py -k sigkill`` for the long version.
KILLS = int(os.environ.get("PROXMATCH_KILLS", "2"))


def weights(denoiser: ProximalDenoiser) -> dict[str, torch.Tensor]:
    return {name: t.clone() for name, t in denoiser.state_dict().items()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_it_learns(tmp_path: Path) -> None:
    settings = SETTINGS.model_copy(update={"loss": "mse", "steps": 150})
    result = run(model(), stream(images), settings, tmp_path)
    losses = [line["loss"] for line in result.history]
    assert losses[-1] < 0.7 * losses[0]
    assert (result.status, result.steps, result.skipped) == (RunStatus.COMPLETED, 150, 0)
    assert [line["step"] for line in result.history] == list(range(5, 151, 5))
    logged = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert logged == result.history


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("stop", [1, 7, 8, 33, 59])
def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(tmp_path: Path, stop: int) -> None:
    whole = run(model(), stream(images), SETTINGS, tmp_path / "whole")

    def interrupt(step: int, loss: float) -> None:
        if step == stop:
            raise Interrupted

    with pytest.raises(Interrupted):
        run(model(), stream(images), SETTINGS, tmp_path / "parts", on_step=interrupt)
    resumed = run(model(), stream(images), SETTINGS, tmp_path / "parts")
    assert same(weights(resumed.denoiser), weights(whole.denoiser))
    assert resumed.history == whole.history


def test_sigkill_at_random_moments_changes_nothing(tmp_path: Path) -> None:
    """Killed again and again in a process of its own, the run ends with the same weights."""
    command = [sys.executable, "-m", "tests.learning.worker"]

    def start(folder: Path) -> subprocess.Popen[str]:
        worker = subprocess.Popen([*command, str(folder)], stdout=subprocess.PIPE, text=True)
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
        return worker

    assert start(tmp_path / "whole").wait(timeout=120) == 0
    chance = random.Random(3)  # noqa: S311
    kills = 0
    for _ in range(KILLS):
        worker = start(tmp_path / "killed")
        time.sleep(chance.uniform(0.02, 1.5))
        if worker.poll() is None:
            worker.send_signal(signal.SIGKILL)
            kills += 1
        worker.wait(timeout=120)
    assert start(tmp_path / "killed").wait(timeout=120) == 0
    assert kills > 0
    ends = [
        safetensors.torch.load_file(tmp_path / name / "final.safetensors")
        for name in ("whole", "killed")
    ]
    assert same(*ends)


def test_other_settings_in_the_same_folder_are_refused(tmp_path: Path) -> None:
    run(model(), stream(images), SETTINGS, tmp_path)
    with pytest.raises(CheckpointError, match=r"other settings \(seed\)"):
        run(model(), stream(images), SETTINGS.model_copy(update={"seed": 1}), tmp_path)
    with pytest.raises(CheckpointError, match="another model"):
        run(DENOISERS["gs"](), stream(images), SETTINGS, tmp_path)
    (tmp_path / "state.safetensors").write_bytes(b"nonsense")
    with pytest.raises(CheckpointError, match="remove it to start again"):
        run(model(), stream(images), SETTINGS, tmp_path)


def test_a_loss_that_is_not_finite_is_skipped_and_then_stops_the_run(tmp_path: Path) -> None:
    def broken(count: int, generator: torch.Generator) -> torch.Tensor:
        x = images(count, generator)
        step = len(seen)
        seen.append(step)
        return x * float("nan") if step == 3 or step >= 20 else x

    seen: list[int] = []
    settings = SETTINGS.model_copy(update={"patience": 4})
    result = run(model(), stream(broken), settings, tmp_path)
    assert result.status is RunStatus.NOT_FINITE
    assert result.skipped == 1 + 4
    assert result.steps == 14  # the last checkpoint before the trouble
    assert all(bool(torch.isfinite(t).all()) for t in result.denoiser.state_dict().values())


def test_without_any_checkpoint_a_failed_run_gives_the_start_back(tmp_path: Path) -> None:
    """Also when some steps went well before."""

    def breaking(step: int, settings: TrainingSettings) -> Batch:
        batch = stream(images)(step, settings)
        return batch if step < 4 else replace(batch, noisy=batch.noisy * float("nan"))

    start = model()
    before = weights(start)
    settings = SETTINGS.model_copy(update={"checkpoint_every": 100})
    result = run(start, breaking, settings, tmp_path)
    assert (result.status, result.steps, result.history) == (RunStatus.NOT_FINITE, 0, [])
    assert same(weights(result.denoiser), before)


def test_a_run_whose_last_step_is_skipped_ends_like_any_other(tmp_path: Path) -> None:
    def breaking(step: int, settings: TrainingSettings) -> Batch:
        batch = stream(images)(step, settings)
        return batch if step < 59 else replace(batch, noisy=batch.noisy * float("nan"))

    looks: list[dict[str, torch.Tensor]] = []

    def check(seen: ProximalDenoiser) -> Check:
        looks.append(weights(seen))
        return Check(float(len(looks)), {})

    settings = SETTINGS.model_copy(update={"check_every": 25})
    result = run(model(), breaking, settings, tmp_path, check=check)
    assert (result.status, result.steps, result.skipped) == (RunStatus.COMPLETED, 60, 1)
    assert (len(looks), result.best_step) == (4, 60)  # 0, 25, 50 and the end
    assert result.best is not None
    assert same(result.best, weights(result.denoiser))
    again = run(model(), breaking, settings, tmp_path, check=check)
    assert len(looks) == 4
    assert same(weights(again.denoiser), weights(result.denoiser))


def test_a_network_that_wants_it_is_told_the_noise_level_of_every_image(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = GradientStepConfig(channels=1, network="drunet", widths=(2, 2, 2, 2), blocks=1)
    denoiser = GradientStep(config.model_copy(update={"sigma": 0.04}))
    told: list[torch.Tensor] = []
    denoiser.network.register_forward_pre_hook(lambda _, given: told.append(given[1].clone()))

    def half(step: int, settings: TrainingSettings) -> Batch:
        batch = stream(lambda n, g: torch.rand(n, 1, 16, 16, generator=g))(step, settings)
        levels.append(batch.level)
        assert batch.level is not None
        return replace(batch, level=torch.where(torch.arange(4) == 2, torch.nan, batch.level))

    levels: list[torch.Tensor | None] = []
    settings = TrainingSettings(
        steps=2, batch=4, noise=(0.01, 0.2), penalty=Penalty(iterations=2, begin=0.0)
    )
    run(denoiser, half, settings, tmp_path)
    calls = len(told) // 2
    for step, level in enumerate(levels):
        assert level is not None
        level[2] = 0.04  # its own, where none is given
        assert len(level.unique()) == 4
        assert calls > 3  # the loss, the search for directions, the penalty
        for given in told[calls * step : calls * (step + 1)]:
            assert torch.equal(given.flatten(), level)


def test_learning_rate_rises_and_falls() -> None:
    settings = TrainingSettings(steps=101, optimizer=Optimizer(rate=1.0, warmup=10, final=0.1))
    rates = [settings.optimizer.rate * schedule(settings, step) for step in range(101)]
    assert rates[0] == pytest.approx(0.1, rel=1e-3)
    assert max(rates) == pytest.approx(rates[9], rel=1e-2)
    assert rates[-1] == pytest.approx(0.1)
    constant = TrainingSettings(steps=9, optimizer=Optimizer(rate=0.5, warmup=0, final=1))
    assert {constant.optimizer.rate * schedule(constant, step) for step in range(9)} == {0.5}


def test_a_late_penalty_has_a_cosine_of_its_own() -> None:
    settings = TrainingSettings(
        steps=101,
        optimizer=Optimizer(rate=1.0, warmup=0, final=0.0),
        penalty=Penalty(begin=0.8, restart=0.25),
    )
    rates = [settings.optimizer.rate * schedule(settings, step) for step in range(101)]
    assert (rates[0], rates[80], rates[100]) == pytest.approx((1, 0.25, 0))
    assert rates[40] == pytest.approx(0.5)
    assert rates[90] == pytest.approx(0.125)
    assert rates[79] < 0.01


def test_the_penalty_lowers_l(tmp_path: Path) -> None:
    from proxmatch.denoisers import jacobian_spectrum

    def trained(penalty: Penalty | None) -> float:
        torch.manual_seed(0)
        denoiser = DENOISERS["gs"]()
        assert isinstance(denoiser, GradientStep)
        settings = TrainingSettings(
            steps=60, batch=4, noise=0.3, optimizer=Optimizer(rate=1e-2), penalty=penalty
        )
        folder = tmp_path / ("with" if penalty else "without")
        run(
            denoiser,
            stream(lambda n, g: torch.rand(n, 2, 8, 8, generator=g)),
            settings,
            folder,
        )
        x = torch.rand(8, 2, 8, 8, generator=torch.Generator().manual_seed(9))
        return float(jacobian_spectrum(denoiser, x, iterations=100).constant.max())

    assert trained(Penalty(limit=0.3, weight=10, shift=0.1)) < trained(None) - 0.1


def test_a_penalty_for_an_lpn_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="gradient-step"):
        run(model(), stream(images), SETTINGS.model_copy(update={"penalty": Penalty()}), tmp_path)


def test_mixed_precision_trains_alike_and_returns_single_precision(tmp_path: Path) -> None:
    """bfloat16 rounds to 3 digits: the gradients nearly agree, what is returned is exact."""
    from proxmatch.learning.settings import Levels

    def trained(mixed: bool) -> tuple[GradientStep, float]:
        torch.manual_seed(0)
        config = GradientStepConfig.scaled(
            channels=1, widths=(8, 8), levels=(0.003, 0.3), contrast=0.25, sigma=0.1
        )
        settings = TrainingSettings(
            steps=40, batch=2, noise=Levels(low=0.003, high=0.3), mixed=mixed, log_every=1
        )
        result = run(GradientStep(config), pairs(given(), 8, 2), settings, tmp_path / str(mixed))
        assert isinstance(result.denoiser, GradientStep)
        return result.denoiser, result.history[0]["gradient"]

    (single, gradient), (mixed, rounded) = trained(False), trained(True)
    assert rounded == pytest.approx(gradient, rel=0.05)
    assert rounded != gradient  # it was in bfloat16
    x = torch.stack(given())
    assert not mixed.mixed
    assert {p.dtype for p in mixed.parameters()} == {torch.float32}
    exact = mixed.double()(x.double(), 0.003)
    torch.testing.assert_close(mixed.float()(x, 0.003).double(), exact, atol=1e-6, rtol=0)
    torch.testing.assert_close(single(x, 0.1), mixed(x, 0.1), atol=0.01, rtol=0)


def test_mixed_precision_for_an_lpn_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="mixed"):
        run(model(), stream(images), SETTINGS.model_copy(update={"mixed": True}), tmp_path)


def test_lpn_stays_convex(tmp_path: Path) -> None:
    denoiser = run(model(), stream(images), SETTINGS, tmp_path).denoiser
    assert isinstance(denoiser, LPN)
    assert all(bool((p >= 0).all()) for p in denoiser.constrained().values())


def given() -> list[torch.Tensor]:
    return list(torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(4)))


@pytest.mark.parametrize("stop", [9, 25])
def test_directions_and_the_best_weights_survive_an_interruption(tmp_path: Path, stop: int) -> None:
    """A penalized run with checks: everything it remembers is in the state."""
    settings = TrainingSettings(
        steps=30,
        batch=2,
        noise=0.3,
        checkpoint_every=4,
        check_every=5,
        log_every=1,
        optimizer=Optimizer(rate=3e-2),
        penalty=Penalty(limit=0.1, weight=1, iterations=2, shift=0.1),
    )

    def check(denoiser: ProximalDenoiser) -> Check:
        x = torch.stack(given())
        return Check(-float((denoiser(x).detach() - x).square().mean()), {"looked": True})

    def start() -> GradientStep:
        torch.manual_seed(0)
        return GradientStep(GradientStepConfig(channels=1, widths=(4, 6)))

    def interrupt(step: int, loss: float) -> None:
        if step == stop:
            raise Interrupted

    source = pairs(given(), 8, 2)
    whole = run(start(), source, settings, tmp_path / "whole", check=check)
    with pytest.raises(Interrupted):
        run(start(), source, settings, tmp_path / "parts", check=check, on_step=interrupt)
    resumed = run(start(), source, settings, tmp_path / "parts", check=check)
    assert same(weights(resumed.denoiser), weights(whole.denoiser))
    assert resumed.history == whole.history
    assert whole.best is not None
    assert resumed.best is not None
    assert same(resumed.best, whole.best)
    scores = {line["step"]: line["score"] for line in whole.history if "score" in line}
    assert sorted(scores) == [0, 5, 10, 15, 20, 25, 30]
    assert whole.best_step == resumed.best_step == max(scores, key=lambda k: scores[k])


def test_kept_directions_find_a_larger_l_than_fresh_ones(tmp_path: Path) -> None:
    """Few iterations a step underestimate L, unless they go on from where they were."""

    def seen(draws: int | None) -> float:
        torch.manual_seed(0)
        denoiser = GradientStep(GradientStepConfig(channels=1, widths=(4, 6)))
        settings = TrainingSettings(
            steps=40,
            batch=3,
            noise=0.3,
            log_every=1,
            optimizer=Optimizer(rate=1e-12),
            penalty=Penalty(limit=1e-3, weight=1e-9, iterations=1, shift=0.0),
        )
        source = pairs(given(), 8, 1) if draws else stream(lambda n, g: torch.stack(given()[:n]))
        history = run(denoiser, source, settings, tmp_path / str(draws)).history
        return sum(line["contractivity"] for line in history[-10:]) / 10

    assert seen(1) > 1.1 * seen(None)


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(model(), stream(images), SETTINGS, tmp_path / "whole")
    fsync = os.fsync
    calls = []

    def full(handle: int) -> None:
        calls.append(handle)
        if len(calls) > 6:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match=r"No space left.*can be resumed from the previous"):
        run(model(), stream(images), SETTINGS, tmp_path / "parts")
    left = sorted(file.name for file in (tmp_path / "parts").iterdir())
    assert left == ["log.jsonl", "state.safetensors"]
    monkeypatch.undo()
    resumed = run(model(), stream(images), SETTINGS, tmp_path / "parts")
    assert same(weights(resumed.denoiser), weights(whole.denoiser))
    assert resumed.history == whole.history


def test_two_processes_do_what_one_does(tmp_path: Path) -> None:
    """Fabric's DDP on gloo, started by torchrun: the same loss curves, directions and all.

    Among the runs are a few steps of the paper's presets, with fewer channels.
    """
    histories = []
    for processes in (1, 2):
        folder = tmp_path / str(processes)
        folder.mkdir()
        torchrun = ("torch.distributed.run", "--standalone", "--nproc-per-node", str(processes))
        worker = ("-m", "tests.learning.shared_worker", folder, str(processes))
        command = [sys.executable, "-m", *torchrun, *worker]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        histories.append(json.loads((folder / "histories.json").read_text()))
    for one, two in zip(*histories, strict=True):
        assert [line["step"] for line in one] == [line["step"] for line in two]
        for a, b in zip(one, two, strict=True):
            assert a.keys() == b.keys()
            for name in a:  # a weight that one run has at zero, the other a hair above, is felt
                bound = 1e-4 if name == "loss" else 1e-2
                assert a[name] == pytest.approx(b[name], rel=bound, abs=1e-6), (name, a["step"])


def test_mixed_precision_is_refused_and_double_is_not(tmp_path: Path) -> None:
    from lightning_fabric import Fabric

    half = Fabric(accelerator="cpu", devices=1, precision="bf16-mixed")
    with pytest.raises(InputError, match="rounds the images"):
        run(model(), stream(images), SETTINGS, tmp_path, fabric=half)
    double = Fabric(accelerator="cpu", devices=1, precision="64-true")
    trained = run(model(), stream(images), SETTINGS, tmp_path / "double", fabric=double).denoiser
    assert {p.dtype for p in trained.parameters()} == {torch.float64}


def test_what_is_logged_goes_to_the_loggers_of_fabric(tmp_path: Path) -> None:
    from lightning_fabric import Fabric
    from lightning_fabric.loggers import CSVLogger

    logger = CSVLogger(tmp_path / "csv")
    fabric = Fabric(accelerator="cpu", devices=1, loggers=logger)
    result = run(model(), stream(images), SETTINGS, tmp_path / "run", fabric=fabric)
    logger.save()
    lines = (Path(logger.log_dir) / "metrics.csv").read_text().splitlines()
    assert len(lines) == len(result.history) + 1


GAMMA = 0.1


@pytest.mark.parametrize("loss", ["mse", "l1", "pm", "scaled-mse"])
def test_a_step_is_charged_the_loss_that_was_asked_for(loss: str, tmp_path: Path) -> None:
    changes = {"loss": loss, "gamma": Constant(gamma=GAMMA), "steps": 1}
    settings = SETTINGS.model_copy(update=changes)
    told = run(model(), stream(images), settings, tmp_path).history[0]["loss"]
    batch = stream(images)(0, settings)
    with torch.no_grad():
        error = (model()(batch.noisy) - batch.clean).flatten(1)
    t = error.square().mean(1) / (2 * GAMMA**2)
    expected = {
        "mse": error.square().mean(),
        "l1": error.abs().mean(),
        "pm": (1 - torch.exp(-t)).mean(),
        "scaled-mse": t.mean(),
    }
    assert told == pytest.approx(float(expected[loss]), rel=1e-4)


def test_the_gradient_is_bounded_in_units_of_the_squared_error(tmp_path: Path) -> None:
    denoiser, norms = model(), []

    def watch(step: int, loss: float) -> None:
        found = [p.grad.flatten() for p in denoiser.parameters() if p.grad is not None]
        norms.append(float(torch.cat(found).norm()))

    changes = {"gamma": Constant(gamma=GAMMA), "optimizer": Optimizer(clip=1e-4)}
    settings = SETTINGS.model_copy(update={**changes, "loss": "scaled-mse", "steps": 2})
    history = run(denoiser, stream(images), settings, tmp_path, on_step=watch).history
    assert norms == pytest.approx([1e-4 / (2 * GAMMA**2)] * 2, rel=1e-3)
    assert history[-1]["gradient"] > 2 * norms[-1]


def test_the_penalty_is_added_on_the_scale_of_the_loss_from_its_beginning_on(
    tmp_path: Path,
) -> None:
    def history(penalty: Penalty | None, name: str) -> list[dict[str, float]]:
        torch.manual_seed(0)
        denoiser = GradientStep(GradientStepConfig(channels=1, widths=(4, 6)))
        settings = TrainingSettings(
            loss="pm", gamma=Constant(gamma=GAMMA), steps=2, batch=1, log_every=1, penalty=penalty
        )
        return run(denoiser, stream(images), settings, tmp_path / name).history

    penalty = Penalty(limit=1e-3, weight=3.0)
    [plain, _], [charged, _] = history(None, "without"), history(penalty, "with")
    excess = (charged["contractivity"] - penalty.limit) ** 2
    added = charged["loss"] - plain["loss"]
    assert added == pytest.approx(3.0 * excess / (2 * GAMMA**2), rel=1e-3)
    late = history(penalty.model_copy(update={"begin": 0.5}), "late")
    assert ["contractivity" in line for line in late] == [False, True]
