"""The three sizes of the experiment.

One core at 64 x 64 pixels takes 60 ms an image for PnP (40 iterations) with an LPN and 0.6 s with a
gradient-step denoiser, as much again for the reference that the gap needs; 0.05 s a step of
adaptation, 0.1 s for a gradient-step denoiser and 0.25 s with its penalty. ``cpu`` comes to some 2
hours of one core for each family: about two hours on two cores, or in parts (``families``).
"""

from __future__ import annotations

from typing import Any

from proxmatch.experiments.scales import FamilyScale, Scale, ScaleRow


def quick() -> Scale:
    """About ten minutes on two cores: whether everything works, not what is true."""
    lpn: dict[str, Any] = {"test_images": 20, "chosen_images": 20}
    gs: dict[str, Any] = {"test_images": 12, "chosen_images": 12}
    main: dict[str, Any] = {"gap_images": 20, "lipschitz_images": 4, "curves": True}
    few: dict[str, Any] = {"gap_images": 4, "lipschitz_images": 2, "curves": True}
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
                    ScaleRow(method="source", sets={0: 1}, pictures=(0,), **lpn, **main),
                    ScaleRow(
                        method="reference", source="", sets={0: 1}, pictures=(0,), **lpn, **main
                    ),
                    ScaleRow(method="mse", sets=once, pictures=(1, 5), **lpn, **main),
                    ScaleRow(method="pm", sets=once, pictures=(1, 5), **lpn, **main),
                    ScaleRow(method="scaled-mse", sets={5: 1}, **lpn),
                    ScaleRow(method="aligned", sets={1: 1}, pictures=(1,), **lpn),
                    ScaleRow(method="auto", sets={1: 1}, pictures=(1,), **lpn),
                ),
            ),
            "gs": FamilyScale(
                preset="gs-compact",
                training={"extreme": 600, "reference": 600},
                tuning_images=1,
                strengths=(1.0, 0.5, 0.2, 0.1),
                batch=12,
                rows=(
                    ScaleRow(method="source", sets={0: 1}, pictures=(0,), **gs, **few),
                    ScaleRow(
                        method="reference", source="", sets={0: 1}, pictures=(0,), **gs, **few
                    ),
                    ScaleRow(method="mse", sets={1: 1}, pictures=(1,), **gs, **few),
                    ScaleRow(method="adapm", sets={1: 1}, pictures=(1,), **gs, **few),
                ),
            ),
        },
        baselines=_baselines(20, once, {1: 1}),
        picture_images=1,
    )


