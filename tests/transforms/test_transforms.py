"""The algebra of the transforms, and what each does to R, L_H and the noise level.

That each is an exact proximal map is tested with all other denoisers in tests/denoisers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from proxmatch.baselines import Identity, Wiener
from proxmatch.denoisers import (
    LPN,
    GradientStep,
    GradientStepConfig,
    LPNConfig,
    ProximalDenoiser,
    jacobian_spectrum,
    load,
    save,
)
from proxmatch.errors import CheckpointError, InputError, NotContractiveError, UnknownLipschitzError
from proxmatch.transforms import TRANSFORMS, Aligned, Relaxed, Symmetrized
from tests.denoisers.test_checkpoint import edit

C = 3


def lpn() -> LPN:
    model = LPN(LPNConfig(size=4, unshuffle=1, hidden=6, features=5, strides=(2,), channels=C))
    with torch.no_grad():
        for p in model.parameters():
            p += 0.05 * torch.randn_like(p)
    return model.double()


def images(count: int = 2, size: tuple[int, int] = (4, 4)) -> Tensor:
    return torch.rand(count, C, *size, dtype=torch.float64)


def orthogonal() -> Tensor:
    return torch.linalg.qr(torch.randn(C, C, dtype=torch.float64))[0]


def aligned(inner: ProximalDenoiser, scale: float = 0.5) -> Aligned:
    return Aligned(inner, scale, orthogonal(), torch.rand(C), torch.rand(C))


# --- Aligned -------------------------------------------------------------------------------------


@given(seed=st.integers(0, 2**31), scale=st.floats(0.1, 3))
def test_alignment_is_the_formula_written_pixel_by_pixel(seed: int, scale: float) -> None:
    torch.manual_seed(seed)
    inner, u, m, c, x = lpn(), orthogonal(), torch.rand(C), torch.rand(C), images(1)
    seen = torch.empty_like(x)
    for i in range(4):
        for j in range(4):
            seen[0, :, i, j] = scale * u @ (x[0, :, i, j] - m) + c
    out = inner(seen)
    expected = torch.empty_like(x)
    for i in range(4):
        for j in range(4):
            expected[0, :, i, j] = u.T @ (out[0, :, i, j] - c) / scale + m
    assert torch.allclose(Aligned(inner, scale, u, m, c)(x), expected, rtol=1e-9, atol=1e-11)


def test_alignment_scales_the_regularizer() -> None:
    """R'(u) = R(A u) / s^2 up to a constant: the same differences between images."""
    inner = lpn()
    model = aligned(inner, 0.7)
    u = model(images(3)).detach()
    ours, theirs = model.regularizer(u), inner.regularizer(model.enter(u)) / 0.7**2
    assert torch.allclose(ours - ours[0], theirs - theirs[0], atol=1e-8)


def test_alignments_compose_to_one() -> None:
    inner = lpn()
    first = aligned(inner, 0.5)
    second = aligned(first, 0.8)
    # A_1 A_2 x = s_1 s_2 U_1 U_2 (x - m_2) + A_1 c_2
    center = first.enter(second.center.view(1, C, 1, 1)).flatten()
    together = Aligned(inner, 0.4, first.rotation @ second.rotation, second.mean, center)
    x = images()
    assert torch.allclose(second(x), together(x), atol=1e-12)


def test_the_noise_level_is_seen_through_the_scale() -> None:
    """A D made for 0.1 removes noise of 0.2 when it sees images at half their contrast."""

    class Told(Identity):
        def forward(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
            self.told = sigma
            return x

    inner = Told(C)
    inner.sigma = 0.1
    model = Relaxed(Symmetrized(aligned(inner, 0.5)), 0.5)
    assert model.sigma == 0.2
    model(images(), torch.tensor([0.3, 0.1]))
    assert torch.equal(torch.as_tensor(inner.told), torch.tensor([0.15, 0.05]))
    model.sigma = 0.3
    assert inner.sigma == 0.15


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scale": 0.0}, "scale"),
        ({"scale": float("nan")}, "scale"),
        ({"rotation": 1.1 * torch.eye(C)}, "not orthogonal"),
        ({"rotation": torch.eye(2)}, "3 x 3"),
        ({"mean": [0.5]}, "mean must hold 3"),
        ({"center": [0.5, float("inf"), 0.5]}, "center"),
    ],
)
def test_alignments_that_are_none(change: dict[str, object], message: str) -> None:
    good: dict[str, object] = {
        "scale": 1.0,
        "rotation": torch.eye(C),
        "mean": [0.5] * C,
        "center": [0.5] * C,
    }
    with pytest.raises(InputError, match=message):
        Aligned(Identity(C), **{**good, **change})  # type: ignore[arg-type]


def test_an_alignment_keeps_its_own_numbers() -> None:
    mean = torch.zeros(C, dtype=torch.float64)
    kept = Aligned(lpn(), 0.5, torch.eye(C), mean, [0.5] * C)
    x = images()
    before = kept(x)
    mean += 1
    assert torch.equal(kept(x), before)


