from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from proxmatch.denoisers import LPN, LPNConfig
from proxmatch.errors import InputError
from proxmatch.learning import (
    Augmentation,
    Optimizer,
    TrainingSettings,
    TrajectoryInputs,
    pairs,
    run,
)
from proxmatch.learning.query_points import along_trajectory, queries
from proxmatch.problems import gaussian_deblurring, super_resolution

PROBLEMS = [
    gaussian_deblurring(8, channels=1, iterations=5),
    super_resolution(8, factor=2, kernel_size=5, channels=1, iterations=5),
]
SETTINGS = TrainingSettings(
    steps=40,
    batch=4,
    noise=0.1,
    optimizer=Optimizer(rate=5e-3),
    trajectory=TrajectoryInputs(share=0.5, refresh=10, images=3),
    augmentation=Augmentation(),
    averaging=0.9,
    checkpoint_every=10,
)


def model() -> LPN:
    torch.manual_seed(0)
    return LPN(LPNConfig(channels=1, size=8, hidden=8, features=8, strides=(2,), sigma=0.1))


@pytest.fixture
def images() -> list[torch.Tensor]:
    return list(torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(1)))


def test_query_points_are_gradient_steps_of_the_iterates(images: list[torch.Tensor]) -> None:
    denoiser, clean, problem = model(), torch.stack(images), PROBLEMS[0]
    found = queries(denoiser, clean, [problem], seed=4)
    y = problem.measure(clean, seed=4)
    x, expected = problem.initial(y), []
    for _ in range(5):
        z = x - problem.eta * problem.gradient(x, y)
        expected.append(z)
        x = denoiser(z).detach()
    torch.testing.assert_close(found.points, torch.stack(expected, 1).flatten(0, 1))
    assert torch.equal(found.clean, clean.repeat_interleave(5, 0))


def test_query_points_out_of_range_are_left_out(images: list[torch.Tensor]) -> None:
    denoiser = model()
    with torch.no_grad():
        for parameter in denoiser.parameters():
            parameter.mul_(3)
    found = queries(denoiser, torch.stack(images), PROBLEMS)
    assert len(found.points) < 3 * 2 * 5
    assert float(found.points.abs().max()) <= 2


def test_a_share_of_the_batch_is_query_points_of_the_model_as_it_is(
    images: list[torch.Tensor],
) -> None:
    denoiser = model()
    source = pairs(images, 8, None)
    mixed = along_trajectory(source, denoiser, PROBLEMS)
    first, plain = mixed(0, SETTINGS), source(0, SETTINGS)
    assert torch.equal(first.noisy[2:], plain.noisy[2:])
    assert first.level is not None
    assert plain.level is not None
    assert bool(first.level[:2].isnan().all())  # no noise was added: the denoiser's own level
    assert torch.equal(first.level[2:], plain.level[2:])
    held = queries(denoiser, source(0, SETTINGS).clean[:3], PROBLEMS, seed=0)

    def among(point: torch.Tensor, clean: torch.Tensor) -> bool:
        return any(
            torch.equal(point, p) and torch.equal(clean, c)
            for p, c in zip(held.points, held.clean, strict=True)
        )

    assert all(among(first.noisy[i], first.clean[i]) for i in range(2))
    with torch.no_grad():
        for parameter in denoiser.parameters():
            parameter.mul_(0.5)
    assert all(among(*pair) for pair in zip(*_head(mixed(9, SETTINGS)), strict=True))
    assert not any(among(*pair) for pair in zip(*_head(mixed(10, SETTINGS)), strict=True))


def _head(batch):  # type: ignore[no-untyped-def]
    return batch.noisy[:2], batch.clean[:2]


@pytest.mark.parametrize("stop", [3, 10, 27])
def test_an_interrupted_run_goes_on_with_the_same_query_points_and_average(
    images: list[torch.Tensor], tmp_path: Path, stop: int
) -> None:
    class Interrupted(Exception):
        pass

    def interrupt(step: int, loss: float) -> None:
        if step == stop:
            raise Interrupted

    def start() -> tuple[LPN, object]:
        denoiser = model()
        return denoiser, along_trajectory(pairs(images, 8, None), denoiser, PROBLEMS)

    whole = run(*start(), SETTINGS, tmp_path / "whole")  # type: ignore[arg-type]
    with pytest.raises(Interrupted):
        run(*start(), SETTINGS, tmp_path / "parts", on_step=interrupt)  # type: ignore[arg-type]
    resumed = run(*start(), SETTINGS, tmp_path / "parts")  # type: ignore[arg-type]
    again = run(*start(), SETTINGS, tmp_path / "parts")  # type: ignore[arg-type]
    for name, t in whole.denoiser.state_dict().items():
        assert torch.equal(t, resumed.denoiser.state_dict()[name])
        assert torch.equal(t, again.denoiser.state_dict()[name])


def test_the_average_is_an_exponential_one(images: list[torch.Tensor], tmp_path: Path) -> None:
    settings = SETTINGS.model_copy(update={"trajectory": None, "steps": 6})
    denoiser, seen = model(), []

    def record(step: int, loss: float) -> None:
        seen.append({name: t.double().clone() for name, t in denoiser.state_dict().items()})

    run(denoiser, pairs(images, 8, None), settings, tmp_path, on_step=record)
    for name, t in denoiser.state_dict().items():
        mean = seen[0][name]
        for later in seen[1:]:
            mean = 0.9 * mean + 0.1 * later[name]
        torch.testing.assert_close(t.double(), mean, rtol=1e-5, atol=1e-7)


def test_what_does_not_fit_is_refused(images: list[torch.Tensor]) -> None:
    with pytest.raises(ValidationError, match=r"multiple of trajectory\.refresh"):
        TrainingSettings(trajectory=TrajectoryInputs(refresh=7), checkpoint_every=10)
    with pytest.raises(InputError, match="at least one problem"):
        along_trajectory(pairs(images, 8, None), model(), [])
