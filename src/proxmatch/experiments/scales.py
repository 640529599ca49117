"""How large the experiment is: everything that decides it, as data."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from proxmatch.learning.auto import Search
from proxmatch.records import SOURCE
from proxmatch.transforms.strength import STRENGTHS

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ScaleRow(_Settings):
    """The cells of one method."""

    method: str  # of proxmatch.methods.METHODS
    #: Kind of the source denoiser; empty for the reference and the baselines.
    source: str = SOURCE
    sets: dict[Count, Positive]  # how many adaptation sets, by n; {0: 1} for rows that use no image
    test_images: Count  # reconstructed at t = 1
    chosen_images: Count = 0  # reconstructed with the chosen relaxation; 0 leaves it out
    gap_images: Count = 0  # of the first, how many are compared with the reference at every step
    lipschitz_images: Count = 0  # of these, at how many L is estimated along the trajectory
    curves: bool = False  # keep the PSNR of every image at every iteration
    #: The n at which iterates are kept as pictures, of set 0, at t = 1 where there is such a run.
    pictures: tuple[int, ...] = ()


class FamilyScale(_Settings):
    """What is done for one family."""

    preset: str  # its layout and training, of proxmatch.learning.settings.PRESETS
    #: Steps of the denoisers that have to be trained, by kind of source and for the reference; None
    #: for those of the preset. A kind that is not named is not trained.
    training: dict[str, int | None]
    tuning_images: Positive  # how many adaptation images the relaxation is chosen on, at most
    strengths: tuple[float, ...] = STRENGTHS  # of the relaxation that are tried
    batch: Positive = 25  # images reconstructed together
    #: Bound on the steps of an adaptation, beside that of the scale.
    max_steps: Positive | None = None
    auto: Search | None = None  # how much auto tries; everything unless given
    rows: tuple[ScaleRow, ...]  # what is computed, the most important first


class Scale(_Settings):
    """One size of the experiment."""

    name: str
    size: Positive = 128  # side of the images
    source_downscale: Positive = 1  # of the source's pictures before they are cropped
    target_downscale: Positive = 1  # of the target's
    problems: tuple[str, ...] = ("deblurring", "super-resolution")  # names of the inverse problems
    iterations: Positive = 40  # of PnP
    families: dict[str, FamilyScale]  # what is done for each
    baselines: tuple[ScaleRow, ...]  # rows without a learned prior
    budgets: tuple[Positive, ...] = (1, 5, 25, 50)  # all n
    seed: int = 0  # of the measurements, the adaptation sets and the adaptations
    #: Bound on the steps of any training and adaptation; None for none.
    max_steps: Positive | None = None
    max_images: Positive | None = None  # bound on the images of any row, see bounded; None for none
    #: Iterations k at whose queries z_k L is estimated.
    lipschitz_at: tuple[Positive, ...] = (1, 10, 40)
    lanczos: Positive = 40  # iterations of that estimate
    picture_images: Count = 2  # how many test images are kept as pictures
    #: Pictures of skimage.data that are reconstructed whole, for the head of the page, where the
    #: domains are embedded.
    whole: tuple[str, ...] = ()
    #: How many of them are certified, for the first family; 0 for none.
    certificate_images: Count = 0
    #: What they are reconstructed from for it; None for all problems.
    certificate_problems: tuple[str, ...] | None = None
    certificate_iterations: Positive | None = None  # of PnP for it; None for all
    certificate_budget: Positive = 5  # the n of the adapted denoisers that are certified
    resamples: Positive = 2000  # of the bootstrap
    #: Of a worker. One, so that results do not depend on the number of workers.
    threads: Positive = 1
    device: str = "cpu"  # cpu, cuda, or auto: cuda where there is a GPU

    @property
    def rows(self) -> list[tuple[str, ScaleRow]]:
        """All rows with their family, baselines last."""
        found = [(name, row) for name, family in self.families.items() for row in family.rows]
        return [*found, *(("baseline", row) for row in self.baselines)]

    def steps(self, family: str) -> int | None:
        """Bound on the steps of an adaptation of a family; None for none."""
        bounds = (self.families[family].max_steps, self.max_steps)
        return min((bound for bound in bounds if bound is not None), default=None)

    @property
    def sets(self) -> dict[int, int]:
        """Of every adaptation set, by its number, the largest n that is used."""
        largest: dict[int, int] = {0: max(f.tuning_images for f in self.families.values())}
        for _, row in self.rows:
            for n, count in row.sets.items():
                for number in range(count):
                    largest[number] = max(largest.get(number, 1), n)
        return largest

    @property
    def test_images(self) -> int:
        """The most test images any row asks for."""
        return max(max(row.test_images, row.chosen_images) for _, row in self.rows)


def bounded(scale: Scale, steps: int | None = None, images: int | None = None) -> Scale:
    """The same scale with short cells: to see that all of it runs; its numbers mean nothing."""
    if steps is not None:
        scale = scale.model_copy(update={"max_steps": min(steps, scale.max_steps or steps)})
    if images is None:
        return scale
    told = scale.model_dump() | {"max_images": images}
    rows = [row for own in told["families"].values() for row in own["rows"]]
    for row in (*rows, *told["baselines"]):
        for name in ("test_images", "chosen_images", "gap_images", "lipschitz_images"):
            row[name] = min(row[name], images)
    for own in told["families"].values():
        own["tuning_images"] = min(own["tuning_images"], images)
    for name in ("picture_images", "certificate_images"):
        told[name] = min(told[name], images)
    return Scale.model_validate(told)


def limits(scale: Scale) -> list[str]:
    """What a scale leaves out of everything, in plain sentences."""
    found = []
    if scale.max_steps is not None:
        found.append(f"No training has more than {scale.max_steps} steps.")
    for family, own in scale.families.items():
        bound = scale.steps(family)
        if bound is not None:
            found.append(f"No adaptation of {family} has more than {bound} steps.")
        if own.auto is not None:
            tried = ", ".join(f"{t:g}" for t in own.auto.strengths)
            steps = min((n for n in (own.auto.steps, bound) if n is not None), default=None)
            trained = {None: "as long as usual", 0: "nothing"}.get(steps, f"{steps} steps")
            found.append(
                f"auto of {family} tries the relaxations {tried} on {own.auto.crops} image(s) at "
                f"most, and fine-tunes {trained}."
            )
    if scale.certificate_images and scale.certificate_iterations is not None:
        where = ", ".join(scale.certificate_problems or scale.problems)
        found.append(
            f"Certificate: {where} of {scale.certificate_images} image(s), the first "
            f"{scale.certificate_iterations} of {scale.iterations} iterations."
        )
    return found


def thinned(scale: Scale) -> list[str]:
    """What a scale leaves out of the full experiment, in plain sentences."""
    found = limits(scale)
    if scale.max_images is not None:
        found.append(f"No row has more test images than {scale.max_images}.")
    most = scale.test_images
    for family, row in scale.rows:
        who = f"{family} {row.method}" + (f" ({row.source} source)" if row.source else "")
        parts = []
        if row.test_images < most:
            parts.append(f"{row.test_images} of {most} test images")
        if 0 < row.chosen_images < row.test_images:
            parts.append(f"{row.chosen_images} with the chosen relaxation")
        if not row.chosen_images:
            parts.append("t = 1 only")
        if row.gap_images < row.test_images and family != "baseline":
            parts.append(f"gap on {row.gap_images} images" if row.gap_images else "no gap")
        if 0 not in row.sets:
            missing = [str(n) for n in scale.budgets if n not in row.sets]
            if missing:
                parts.append(f"not at n = {', '.join(missing)}")
            counts = ", ".join(f"{count} at n = {n}" for n, count in row.sets.items())
            parts.append(f"adaptation sets: {counts}")
        if parts:
            found.append(f"{who}: {'; '.join(parts)}.")
    at = ", ".join(map(str, scale.lipschitz_at))
    found.append(
        f"L is estimated at the queries of iterations {at} only, on the images that have it."
    )
    found.append("The gap is measured at t = 1, not with the chosen relaxation.")
    found.append("Noise and order of an adaptation change with its set: one seed for each set.")
    return found
