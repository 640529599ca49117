r"""Is a denoiser mismatched for given images, and what does that cost?

**With a reference** D*, the mismatch of the paper is measured: the relative gap
|D(z_k) - D*(z_k)| / |D*(z_k)| along the reconstructions, and the PSNR that D* would have added.

**Without one** it is estimated, from clean images x of the domain. At z = x + sigma n, sigma the
noise level of the training, a matched denoiser is close to the conditional mean D*(z) = E[x | z],
whose error is orthogonal to everything that depends on z. So the errors add up as squares,

    |D(z) - x|^2 = |D*(z) - x|^2 + |D(z) - D*(z)|^2.

Of two estimates of the last term the larger one is taken:

- what is left once |D*(z) - x| is taken as ``FLOOR`` times the error of the Wiener filter W fitted
  to the images: 0.95, the mean over the six shipped denoisers, each on held-out images of its own
  domain (faces 0.89 and 0.88, histology 1.00 and 1.05, photographs 0.95 and 0.97);
- the part p of its squared error that D gives away in its output: a conditional mean is calibrated
  (:mod:`proxmatch.diagnosis.calibration`).

The gap at such z becomes one along the reconstruction by comparing how much D changes its input
there and here:

    score = sqrt(max(|D(z) - x|^2 - (FLOOR |W(z) - x|)^2, p |D(z) - x|^2)) / |x|
            * mean_k |z_k - D(z_k)| / |z - D(z)|.

It is an index, not the gap itself: two to ten times smaller where gaps are small. It orders
denoisers, also of different families, nearly as their gaps do (``tools/diagnose_ranking.py``).

The verdict is ``mismatched`` from a score of 0.0025 on and ``badly mismatched`` from 0.03 on
(``SCORES``); with a reference, from a gap of 0.5 % and 10 % on (``GAPS``). A reconstruction that
diverges is always the latter. Gaps of up to 2 % are not told from none by the score.

What stands beside it: the residual |z - D(z)| / (sigma sqrt(n)), which for a conditional mean is
sqrt(1 - |D(z) - x|^2 / (sigma^2 n)), so below one; the denoising PSNR here and on the card of D; L
at the images here and on the card; the PSNR of the reconstruction and that of a Wiener filter of
the best strength, which needs no more than these images.
"""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from proxmatch._internal.randomness import generator_of
from proxmatch.baselines import Wiener, wiener_filter
from proxmatch.denoisers import ProximalDenoiser, jacobian_spectrum
from proxmatch.diagnosis.calibration import predictable
from proxmatch.errors import DivergenceWarning, InputError
from proxmatch.metrics import norm, psnr
from proxmatch.pnp import PnPResult, Status, checked_count, pnp_pgd
from proxmatch.problems import Problem

if TYPE_CHECKING:
    from rich.table import Table

FLOOR = 0.95
#: From which score on a denoiser is mismatched, and badly so; and from which gap to a reference.
SCORES = (0.0025, 0.03)
GAPS = (0.005, 0.1)
SIGMA = 0.05  # where the denoiser does not say what it was made for
WORTH = 0.5  # dB that are worth a remark
LANCZOS, SPECTRA = 20, 4  # iterations, and images at most: the slowest part


class Grade(StrEnum):
    """What a diagnosis comes to."""

    MATCHED = "matched"
    MISMATCHED = "mismatched"
    BADLY = "badly mismatched"


