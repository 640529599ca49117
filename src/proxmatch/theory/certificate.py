"""A certificate: does this run obey the theory, and by how much?"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from proxmatch.denoisers import ProximalDenoiser
from proxmatch.errors import InputError, NotProximalError
from proxmatch.plots.shown import ShownCertificate
from proxmatch.pnp import Denoise
from proxmatch.problems import Problem
from proxmatch.theory.inequalities import Constants, Row, check
from proxmatch.theory.trajectory import Trajectory, trace
from proxmatch.theory.whatif import Outlook

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

LOCAL = (1, 10, 40)  # iterations at which L_H is also estimated on segments


@dataclass(frozen=True)
class Run:
    """One deployed denoiser on one problem.

    Attributes:
        path: what was measured.
        rows: the inequalities.
        outlook: what the bound says about longer runs and other mismatches.
        seconds: how long it took.
    """

    path: Trajectory
    rows: tuple[Row, ...]
    outlook: Outlook
    seconds: float

    @property
    def share(self) -> float:
        """Of all triples (inequality, image, iteration) that apply, the fraction that holds."""
        applies = sum(int(row.applies.sum()) for row in self.rows)
        holds = sum(int(row.holds.sum()) for row in self.rows)
        return holds / applies if applies else math.nan

    @property
    def effective_smoothness(self) -> float:
        """Median of 2 eps_k / d_k^2: what L_H was along xi_k; NaN without mismatch."""
        use = self.path.error > 10 * self.path.error_bound
        ratio = 2 * self.path.error[use] / self.path.mismatch[use] ** 2
        return float(ratio.median()) if len(ratio) else math.nan


@dataclass(frozen=True, repr=False)
class Certificate(ShownCertificate):
    """Several denoisers on the same measurements, against one reference.

    Attributes:
        problem: its name.
        runs: by the name of the denoiser.
        infimum: lowest F* - F*(x_0) that any of the runs met, ``(B,)``. It stands for F_inf, which
            is not above it, so that what holds with it holds with F_inf.
    """

    problem: str
    runs: dict[str, Run]
    infimum: Tensor

    @classmethod
    def of(
        cls,
        problem: str,
        paths: Mapping[str, tuple[Trajectory, float]],
        infimum: Tensor | None = None,
    ) -> Certificate:
        """Check every inequality along paths that have been measured.

        Args:
            problem: its name.
            paths: what was measured and the seconds it took, by the name of the denoiser.
            infimum: F_inf - F*(x_0), if it is known, ``(B,)``.
        """
        if infimum is None:
            every = torch.stack([_lowest(path.objective) for path, _ in paths.values()])
            infimum = _lowest(every.T)
        runs = {
            name: Run(
                path,
                check(path, infimum=infimum),
                Outlook.of(path, Constants.paper(path), infimum),
                seconds,
            )
            for name, (path, seconds) in paths.items()
        }
        return cls(problem, runs, infimum)

    def plot(self) -> Figure:
        """Draw stationarity under its bound, and what the bound is made of."""
        from proxmatch.theory.figure import draw

        return draw(self)

    def table(self) -> Table:
        """One line per inequality, one column per denoiser: share, worst slack, tightness."""
        from rich.table import Table

        first = next(iter(self.runs.values()))
        size = " x ".join(map(str, first.path.mismatch.shape))
        table = Table(
            title=f"{self.problem}: {size} (images x iterations)",
            caption="share that holds / worst relative slack / median lhs : rhs; * the constant is "
            "an estimate",
        )
        for column in ("inequality", "in the paper", *self.runs):
            table.add_column(column)
        for i, row in enumerate(first.rows):
            star = " *" if row.basis == "estimated" else ""
            cells = [_cell(run.rows[i]) for run in self.runs.values()]
            table.add_row(row.name + star, row.reference, *cells)
        table.add_section()
        table.add_row("all that apply", "", *(f"{100 * r.share:.2f} %" for r in self.runs.values()))
        table.add_row("L_H, and along xi_k", "", *(_constants(r) for r in self.runs.values()))
        table.add_row("minutes", "", *(f"{r.seconds / 60:.1f}" for r in self.runs.values()))
        return table

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values; NaN as None, one list per image."""
        return {"problem": self.problem, "runs": {k: _record(r) for k, r in self.runs.items()}}

    def to_json(self) -> str:
        """:meth:`to_dict` as text."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"


def certify(
    denoisers: Mapping[str, Denoise],
    measurements: Any,
    problem: Problem,
    *,
    reference: ProximalDenoiser,
    iterations: int | None = None,
    sigma: float | None = None,
    warm: int = 0,
    infimum: Tensor | None = None,
    tolerance: float = 1e-7,
    local: Iterable[int] = LOCAL,
    group: int = 8,
    on_group: Callable[[str, int], None] = lambda name, done: None,
) -> Certificate:
    """Run PnP-PGD with each denoiser and check every inequality against the reference D*.

    To have the matched case beside the others, pass the reference among the denoisers.

    Args:
        denoisers: D, by name.
        measurements: y, as ``problem.measure`` makes them; or arrays, or pictures of them.
        problem: f, eta and the start.
        reference: D*.
        iterations: number of steps, if not that of the problem.
        sigma: passed on to all denoisers.
        warm: how many of these steps are a warm start; the steps after it are checked, since the
            theory holds from any x_0.
        infimum: F_inf - F*(x_0), if it is known, ``(B,)``.
        tolerance: on the relative residual of the inverse.
        local: the k at which L_H is also estimated on segments.
        group: images held in memory at once.
        on_group: called with the denoiser and the number of its images that are done.

    Raises:
        NotProximalError: the reference has no potential.

    Example:
        >>> from proxmatch.baselines import Wiener
        >>> from proxmatch.problems import denoising
        >>> x = torch.rand(2, 1, 8, 8, dtype=torch.float64)
        >>> exact = Wiener.fit(x, 0.1).double()
        >>> problem = denoising(8, channels=1, iterations=2, dtype=torch.float64)
        >>> y = problem.measure(x)
        >>> found = certify({"itself": exact}, y, problem, reference=exact, local=())
        >>> found.runs["itself"].share
        1.0
    """
    if not isinstance(reference, ProximalDenoiser) or not reference.proximal:
        raise NotProximalError(
            f"a certificate needs a proximal map as its reference, {type(reference).__name__} has "
            "no potential; make it one with GradientStep.of(network, smooth=True)"
        )
    if not denoisers:
        raise InputError("there is nothing to certify: pass at least one denoiser by name")
    local = tuple(local)
    paths: dict[str, tuple[Trajectory, float]] = {}
    for name, denoiser in denoisers.items():
        started, parts = time.perf_counter(), []
        for some in torch.split(problem.measurements(measurements), group):
            parts.append(
                trace(
                    denoiser,
                    some,
                    problem,
                    reference=reference,
                    iterations=iterations,
                    sigma=sigma,
                    warm=warm,
                    tolerance=tolerance,
                    local=local,
                )
            )
            on_group(name, sum(len(part.step) for part in parts))
        paths[name] = joined(parts), time.perf_counter() - started
    return Certificate.of(problem.name, paths, infimum)


def joined(paths: list[Trajectory]) -> Trajectory:
    """The trajectories of several groups of images as one."""

    def merged(name: str) -> Any:
        values = [getattr(path, name) for path in paths]
        if isinstance(values[0], Tensor):
            return torch.cat(values)
        return sum(values, ()) if isinstance(values[0], tuple) else values[0]

    return Trajectory(**{field.name: merged(field.name) for field in fields(Trajectory)})


def _lowest(values: Tensor) -> Tensor:
    """The smallest number of each row, without NaN, ``(B,)``; NaN if there is nothing else."""
    low = values.nan_to_num(math.inf).amin(1)
    return torch.where(low.isinf(), math.nan, low)


def _cell(row: Row) -> str:
    if math.isnan(row.share):
        return "n/a: " + max(row.reasons, key=lambda why: row.reasons[why]).split(":")[0]
    tight = "" if math.isnan(row.tightness) else f" / {row.tightness:.2g}"
    text = f"{100 * row.share:.4g} % / {row.worst:.1e}{tight}"
    return text if row.share == 1 else f"[bold]{text}[/bold]"


def _constants(run: Run) -> str:
    return f"{run.path.smoothness:.3g}, {run.effective_smoothness:.3g}"


def _record(run: Run) -> dict[str, Any]:
    path, outlook = run.path, run.outlook
    curves = ("mismatch", "error", "residual", "step", "stationarity", "objective")
    return {
        "share": _plain(run.share),
        "seconds": run.seconds,
        "step_size": path.step_size,
        "smoothness": _plain(path.smoothness),
        "smoothness_is": "proved" if path.proved else "estimated",
        "smoothness_along_error": _plain(run.effective_smoothness),
        "smoothness_on_segments": _plain(path.local_image),
        "smoothness_between_preimages": _plain(path.local_query),
        "status": [str(status) for status in path.status],
        "not_inverted": int((~path.inverted).sum()),
        "iterations_worth_running": _plain(outlook.worthwhile()),
        "settled_after": _plain(outlook.settled),
        "rows": [row.summary() for row in run.rows],
        "curves": {name: _plain(getattr(path, name)) for name in curves},
    }


def _plain(value: float | Tensor) -> Any:
    """As JSON: numbers, None for NaN and infinity, lists of these."""
    if isinstance(value, Tensor):
        return [_plain(v) for v in (value.tolist() if value.dim() < 2 else value)]
    return value if math.isfinite(value) else None
