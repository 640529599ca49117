from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings, strategies as st

from proxmatch._internal.randomness import generator_of
from proxmatch.errors import InputError
from proxmatch.learning import TrainingSettings, pairs, stream, windows

SETTINGS = TrainingSettings(batch=4, noise=0.1)


def images(count: int, generator: torch.Generator) -> torch.Tensor:
    return torch.rand(count, 1, 8, 8, generator=generator)


def few(number: int, side: int = 8) -> list[torch.Tensor]:
    return (
        list(images(number, torch.Generator().manual_seed(1)).expand(-1, 2, -1, -1))
        if (side == 8)
        else [torch.arange(float(side * side)).view(1, side, side) for _ in range(number)]
    )


def test_every_method_sees_the_same_images_and_noise() -> None:
    for source in (stream(images), pairs(few(3), 8, 2), pairs(few(3), 8, None)):
        mse, pm = (
            source(5, SETTINGS.model_copy(update={"loss": loss, "steps": steps}))
            for loss, steps in (("mse", 10), ("pm", 20))
        )
        assert torch.equal(mse.noisy, pm.noisy)
        assert torch.equal(mse.clean, pm.clean)
        assert mse.keys == pm.keys
        assert not torch.equal(mse.noisy, source(6, SETTINGS).noisy)
        other = SETTINGS.model_copy(update={"seed": 1})
        assert not torch.equal(mse.noisy, source(5, other).noisy)
    draws = [torch.rand(3, generator=generator_of(0, 1, what)) for what in ("images", "noise")]
    assert not torch.equal(draws[0], draws[1])


def test_noise_levels_are_those_asked_for() -> None:
    big = SETTINGS.model_copy(update={"batch": 400})
    batch = stream(images)(0, big)
    assert float((batch.noisy - batch.clean).std()) == pytest.approx(0.1, rel=0.02)
    assert batch.level is not None
    assert torch.equal(batch.level, torch.full((400,), 0.1))
    batch = stream(images)(0, big.model_copy(update={"noise": (0.0, 0.2)}))
    levels = (batch.noisy - batch.clean).flatten(1).std(1)
    assert float(levels.min()) < 0.01
    assert 0.18 < float(levels.max()) < 0.25
    assert batch.level is not None
    assert torch.allclose(levels, batch.level, rtol=0.35)  # of 64 pixels each
    fixed = pairs(few(3), 8, 2)(0, SETTINGS.model_copy(update={"noise": (0.0, 0.2), "batch": 6}))
    seen = (fixed.noisy - fixed.clean).flatten(1).std(1)
    assert fixed.level is not None
    assert torch.allclose(seen, fixed.level, rtol=0.35)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 7))
def test_an_epoch_sees_every_input_once(number: int, draws: int, batch: int) -> None:
    source = pairs(few(number), 8, draws)
    told = SETTINGS.model_copy(update={"batch": batch})
    inputs, epochs = number * draws, 3
    seen = [key for step in range(inputs * epochs) for key in source(step, told).keys or ()]
    for epoch in range(epochs * batch):
        part = seen[epoch * inputs : (epoch + 1) * inputs]
        assert sorted(part) == list(range(inputs))


def test_fixed_draws_come_back_and_fresh_ones_do_not() -> None:
    for draws, number in ((2, 6), (None, 24)):
        source = pairs(few(3), 8, draws)
        noise = Counter(
            tuple((noisy - clean).flatten()[:4].tolist())
            for step in range(6)
            for noisy, clean in zip(*_two(source(step, SETTINGS)), strict=True)
        )
        assert len(noise) == number


def _two(batch) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[no-untyped-def]
    return batch.noisy, batch.clean


def test_windows_are_pieces_of_the_images_and_lie_anywhere() -> None:
    large = torch.arange(100.0).view(1, 10, 10)
    source = pairs([large], 7, None)
    batch = source(0, SETTINGS.model_copy(update={"batch": 200}))
    corners = {int(clean[0, 0, 0]) for clean in batch.clean}
    assert corners == {10 * i + j for i in range(4) for j in range(4)}
    for clean in batch.clean:
        assert torch.equal(clean - clean[0, 0, 0], (large - large[0, 0, 0])[:, :7, :7])
    smaller = windows(images, 5)(3, torch.Generator().manual_seed(0))
    assert smaller.shape == (3, 1, 5, 5)


def test_images_that_are_too_small_are_refused() -> None:
    with pytest.raises(InputError, match="at least 9 x 9"):
        pairs(few(2), 9, 1)
    with pytest.raises(InputError, match="no images"):
        pairs([], 8, 1)
