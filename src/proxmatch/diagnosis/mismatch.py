r"""Is a denoiser mismatched for given images, and what does that cost?

**The verdict is about what a user loses.** The problem is simulated on clean images of the domain.
The denoiser reconstructs them at its best strength. So do the others at hand: other denoisers, a
Wiener filter of the images, total variation. The *loss* is how far, in dB of PSNR, the denoiser
falls behind the best of those that were tried:

- ``matched``: less than 0.3 dB;
- ``badly mismatched``: more than 1 dB, or a reconstruction diverges;
- ``mismatched``: in between, or too few images to tell.

The loss on a few images is not the loss on other images of the domain. So the verdict is based on a
range for the latter (:func:`proxmatch.learning.evidence.interval_of`): *matched* needs its upper
end below 0.3 dB or almost no loss, *badly mismatched* its lower end above 1 dB.

All strengths are chosen by the same rule on the same images (:mod:`proxmatch.transforms.strength`).
Of the other denoisers, only the two that remove noise best from the images are tried; a diagnosis
names the others as ``untried``, and its loss says nothing about them.

**With a reference** D*, which is one more denoiser at hand, the mismatch of the paper is measured
as well: the relative gap |D(z_k) - D*(z_k)| / |D*(z_k)| along the reconstructions, both at the
strength of D, or as they are where they take no level.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from proxmatch._internal.randomness import generator_of
from proxmatch.baselines import total_variation, wiener_filter
from proxmatch.data import image_batch
from proxmatch.denoisers import AnyDenoiser, ProximalDenoiser, jacobian_spectrum
from proxmatch.errors import InputError
from proxmatch.learning.assess import compared
from proxmatch.learning.evidence import Candidate, interval_of
from proxmatch.learning.start import LEVEL, Sources, nearest_first, sources_of
from proxmatch.metrics import psnr
from proxmatch.plots.shown import ShownDiagnosis
from proxmatch.pnp import Denoise, PnPResult, Status, checked_count, pnp_pgd
from proxmatch.problems import Problem
from proxmatch.transforms import Relaxed, Tuned, choose_strength
from proxmatch.transforms.fitting import fitting

if TYPE_CHECKING:
    from rich.table import Table

#: The losses in dB from which a denoiser is mismatched, and badly mismatched.
LOSSES = (0.3, 1.0)
#: A loss in dB that counts as none, however few the images.
NONE = 0.1
#: How many of the denoisers at hand are tried.
TRIED = 2
#: On how many images a strength is chosen, at most; all images are measured on.
CHOSEN_ON = 2
#: Images that the Wiener filter is fitted to, at most: it takes no time, and two are too few.
FITTED = 4
#: What has no learned prior, and how many images it is made from at most.
MAKERS: dict[str, tuple[Callable[..., Tuned[Any]], int]] = {
    "Wiener filter": (wiener_filter, FITTED),
    "total variation": (total_variation, CHOSEN_ON),
}
LANCZOS, SPECTRA = 20, 4  # iterations, and images at most


class Grade(StrEnum):
    """The verdict of a diagnosis."""

    MATCHED = "matched"
    MISMATCHED = "mismatched"
    BADLY = "badly mismatched"


@dataclass(frozen=True, repr=False)
class Diagnosis(ShownDiagnosis):
    """How a denoiser fares on images of a domain; means over the images, PSNR in dB.

    Attributes:
        name: of the denoiser.
        problem: what was simulated.
        images: how many.
        verdict: see the module docstring.
        loss: how far the denoiser falls behind the best that was tried, in dB; 0 if it is that.
        interval: a range of the loss on other images of the domain, in dB.
        best: name of the best that was tried.
        untried: names of the other denoisers at hand, which remove noise less well.
        psnr: of the reconstructions at the best strength.
        as_it_is: the same with the denoiser as it is.
        standings: all that it was compared with, and itself, the best first.
        diverged: how many reconstructions diverged at the best strength.
        denoising: PSNR of D(x + noise of 0.05).
        denoising_trained: the same on the images of the training's domain, from the card.
        lipschitz: largest L of Id - D found on the images with that noise, an estimate from below.
        lipschitz_trained: the same from the card.
        gap: mean relative gap to the reference; None without one.
        gap_curve: the gap at each step.
        reference_psnr: of the reconstructions with the reference at its best strength.
        recommendation: what to do.
    """

    name: str
    problem: str
    images: int
    verdict: Grade
    loss: float
    interval: tuple[float, float]
    best: str
    untried: tuple[str, ...]
    psnr: float
    as_it_is: float
    standings: tuple[Candidate, ...]
    diverged: int
    denoising: float
    denoising_trained: float | None
    lipschitz: float
    lipschitz_trained: float | None
    gap: float | None
    gap_curve: tuple[float, ...] | None
    reference_psnr: float | None
    recommendation: str

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values; None for what is not a number."""
        return {key: _plain(value) for key, value in asdict(self).items()}

    def to_json(self) -> str:
        """:meth:`to_dict` as text."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"

    def table(self) -> Table:
        """For a terminal."""
        from rich.table import Table

        table = Table(title=f"{self.problem}: {self.verdict}", show_header=False)
        table.add_column("what")
        table.add_column("here", justify="right")
        table.add_column("beside", justify="right")
        for row in self._rows():
            table.add_row(*row)
        return table

    def _rows(self) -> list[tuple[str, str, str]]:
        rows = [
            (
                "loss",
                f"{self.loss:.2f} dB",
                f"on others {self.interval[0]:.1f} to {self.interval[1]:.1f}, "
                f"matched below {LOSSES[0]}",
            ),
            *(
                (
                    f"reconstruction by {one.name}",
                    f"{one.score:.2f} dB",
                    f"as it is {self.as_it_is:.2f}" if one.name == self.name else "",
                )
                for one in self.standings
            ),
        ]
        if self.untried:
            rows.append(("at hand, not tried", str(len(self.untried)), ", ".join(self.untried)))
        if self.diverged:
            rows.append(("diverged", f"{self.diverged} of {self.images}", ""))
        if self.gap is not None:
            rows.append(("gap to the reference", f"{self.gap:.2%}", ""))
        rows += [
            (f"denoising at {LEVEL}", f"{self.denoising:.2f} dB", _card(self.denoising_trained)),
            ("L", _constant(self.lipschitz), _card(self.lipschitz_trained)),
        ]
        return rows

    def advice(self) -> str:
        """The verdict and what to do, in a line or two."""
        return f"{self.verdict}: {self.recommendation}"


@torch.no_grad()
def diagnose(
    denoiser: AnyDenoiser | str | Path | Mapping[str, AnyDenoiser] | None,
    images: Any,
    problem: Problem,
    reference: AnyDenoiser | None = None,
    *,
    sources: Sources = None,
    iterations: int | None = None,
    seed: int = 0,
) -> Diagnosis:
    """Test whether a denoiser suits a domain, on clean images of it.

    Args:
        denoiser: D, the one to be used: of any kind, its name or folder, or ``{name: D}``; None for
            the best of ``sources``. Without a potential it has no L.
        images: clean, ``(B, C, H, W)`` or in any form of :mod:`proxmatch.data.any_form`, of the
            problem's size; 4 to 8 are enough.
        problem: what to simulate.
        reference: D*, a denoiser that is right for these images, if there is one.
        sources: what else is at hand; all that come with proxmatch by default, () for none.
        iterations: number of steps, if not that of the problem.
        seed: of the noise.

    Raises:
        InputError: the images do not fit the denoiser or the problem.

    Example:
        >>> from proxmatch import gaussian_deblurring
        >>> from proxmatch.baselines import Identity
        >>> problem = gaussian_deblurring(32, iterations=2)
        >>> found = diagnose(Identity(3), torch.rand(1, 3, 32, 32), problem, sources=())
        >>> found.images, found.loss >= 0
        (1, True)
    """
    if isinstance(images, Tensor) and images.ndim != 4:
        raise InputError(f"expected images (B, C, H, W), got {tuple(images.shape)}")
    images = image_batch(images, problem.img_size[0])
    if not bool(images.any()):
        raise InputError("the images are black everywhere; there is nothing to diagnose on")
    steps = None if iterations is None else checked_count(iterations)
    channels = images.shape[1]
    given = {} if denoiser is None else sources_of(denoiser, channels, images.device)
    others = {}
    if not (isinstance(sources, tuple | list) and not sources):
        try:  # one without a name is numbered: D may have none either
            sources = [sources] if callable(sources) else sources
            others = sources_of(sources, channels, images.device)
        except InputError:  # nothing that comes with proxmatch has these channels
            if sources is not None or not given:
                raise
    near = nearest_first(others, images[:CHOSEN_ON], seed=seed)
    hand = given | {name: others[name] for name in list(near)[:TRIED] if name not in given}
    if not hand:
        raise InputError("there is no denoiser to diagnose; name one")
    taken = hand.keys() & {*MAKERS, *(() if reference is None else ("reference",))}
    if taken:
        raise InputError(
            f"the name {taken.pop()!r} is taken by what the denoiser is compared with; give it "
            "another one"
        )
    if reference is not None:
        reference = hand["reference"] = fitting(reference, channels)
    trial = _Trial(problem, images, steps, seed)
    tried = {
        name: trial.best(name, one, measured=name in given or not given)
        for name, one in hand.items()
    }
    for name, (make, number) in MAKERS.items():
        tuned = make(images[:number], problem, iterations=steps, seed=seed)
        tried[name] = trial(name, tuned)
    standings = sorted((c for c, _ in tried.values()), key=lambda c: -c.score)
    name = next(iter(given), None) or next(c.name for c in standings if c.name in hand)
    own, run = tried[name]
    model = hand[name]
    best = standings[0].name
    losses = psnr(tried[best][1].images, images) - psnr(run.images, images)
    loss, interval = float(losses.mean()), _range(losses)
    diverged = run.status.count(Status.DIVERGED)
    verdict = Grade.BADLY if diverged else judge(losses)
    unit = torch.randn(images.shape, generator=generator_of(seed, "noise")).to(images)
    noisy = images + LEVEL * unit
    constant = math.nan
    if model.proximal:
        spectrum = jacobian_spectrum(model, noisy[:SPECTRA], LEVEL, iterations=LANCZOS)
        constant = float(spectrum.constant.max())
    gap = None if reference is None else trial.gap(model, reference, own)
    return Diagnosis(
        name=name,
        problem=problem.name,
        images=len(images),
        verdict=verdict,
        loss=loss,
        interval=interval,
        best=best,
        untried=tuple(other for other in near if other not in hand),
        psnr=own.score,
        as_it_is=float(psnr(trial.run(compared(model)).images, images).mean()),
        standings=tuple(standings),
        diverged=diverged,
        denoising=float(psnr(model(noisy, LEVEL), images).mean()),
        denoising_trained=_carded(model, "denoising", str(LEVEL)),
        lipschitz=constant,
        lipschitz_trained=_carded(model, "lipschitz"),
        gap=None if gap is None else float(gap.nanmean()),
        gap_curve=None if gap is None else tuple(gap.nanmean(0).tolist()),
        reference_psnr=None if reference is None else tried["reference"][0].score,
        recommendation=_recommended(verdict, name, standings[0], loss, own),
    )


def judge(losses: Tensor) -> Grade:
    """The verdict on losses in dB, one for each image, ``(B,)``; NaN is the worst of all.

    Example:
        >>> [str(judge(torch.full((4,), loss))) for loss in (0.0, 1.0, 10.0)]
        ['matched', 'mismatched', 'badly mismatched']
    """
    low, high = _range(losses)
    if not low <= LOSSES[1]:
        return Grade.BADLY
    return Grade.MATCHED if losses.mean() < NONE or high < LOSSES[0] else Grade.MISMATCHED


def _range(losses: Tensor) -> tuple[float, float]:
    """A range of the loss on other images, which is never negative."""
    low, high = interval_of(losses.tolist())
    return max(low, 0.0), high


class _Trial:
    """The simulated measurements, and what is made of them."""

    def __init__(self, problem: Problem, images: Tensor, steps: int | None, seed: int) -> None:
        self.problem, self.images, self.steps, self.seed = problem, images, steps, seed
        self.y = problem.measure(images, seed=seed)

    def run(self, denoiser: Denoise, **options: Any) -> PnPResult:
        return pnp_pgd(
            denoiser,
            self.y,
            self.problem,
            truth=self.images,
            record=("psnr",),
            iterations=self.steps,
            on_divergence="ignore",  # they are counted
            **options,
        )

    def best(
        self, name: str, denoiser: ProximalDenoiser, measured: bool
    ) -> tuple[Candidate, PnPResult]:
        """A denoiser at its best strength, with L measured here or from its card."""
        tuned = choose_strength(
            denoiser,
            self.images[:CHOSEN_ON],
            self.problem,
            measured=measured,
            iterations=self.steps,
            seed=self.seed,
        )
        return self(name, tuned)

    def __call__(self, name: str, tuned: Tuned[Any]) -> tuple[Candidate, PnPResult]:
        run = self.run(compared(tuned.denoiser))
        score = float(psnr(run.images, self.images).mean())
        seconds = sum(trial.seconds for trial in tuned.table)
        chosen = tuned.chosen
        scores = {self.problem.name: score}
        return (
            Candidate(
                name, scores, chosen.strength, seconds, sigma=chosen.sigma, margin=tuned.margin
            ),
            run,
        )

    def gap(
        self, denoiser: ProximalDenoiser, reference: ProximalDenoiser, own: Candidate
    ) -> Tensor:
        """The relative gap along the run, ``(B, K)``."""
        pair: list[ProximalDenoiser] = [denoiser, reference]
        if denoiser.conditional and reference.conditional:
            pair = [Relaxed(one, own.strength, own.sigma) for one in pair]
        found = self.run(pair[0], reference=pair[1]).gap
        assert found is not None  # noqa: S101
        return found


def _recommended(verdict: Grade, name: str, best: Candidate, loss: float, own: Candidate) -> str:
    strength = f"t = {own.strength:.2g}"
    if own.sigma is not None:
        strength = f"noise level {own.sigma:.2g}, {strength}"
    if verdict is Grade.MATCHED:
        return f"use {name} for such images, at the strength chosen here ({strength})"
    better = "" if best.name == name else f"{best.name} reconstructs them {loss:.1f} dB better; "
    return (
        f"{better}adapt with a few clean images: adapt(None, images, problem) finds out which "
        "denoiser to start from"
    )


def _constant(value: float) -> str:
    return "no potential" if math.isnan(value) else f"{value:.2f}"


def _carded(model: ProximalDenoiser, *keys: str) -> float | None:
    """A number of the card, if it is there."""
    found: Any = model.core.record.get("validation")
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return float(found) if isinstance(found, int | float) else None


def _card(value: float | None) -> str:
    return "" if value is None else f"card {value:.2f}"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(v) for key, v in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, StrEnum) else value