def test_a_rotation_in_float32_is_made_exact() -> None:
    model = Aligned(Identity(C), 1.0, orthogonal().float(), [0.0] * C, [0.0] * C)
    assert torch.allclose(model.rotation.T @ model.rotation, torch.eye(C).double(), atol=1e-14)


# --- Relaxed -------------------------------------------------------------------------------------


@settings(max_examples=5)
@given(seed=st.integers(0, 2**31), t=st.floats(0.05, 0.95))
def test_relaxing_takes_the_moreau_envelope(seed: int, t: float) -> None:
    """R_t(u) = t min_v { R(v) + |u - v|^2 / (2 (1 - t)) }, the minimum at D(D_t^{-1}(u))."""
    torch.manual_seed(seed)
    inner, x = lpn(), images()
    model = Relaxed(inner, t)
    u = model(x).detach()

    def objective(v: Tensor) -> Tensor:
        distance = (u - v).square().flatten(1).sum(1)
        return t * (inner.regularizer(v) + distance / (2 * (1 - t)))

    v = inner(x).detach()
    ours, envelope = model.regularizer(u), objective(v)
    assert torch.allclose(ours - ours[0], envelope - envelope[0], atol=1e-7)
    near = inner(x + 0.1 * torch.randn_like(x)).detach()
    assert bool((objective(near) >= envelope).all())


@given(seed=st.integers(0, 2**31), t=st.floats(0.05, 1))
def test_relaxing_moves_the_eigenvalues_to_one(seed: int, t: float) -> None:
    torch.manual_seed(seed)
    inner, x = lpn(), images(1)

    def eigenvalues(model: ProximalDenoiser) -> Tensor:
        _, product = model.linearize(x.expand(48, -1, -1, -1))
        return torch.linalg.eigvalsh(
            product(torch.eye(48, dtype=torch.float64).view(48, C, 4, 4)).flatten(1)
        )

    model = Relaxed(inner, t)
    assert torch.allclose(eigenvalues(model), 1 - t + t * eigenvalues(inner), atol=1e-10)
    assert float(1 / eigenvalues(model)[0]) <= model.smoothness * (1 + 1e-9)
    assert model.smoothness == pytest.approx(1 / (1 - t + t * inner.config.alpha))


def test_relaxing_makes_a_gradient_step_denoiser_contractive() -> None:
    """L >= 1 is not a proximal map; t L < 1 is one again."""
    inner = GradientStep(GradientStepConfig(channels=C, widths=(4, 5))).double()
    with torch.no_grad():
        for p in inner.parameters():
            p.normal_(0, 0.3)
    x = images(2, (8, 8))
    found = float(jacobian_spectrum(inner, x, iterations=100).constant.max())
    assert found > 1
    with pytest.raises(UnknownLipschitzError):
        _ = Relaxed(inner, 0.5).smoothness
    inner.lipschitz = found
    with pytest.raises(NotContractiveError, match="weaken it"):
        _ = Symmetrized(aligned(inner)).smoothness
    t = 0.5 / found
    assert aligned(Symmetrized(Relaxed(inner, t))).smoothness == pytest.approx(2)
    relaxed = jacobian_spectrum(Relaxed(inner, t), x, iterations=100)
    assert float(relaxed.constant.max()) == pytest.approx(0.5, rel=1e-6)


@pytest.mark.parametrize("t", [0.0, -0.1, 1.0001, 2.0, float("nan")])
def test_strengths_that_are_refused(t: float) -> None:
    with pytest.raises(InputError, match=r"t must be in \(0, 1\]"):
        Relaxed(Identity(C), t)


# --- Symmetrized ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("group", "order"), [("flips", 4), ("dihedral", 8)])
def test_symmetrizing_commutes_with_the_group(group: str, order: int) -> None:
    inner = lpn()
    model = Symmetrized(inner, group)  # type: ignore[arg-type]
    x = images()
    moves: list[Callable[[Tensor], Tensor]] = [lambda v: v.flip(-1), lambda v: v.flip(-2)]
    if group == "dihedral":
        moves.append(lambda v: v.transpose(-1, -2))
    assert len(model.elements) == order
    for move in moves:
        assert torch.allclose(model(move(x)), move(model(x)), atol=1e-12)
        assert torch.allclose(model.potential(move(x)), model.potential(x), atol=1e-12)
        assert not torch.allclose(inner(move(x)), move(inner(x)), atol=1e-4)
    assert torch.allclose(Symmetrized(model, group)(x), model(x), atol=1e-12)  # type: ignore[arg-type]


def test_every_element_of_a_group_is_there_once() -> None:
    x = torch.arange(9.0).view(1, 1, 3, 3)

    class Remember(Identity):
        def forward(self, x: Tensor, sigma: float | Tensor | None = None) -> Tensor:
            seen.add(tuple(x.flatten().tolist()))
            return x

    for group, order in (("flips", 4), ("dihedral", 8)):
        seen: set[tuple[float, ...]] = set()
        assert torch.equal(Symmetrized(Remember(1), group)(x), x)  # type: ignore[arg-type]
        assert len(seen) == order


