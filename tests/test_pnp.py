import gc
import warnings

import deepinv
import numpy
import pytest
import torch
from torch import Tensor, nn

from proxmatch.errors import DivergenceWarning, InputError
from proxmatch.metrics import psnr, ssim
from proxmatch.pnp import Status, Watched, pnp_pgd
from proxmatch.problems import Problem, gaussian_deblurring, super_resolution

PROBLEMS = {
    "deblurring": gaussian_deblurring(12, iterations=6, dtype=torch.float64),
    "super-resolution": super_resolution(12, kernel_size=9, iterations=6, dtype=torch.float64),
}
problems = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
DEBLURRING = PROBLEMS["deblurring"]
TRUTH = torch.rand(4, 3, 12, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = DEBLURRING.measure(TRUTH)


class Smooth(nn.Module):
    """A smooth nonlinear map that remembers what it was called with."""

    def __init__(self, strength=0.3):
        super().__init__()
        self.strength = strength
        self.calls = []

    def forward(self, x, sigma=None):
        self.calls.append((len(x), sigma))
        return x - self.strength * torch.tanh(x - x.mean((-2, -1), keepdim=True))


def by_hand(y, problem, denoiser, steps, x):
    xs, zs = [x], []
    for _ in range(steps):
        residual = problem.physics.A(xs[-1]) - y
        zs.append(xs[-1] - problem.eta * problem.physics.A_adjoint(residual))
        xs.append(denoiser(zs[-1], None))
    return torch.stack(xs, 1), torch.stack(zs, 1)


def size(x):
    return x.flatten(2).norm(dim=2)


# --- the iteration -------------------------------------------------------------------------------


@problems
def test_every_curve_against_a_loop_by_hand(problem):
    y = problem.measure(TRUTH)
    denoiser, reference = Smooth(), Smooth(0.1)
    result = pnp_pgd(
        denoiser,
        y,
        problem,
        reference=reference,
        truth=TRUTH,
        record=("psnr", "ssim", "residual", "iterates"),
    )
    xs, zs = by_hand(y, problem, denoiser, 6, problem.initial(y))
    targets = torch.stack([reference(z, None) for z in zs.unbind(1)], 1)
    d = size(xs[:, 1:] - targets)
    expected = {
        "iterates": xs,
        "queries": zs,
        "images": xs[:, -1],
        "residual": size(xs[:, 1:] - xs[:, :-1]) / size(xs[:, 1:]),
        "psnr": torch.stack([psnr(x, TRUTH) for x in xs.unbind(1)], 1),
        "ssim": torch.stack([ssim(x, TRUTH) for x in xs.unbind(1)], 1),
        "mismatch": d,
        "gap": d / size(targets),
    }
    for name, value in expected.items():
        torch.testing.assert_close(getattr(result, name), value, rtol=1e-10, atol=1e-12, msg=name)
    assert result.status == (Status.COMPLETED,) * 4
    assert result.iterations.tolist() == [6] * 4


@problems
def test_it_is_the_pgd_of_deepinv(problem):
    y = problem.measure(TRUTH)
    model = deepinv.optim.PGD(
        data_fidelity=deepinv.optim.L2(),
        prior=deepinv.optim.PnP(Smooth()),
        stepsize=problem.eta,
        max_iter=6,
        custom_init=problem.initialization,
    )
    expected = model(y, problem.physics)
    found = pnp_pgd(Smooth(), y, problem).images
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)


def test_shrinkage_has_a_closed_form():
    """D(z) = c z: x_K = x* + M^K (x_0 - x*), M = c (I - eta A^T A), x* = (I - M)^-1 c eta A^T y."""
    problem = super_resolution(8, kernel_size=5, channels=1, dtype=torch.float64)
    y = problem.measure(TRUTH[:, :1, :8, :8])
    eye = torch.eye(64, dtype=torch.float64)
    gram = problem.physics.A_adjoint_A(eye.view(64, 1, 8, 8)).flatten(1)
    c, steps = 0.9, 25
    step = c * (eye - problem.eta * gram)
    right = c * problem.eta * problem.physics.A_adjoint(y).flatten(1)
    limit = torch.linalg.solve(eye - step, right.T)
    start = problem.initial(y).flatten(1).T
    expected = limit + torch.linalg.matrix_power(step, steps) @ (start - limit)
    found = pnp_pgd(lambda z, _: c * z, y, problem, iterations=steps, warm=0)
    torch.testing.assert_close(found.images.flatten(1).T, expected, rtol=0, atol=1e-12)
    limiting = pnp_pgd(lambda z, _: c * z, y, problem, iterations=300).images
    torch.testing.assert_close(limiting.flatten(1).T, limit, rtol=0, atol=1e-11)


