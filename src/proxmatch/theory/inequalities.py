r"""Every inequality of section 3, evaluated along a trajectory, with its slack.

    eps_k >= 0                                                                    equation 14
    eps_k <= L_H / 2 d_k^2                                                        Lemma 3.1
    |grad H_k(x_k)|^2 <= 2 L_H eps_k                                              Assumption 3.3
    F*(x_k) <= F*(x_{k-1}) - (1 - eta L_f) / 2 |x_k - x_{k-1}|^2 + eps_k          Lemma 3.2
    grad R*(x_k) = z_k - x_k - r_k,    |r_k|^2 <= 2 L_H eps_k                     Lemma 3.3
    1/t sum |grad F*(x_k)|^2 <= C_0 / t + C_1 1/t sum d_k^2                       Theorem 3.1
    the same with d_k = 0                                                         Corollary 3.1

with C_0 = 16 / (1 - eta L_f) (F*(x_0) - F_inf) and C_1 = (16 / (1 - eta L_f) + 4 L_H) L_H / 2.

**How the proofs can be sharpened.** With s = x_k - x_{k-1}, g = grad f(x_k) - grad f(x_{k-1}),
16 / (1 - eta L_f) comes from |s - eta g|^2 <= (1 + eta L_f)^2 |s|^2 and Lemma 3.2. For
f(x) = |Ax - y|^2 / 2 the vector is M s with M = Id - eta A^T A, 0 <= M <= Id, and the proof of
Lemma 3.2 before its last step reads

    F*(x_{k-1}) - F*(x_k) + eps_k >= <s, M s> / 2 >= |M s|^2 / 2,        since M^2 <= M.

Hence |grad F*(x_k)|^2 <= 2 |M s|^2 + 2 |r_k|^2 <= 4 (F*(x_{k-1}) - F*(x_k) + eps_k) + 4 L_H eps_k:
Theorem 3.1 holds with **4 in place of 16 / (1 - eta L_f)**, which is 80 times smaller at
eta L_f = 0.95 and does not blow up at 1; without mismatch (r_k = 0), with 2. If f is smooth but not
convex, f(x_k) <= f(x_{k-1}) + <grad f(x_{k-1}), s> + L_f/2 |s|^2 - |L_f s - g|^2 / (4 L_f) gives
4 (1 + eta L_f) in the same way. So 16 can be replaced by 4 in every case. :meth:`Constants.sharp`
is the theorem for least squares, checked as a row of its own.

**What the proofs need beyond what is stated.** F*(x_0) must be finite, so for gradient-step
denoisers x_0 must lie in the range of D* as well, although it is not an output of a denoiser.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor

from proxmatch.pnp import Status
from proxmatch.theory.trajectory import Trajectory

RELATIVE = 1e-9  # what rounding may cost an inequality, relative to its larger side


@dataclass(frozen=True)
class Constants:
    """The numbers in the inequalities, in one place.

    Attributes:
        smoothness: L_H.
        step_size: eta L_f.
        decrease: what multiplies F*(x_0) - F_inf in C_0.
        bridge: 1/2 of Lemma 3.1.
        suboptimality: 2 of Assumption 3.3.
        descent: 1/2 of Lemma 3.2.
        residual: 4 of C_1.
    """

    smoothness: float
    step_size: float
    decrease: float
    bridge: float = 0.5
    suboptimality: float = 2.0
    descent: float = 0.5
    residual: float = 4.0

    @classmethod
    def paper(cls, trajectory: Trajectory, factor: float = 16.0) -> Constants:
        """Those of Theorem 3.1: decrease = 16 / (1 - eta L_f)."""
        step = trajectory.step_size
        return cls(trajectory.smoothness, step, factor / (1 - step) if step < 1 else math.nan)

    @classmethod
    def sharp(cls, trajectory: Trajectory) -> Constants:
        """For f = |Ax - y|^2 / 2: decrease = 4, up to eta L_f = 1."""
        step = trajectory.step_size
        return cls(trajectory.smoothness, step, 4.0 if step <= 1 else math.nan)

    @property
    def mismatch(self) -> float:
        """C_1."""
        return (self.decrease + self.residual * self.smoothness) * self.bridge * self.smoothness


class Verdict(StrEnum):
    """What was found about one inequality for one image at one iteration."""

    HOLDS = "holds"
    FAILS = "fails"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True)
class Row:
    """One inequality, lhs <= rhs, over B images and K iterations.

    Attributes:
        name: of the inequality.
        reference: where it is in the paper.
        basis: ``proved``, or ``estimated`` if its constant is an estimate.
        lhs: ``(B, K)``; NaN where the inequality does not apply.
        rhs: ``(B, K)``.
        tolerance: propagated error of the inverse and of rounding in rhs - lhs, ``(B, K)``.
        reasons: why it does not apply, and to how many (image, iteration) pairs.
    """

    name: str
    reference: str
    basis: str
    lhs: Tensor
    rhs: Tensor
    tolerance: Tensor
    reasons: dict[str, int]

    @property
    def slack(self) -> Tensor:
        """The difference rhs - lhs, ``(B, K)``."""
        return self.rhs - self.lhs

    @property
    def relative_slack(self) -> Tensor:
        """(rhs - lhs) / max(|lhs|, |rhs|), ``(B, K)``; 0 where it is within the tolerance."""
        size = self._size.clamp_min(torch.finfo(self.lhs.dtype).tiny)
        return torch.where(self.slack.abs() <= self.tolerance, 0.0, self.slack / size)

    @property
    def holds(self) -> Tensor:
        """Within the tolerance and 1e-9 relative, ``(B, K)``; False where it does not apply."""
        return self.slack >= -(self.tolerance + RELATIVE * self._size)

    @property
    def applies(self) -> Tensor:
        """Where both sides are known, ``(B, K)``."""
        return ~(self.slack + self.tolerance).isnan()

    @property
    def verdict(self) -> Verdict:
        """Fails if it fails anywhere; not applicable if it applies nowhere."""
        if bool((self.applies & ~self.holds).any()):
            return Verdict.FAILS
        return Verdict.HOLDS if bool(self.applies.any()) else Verdict.NOT_APPLICABLE

    @property
    def share(self) -> float:
        """The fraction that holds of the pairs to which it applies; NaN if there are none."""
        return float(self.holds.sum() / self.applies.sum())

    @property
    def worst(self) -> float:
        """Smallest relative slack; negative if something fails by more than its tolerance."""
        slack = self.relative_slack[self.applies]
        return float(slack.min()) if len(slack) else math.nan

    @property
    def tightness(self) -> float:
        """Median of lhs / rhs, over rhs beyond the tolerance: 1 is an equality."""
        use = self.applies & (self.rhs > 10 * self.tolerance) & (self.rhs > 0)
        ratio = self.lhs[use] / self.rhs[use]
        return float(ratio.median()) if len(ratio) else math.nan

    def summary(self) -> dict[str, Any]:
        """The row as JSON values; NaN as None."""
        numbers = {
            "share": self.share,
            "worst_relative_slack": self.worst,
            "tightness": self.tightness,
        }
        return {
            "name": self.name,
            "reference": self.reference,
            "basis": self.basis,
            "verdict": str(self.verdict),
            "applies": int(self.applies.sum()),
            "fails": int((self.applies & ~self.holds).sum()),
            **{key: None if math.isnan(v) else v for key, v in numbers.items()},
            "not_applicable": self.reasons,
        }

    @property
    def _size(self) -> Tensor:
        return torch.maximum(self.lhs.abs(), self.rhs.abs())


NO_LOCAL = "L_H was not estimated at this iteration, or J_D* is not positive on the segment"


def _finite(constant: Tensor) -> Tensor:
    """NaN in place of infinity, with which an inequality would say nothing."""
    return constant.masked_fill(constant.isinf(), math.nan)


def check(
    path: Trajectory,
    constants: Constants | None = None,
    *,
    infimum: Tensor | None = None,
    sharp: Constants | None = None,
) -> tuple[Row, ...]:
    """Evaluate every inequality.

    Args:
        path: what was measured.
        constants: those of the paper unless given.
        infimum: F_inf - F*(x_0), or an upper bound of it, which is stricter than the theorem,
            ``(B,)``; without it the row of Theorem 3.1 with F_inf is left out.
        sharp: constants of the sharpened theorem; :meth:`Constants.sharp` unless given.

    Example:
        >>> from proxmatch.baselines import Wiener
        >>> from proxmatch.problems import denoising
        >>> from proxmatch.theory import trace
        >>> x = torch.rand(2, 1, 8, 8, dtype=torch.float64)
        >>> exact = Wiener.fit(x, 0.1).double()
        >>> problem = denoising(8, channels=1, iterations=2, dtype=torch.float64)
        >>> rows = check(trace(exact, problem.measure(x), problem, reference=exact))
        >>> rows[0].name, rows[0].share
        ('D* minimizes H_k', 1.0)
    """
    c = constants or Constants.paper(path)
    s = sharp or Constants.sharp(path)
    basis = "proved" if path.proved else "estimated"
    d2, r2, g2 = path.mismatch**2, path.residual**2, path.stationarity[:, 1:] ** 2
    r_bound = _square_bound(path.residual, path.gradient_bound[:, 1:])
    zero = torch.zeros_like(d2)
    f, f_bound = path.objective, path.objective_bound
    t = torch.arange(1, d2.shape[1] + 1, dtype=d2.dtype)

    def row(
        name: str, reference: str, lhs: Tensor, rhs: Tensor, tolerance: Tensor, **more: Any
    ) -> Row:
        return Row(
            name,
            reference,
            more.get("basis", basis),
            lhs,
            rhs,
            tolerance,
            _reasons(path, lhs + rhs + tolerance, more.get("why", "")),
        )

    def bridge(constant: float | Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return path.error, c.bridge * constant * d2, path.error_bound

    def suboptimality(constant: float | Tensor) -> tuple[Tensor, Tensor, Tensor]:
        factor = c.suboptimality * constant
        return r2, factor * path.error, r_bound + factor * path.error_bound

    def rate(k: Constants, fall: Tensor, fall_bound: Tensor, d2: Tensor) -> tuple[Tensor, ...]:
        bound = _square_bound(path.stationarity[:, 1:], path.gradient_bound[:, 1:])
        return (
            g2.cumsum(1) / t,
            k.decrease * fall / t + k.mismatch * d2.cumsum(1) / t,
            bound.cumsum(1) / t + k.decrease * fall_bound / t,
        )

    fall, fall_bound = -f[:, 1:], f_bound[:, 1:] + f_bound[:, :1]
    agree = (path.mismatch <= path.gradient_bound[:, 1:]).all(1, keepdim=True)  # to rounding
    matched = torch.where(agree, 0.0, math.nan)
    large = "" if path.step_size < 1 else f"eta L_f = {path.step_size:.4g} is not below 1"
    rows = [
        row("D* minimizes H_k", "eps_induced", zero - path.error, zero, path.error_bound),
        row("mismatch bounds eps", "Lemma 3.1", *bridge(c.smoothness)),
        row(
            "mismatch bounds eps, local L_H",
            "Lemma 3.1",
            *bridge(_finite(path.local_image)),
            basis="estimated",
            why=NO_LOCAL,
        ),
        row("gradient-suboptimality", "Assumption 3.3", *suboptimality(c.smoothness)),
        row(
            "gradient-suboptimality, local L_H",
            "Assumption 3.3",
            *suboptimality(_finite(path.local_query)),
            basis="estimated",
            why=NO_LOCAL,
        ),
        row(
            "descent",
            "Lemma 3.2",
            f[:, 1:] - f[:, :-1] + c.descent * (1 - c.step_size) * path.step**2,
            path.error,
            f_bound[:, 1:] + f_bound[:, :-1] + path.error_bound,
        ),
        row(
            "residual identity, to rounding",
            "Lemma 3.3",
            path.identity,
            4 * path.gradient_bound[:, 1:],
            zero,
        ),
        row("residual bound", "Lemma 3.3", *suboptimality(c.smoothness)),
        row("stationarity, F*(x_t)", "Theorem 3.1", *rate(c, fall, fall_bound, d2), why=large),
    ]
    if infimum is not None:
        low = (-infimum[:, None]).expand_as(d2)
        rows.append(
            row("stationarity, F_inf", "Theorem 3.1", *rate(c, low, fall_bound, d2), why=large)
        )
    _, rhs, bound = rate(c, fall, fall_bound, d2)
    rows += [
        row("smallest gradient", "Theorem 3.1", g2.cummin(1).values, rhs, bound, why=large),
        row(
            "stationarity, sharp constants",
            "Theorem 3.1, sharpened",
            *rate(s, fall, fall_bound, d2),
            why=large,
        ),
        row(
            "matched stationarity",
            "Corollary 3.1",
            *rate(c, fall, fall_bound, 0 * d2 + matched),
            why=large or "there is a mismatch: d_k > 0",
        ),
    ]
    return tuple(rows)


def _square_bound(value: Tensor, error: Tensor) -> Tensor:
    """Error of value^2."""
    return (2 * value + error) * error


def _reasons(path: Trajectory, known: Tensor, otherwise: str) -> dict[str, int]:
    """Why the inequality is not known where it is not, most basic reason first."""
    left = known.isnan()
    reasons: dict[str, int] = {}

    def take(which: Tensor, why: str) -> None:
        nonlocal left
        count = int((left & which).sum())
        if count:
            reasons[why] = count
        left = left & ~which

    everything = torch.ones_like(left)
    stopped = torch.tensor([s is Status.DIVERGED for s in path.status])[:, None]
    take(path.mismatch.isnan() & stopped, "the image diverged before")
    take(path.mismatch.isnan(), "the image stopped before")
    if path.why:
        take(everything, path.why)
    earlier = (~path.inverted[:, 1:]).cumsum(1) > 0
    take(~path.inverted[:, :1].expand_as(left), "x_0 is not in the image of D*: inverse not found")
    take(earlier, "x_k, or an earlier iterate, is not in the image of D*: inverse not found")
    take(everything, otherwise or "not measured")
    return reasons
