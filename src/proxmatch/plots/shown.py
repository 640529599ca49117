"""How results are shown to people: ``plot()``, a short ``repr()``, a view in notebooks.

One kind of result inherits each class here, which reads its attributes and nothing else.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from proxmatch.plots.canvas import encoded
from proxmatch.plots.curves import plot_curves, plot_losses, plot_ranges, plot_scores, plot_trials
from proxmatch.plots.side_by_side import Box, plot_images
from proxmatch.plots.text_tables import Rows, html_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Titles of the curves of a run.
CURVES = {
    "psnr": "PSNR, dB",
    "ssim": "SSIM",
    "residual": "relative change (log)",
    "mismatch": "mismatch $d_k$",
    "gap": "relative gap",
}


#: Of an adaptation without clean images, or one that kept none.
NO_EVIDENCE = "no evidence: no clean image was held out"


class ShownReconstruction:
    """How a :class:`~proxmatch.reconstruction.Reconstruction` is shown."""

    images: Any
    status: Any

    def plot(
        self,
        number: int = 0,
        *,
        measured: Any = None,
        truth: Any = None,
        zoom: Box | bool = True,
        figure: Figure | None = None,
    ) -> Figure:
        """Draw one image, beside what was measured and the truth where they are given.

        Args:
            number: of the image.
            measured: measurements that are pictures, ``(C, h, w)`` each.
            truth: the true images, ``(C, H, W)`` each.
            zoom: the detail below: top, left and side in pixels; True for a busy one, or False.
            figure: to draw into; a new one by default.
        """
        shown: dict[str, Tensor] = {} if measured is None else {"measured": measured[number]}
        shown[self._title(number)] = self.images[number]
        if truth is not None:
            shown["truth"] = truth[number]
        return plot_images(shown, zoom=zoom, figure=figure)

    def _title(self, number: int) -> str:
        return "reconstruction"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.images)} image(s), {_ends(self.status)})"

    def _repr_html_(self) -> str:
        return _gallery(list(self.images), repr(self))


class ShownRun(ShownReconstruction):
    """How a :class:`~proxmatch.pnp.PnPResult` is shown."""

    iterations: Any
    warm: Any
    psnr: Any

    def plot_curves(self, *, figure: Figure | None = None) -> Figure:
        """Draw what was recorded along the iterations."""
        found = {
            title: getattr(self, name)
            for name, title in CURVES.items()
            if getattr(self, name) is not None
        }
        return plot_curves(found, warm=self.warm, figure=figure)

    def _title(self, number: int) -> str:
        if self.psnr is None:
            return "reconstruction"
        return f"reconstruction\n{float(self._last_psnr()[number]):.2f} dB"

    def _last_psnr(self) -> Tensor:
        last: Tensor = self.psnr.gather(1, self.iterations[:, None].to(self.psnr.device))
        return last

    def __repr__(self) -> str:
        size = " x ".join(map(str, self.images.shape[1:]))
        told = f"{len(self.images)} image(s) of {size}, {_ends(self.status)}"
        if self.psnr is not None:
            told += f", mean PSNR {float(self._last_psnr().mean()):.2f} dB"
        return f"{type(self).__name__}({told})"


class ShownTuned:
    """How a :class:`~proxmatch.transforms.Tuned` is shown."""

    chosen: Any
    table: Any
    margin: Any

    def plot(self, *, figure: Figure | None = None) -> Figure:
        """Draw how well each strength did."""
        trials = list(self.table)
        levels = self.chosen.sigma is not None
        return plot_trials(
            [trial.sigma if levels else trial.strength for trial in trials],
            [trial.psnr for trial in trials],
            chosen=trials.index(self.chosen),
            label="noise level s" if levels else "strength",
            figure=figure,
        )

    def __repr__(self) -> str:
        level = "" if self.chosen.sigma is None else f"level {self.chosen.sigma:.3g}, "
        bound = "" if self.margin is None else f", t L = {self.margin:.2f}"
        return (
            f"{type(self).__name__}({level}strength {self.chosen.strength:.3g}, "
            f"{self.chosen.psnr:.2f} dB, best of {len(self.table)}{bound})"
        )

    def _repr_html_(self) -> str:
        return Rows(self.table)._repr_html_()


class ShownAdaptation:
    """How an :class:`~proxmatch.learning.AdaptationResult` is shown."""

    denoiser: Any
    evidence: Any
    table: Any
    history: Any
    status: Any

    def plot(self, *, figure: Figure | None = None) -> Figure:
        """Draw the candidates that were compared, or the loss of a training."""
        if self.table:
            chosen = next((each.name for each in self.table if each.chosen), None)
            scores = {each.name: each.score for each in self.table}
            return plot_scores(scores, chosen=chosen, label="held-out PSNR, dB", figure=figure)
        return plot_losses(self.history, figure=figure)

    def __repr__(self) -> str:
        chosen = next((each.name for each in self.table if each.chosen), None)
        told = [str(self.status)]
        if chosen is not None:
            told.append(f"chosen: {chosen}")
        return f"{type(self).__name__}({', '.join([*told, self._said])})"

    @property
    def _said(self) -> str:
        return NO_EVIDENCE if self.evidence is None else str(self.evidence)

    def _repr_html_(self) -> str:
        said = html_table(["", ""], [["evidence", self._said]])
        return said + (Rows(self.table)._repr_html_() if self.table else "")


class ShownDiagnosis:
    """How a :class:`~proxmatch.diagnosis.Diagnosis` is shown."""

    problem: Any
    images: Any
    verdict: Any
    name: Any
    psnr: Any
    loss: Any
    standings: Any
    gap_curve: Any

    def plot(self, *, figure: Figure | None = None) -> Figure:
        """Draw the gap along the run if there is a reference, else everything that was compared."""
        if self.gap_curve is not None:
            values = torch.tensor([self.gap_curve], dtype=torch.float64)
            return plot_curves({"relative gap": values}, figure=figure)
        scores = {each.name: each.score for each in self.standings}
        return plot_scores(scores, chosen=self.name, figure=figure)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.name}, {self.problem}, {self.images} image(s): "
            f"{self.verdict}, {self.psnr:.2f} dB, loses {self.loss:.2f} dB)"
        )

    def _repr_html_(self) -> str:
        return html_table([], [[repr(self)]]) + Rows(self.standings)._repr_html_()


class ShownTraining:
    """How a :class:`~proxmatch.learning.TrainingResult` is shown."""

    denoiser: Any
    run: Any

    def plot(self, *, figure: Figure | None = None) -> Figure:
        """Draw the loss along the steps."""
        return plot_losses(self.run.history, figure=figure)

    def __repr__(self) -> str:
        told = f"{self.run.status}, {self.run.steps} steps, {self.run.seconds:.0f} s"
        return f"{type(self).__name__}({self.denoiser!r}, {told})"

    def _repr_html_(self) -> str:
        drawn = any("loss" in entry for entry in self.run.history)
        return html_table([], [[repr(self)]]) + (encoded(self.plot()) if drawn else "")


class ShownSpectrum:
    """How a :class:`~proxmatch.denoisers.spectrum.Spectrum` is shown."""

    largest: Any
    smallest: Any
    largest_residual: Any
    smallest_residual: Any
    iterations: Any
    constant: Any

    def plot(self, *, figure: Figure | None = None) -> Figure:
        """Draw the eigenvalues found at each image, with their residuals."""
        return plot_ranges(
            self.smallest,
            self.largest,
            residuals=(self.smallest_residual, self.largest_residual),
            label="eigenvalues of $J_D$",
            figure=figure,
        )

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({len(self.largest)} image(s): eigenvalues from "
            f"{float(self.smallest.min()):.3f} to {float(self.largest.max()):.3f}, "
            f"L = {float(self.constant.max()):.3f}, {self.iterations} iterations)"
        )

    def _repr_html_(self) -> str:
        return html_table([], [[repr(self)]]) + encoded(self.plot())


class ShownCertificate:
    """How a :class:`~proxmatch.theory.Certificate` is shown."""

    problem: Any
    runs: Any
    plot: Any

    def __repr__(self) -> str:
        found = {name: _share(run) for name, run in self.runs.items()}
        if len(set(found.values())) == 1 and all(math.isnan(r.share) for r in self.runs.values()):
            # The reference has no L_H: said once, not for each run.
            return f"{type(self).__name__}({self.problem}: {next(iter(found.values()))})"
        shares = ", ".join(f"{name} {share}" for name, share in found.items())
        return f"{type(self).__name__}({self.problem}: inequalities that hold: {shares})"

    def _repr_html_(self) -> str:
        rows = [[name, _share(run)] for name, run in self.runs.items()]
        return html_table([self.problem, "inequalities that hold"], rows) + encoded(self.plot())


def _share(run: Any) -> str:
    """The share of the inequalities along a run that hold, or why none applies."""
    if math.isnan(run.share):
        return f"no inequality applies: {run.path.why or 'no step can be checked'}"
    return f"{run.share:.2%}"


def _ends(status: Any) -> str:
    """How many images ended in each way."""
    return ", ".join(f"{number} {end}" for end, number in Counter(map(str, status)).items())


def _gallery(images: list[Tensor], text: str) -> str:
    """At most six images as HTML, below a text."""
    from matplotlib.figure import Figure

    line = html_table([], [[text]])
    drawable = [image for image in images if image.shape[0] in (1, 3)][:6]
    if not drawable:
        return line
    figure = Figure(figsize=(2.2 * len(drawable), 2.4), layout="constrained")
    named = {str(number): image for number, image in enumerate(drawable)}
    return line + encoded(plot_images(named, zoom=False, figure=figure))