def test_groups_are_checked() -> None:
    with pytest.raises(InputError, match="no group"):
        Symmetrized(Identity(C), "cyclic")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="square"):
        Symmetrized(Identity(C), "dihedral")(images(1, (4, 6)))


# --- all of them ---------------------------------------------------------------------------------


def test_transforms_commute() -> None:
    """A^{-1} (t D + (1 - t) Id) A = t A^{-1} D A + (1 - t) Id, and pixels move without colors."""
    inner, x = lpn(), images()
    outer = aligned(inner)
    numbers = outer.settings
    together = Symmetrized(Relaxed(outer, 0.3))(x)
    assert torch.allclose(Aligned(Symmetrized(Relaxed(inner, 0.3)), **numbers)(x), together)
    assert torch.allclose(Relaxed(Aligned(Symmetrized(inner), **numbers), 0.3)(x), together)
    assert torch.allclose(Relaxed(Relaxed(inner, 0.5), 0.4)(x), Relaxed(inner, 0.2)(x))


def test_only_proximal_denoisers_are_transformed() -> None:
    with pytest.raises(InputError, match="ProximalDenoiser"):
        Relaxed(torch.nn.Identity(), 0.5)  # type: ignore[arg-type]


def test_a_transform_follows_its_denoiser() -> None:
    inner = lpn().eval()
    model = Relaxed(aligned(inner), 0.5)
    assert not model.training
    assert model.always_convex
    assert model.channels == C
    assert next(model.parameters()) is next(inner.parameters())
    assert model.float()(images().float()).dtype == torch.float32
    gs = GradientStep(GradientStepConfig(channels=C, widths=(4, 5)))
    assert not Relaxed(gs, 0.5).always_convex


def test_a_chain_is_saved_with_all_its_records(tmp_path: Path) -> None:
    inner = Wiener.fit(images(2, (8, 8)), 0.1)
    model = Relaxed(aligned(inner), 0.3)
    inner.record, model.record = {"trained": "here"}, {"problem": "blur"}
    again = load(save(model, tmp_path))
    assert isinstance(again, Relaxed)
    assert isinstance(again.inner, Aligned)
    assert isinstance(again.inner.inner, Wiener)
    assert (again.record, again.inner.inner.record) == (model.record, inner.record)
    assert again.inner.settings == model.inner.settings
    x = images(2, (5, 6))
    assert torch.equal(again(x), model(x))


def test_plain_models_stay_readable_by_older_versions(tmp_path: Path) -> None:
    text = (save(lpn(), tmp_path) / "config.json").read_text()
    assert '"version": 1' in text
    assert "transforms" not in text
    assert '"version": 2' in (save(Relaxed(lpn(), 0.5), tmp_path) / "config.json").read_text()


@pytest.mark.parametrize(
    ("transforms", "message"),
    [
        ([{"kind": "sharpened", "settings": {}}], "no transform 'sharpened'; there are aligned"),
        ([{"kind": "relaxed", "settings": {"t": 2}}], r"transform 1, relaxed: t must be in"),
        ([{"kind": "relaxed", "settings": {"t": "0.5"}}], "transform 1, relaxed"),
        ([{"kind": "relaxed", "settings": {"strength": 0.5}}], "strength"),
        ([{"kind": "relaxed"}], "settings"),
        ([{"kind": "relaxed", "settings": {"t": 0.5}, "code": 1}], "code"),
        ({"kind": "relaxed"}, "transforms"),
        ([{"kind": "relaxed", "settings": {"t": 0.5}}] * 65, "transforms"),
        (
            [
                {"kind": "relaxed", "settings": {"t": 0.5}},
                {"kind": "aligned", "settings": {"scale": 1, "rotation": [[1]], "mean": [0]}},
            ],
            "transform 2, aligned",
        ),
    ],
)
def test_chains_are_checked(transforms: object, message: str, tmp_path: Path) -> None:
    folder = save(Relaxed(lpn(), 0.5), tmp_path)
    edit(folder, transforms=transforms)
    with pytest.raises(CheckpointError, match=message):
        load(folder)


def test_what_cannot_be_saved_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="Identity is not a family"):
        save(Relaxed(Identity(C), 0.5), tmp_path)
    assert set(TRANSFORMS) == {"aligned", "blended", "lifted", "relaxed", "symmetrized"}


def test_levels_and_the_own_level_are_in_units_of_the_image() -> None:
    """An aligned denoiser sees noise s times as large, and once told D's own levels as its own."""
    inner = GradientStep(GradientStepConfig.scaled(widths=(4, 4), levels=(0.01, 0.2), sigma=0.1))
    aligned = Aligned(inner, 2.0, torch.eye(3), torch.zeros(3), torch.zeros(3))
    assert aligned.levels == pytest.approx((0.005, 0.1))
    assert aligned.sigma == pytest.approx(0.05)
    for other in (Relaxed(inner, 0.5), Symmetrized(inner)):
        assert (other.levels, other.sigma) == ((0.01, 0.2), 0.1)