def accelerated_by_hand(y, problem, denoiser, steps, warm, x):
    """Nesterov's method for one image, with the restarts of O'Donoghue and Candes."""
    before, theta, restarts = x, 1.0, 0
    for k in range(1, steps + 1):
        after = (1 + (1 + 4 * theta**2) ** 0.5) / 2
        v = x + (theta - 1) / after * (x - before) if k <= warm else x
        theta = after
        z = v - problem.eta * problem.physics.A_adjoint(problem.physics.A(v) - y)
        before, x = x, denoiser(z, None)
        if float(((v - x) * (x - before)).sum()) > 0:
            theta, restarts = 1.0, restarts + (k < warm)
    return x, restarts


def test_the_warm_start_is_nesterovs_method_image_by_image():
    problem = super_resolution(12, kernel_size=9, iterations=60, dtype=torch.float64)
    y = problem.measure(TRUTH)
    found = pnp_pgd(Smooth(0.02), y, problem, warm=50)
    expected, restarts = zip(
        *(
            accelerated_by_hand(y[i : i + 1], problem, Smooth(0.02), 60, 50, start[None])
            for i, start in enumerate(problem.initial(y))
        ),
        strict=True,
    )
    torch.testing.assert_close(found.images, torch.cat(expected), rtol=0, atol=1e-11)
    assert found.warm == 50
    assert max(restarts) > 0


def test_the_warm_start_gets_there_sooner_and_the_plain_steps_stay():
    """The limit of a shrinkage is known; plain steps begin where the warm start ended."""
    problem = super_resolution(8, kernel_size=5, channels=1, dtype=torch.float64)
    y = problem.measure(TRUTH[:, :1, :8, :8])

    def shrink(z, _):
        return 0.999 * z

    limit = pnp_pgd(shrink, y, problem, iterations=30_000, record=()).images
    plain, warm = (pnp_pgd(shrink, y, problem, iterations=200, warm=w) for w in (0, 190))
    far, near = ((run.images - limit).norm() for run in (plain, warm))
    assert near < far / 5
    run = pnp_pgd(shrink, y, problem, iterations=30, warm=20, record=("iterates",))
    tail = pnp_pgd(shrink, y, problem, iterations=10, initial=run.iterates[:, 20])
    torch.testing.assert_close(run.images, tail.images, rtol=0, atol=1e-14)


class Leveled:
    """Shrinks by its level, and remembers at which ones it was called."""

    def __init__(self, level, seen):
        self.level, self.seen = level, seen

    def stronger(self, factor):
        return Leveled(factor * self.level, self.seen)

    def __call__(self, z, sigma=None):
        self.seen.append(self.level)
        return z / (1 + self.level)


def test_levels_fall_during_the_warm_start_and_stay_in_the_plain_steps():
    seen, known = [], []
    pnp_pgd(Leveled(0.01, seen), Y, DEBLURRING, warm=4, reference=Leveled(0.02, known))
    expected = [0.01 * 4 ** (1 - k / 4) for k in range(4)] + [0.01] * 2
    assert seen == pytest.approx(expected)
    assert known == pytest.approx([2 * level for level in expected])
    plain = []
    pnp_pgd(Leveled(0.01, plain), Y, DEBLURRING, warm=0)
    assert plain == [0.01] * 6


