"""What is measured on a reconstruction, image by image.

- PSNR and SSIM of the last iterate (:mod:`proxmatch.metrics`), PSNR of the best one. An image that
  diverged counts as it was left.
- The **gap** of the paper's tables (section 5.1, "Evaluation metrics"): at every query z_k the
  candidate's own run meets,

      gap(z_k) = |D(z_k) - D*(z_k)| / max(|D*(z_k)|, 1e-12),

  averaged over the iterations k = 1 ... K, for each image; in per cent, as in the tables.
- **L** = |Id - J_D(z_k)|: the tables' local Jacobian estimate, by Lanczos iteration at some of the
  queries. The value of an image is the largest of these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from proxmatch.denoisers import ProximalDenoiser, jacobian_spectrum
from proxmatch.metrics import ssim
from proxmatch.pnp import Denoise, PnPResult, Status, pnp_pgd
from proxmatch.problems import Problem


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    gap_images: int = 0  # the first images, for which the gap is measured
    lipschitz_images: int = 0  # the first images, for which L is estimated
    lipschitz_at: tuple[int, ...] = (1, 40)  # iterations k at whose queries it is
    lanczos: int = 40  # iterations of that estimate
    batch: int = 25  # images reconstructed together


@dataclass(frozen=True)
class Measured:
    """Figures of B images over K iterations; NaN where nothing was measured."""

    #: Of x_0 ... x_K in dB, the last sound value after an image has diverged, (B, K+1).
    psnr: Tensor
    ssim: Tensor  # of the last iterate, (B,)
    gap: Tensor  # at z_1 ... z_K, not in per cent, (B, K)
    lipschitz: Tensor  # L at the chosen queries, (B, Q)
    lipschitz_at: tuple[int, ...]  # which these are
    diverged: int  # how many images diverged

    def to_json(self, ids: Sequence[str], curves: bool) -> dict[str, Any]:
        """Values per image and mean curves, NaN as None; with ``curves`` the PSNR of every step."""
        best, where = self.psnr.max(1)
        found = {
            "ids": list(ids),
            "psnr": _numbers(self.psnr[:, -1]),
            "ssim": _numbers(self.ssim, 6),
            "best_psnr": _numbers(best),
            "best_iteration": where.tolist(),
            "gap": _numbers(100 * self.gap.nanmean(1)),
            "lipschitz": _numbers(self._largest()),
        }
        measured = ~self.gap.isnan().all(1)
        means = {
            "psnr": _numbers(self.psnr.mean(0)),
            "gap": [None, *_numbers(100 * self.gap[measured].nanmean(0))],
            "gap_images": int(measured.sum()),
            "lipschitz": dict(
                zip(map(str, self.lipschitz_at), _numbers(self.lipschitz.nanmean(0)), strict=True)
            ),
        }
        every = [_numbers(line, 3) for line in self.psnr] if curves else None
        return {"images": found, "means": means, "curves": every, "diverged": self.diverged}

    def _largest(self) -> Tensor:
        """The largest L of each image, ``(B,)``; NaN where there is none."""
        with_floor = torch.cat([torch.full((len(self.psnr), 1), -math.inf), self.lipschitz], 1)
        return with_floor.nan_to_num(-math.inf, neginf=-math.inf).amax(1)


@torch.no_grad()
def measure(
    denoiser: Denoise,
    truth: Tensor,
    problem: Problem,
    ids: Sequence[str],
    *,
    reference: Denoise | None = None,
    effort: Effort | None = None,
    seed: int = 0,
    iterations: int | None = None,
) -> Measured:
    """Degrade images, reconstruct them, and measure."""
    effort = effort or Effort()
    total = problem.iterations
    gap_images = effort.gap_images if reference is not None else 0
    own = reference is denoiser
    known = isinstance(denoiser, ProximalDenoiser)
    lipschitz_images = effort.lipschitz_images if known else 0
    at = tuple(k for k in effort.lipschitz_at if k <= (iterations or total))
    pieces: list[tuple[Tensor, ...]] = []
    diverged = 0
    for piece in _pieces(len(truth), effort.batch, gap_images, lipschitz_images):
        with_l = piece.start < lipschitz_images
        images = truth[piece]
        run = pnp_pgd(
            denoiser,
            problem.measure(images, ids=ids[piece], seed=seed),
            problem,
            reference=None if own or piece.start >= gap_images else reference,
            truth=images,
            record=("psnr", "iterates") if with_l else ("psnr",),
            iterations=iterations,
            on_divergence="ignore",
        )
        diverged += run.status.count(Status.DIVERGED)
        found = torch.full((len(images), len(at)), math.nan)
        if with_l and run.queries is not None and isinstance(denoiser, ProximalDenoiser):
            for column, k in enumerate(at):
                found[:, column] = _constant(denoiser, run.queries[:, k - 1], images, effort)
        gap = _gap(run, total)
        if own and piece.start < gap_images:
            gap.zero_()
        pieces.append((_held(run, total), ssim(run.images, images).cpu(), gap, found))
    psnr, similarity, gaps, constants = (torch.cat(p) for p in zip(*pieces, strict=True))
    return Measured(psnr, similarity, gaps, constants, at, diverged)


def _pieces(total: int, batch: int, *edges: int) -> list[slice]:
    """Runs of at most ``batch`` images that no edge cuts in two."""
    stops = sorted({0, total, *(edge for edge in edges if edge < total)})
    return [
        slice(start, min(start + batch, last))
        for begin, last in pairwise(stops)
        for start in range(begin, last, batch)
    ]


def _held(run: PnPResult, total: int) -> Tensor:
    """PSNR of x_0 ... x_K, where an image that has stopped keeps its last value."""
    if run.psnr is None:
        raise ValueError("the PSNR was not recorded")
    steps = torch.arange(total + 1, device=run.psnr.device)
    return run.psnr.gather(1, torch.minimum(steps[None], run.iterations[:, None])).cpu()


def _gap(run: PnPResult, total: int) -> Tensor:
    found = torch.full((len(run.status), total), math.nan)
    if run.gap is not None:
        found[:, : run.gap.shape[1]] = run.gap.cpu()
    return found


def _constant(denoiser: ProximalDenoiser, queries: Tensor, like: Tensor, effort: Effort) -> Tensor:
    """L at queries, ``(B,)``; NaN where an image had stopped before."""
    found = torch.full((len(queries),), math.nan)
    sound = queries.isfinite().flatten(1).all(1)
    if bool(sound.any()):
        spectrum = jacobian_spectrum(denoiser, queries[sound].to(like), iterations=effort.lanczos)
        found[sound] = spectrum.constant.float().cpu()
    return found


def _numbers(values: Tensor, digits: int = 4) -> list[float | None]:
    return [round(v, digits) if math.isfinite(v) else None for v in values.double().tolist()]
