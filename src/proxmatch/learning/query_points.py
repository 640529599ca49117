"""Training where the denoiser is used: query points of PnP-PGD among the inputs.

The bound on stationarity (Theorem 3.1) is about the mismatch at the query points z_k, not at images
with Gaussian noise. So a part of every batch is z_k of simulated measurements of the training
images, computed with the current denoiser and refreshed now and then because it changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from proxmatch._internal.randomness import generator_of
from proxmatch.denoisers import ProximalDenoiser
from proxmatch.errors import InputError
from proxmatch.learning.settings import TrainingSettings
from proxmatch.learning.sources import Batch, Source
from proxmatch.pnp import pnp_pgd
from proxmatch.problems import Problem

#: Query points beyond this are those of a run that explodes; there is nothing to be learned there.
RANGE = 2.0


@dataclass(frozen=True)
class Queries:
    """Query points, and the images they should become."""

    points: Tensor  # z_k, (Q, C, H, W)
    clean: Tensor  # (Q, C, H, W)


@torch.no_grad()
def queries(
    denoiser: ProximalDenoiser, images: Tensor, problems: Sequence[Problem], *, seed: int = 0
) -> Queries:
    """All query points of simulated measurements of the images that stay in range."""
    place = next(denoiser.parameters())
    images = images.to(place)
    points, clean = [], []
    for problem in problems:
        placed = problem.to(place.device).to(place.dtype)
        run = pnp_pgd(
            denoiser,
            placed.measure(images, seed=seed),
            placed,
            record=("iterates",),
            on_divergence="ignore",
        )
        assert run.queries is not None  # noqa: S101
        found = run.queries
        good = found.abs().flatten(2).amax(2) <= RANGE  # NaN, after an image has stopped, is not
        points.append(found[good])
        clean.append(images.cpu()[:, None].expand_as(found)[good])
    return Queries(torch.cat(points), torch.cat(clean))


def along_trajectory(
    source: Source, denoiser: ProximalDenoiser, problems: Sequence[Problem]
) -> Source:
    """The inputs of a source, some of them replaced by query points as the settings say."""
    if not problems:
        raise InputError("inputs along the trajectory need at least one problem")
    held: list[Queries] = []

    def mixed(step: int, settings: TrainingSettings) -> Batch:
        batch, wanted = source(step, settings), settings.trajectory
        if wanted is None:
            return batch
        if step % wanted.refresh == 0 or not held:
            batches = -(-wanted.images // settings.batch)
            images = torch.cat([source(step + i, settings).clean for i in range(batches)])
            held[:] = [queries(denoiser, images[: wanted.images], problems, seed=step)]
        found, count = held[0], round(wanted.share * settings.batch)
        if not len(found.points) or not count:
            return batch
        which = torch.randint(
            len(found.points), (count,), generator=generator_of(settings.seed, step, "trajectory")
        )
        level = batch.level
        if level is not None:
            level = torch.cat([level.new_full((count,), torch.nan), level[count:]])
        return Batch(
            torch.cat([found.points[which].to(batch.noisy), batch.noisy[count:]]),
            torch.cat([found.clean[which].to(batch.clean), batch.clean[count:]]),
            level=level,
        )

    return mixed