def test_a_watched_denoiser_tells_of_every_call_and_does_the_same():
    told = []
    watched = Watched(Leveled(0.01, []), lambda z, x, factor: told.append((z, x, factor)))
    found = pnp_pgd(watched, Y, DEBLURRING, warm=4)
    assert torch.equal(found.images, pnp_pgd(Leveled(0.01, []), Y, DEBLURRING, warm=4).images)
    assert len(told) == 6
    assert torch.equal(told[-1][1], told[-1][0] / 1.01)
    assert [factor for *_, factor in told] == pytest.approx([4, 4**0.75, 2, 4**0.25, 1, 1])


def test_nothing_has_converged_during_the_warm_start():
    result = pnp_pgd(lambda z, _: 0 * z + TRUTH, Y, DEBLURRING, warm=4, stop=1e-3)
    assert result.iterations.tolist() == [5] * 4
    assert result.status == (Status.CONVERGED,) * 4


def test_images_do_not_depend_on_their_batch():
    together = pnp_pgd(Smooth(), Y, DEBLURRING, truth=TRUTH)
    for i in range(4):
        alone = pnp_pgd(Smooth(), Y[i : i + 1], DEBLURRING, truth=TRUTH[i : i + 1])
        for name in ("images", "psnr", "residual", "best"):
            both = getattr(together, name)[i : i + 1], getattr(alone, name)
            torch.testing.assert_close(*both, rtol=1e-12, atol=1e-14)


def test_start_and_length_of_ones_own():
    result = pnp_pgd(Smooth(), Y, DEBLURRING, initial=TRUTH, iterations=2, record=["iterates"])
    expected, _ = by_hand(Y, DEBLURRING, Smooth(), 2, TRUTH)
    torch.testing.assert_close(result.iterates, expected, rtol=0, atol=1e-14)


def test_no_step_at_all_gives_the_start_back():
    start = TRUTH.clone()
    run = pnp_pgd(Smooth(), Y, DEBLURRING, truth=TRUTH, initial=start, iterations=numpy.int64(0))
    assert torch.equal(run.images, start)
    assert (run.psnr.shape, run.iterations.tolist()) == ((4, 1), [0] * 4)
    assert run.residual.shape == (4, 0)
    run.images.zero_()
    assert torch.equal(start, TRUTH)


def test_sigma_is_passed_on():
    denoiser, reference = Smooth(), Smooth()
    pnp_pgd(denoiser, Y, DEBLURRING, reference=reference, sigma=0.07, iterations=2)
    pnp_pgd(denoiser, Y, DEBLURRING, iterations=1)
    assert denoiser.calls == [(4, 0.07), (4, 0.07), (4, None)]
    assert reference.calls == [(4, 0.07), (4, 0.07)]


def test_gap_has_the_floor_of_the_paper():
    result = pnp_pgd(
        lambda z, _: z, Y, DEBLURRING, reference=lambda z, _: torch.zeros_like(z), iterations=1
    )
    torch.testing.assert_close(result.gap, result.mismatch / 1e-12)


def test_best_iterate():
    """The truth on one step of three: image i meets it at step i + 1."""
    calls = []

    def denoiser(z, _):
        calls.append(None)
        hit = torch.arange(4) == len(calls) - 1
        return torch.where(hit.view(-1, 1, 1, 1), TRUTH, z + 0.3)

    result = pnp_pgd(denoiser, Y, DEBLURRING, truth=TRUTH, iterations=3)
    assert result.best_iteration.tolist()[:3] == [1, 2, 3]
    assert torch.equal(result.best[:3], TRUTH[:3])
    assert result.best_iteration[3] == 0
    assert torch.equal(result.best[3], DEBLURRING.initial(Y)[3])
    torch.testing.assert_close(psnr(result.best, TRUTH), result.psnr.amax(1))


def test_results_share_no_memory_with_each_other_or_the_arguments():
    for denoiser in (lambda z, _: TRUTH, lambda z, _: z + 1):  # the last, the first is best
        start = TRUTH / 2
        result = pnp_pgd(denoiser, Y, DEBLURRING, truth=TRUTH, initial=start, iterations=1)
        result.best.zero_()
        assert result.images.abs().sum() > 0
        assert torch.equal(start, TRUTH / 2)


# --- images that stop ----------------------------------------------------------------------------