@dataclass(frozen=True)
class Diagnosis:
    """How a denoiser fares on images of a domain; means over the images.

    Attributes:
        problem: what was simulated.
        images: how many.
        verdict: see the module's text; decided by the gap if there is a reference, else the score.
        score: index of the mismatch that needs no reference.
        error: |D(z) - x| / |x| at z = x + sigma n.
        wiener_error: the same of the Wiener filter of these images.
        predictable: share of the squared error that the output gives away.
        activity: mean_k |z_k - D(z_k)| / |z - D(z)|.
        residual: |z - D(z)| / (sigma sqrt(n)).
        residual_expected: what it would be if D(z) were the conditional mean.
        sigma: that noise level.
        denoising: PSNR of D(z) in dB at sigma = 0.05.
        denoising_trained: the same on the images of the training's domain, from the card.
        lipschitz: largest L of Id - D found at z, an estimate from below.
        lipschitz_trained: the same from the card.
        psnr: of the reconstructions, in dB.
        wiener_psnr: the same with the Wiener filter of the best strength.
        diverged: how many of them diverged.
        gap: mean relative gap to the reference; None without one.
        reference_psnr: of the reconstructions with the reference, in dB.
        gap_curve: the gap at each step.
        recommendation: what to do.
    """

    problem: str
    images: int
    verdict: Grade
    score: float
    error: float
    wiener_error: float
    predictable: float
    activity: float
    residual: float
    residual_expected: float
    sigma: float
    denoising: float
    denoising_trained: float | None
    lipschitz: float
    lipschitz_trained: float | None
    psnr: float
    wiener_psnr: float
    diverged: int
    gap: float | None
    reference_psnr: float | None
    gap_curve: tuple[float, ...] | None
    recommendation: str

    @property
    def cost(self) -> float | None:
        """What the mismatch costs in dB of PSNR; None without a reference."""
        return None if self.reference_psnr is None else self.reference_psnr - self.psnr

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values; None for what is not a number."""
        return {key: _plain(value) for key, value in {**asdict(self), "cost": self.cost}.items()}

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
        rows = [("score", f"{self.score:.4f}", f"matched below {SCORES[0]}")]
        if self.gap is not None and self.reference_psnr is not None:
            rows += [
                ("gap to the reference", f"{self.gap:.2%}", f"matched below {GAPS[0]:.1%}"),
                ("reconstruction", f"{self.psnr:.2f} dB", f"reference {self.reference_psnr:.2f}"),
            ]
        else:
            beside = f"Wiener filter {self.wiener_psnr:.2f}"
            rows.append(("reconstruction", f"{self.psnr:.2f} dB", beside))
        if self.diverged:
            rows.append(("diverged", f"{self.diverged} of {self.images}", ""))
        wiener = f"Wiener filter {self.wiener_error:.1%}"
        expected = f"if matched {self.residual_expected:.2f}"
        rows += [
            (f"error at noise {self.sigma:g}", f"{self.error:.1%}", wiener),
            ("of it given away", f"{self.predictable:.0%}", "if matched 0%"),
            ("residual / noise", f"{self.residual:.2f}", expected),
            ("denoising at 0.05", f"{self.denoising:.2f} dB", _card(self.denoising_trained)),
            ("L", f"{self.lipschitz:.2f}", _card(self.lipschitz_trained)),
        ]
        return rows

    def advice(self) -> str:
        """The verdict and what to do, in a line or two."""
        return f"{self.verdict}: {self.recommendation}"


@torch.no_grad()
def diagnose(
    denoiser: ProximalDenoiser,
    images: Tensor,
    problem: Problem,
    reference: ProximalDenoiser | None = None,
    *,
    iterations: int | None = None,
    seed: int = 0,
) -> Diagnosis:
    """Look at a denoiser on clean images of a domain.

    Args:
        denoiser: D, the denoiser to be deployed.
        images: clean, ``(B, C, H, W)``, of the problem's size; 4 to 8 are enough.
        problem: to simulate.
        reference: D*, a denoiser that is right for these images, if there is one. It has no
            influence on the score.
        iterations: number of steps, if not that of the problem.
        seed: of the noise.

    Raises:
        InputError: the images do not fit the denoiser or the problem.
    """
    if images.ndim != 4 or images.shape[1] != denoiser.channels:
        raise InputError(
            f"expected images (B, {denoiser.channels}, H, W) for this denoiser, got "
            f"{tuple(images.shape)}"
        )
    if not bool(images.any()):
        raise InputError("the images are black everywhere; there is nothing to diagnose on")
    y = problem.measure(images, seed=seed)
    run = _run(denoiser, y, problem, images, reference, iterations)
    level = denoiser.sigma or SIGMA
    unit = torch.randn(images.shape, generator=generator_of(seed, "noise")).to(images)
    z = images + level * unit
    output = denoiser(z)
    filtered = Wiener.fit(images, level)(z)
    size, signal = math.sqrt(images[0].numel()), _rms(images)
    error, linear = _rms(output - images), _rms(filtered - images)
    change = _rms(z - output)
    activity = _activity(run) / change if change > 0 else 0.0
    share = predictable(output, images)
    excess = max(error**2 - (FLOOR * linear) ** 2, share * error**2)
    score = math.sqrt(excess) / signal * activity
    spectrum = jacobian_spectrum(denoiser, z[:SPECTRA], iterations=LANCZOS)
    matched = None if reference is None else _run(reference, y, problem, images, None, iterations)
    best = wiener_filter(images, problem, seed=seed)
    quality = float(psnr(run.images, images).mean())
    diverged = run.status.count(Status.DIVERGED)
    gap = None if run.gap is None else float(run.gap.nanmean())
    constant = float(spectrum.constant.max())
    verdict = judge(score, SCORES) if gap is None else judge(gap, GAPS)
    verdict = Grade.BADLY if diverged else verdict
    return Diagnosis(
        problem=problem.name,
        images=len(images),
        verdict=verdict,
        score=score,
        error=error / signal,
        wiener_error=linear / signal,
        predictable=share,
        activity=activity,
        residual=change / (level * size),
        residual_expected=math.sqrt(max(0.0, 1 - (error / (level * size)) ** 2)),
        sigma=level,
        denoising=float(psnr(denoiser(images + SIGMA * unit), images).mean()),
        denoising_trained=_carded(denoiser, "denoising", str(SIGMA)),
        lipschitz=constant,
        lipschitz_trained=_carded(denoiser, "lipschitz"),
        psnr=quality,
        wiener_psnr=best.chosen.psnr,
        diverged=diverged,
        gap=gap,
        reference_psnr=None if matched is None else float(psnr(matched.images, images).mean()),
        gap_curve=None if run.gap is None else tuple(run.gap.nanmean(0).tolist()),
        recommendation=_recommended(verdict, denoiser, constant)
        + _beaten(quality, best.chosen.psnr),
    )


def judge(value: float, limits: tuple[float, float]) -> Grade:
    """The verdict on a score or a gap; NaN is the worst of all."""
    if not value < limits[1]:
        return Grade.BADLY
    return Grade.MATCHED if value < limits[0] else Grade.MISMATCHED


def _run(
    denoiser: ProximalDenoiser,
    y: Tensor,
    problem: Problem,
    truth: Tensor,
    reference: ProximalDenoiser | None,
    iterations: int | None,
) -> PnPResult:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergenceWarning)  # counted instead
        return pnp_pgd(
            denoiser,
            y,
            problem,
            reference=reference,
            truth=truth,
            record=("iterates",),
            iterations=None if iterations is None else checked_count(iterations),
        )


def _activity(run: PnPResult) -> float:
    """The mean of |z_k - D(z_k)| over the steps that were made."""
    if run.iterates is None or run.queries is None:
        raise AssertionError("pnp_pgd records what it is asked to")
    change = (run.queries - run.iterates[:, 1:]).flatten(2).norm(dim=2)
    return float(change.nanmean())


def _rms(x: Tensor) -> float:
    """The root of the mean of |x|^2 over the images."""
    return math.sqrt(float(norm(x).double().square().mean()))


def _recommended(verdict: Grade, denoiser: ProximalDenoiser, constant: float) -> str:
    expands = denoiser.core.penalized and constant >= 1
    if verdict is Grade.MATCHED:
        warning = "; but L >= 1 on some of them, so it is no proximal map there" if expands else ""
        return f"use it as it is for such images{warning}"
    number = "1 to 5" if verdict is Grade.MISMATCHED else "5 to 25"
    how = "adapt(denoiser, images, problem)"
    if denoiser.core.penalized:
        how += ' (or method="adapm", which keeps L below one)' if expands else ""
    else:
        how += ", or without training align(denoiser, images)"
    return f"adapt it with {number} clean images: {how}; then diagnose again"


def _beaten(quality: float, filtered: float) -> str:
    """That a filter does better, if it does, in dB of PSNR."""
    if not filtered > quality + WORTH:
        return ""
    return f". A Wiener filter of these images reconstructs {filtered - quality:.1f} dB better"


def _carded(denoiser: ProximalDenoiser, *keys: str) -> float | None:
    """A figure of the card, if it is there."""
    found: Any = denoiser.core.record.get("validation")
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return float(found) if isinstance(found, int | float) else None


def _card(value: float | None) -> str:
    return "" if value is None else f"card {value:.2f}"


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, StrEnum) else value
