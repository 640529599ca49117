"""How large the experiment is: everything that decides it, as data.

The budgets were worked out from these figures of one core at 64 x 64 pixels: PnP (40 iterations) 60
ms an image with an LPN and 2.5 s with a gradient-step denoiser, as much again for the reference
that the gap needs; a step of adaptation 0.05 s, 0.1 s for a gradient-step denoiser and 0.4 s with
its penalty. ``cpu`` comes to some 3.1 hours of one core for LPN and 3.6 for GS: two parts
(``families``), of 1.6 and 1.8 hours on two cores.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from proxmatch.transforms.relax import STRENGTHS

ScaleName = Literal["quick", "cpu", "paper"]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Row(_Settings):
    """The cells of one method.

    Attributes:
        method: of :data:`proxmatch.experiments.methods.METHODS`.
        source: kind of the source denoiser; empty for the reference and the baselines.
        sets: how many adaptation sets, by n; ``{0: 1}`` for rows that use no image.
        test_images: reconstructed at t = 1.
        chosen_images: reconstructed with the chosen relaxation; 0 leaves it out.
        gap_images: of the first, how many are compared with the reference at every step.
        lipschitz_images: of these, at how many L is estimated along the trajectory.
        curves: keep the PSNR of every image at every iteration.
        pictures: the n at which iterates are kept as pictures, of set 0.
    """

    method: str
    source: str = "extreme"
    sets: dict[Count, Positive]
    test_images: Count
    chosen_images: Count = 0
    gap_images: Count = 0
    lipschitz_images: Count = 0
    curves: bool = False
    pictures: tuple[int, ...] = ()


class FamilyScale(_Settings):
    """What is done for one family.

    Attributes:
        preset: its layout and training, of :data:`proxmatch.learning.settings.PRESETS`.
        training: steps of the denoisers that have to be trained, by kind of source and for the
            ``reference``; None for those of the preset. A kind that is not named is not trained.
        tuning_images: how many adaptation images the relaxation is chosen on, at most.
        strengths: of the relaxation that are tried.
        batch: images reconstructed together.
        rows: what is computed, the most important first.
    """

    preset: str
    training: dict[str, int | None]
    tuning_images: Positive
    strengths: tuple[float, ...] = STRENGTHS
    batch: Positive = 25
    rows: tuple[Row, ...]


class Scale(_Settings):
    """One size of the experiment.

    Attributes:
        name: of it.
        size: side of the images.
        source_downscale: of the source's pictures before they are cropped.
        target_downscale: of the target's.
        problems: names of the inverse problems.
        iterations: of PnP.
        families: what is done for each.
        baselines: rows without a learned prior.
        budgets: all n.
        seed: of the measurements, the adaptation sets and the adaptations.
        max_steps: bound on the steps of any training and adaptation; None for none.
        lipschitz_at: iterations k at whose queries z_k L is estimated.
        lanczos: iterations of that estimate.
        picture_images: how many test images are kept as pictures.
        resamples: of the bootstrap.
        threads: of a worker. One, so that results do not depend on the number of workers.
        device: ``cpu``, ``cuda``, or ``auto`` for the second where there is one.
    """

    name: str
    size: Positive
    source_downscale: Positive
    target_downscale: Positive
    problems: tuple[str, ...] = ("deblurring", "super-resolution")
    iterations: Positive = 40
    families: dict[str, FamilyScale]
    baselines: tuple[Row, ...]
    budgets: tuple[Positive, ...]
    seed: int = 0
    max_steps: Positive | None = None
    lipschitz_at: tuple[Positive, ...] = (1, 10, 40)
    lanczos: Positive = 40
    picture_images: Count = 2
    resamples: Positive = 2000
    threads: Positive = 1
    device: str = "cpu"

    @property
    def rows(self) -> list[tuple[str, Row]]:
        """All rows with their family, baselines last."""
        found = [(name, row) for name, family in self.families.items() for row in family.rows]
        return [*found, *(("baseline", row) for row in self.baselines)]

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


def quick() -> Scale:
    """About ten minutes on two cores: whether everything works, not what is true."""
    lpn = {"test_images": 20, "chosen_images": 20}
    gs = {"test_images": 12, "chosen_images": 12}
    main = {"gap_images": 20, "lipschitz_images": 4, "curves": True}
    few = {"gap_images": 4, "lipschitz_images": 2, "curves": True}
    once = {1: 1, 5: 1}
    return Scale(
        name="quick",
        size=64,
        source_downscale=2,
        target_downscale=1,
        budgets=(1, 5),
        families={
            "lpn": FamilyScale(
                preset="lpn-compact",
                training={"extreme": 600, "reference": 1200},
                tuning_images=4,
                rows=(
                    Row(method="source", sets={0: 1}, pictures=(0,), **lpn, **main),
                    Row(method="reference", source="", sets={0: 1}, pictures=(0,), **lpn, **main),
                    Row(method="mse", sets=once, pictures=(1, 5), **lpn, **main),
                    Row(method="pm", sets=once, pictures=(1, 5), **lpn, **main),
                    Row(method="scaled-mse", sets={5: 1}, **lpn),
                    Row(method="aligned", sets={1: 1}, pictures=(1,), **lpn),
                    Row(method="auto", sets={1: 1}, pictures=(1,), **lpn),
                ),
            ),
            "gs": FamilyScale(
                preset="gs-compact",
                training={"extreme": 600, "reference": 600},
                tuning_images=1,
                strengths=(1.0, 0.5, 0.2, 0.1),
                batch=12,
                rows=(
                    Row(method="source", sets={0: 1}, pictures=(0,), **gs, **few),
                    Row(method="reference", source="", sets={0: 1}, pictures=(0,), **gs, **few),
                    Row(method="mse", sets={1: 1}, pictures=(1,), **gs, **few),
                    Row(method="adapm", sets={1: 1}, pictures=(1,), **gs, **few),
                ),
            ),
        },
        baselines=_baselines(20, once, {1: 1}),
        picture_images=1,
    )


def cpu() -> Scale:
    """The paper's experiment at half its resolution, in two parts of less than two hours each."""
    lpn = {"test_images": 100, "chosen_images": 100}
    main = {"gap_images": 100, "lipschitz_images": 8, "curves": True}
    control = {"gap_images": 25, "lipschitz_images": 4}
    sets = {1: 6, 5: 4, 25: 3, 50: 3}
    fewer = {1: 3, 5: 3, 25: 2, 50: 1}
    three = {1: 3, 5: 3, 25: 3, 50: 3}
    gs = {"test_images": 24, "chosen_images": 12}
    gs_main = {"gap_images": 8, "lipschitz_images": 2, "curves": True}
    gs_control = {"test_images": 12, "chosen_images": 12, "gap_images": 4, "lipschitz_images": 2}
    return Scale(
        name="cpu",
        size=64,
        source_downscale=2,
        target_downscale=1,
        budgets=(1, 5, 25, 50),
        families={
            "lpn": FamilyScale(
                preset="lpn-compact",
                training={"extreme": None, "mild": 800, "reference": None},
                tuning_images=4,
                rows=(
                    Row(method="source", sets={0: 1}, pictures=(0,), **lpn, **main),
                    Row(method="reference", source="", sets={0: 1}, pictures=(0,), **lpn, **main),
                    Row(method="mse", sets=sets, pictures=(1, 5, 25, 50), **lpn, **main),
                    Row(method="pm", sets=sets, pictures=(1, 5, 25, 50), **lpn, **main),
                    Row(method="aligned", sets=three, pictures=(1,), **lpn, **control),
                    Row(method="auto", sets=fewer, pictures=(1,), **lpn, **control),
                    *(
                        Row(method=name, sets=fewer, **lpn, **control)
                        for name in (
                            "scaled-mse",
                            "l1",
                            "mse-clip",
                            "pm-clip",
                            "mse-best",
                            "pm-best",
                        )
                    ),
                    Row(method="source", source="mild", sets={0: 1}, **lpn, **control),
                    Row(method="mse", source="mild", sets={1: 3, 5: 3, 25: 3}, **lpn, **control),
                    Row(method="pm", source="mild", sets={1: 3, 5: 3, 25: 3}, **lpn, **control),
                ),
            ),
            "gs": FamilyScale(
                preset="gs-compact",
                training={"extreme": None, "reference": None},
                tuning_images=2,
                strengths=(1.0, 0.5, 0.2, 0.1),
                batch=12,
                rows=(
                    Row(method="source", sets={0: 1}, pictures=(0,), **gs, **gs_main),
                    Row(method="reference", source="", sets={0: 1}, pictures=(0,), **gs, **gs_main),
                    Row(method="mse", sets=three, pictures=(1, 5, 25, 50), **gs, **gs_main),
                    Row(method="adapm", sets=three, pictures=(1, 5, 25, 50), **gs, **gs_main),
                    Row(method="mse-penalty", sets={1: 2, 5: 2, 25: 1}, **gs_control),
                    Row(method="pm", sets={1: 2, 5: 2, 25: 1}, **gs_control),
                    Row(method="mse-unclipped", sets={1: 2}, **gs_control),
                    Row(method="mse-best", sets={1: 2, 5: 1}, **gs_control),
                    Row(method="aligned", sets={1: 2}, pictures=(1,), **gs_control),
                    Row(method="auto", sets={1: 1}, pictures=(1,), **gs_control),
                ),
            ),
        },
        baselines=_baselines(100, three, {1: 3}),
    )