def test_each_image_stops_when_it_has_converged():
    """D(z) = s z with a factor of its own for each image, so of its own speed."""
    seen = []

    def denoiser(z, s):
        seen.append(s.tolist())
        return s.view(-1, 1, 1, 1) * z

    factors = torch.tensor([0.9, 0.1, 0.7, 1.0], dtype=torch.float64)
    options = {"sigma": factors, "iterations": 30, "warm": 0}
    free = pnp_pgd(denoiser, Y, DEBLURRING, **options, record=["residual", "iterates"])
    seen.clear()
    result = pnp_pgd(
        denoiser,
        Y,
        DEBLURRING,
        **options,
        truth=TRUTH,
        reference=denoiser,
        stop=1e-3,
        record=["psnr", "residual", "iterates"],
    )
    expected = [
        int((row < 1e-3).nonzero()[0]) + 1 if (row < 1e-3).any() else 30 for row in free.residual
    ]
    assert result.iterations.tolist() == expected
    assert len(set(expected)) == 4
    assert expected[3] == 30
    assert result.status == (Status.CONVERGED,) * 3 + (Status.COMPLETED,)
    for i, k in enumerate(expected):
        close = {"rtol": 1e-10, "atol": 1e-13}
        torch.testing.assert_close(result.images[i], free.iterates[i, k], **close)
        torch.testing.assert_close(result.iterates[i, : k + 1], free.iterates[i, : k + 1], **close)
        for curve, last in ((result.residual, k), (result.psnr, k + 1), (result.gap, k)):
            assert curve[i, :last].isfinite().all()
            assert curve[i, last:].isnan().all()
        assert result.iterates[i, k + 1 :].isnan().all()
        assert result.queries[i, k:].isnan().all()
        assert sum(factors[i].item() in call for call in seen) == 2 * k  # denoiser and reference


def explode_image(value, marked, at):
    """A denoiser that turns the image with the highest mean into ``value`` from call ``at`` on."""
    calls = []

    def denoiser(z, _):
        calls.append(len(z))
        out = Smooth()(z)
        if len(calls) >= at:
            out = torch.where((z.mean((1, 2, 3), keepdim=True) > marked), value, out)
        return out

    return denoiser, calls


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e3, 1e9])
def test_an_image_that_diverges_leaves_the_others_alone(value):
    y = Y.clone()
    y[2] += 1  # means are about 0.5 but for this image
    denoiser, calls = explode_image(value, marked=1.2, at=3)
    reference = Smooth(0.1)
    with pytest.warns(DivergenceWarning, match=r"images \[2\] diverged after \[2\]") as caught:
        result = pnp_pgd(denoiser, y, DEBLURRING, truth=TRUTH, reference=reference)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert calls == [4, 4, 4, 3, 3, 3]
    assert [n for n, _ in reference.calls] == [4, 4, 4, 3, 3, 3]
    plain = pnp_pgd(Smooth(), y, DEBLURRING, truth=TRUTH, reference=Smooth(0.1))
    stopped = pnp_pgd(Smooth(), y, DEBLURRING, truth=TRUTH, iterations=2)
    others = [0, 1, 3]
    for name in ("images", "psnr", "residual", "gap", "mismatch", "best"):
        mine, theirs = getattr(result, name), getattr(plain, name)
        torch.testing.assert_close(mine[others], theirs[others], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(result.images[2], stopped.images[2])
    assert result.psnr[2].isfinite().tolist() == [True] * 3 + [False] * 4
    for curve in (result.residual, result.gap, result.mismatch):
        assert curve[2].isfinite().tolist() == [True] * 2 + [False] * 4
    assert result.iterations.tolist() == [6, 6, 2, 6]
    assert result.status[2] == Status.DIVERGED
    assert {result.status[i] for i in others} == {Status.COMPLETED}


def test_the_limit_does_not_shrink_with_the_start():
    result = pnp_pgd(lambda z, _: z + 50, Y, DEBLURRING, initial=TRUTH / 100, iterations=1)
    assert result.status == (Status.COMPLETED,) * 4


def test_the_limit_grows_with_the_start():
    def huge(z, _):
        return torch.full_like(z, 150.0)

    assert (
        pnp_pgd(huge, Y, DEBLURRING, initial=2 * TRUTH / TRUTH.amax(), iterations=1).status
        == (Status.COMPLETED,) * 4
    )
    with pytest.warns(DivergenceWarning):
        result = pnp_pgd(huge, Y, DEBLURRING, initial=TRUTH, iterations=1)
    assert result.status == (Status.DIVERGED,) * 4


def test_nothing_is_left_to_do_when_all_images_diverge():
    denoiser, calls = explode_image(float("nan"), marked=-9, at=2)
    with pytest.warns(DivergenceWarning, match=r"\[0, 1, 2, 3\]"):
        result = pnp_pgd(denoiser, Y, DEBLURRING, truth=TRUTH, reference=Smooth())
    assert calls == [4, 4]
    assert result.psnr.shape == (4, 7)
    assert result.psnr[:, :2].isfinite().all()
    assert result.psnr[:, 2:].isnan().all()
    assert result.images.isfinite().all()


# --- what is recorded ----------------------------------------------------------------------------


def test_defaults():
    bare = pnp_pgd(Smooth(), Y, DEBLURRING)
    assert bare.residual.shape == (4, 6)
    for name in (
        "psnr",
        "ssim",
        "mismatch",
        "gap",
        "best",
        "best_iteration",
        "iterates",
        "queries",
    ):
        assert getattr(bare, name) is None
    informed = pnp_pgd(Smooth(), Y, DEBLURRING, truth=TRUTH)
    assert informed.psnr.shape == (4, 7)
    assert informed.ssim is None


def test_only_what_was_asked_for():
    result = pnp_pgd(Smooth(), Y, DEBLURRING, truth=TRUTH, record=["ssim"], stop=1e-9)
    assert result.ssim.shape == (4, 7)
    assert result.psnr is result.residual is result.best is None


# --- side effects and precision ------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_precision(dtype):
    problem = DEBLURRING.to(dtype)
    result = pnp_pgd(Smooth(), Y.to(dtype), problem, truth=TRUTH.to(dtype), reference=Smooth(0.1))
    exact = pnp_pgd(Smooth(), Y, DEBLURRING, truth=TRUTH, reference=Smooth(0.1))
    for name in ("images", "psnr", "residual", "mismatch", "gap", "best"):
        found = getattr(result, name)
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), getattr(exact, name), rtol=1e-3, atol=1e-5)


