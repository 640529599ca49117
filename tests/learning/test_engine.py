from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import safetensors.torch
import torch

from proxmatch.denoisers import LPN, GradientStep, ProximalDenoiser
from proxmatch.errors import CheckpointError, InputError
from proxmatch.learning import Optimiser, Penalty, RunStatus, TrainingSettings, run
from proxmatch.learning.engine import batch, generator_of, learning_rate
from tests.denoisers.zoo import DENOISERS
from tests.learning.worker import SETTINGS, images, model


def weights(denoiser: ProximalDenoiser) -> dict[str, torch.Tensor]:
    return {name: t.clone() for name, t in denoiser.state_dict().items()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_it_learns(tmp_path: Path) -> None:
    settings = SETTINGS.model_copy(update={"loss": "mse", "steps": 150})
    result = run(model(), images, settings, tmp_path)
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
    whole = run(model(), images, SETTINGS, tmp_path / "whole")

    def interrupt(step: int, loss: float) -> None:
        if step == stop:
            raise Interrupted

    with pytest.raises(Interrupted):
        run(model(), images, SETTINGS, tmp_path / "parts", on_step=interrupt)
    resumed = run(model(), images, SETTINGS, tmp_path / "parts")
    assert same(weights(resumed.model), weights(whole.model))
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
    for _ in range(2):
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
    run(model(), images, SETTINGS, tmp_path)
    with pytest.raises(CheckpointError, match=r"other settings \(seed\)"):
        run(model(), images, SETTINGS.model_copy(update={"seed": 1}), tmp_path)
    with pytest.raises(CheckpointError, match="another model"):
        run(DENOISERS["gs"](), images, SETTINGS, tmp_path)
    (tmp_path / "state.safetensors").write_bytes(b"nonsense")
    with pytest.raises(CheckpointError, match="remove it to start again"):
        run(model(), images, SETTINGS, tmp_path)


def test_a_loss_that_is_not_finite_is_skipped_and_then_stops_the_run(tmp_path: Path) -> None:
    def broken(count: int, generator: torch.Generator) -> torch.Tensor:
        x = images(count, generator)
        step = len(seen)
        seen.append(step)
        return x * float("nan") if step == 3 or step >= 20 else x

    seen: list[int] = []
    settings = SETTINGS.model_copy(update={"patience": 4})
    result = run(model(), broken, settings, tmp_path)
    assert result.status is RunStatus.NOT_FINITE
    assert result.skipped == 1 + 4
    assert result.steps == 14  # the last checkpoint before the trouble
    assert all(bool(torch.isfinite(t).all()) for t in result.model.state_dict().values())


def test_without_any_checkpoint_a_failed_run_gives_the_start_back(tmp_path: Path) -> None:
    start = model()
    before = weights(start)
    result = run(start, lambda n, g: images(n, g) * float("nan"), SETTINGS, tmp_path)
    assert (result.status, result.steps, result.history) == (RunStatus.NOT_FINITE, 0, [])
    assert same(weights(result.model), before)


def test_every_method_sees_the_same_images_and_noise() -> None:
    pairs = [
        batch(images, SETTINGS.model_copy(update={"loss": loss}), 5, model())
        for loss in ("mse", "pm")
    ]
    assert torch.equal(pairs[0][0], pairs[1][0])
    assert torch.equal(pairs[0][1], pairs[1][1])
    other = batch(images, SETTINGS, 6, model())
    assert not torch.equal(pairs[0][0], other[0])
    draws = [torch.rand(3, generator=generator_of(0, 1, what)) for what in ("images", "noise")]
    assert not torch.equal(draws[0], draws[1])


def test_noise_levels_are_those_asked_for() -> None:
    big = SETTINGS.model_copy(update={"batch": 400, "noise": 0.1})
    noisy, clean = batch(images, big, 0, model())
    assert float((noisy - clean).std()) == pytest.approx(0.1, rel=0.02)
    noisy, clean = batch(images, big.model_copy(update={"noise": (0.0, 0.2)}), 0, model())
    levels = (noisy - clean).flatten(1).std(1)
    assert float(levels.min()) < 0.01
    assert 0.18 < float(levels.max()) < 0.25


def test_learning_rate_rises_and_falls() -> None:
    settings = Optimiser(rate=1.0, warmup=10, final=0.1)
    rates = [learning_rate(settings, step, 101) for step in range(101)]
    assert rates[0] == pytest.approx(0.1, rel=1e-3)
    assert max(rates) == pytest.approx(rates[9], rel=1e-2)
    assert rates[-1] == pytest.approx(0.1)
    constant = Optimiser(rate=0.5, warmup=0, final=1)
    assert {learning_rate(constant, step, 9) for step in range(9)} == {0.5}


def test_the_penalty_lowers_l(tmp_path: Path) -> None:
    from proxmatch.denoisers import lipschitz

    def trained(penalty: Penalty | None) -> float:
        torch.manual_seed(0)
        denoiser = DENOISERS["gs"]()
        assert isinstance(denoiser, GradientStep)
        settings = TrainingSettings(
            steps=60, batch=4, noise=0.3, optimiser=Optimiser(rate=1e-2), penalty=penalty
        )
        folder = tmp_path / ("with" if penalty else "without")
        run(denoiser, lambda n, g: torch.rand(n, 2, 8, 8, generator=g), settings, folder)
        x = torch.rand(8, 2, 8, 8, generator=torch.Generator().manual_seed(9))
        return float(lipschitz(denoiser, x, iterations=100).constant.max())

    assert trained(Penalty(limit=0.3, weight=10, shift=0.1)) < trained(None) - 0.1


def test_a_penalty_for_an_lpn_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="gradient-step"):
        run(model(), images, SETTINGS.model_copy(update={"penalty": Penalty()}), tmp_path)


def test_lpn_stays_convex(tmp_path: Path) -> None:
    denoiser = run(model(), images, SETTINGS, tmp_path).model
    assert isinstance(denoiser, LPN)
    assert all(bool((p >= 0).all()) for p in denoiser.constrained().values())