def cpu() -> Scale:
    """The paper's experiment at half its resolution, in about two hours on two cores."""
    lpn: dict[str, Any] = {"test_images": 100, "chosen_images": 100}
    main: dict[str, Any] = {"gap_images": 100, "lipschitz_images": 8, "curves": True}
    ours: dict[str, Any] = {"gap_images": 25, "lipschitz_images": 4}
    control: dict[str, Any] = {
        "test_images": 50,
        "chosen_images": 25,
        "gap_images": 10,
        "lipschitz_images": 2,
    }
    sets = {1: 6, 5: 4, 25: 3, 50: 3}
    three = {1: 3, 5: 3, 25: 3, 50: 3}
    few = {1: 2, 5: 2}
    gs: dict[str, Any] = {"test_images": 24, "chosen_images": 12}
    gs_main: dict[str, Any] = {"gap_images": 8, "lipschitz_images": 2, "curves": True}
    gs_control: dict[str, Any] = {
        "test_images": 12,
        "chosen_images": 12,
        "gap_images": 4,
        "lipschitz_images": 2,
    }
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
                    ScaleRow(method="source", sets={0: 1}, pictures=(0,), **lpn, **main),
                    ScaleRow(
                        method="reference", source="", sets={0: 1}, pictures=(0,), **lpn, **main
                    ),
                    ScaleRow(method="mse", sets=sets, pictures=(1, 5, 50), **lpn, **main),
                    ScaleRow(method="pm", sets=sets, pictures=(1, 5, 25, 50), **lpn, **main),
                    ScaleRow(method="aligned", sets={1: 3, 5: 3}, pictures=(1,), **lpn, **ours),
                    ScaleRow(method="auto", sets={1: 3, 5: 2, 25: 1}, pictures=(1,), **lpn, **ours),
                    *(
                        ScaleRow(method=name, sets=few, **control)
                        for name in (
                            "scaled-mse",
                            "l1",
                            "mse-clip",
                            "pm-clip",
                            "mse-best",
                            "pm-best",
                        )
                    ),
                    ScaleRow(method="source", source="mild", sets={0: 1}, **control),
                    ScaleRow(method="mse", source="mild", sets=few, **control),
                    ScaleRow(method="pm", source="mild", sets=few, **control),
                ),
            ),
            "gs": FamilyScale(
                preset="gs-compact",
                training={"extreme": None, "reference": None},
                tuning_images=2,
                strengths=(1.0, 0.5, 0.2, 0.1),
                batch=12,
                rows=(
                    ScaleRow(method="source", sets={0: 1}, pictures=(0,), **gs, **gs_main),
                    ScaleRow(
                        method="reference", source="", sets={0: 1}, pictures=(0,), **gs, **gs_main
                    ),
                    ScaleRow(method="mse", sets=three, pictures=(1, 5, 50), **gs, **gs_main),
                    ScaleRow(method="adapm", sets=three, pictures=(1, 5, 25, 50), **gs, **gs_main),
                    ScaleRow(method="mse-penalty", sets={1: 2, 5: 1}, **gs_control),
                    ScaleRow(method="pm", sets={1: 2, 5: 1}, **gs_control),
                    ScaleRow(method="mse-unclipped", sets={1: 2}, **gs_control),
                    ScaleRow(method="mse-best", sets={1: 2}, **gs_control),
                    ScaleRow(method="adapm-best", sets={1: 2}, **gs_control),
                    ScaleRow(method="aligned", sets={1: 3}, pictures=(1,), **gs_control),
                    ScaleRow(method="auto", sets={1: 3}, pictures=(1,), **gs_control),
                ),
            ),
        },
        baselines=_baselines(100, three, {1: 3}),
        certificate_images=2,
    )


def paper() -> Scale:
    """The paper's experiment in full, 128 x 128, for a GPU."""
    full: dict[str, Any] = {
        "test_images": 100,
        "chosen_images": 100,
        "gap_images": 100,
        "lipschitz_images": 100,
    }
    sets = {1: 10, 5: 5, 25: 5, 50: 5}
    show: dict[str, Any] = {"pictures": (1, 5, 25, 50), "curves": True}
    ends = (
        ScaleRow(method="source", sets={0: 1}, pictures=(0,), curves=True, **full),
        ScaleRow(method="reference", source="", sets={0: 1}, pictures=(0,), curves=True, **full),
    )
    lpn = ("l1", "scaled-mse", "mse-clip", "pm-clip", "mse-best", "pm-best")
    gs = ("pm", "mse-penalty", "mse-unclipped", "mse-best", "adapm-best")
    ours = tuple(ScaleRow(method=name, sets=sets, **full) for name in ("aligned", "auto"))
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
                    ScaleRow(method="mse", sets=sets, **show, **full),
                    ScaleRow(method="pm", sets=sets, **show, **full),
                    *(ScaleRow(method=name, sets=sets, **full) for name in lpn),
                    *ours,
                    ScaleRow(method="source", source="mild", sets={0: 1}, **full),
                    ScaleRow(method="mse", source="mild", sets=sets, **full),
                    ScaleRow(method="pm", source="mild", sets=sets, **full),
                ),
            ),
            "gs": FamilyScale(
                preset="gs-paper",
                training={"extreme": None, "reference": None},
                tuning_images=8,
                rows=(
                    *ends,
                    ScaleRow(method="mse", sets=sets, **show, **full),
                    ScaleRow(method="adapm", sets=sets, **show, **full),
                    *(ScaleRow(method=name, sets=sets, **full) for name in gs),
                    *ours,
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


def _baselines(images: int, fitted: dict[int, int], tuned: dict[int, int]) -> tuple[ScaleRow, ...]:
    """The Wiener filter is fitted on the images; the other two have one number to choose."""
    common: dict[str, Any] = {"source": "", "test_images": images, "chosen_images": images}
    return (
        ScaleRow(method="none", sets=tuned, pictures=(1,), **common),
        ScaleRow(method="wiener", sets=fitted, pictures=(1,), **common),
        ScaleRow(method="tv", sets=tuned, **common),
    )