def test_no_side_effects():
    class Greedy(Smooth):
        """Marks its input as requiring a gradient and returns a graph, as some denoisers do."""

        def forward(self, x, sigma=None):
            with torch.enable_grad():
                return super().forward(x.requires_grad_(), sigma)

    given = {"measurements": Y.clone(), "truth": TRUTH.clone(), "initial": TRUTH.clone() / 2}
    denoiser = Greedy().train()
    state = torch.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = pnp_pgd(
            problem=DEBLURRING, denoiser=denoiser, reference=Greedy(), record=("iterates",), **given
        )
    assert denoiser.training
    assert torch.equal(torch.get_rng_state(), state)
    for name, value in {"measurements": Y, "truth": TRUTH, "initial": TRUTH / 2}.items():
        assert torch.equal(given[name], value)
        assert not given[name].requires_grad
    for value in (result.images, result.iterates, result.queries, result.mismatch):
        assert not value.requires_grad


def test_a_denoiser_that_works_channels_last():
    def denoiser(z, _):
        return Smooth()(z).contiguous(memory_format=torch.channels_last)

    found = pnp_pgd(denoiser, Y, DEBLURRING).images
    assert found.is_contiguous()
    torch.testing.assert_close(found, pnp_pgd(Smooth(), Y, DEBLURRING).images)


def test_a_physics_with_a_parameter_per_image():
    """The operator always gets the whole batch, also when some images have stopped."""
    weight = torch.tensor([0.2, 0.5, 1.0, 0.8], dtype=torch.float64).view(4, 1, 1, 1)
    physics = deepinv.physics.DecomposablePhysics(mask=weight)
    problem = Problem.from_physics(physics, (3, 12, 12), iterations=4)
    denoiser, _ = explode_image(float("nan"), marked=0.95, at=2)
    truth = TRUTH.clone()
    truth[1] += 1
    y = weight * truth
    with pytest.warns(DivergenceWarning, match=r"\[1\]"):
        found = pnp_pgd(denoiser, y, problem, initial=truth).images
    plain = pnp_pgd(Smooth(), y, problem, initial=truth).images
    torch.testing.assert_close(found[[0, 2, 3]], plain[[0, 2, 3]])


