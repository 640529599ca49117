"""The three sizes of the experiment.

One core at 128 x 128 pixels takes 0.3 s an image for PnP (40 iterations) with an LPN and 1.6 s with
a gradient-step denoiser, as much again for the reference that the gap needs; 0.1 s a step of
training or adaptation, 0.5 s with the penalty. ``cpu`` comes to two hours of one core for
LPN and four for GS, trainings included: it can be run in parts (``families``) and resumed.
"""

from __future__ import annotations

from typing import Any

from proxmatch.experiments.scales import FamilyScale, Scale, ScaleRow
from proxmatch.learning.auto import Search

Sets = dict[int, int]
#: Source and reference are trained for as many steps as their preset has.
WHOLE: dict[str, int | None] = {"extreme": None, "reference": None}


def quick() -> Scale:
    """About ten minutes on two cores: to see that everything works; its numbers prove nothing."""
    lpn = _images(20, 20)
    main, few = _images(20, 20, 20, 4), _images(12, 12, 4, 2)
    once = {1: 1, 5: 1}
    return Scale(
        name="quick",
        size=64,
        source_downscale=2,
        budgets=(1, 5),
        families={
            "lpn": FamilyScale(
                preset="lpn-compact",
                training={"extreme": 600, "reference": 1200},
                tuning_images=4,
                rows=(
                    *_ends(main),
                    *_rows("mse pm", once, main, pictures=(1, 5), curves=True),
                    *_rows("scaled-mse", {5: 1}, lpn),
                    *_rows("aligned auto", {1: 1}, lpn, pictures=(1,)),
                ),
            ),
            "gs": FamilyScale(
                preset="gs-compact",
                training={"extreme": 600, "reference": 600},
                tuning_images=1,
                strengths=(1.0, 0.5, 0.2, 0.1),
                batch=12,
                max_steps=60,  # 1 s each with the penalty
                rows=(*_ends(few), *_rows("mse adapm", {1: 1}, few, pictures=(1,), curves=True)),
            ),
        },
        baselines=_baselines(20, once, {1: 1}),
        picture_images=1,
        whole=("astronaut", "cat"),
    )


def cpu() -> Scale:
    """The paper's experiment at its resolution, with small networks.

    The published LPN layout does not get far on a CPU: with 32 hidden channels, after three minutes
    of training on faces, it has 30.0 dB at noise 0.05 where the compact one has 32.2.
    """
    ends, main, control = _images(100, 100, 25, 4), _images(50, 25, 25, 4), _images(25, 12, 8, 2)
    gs_main, gs_control = _images(24, 12, 8, 2), _images(8, 4, 4, 1)
    three, few, some = {1: 3, 5: 3, 25: 3, 50: 3}, {1: 2, 5: 2}, (1, 5, 50)
    return Scale(
        name="cpu",
        families={
            "lpn": FamilyScale(
                preset="lpn-compact-128",
                training=WHOLE,
                tuning_images=4,
                auto=Search(compare=False),
                rows=(
                    *_ends(ends),
                    *_rows("mse pm", three, main, pictures=some, curves=True),
                    *_rows("aligned auto", few, control, pictures=(1,)),
                    *_rows("scaled-mse l1 mse-clip pm-clip mse-best pm-best", few, control),
                ),
            ),
            "gs": FamilyScale(
                preset="gs-compact",
                training=WHOLE,
                tuning_images=2,
                strengths=(1.0, 0.5, 0.2, 0.1),
                batch=8,
                max_steps=300,
                auto=Search(crops=2, compare=False),
                rows=(
                    *_ends(gs_main),
                    *_rows("mse adapm", three, gs_main, pictures=some, curves=True),
                    *_rows("mse-penalty pm", few, gs_control),
                    *_rows("mse-unclipped mse-best adapm-best", {1: 1}, gs_control),
                    *_rows("aligned auto", {1: 1}, gs_control, pictures=(1,)),
                ),
            ),
        },
        baselines=_baselines(100, three, {1: 3}),
        certificate_images=2,
        certificate_problems=("deblurring",),
        certificate_iterations=10,
    )


def paper() -> Scale:
    """The paper's experiment in full, 128 x 128, for a GPU."""
    full = _images(100, 100, 100, 100)
    sets = {1: 10, 5: 5, 25: 5, 50: 5}
    show: dict[str, Any] = {"pictures": (1, 5, 25, 50), "curves": True}
    return Scale(
        name="paper",
        families={
            "lpn": FamilyScale(
                preset="lpn-paper",
                training=WHOLE | {"mild": 4000},
                tuning_images=8,
                rows=(
                    *_ends(full),
                    *_rows("mse pm", sets, full, **show),
                    *_rows("l1 scaled-mse mse-clip pm-clip mse-best pm-best", sets, full),
                    *_rows("aligned auto", sets, full),
                    *_rows("source", {0: 1}, full, source="mild"),
                    *_rows("mse pm", sets, full, source="mild"),
                ),
            ),
            "gs": FamilyScale(
                preset="gs-paper",
                training=WHOLE,
                tuning_images=8,
                rows=(
                    *_ends(full),
                    *_rows("mse adapm", sets, full, **show),
                    *_rows("pm mse-penalty mse-unclipped mse-best adapm-best", sets, full),
                    *_rows("aligned auto", sets, full),
                ),
            ),
        },
        baselines=_baselines(100, sets, sets),
        lipschitz_at=(1, 2, 5, 10, 20, 30, 40),
        picture_images=4,
        certificate_images=4,
        device="auto",
    )


SCALES = {"quick": quick, "cpu": cpu, "paper": paper}


def _images(test: int, chosen: int, gap: int = 0, lipschitz: int = 0) -> dict[str, int]:
    """How many images each figure is measured on."""
    return {
        "test_images": test,
        "chosen_images": chosen,
        "gap_images": gap,
        "lipschitz_images": lipschitz,
    }


def _rows(methods: str, sets: Sets, images: dict[str, int], **more: Any) -> list[ScaleRow]:
    """One row per method."""
    return [ScaleRow(method=name, sets=sets, **images, **more) for name in methods.split()]


def _ends(images: dict[str, int]) -> list[ScaleRow]:
    """The denoiser that is adapted, and what it should become."""
    shown: dict[str, Any] = {"pictures": (0,), "curves": True}
    return [
        *_rows("source", {0: 1}, images, **shown),
        *_rows("reference", {0: 1}, images, source="", **shown),
    ]


def _baselines(images: int, fitted: Sets, tuned: Sets) -> tuple[ScaleRow, ...]:
    """The Wiener filter is fitted on the images; the other two have one number to choose."""
    common = _images(images, images)
    return (
        *_rows("none", tuned, common, source="", pictures=(1,)),
        *_rows("wiener", fitted, common, source="", pictures=(1,)),
        *_rows("tv", tuned, common, source="", pictures=(1,)),
    )