def paper() -> Scale:
    """The paper's experiment in full, 128 x 128, for a GPU."""
    full = {"test_images": 100, "chosen_images": 100, "gap_images": 100, "lipschitz_images": 100}
    sets = {1: 10, 5: 5, 25: 5, 50: 5}
    show = {"pictures": (1, 5, 25, 50), "curves": True}
    ends = (
        Row(method="source", sets={0: 1}, pictures=(0,), curves=True, **full),
        Row(method="reference", source="", sets={0: 1}, pictures=(0,), curves=True, **full),
    )
    lpn = ("l1", "scaled-mse", "mse-clip", "pm-clip", "mse-best", "pm-best")
    gs = ("pm", "mse-penalty", "mse-unclipped", "mse-best", "adapm-best")
    ours = tuple(Row(method=name, sets=sets, **full) for name in ("aligned", "auto"))
    return Scale(
        name="paper",
        size=128,
        source_downscale=1,
        target_downscale=1,
        budgets=(1, 5, 25, 50),
        families={
            "lpn": FamilyScale(
                preset="lpn-paper",
                training={"extreme": None, "mild": 4000, "reference": None},
                tuning_images=8,
                rows=(
                    *ends,
                    Row(method="mse", sets=sets, **show, **full),
                    Row(method="pm", sets=sets, **show, **full),
                    *(Row(method=name, sets=sets, **full) for name in lpn),
                    *ours,
                    Row(method="source", source="mild", sets={0: 1}, **full),
                    Row(method="mse", source="mild", sets=sets, **full),
                    Row(method="pm", source="mild", sets=sets, **full),
                ),
            ),
            "gs": FamilyScale(
                preset="gs-paper",
                training={"extreme": None, "reference": None},
                tuning_images=8,
                rows=(
                    *ends,
                    Row(method="mse", sets=sets, **show, **full),
                    Row(method="adapm", sets=sets, **show, **full),
                    *(Row(method=name, sets=sets, **full) for name in gs),
                    *ours,
                ),
            ),
        },
        baselines=_baselines(100, sets, sets),
        lipschitz_at=(1, 2, 5, 10, 20, 30, 40),
        picture_images=4,
        device="auto",
    )


SCALES = {"quick": quick, "cpu": cpu, "paper": paper}


def _baselines(images: int, fitted: dict[int, int], tuned: dict[int, int]) -> tuple[Row, ...]:
    """The Wiener filter is fitted on the images; the other two have one number to choose."""
    common = {"source": "", "test_images": images, "chosen_images": images}
    return (
        Row(method="none", sets=tuned, pictures=(1,), **common),
        Row(method="wiener", sets=fitted, pictures=(1,), **common),
        Row(method="tv", sets=tuned, **common),
    )


def thinned(scale: Scale) -> list[str]:
    """What a scale leaves out of the full experiment, in plain sentences."""
    found = []
    if scale.max_steps is not None:
        found.append(f"No training or adaptation has more than {scale.max_steps} steps.")
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