# --- bad inputs ----------------------------------------------------------------------------------

NAN = torch.where(torch.arange(4).view(4, 1, 1, 1) == 1, torch.nan, TRUTH)

BAD = {
    "y is a number": ({"measurements": 3.0}, "tensors, arrays, files or folders"),
    "y with NaN": ({"measurements": NAN}, r"y holds NaN or infinity in the images \[1\]"),
    "y of another size": ({"measurements": Y[..., :10]}, "y must have the shape"),
    "y in another precision": ({"measurements": Y.float()}, "y is torch.float32"),
    "truth with NaN": ({"truth": NAN}, "truth holds NaN"),
    "truth of another size": ({"truth": TRUTH[:, :1]}, "truth must have the shape"),
    "too few truths": ({"truth": TRUTH[:2]}, "truth holds 2 images, there are measurements of 4"),
    "start with infinity": ({"initial": NAN / 0}, "initial holds NaN or infinity"),
    "too few starts": ({"initial": TRUTH[:1]}, "initial holds 1 images"),
    "unknown record": ({"record": ["psnr", "lpips"]}, "psnr.*ssim.*residual.*iterates"),
    "record as a word": ({"record": "psnr", "truth": TRUTH}, "collection"),
    "psnr without truth": ({"record": ["psnr", "residual"]}, r"\['psnr'\] needs the true images"),
    "ssim without truth": ({"record": ["ssim"]}, "pass truth"),
    "negative iterations": ({"iterations": -1}, "iterations must be an integer, 0 or more"),
    "half an iteration": ({"iterations": 1.5}, "iterations"),
    "negative warm start": ({"warm": -1}, "warm must be an integer, 0 or more"),
    "negative tolerance": ({"stop": -1.0}, "stop"),
    "wrong shape": ({"denoiser": lambda z, _: z[..., 1:]}, "the denoiser must return images"),
    "wrong number": ({"denoiser": lambda z, _: z[:1]}, "the denoiser must return images"),
    "wrong type": ({"denoiser": lambda z, _: z.numpy()}, "got ndarray"),
    "wrong precision": ({"denoiser": lambda z, _: z.float()}, "torch.float32"),
    "in place": ({"denoiser": lambda z, _: z.mul_(0.9)}, "the denoiser changed its input"),
    "wrong reference": ({"reference": lambda z, _: z.mean(1)}, "the reference must return images"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_inputs(name):
    change, message = BAD[name]
    arguments = {"measurements": Y, "problem": DEBLURRING, "denoiser": Smooth(), **change}
    with pytest.raises(InputError, match=message):
        pnp_pgd(**arguments)


def test_it_works_in_inference_mode():
    problem = gaussian_deblurring(16)
    x = torch.rand(2, 3, 16, 16)
    y = problem.measure(x)
    expected = pnp_pgd(lambda z, _: 0.9 * z, y, problem, truth=x, iterations=5)
    with torch.inference_mode():
        result = pnp_pgd(lambda z, _: 0.9 * z, y.clone(), problem, truth=x.clone(), iterations=5)
    assert torch.equal(result.images, expected.images)


def test_few_copies_of_the_images_are_held_while_the_denoiser_works() -> None:
    """x, v, z, y and A^T y: a large picture fits into memory a few times only."""
    problem = gaussian_deblurring((24, 40), channels=1, iterations=8)
    y = problem.measure(torch.rand(1, 1, 24, 40))
    held = []

    def denoiser(z: Tensor, sigma: object) -> Tensor:
        gc.collect()
        tensors = [t for t in gc.get_objects() if type(t) is Tensor and t.shape == z.shape]
        held.append(len({t.untyped_storage().data_ptr() for t in tensors}))
        return 0.9 * z

    pnp_pgd(denoiser, y, problem)
    assert len(held) == 8
    assert max(held) <= 5
