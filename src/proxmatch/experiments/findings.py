"""Pairs of methods on the same adaptation sets and images, as matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from proxmatch.experiments.bootstrap import Array, Interval, Resampling, interval
from proxmatch.experiments.collect import ReconstructionScores
from proxmatch.records import Setting


@dataclass(frozen=True)
class Contrast:
    """A statistic of several arms."""

    found: Interval  # effect and interval
    sets: int  # how many adaptation sets it rests on
    images: int  # how many test images


class Findings:
    """All reconstructions, by arm and set."""

    def __init__(self, found: Iterable[ReconstructionScores], resamples: int) -> None:
        self.resamples = resamples
        self._cells: dict[Setting, dict[int, ReconstructionScores]] = {}
        for r in found:
            self._cells.setdefault(r.label.setting, {})[r.label.set] = r

    def has(self, *arms: Setting) -> bool:
        """Whether all of these have been computed, for one set at least."""
        return all(arm in self._cells for arm in arms)

    def sets(self, *arms: Setting) -> list[int]:
        """The adaptation sets that all arms have; arms without images have them all."""
        own = [set(self._cells[arm]) for arm in arms if arm.n]
        return sorted(set.intersection(*own)) if own else [0]

    def matrices(self, arms: Sequence[Setting], value: str) -> list[Array] | None:
        """One matrix ``(S, I)`` per arm, or ``(S, I, K + 1)`` for ``curves``.

        Over the sets they share and the images for which all of them have the value; None if there
        is no such set or image.
        """
        sets = self.sets(*arms) if self.has(*arms) else []
        if not sets:
            return None
        tables: list[list[dict[str, Array]]] = []
        for arm in arms:
            rows = [self._cells[arm][s if arm.n else 0] for s in sets]
            if value == "curves" and any(row.curves is None for row in rows):
                return None
            tables.append([_by_image(row, value) for row in rows])
        common = [
            name for name in tables[0][0] if all(name in table for line in tables for table in line)
        ]
        if not common:
            return None
        return [np.array([[table[name] for name in common] for table in line]) for line in tables]

    def contrast(
        self,
        arms: Sequence[Setting],
        value: str,
        statistic: Callable[[Sequence[Array]], Array],
        name: str,
    ) -> Contrast | None:
        """A statistic of the means of the arms, resampled over sets and images together.

        Args:
            arms: whose means it is made of.
            value: ``psnr``, ``ssim``, ``gap``, ``lipschitz``, several of them joined by commas
                (along a last axis), or ``curves``.
            statistic: of the means ``(R, ...)`` of the arms, ``(R,)``.
            name: of the comparison, which seeds the resampling.

        Returns:
            None if something is missing.
        """
        matrices = self.matrices(arms, value)
        if matrices is None:
            return None
        sets, images = matrices[0].shape[:2]
        resampling = Resampling.draw(sets, images, self.resamples, name)
        effect = statistic([m.mean((0, 1))[None] for m in matrices])
        resampled = statistic([resampling.means(m) for m in matrices])
        return Contrast(interval(float(effect[0]), resampled), sets, images)


def difference(means: Sequence[Array]) -> Array:
    """The first arm less the second."""
    return means[0] - means[1]


def _by_image(row: ReconstructionScores, value: str) -> dict[str, Array]:
    if value == "curves":
        if row.curves is None:
            return {}
        return dict(zip(row.ids, row.curves, strict=True))
    columns = np.stack([row.values[name] for name in value.split(",")], -1)
    columns = columns[:, 0] if "," not in value else columns
    pairs = zip(row.ids, columns, strict=True)
    return {name: v for name, v in pairs if np.isfinite(v).all()}
