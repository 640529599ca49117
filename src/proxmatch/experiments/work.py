"""What each kind of cell does: functions of the cell, the images and the outcomes it needs."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from proxmatch._internal.hardware import peak_memory_mb
from proxmatch.baselines import BASELINES, Identity
from proxmatch.data import ImageDomain, encode_image
from proxmatch.data.embedded import embedded_picture
from proxmatch.denoisers.checkpoint import packed
from proxmatch.errors import AdaptationWarning, DegenerateStatisticsWarning, DivergenceWarning
from proxmatch.experiments import strips
from proxmatch.experiments.cells import Cell, Outcome
from proxmatch.experiments.certificates import certificate
from proxmatch.experiments.inputs import Inputs
from proxmatch.experiments.measure import Effort, measure
from proxmatch.experiments.origins import restored
from proxmatch.learning import AdaptationPlan, carry_out, plan_adaptation, train
from proxmatch.learning.auto import Search
from proxmatch.learning.engine import one_process
from proxmatch.learning.settings import PRESETS
from proxmatch.methods import INK, Method
from proxmatch.pnp import Denoise, pnp_pgd
from proxmatch.problems import Problem, gaussian_deblurring, super_resolution
from proxmatch.transforms import Relaxed, align, choose_strength

PROBLEMS = {"deblurring": gaussian_deblurring, "super-resolution": super_resolution}


@dataclass(frozen=True)
class Workshop:
    """Where a cell is computed; nothing here changes the result."""

    folders: Mapping[str, str]  # of images to train on, by domain
    scratch: str  # for the state of a training, so that it continues where it was interrupted
    device: str = "cpu"  # cpu, cuda, or one GPU such as cuda:1
    threads: int = 1  # of the computation


def perform(cell: Cell, inputs: Inputs, needs: Mapping[str, Outcome], shop: Workshop) -> Outcome:
    """Compute a cell."""
    threads = torch.get_num_threads()
    started = time.perf_counter()
    torch.set_num_threads(shop.threads)
    try:
        outcome = KINDS[cell.kind](cell, inputs, needs, shop)
    finally:
        torch.set_num_threads(threads)
    outcome.result["seconds"] = round(time.perf_counter() - started, 2)
    outcome.result["peak_memory_mb"] = round(peak_memory_mb(), 1)
    return outcome


def problem_of(settings: Mapping[str, Any], channels: int, device: str = "cpu") -> Problem:
    """The inverse problem of a cell."""
    make = PROBLEMS[settings["problem"]]
    size, iterations = settings["size"], settings["iterations"]
    return make(size, channels=channels, iterations=iterations, device=device).plain()


def measured_whole(
    name: str, settings: Mapping[str, Any], device: str = "cpu"
) -> tuple[Problem, Tensor, Tensor]:
    """An embedded picture as a whole: its problem, itself and its measurements."""
    truth = embedded_picture(name)[None].to(device)
    problem = problem_of({**settings, "size": tuple(truth.shape[2:])}, truth.shape[1], device)
    return problem, truth, problem.measure(truth, ids=[name], seed=settings["seed"])


def _model(cell: Cell, inputs: Inputs, needs: Mapping[str, Outcome], shop: Workshop) -> Outcome:
    s = cell.settings
    preset = PRESETS[s["preset"]]
    domain = ImageDomain(
        shop.folders[s["domain"]], s["size"], split="train", downscale=s["downscale"]
    )
    settings = preset.settings.model_copy(update={"steps": s["steps"], "seed": s["seed"]})
    found = train(
        preset, domain, Path(shop.scratch) / cell.key, settings=settings, fabric=_fabric(shop)
    )
    result = {
        "status": str(found.run.status),
        "steps": found.run.steps,
        "step": found.run.steps,
        "record": found.denoiser.record,
    }
    return Outcome(result, packed(found.denoiser))


def _adaptation(
    cell: Cell, inputs: Inputs, needs: Mapping[str, Outcome], shop: Workshop
) -> Outcome:
    s = cell.settings
    source = restored(needs["model"])
    images = inputs.sets[s["set"]][: s["images"]["count"]]
    with warnings.catch_warnings():
        for warning in (AdaptationWarning, DegenerateStatisticsWarning, DivergenceWarning):
            warnings.simplefilter("ignore", warning)  # what came out is in the tables
        if s["role"] == "aligned":
            return Outcome({"status": "completed"}, packed(align(source, images)))
        problems = [
            problem_of({**s, "problem": name}, source.channels) for name in s["problems"] or ()
        ]
        plan = plan_adaptation(
            source.to(shop.device) if s["role"] == "auto" else source,
            images,
            problems,
            method=way_of(s),
            select="best" if s["best"] else "last",
            held_out=s["role"] == "auto" or s["best"],
            size=s["size"] if s["role"] == "auto" else None,
            search=search_of(s),
            seed=s["seed"],
        )
        found = carry_out(_bounded(plan, s["max_steps"]), fabric=_fabric(shop))
    record = found.denoiser.record.get("adapted", {})
    chosen = next((candidate.name for candidate in found.table if candidate.chosen), None)
    result = {
        "status": str(found.status) if chosen is None else f"chose {chosen}",
        "steps": record.get("settings", {}).get("steps"),
        "step": found.step,
        "saturated": found.saturated,
        "candidates": [
            {"name": c.name, "scores": c.scores, "strength": c.strength, "chosen": c.chosen}
            for c in found.table
        ],
        "record": record,
    }
    return Outcome(result, packed(found.denoiser))


def search_of(spec: Mapping[str, Any]) -> Search:
    """How much ``auto`` tries in a cell: no more steps than any other adaptation of it has."""
    search = Search(**spec.get("search", {}))
    bounds = [steps for steps in (search.steps, spec["max_steps"]) if steps is not None]
    return replace(search, steps=min(bounds, default=None))


def way_of(spec: Mapping[str, Any]) -> Method:
    """The way to adapt of a cell, as far as it decides the result."""
    told = {name: spec[name] for name in ("loss", "optimizer", "penalty", "best")}
    return Method(spec["role"], spec["role"], spec["role"], INK, **told)


def _bounded(plan: AdaptationPlan, most: int | None) -> AdaptationPlan:
    """The plan with at most this many steps."""
    if plan.settings is None or most is None:
        return plan
    steps = min(plan.settings.steps, most)
    return replace(plan, settings=plan.settings.model_copy(update={"steps": steps}))


def _reconstruction(
    cell: Cell, inputs: Inputs, needs: Mapping[str, Outcome], shop: Workshop
) -> Outcome:
    s = cell.settings
    truth = inputs.test[: s["test"]["count"]].to(shop.device)
    problem = problem_of(s, truth.shape[1], shop.device)
    deployed, t, iterations, tuned = _deployed(s, inputs, needs, problem, shop)
    reference: Denoise | None = None
    if "reference" in cell.needs:
        same = cell.needs["reference"] == cell.needs.get("model")
        reference = deployed if same else restored(needs["reference"], shop.device)
    found = measure(
        deployed,
        truth,
        problem,
        inputs.ids[: len(truth)],
        reference=reference,
        effort=Effort(
            s["gap_images"],
            s["lipschitz_images"],
            tuple(s["lipschitz_at"]),
            s["lanczos"],
            s["batch"],
        ),
        seed=s["seed"],
        iterations=iterations,
    )
    result = found.to_json(inputs.ids[: len(truth)], s["curves"])
    return Outcome({"t": t, "tuned": tuned, "iterations": iterations, **result}, {})


def _deployed(
    s: Mapping[str, Any],
    inputs: Inputs,
    needs: Mapping[str, Outcome],
    problem: Problem,
    shop: Workshop,
) -> tuple[Denoise, float | None, int | None, dict[str, Any] | None]:
    """The denoiser that reconstructs, its t, where it stops, and how these were chosen."""
    tuning = s["tuning"]
    images = inputs.sets[tuning["set"]][: tuning["count"]].to(shop.device) if tuning else None
    if images is None:
        if "baseline" in s:
            return Identity(problem.img_size[0]), None, None, None
        denoiser = restored(needs["model"], shop.device)
        return denoiser, denoiser.t if isinstance(denoiser, Relaxed) else 1.0, None, None
    if "baseline" in s:
        found = BASELINES[s["baseline"]](images, problem, seed=s["seed"])
        if s["baseline"] == "none":
            stop = max(1, found.chosen.iteration)
            return found.denoiser, None, stop, {"iteration": stop}
        return found.denoiser, None, None, {"strength": found.chosen.strength}
    denoiser = restored(needs["model"], shop.device)
    relaxed = choose_strength(
        denoiser, images, problem, strengths=tuning["strengths"], seed=s["seed"]
    )
    t = relaxed.chosen.strength
    scores = {str(trial.strength): round(trial.psnr, 4) for trial in relaxed.table}
    how = {"strength": t, "sigma": relaxed.chosen.sigma, "scores": scores}
    return relaxed.denoiser, t, None, how


def _pictures(cell: Cell, inputs: Inputs, needs: Mapping[str, Outcome], shop: Workshop) -> Outcome:
    s = cell.settings
    truth = inputs.test[: s["images"]["count"]].to(shop.device)
    problem = problem_of(s, truth.shape[1], shop.device)
    known = needs["reconstruction"].result
    deployed = _again(s, inputs, needs, problem, shop)
    ids = inputs.ids[: len(truth)]
    y = problem.measure(truth, ids=ids, seed=s["seed"])
    made = strips.strips(deployed, y, problem, s["frames"], known["iterations"])
    files = {f"{index}.png": encode_image(strip) for index, strip in enumerate(made)}
    return Outcome({"status": "completed", "ids": list(ids)}, files)


def _again(
    s: Mapping[str, Any],
    inputs: Inputs,
    needs: Mapping[str, Outcome],
    problem: Problem,
    shop: Workshop,
) -> Denoise:
    """The denoiser of a reconstruction that was made, at its strength."""
    if "baseline" in s:
        return _deployed(s, inputs, needs, problem, shop)[0]
    denoiser = restored(needs["model"], shop.device)
    known = needs["reconstruction"].result
    level = (known.get("tuned") or {}).get("sigma")
    return Relaxed(denoiser, known["t"], level) if s["tuning"] else denoiser


def _whole(cell: Cell, inputs: Inputs, needs: Mapping[str, Outcome], shop: Workshop) -> Outcome:
    s = cell.settings
    small = problem_of(s, inputs.test.shape[1], shop.device)
    deployed = _again(s, inputs, needs, small, shop)
    psnr, files = {}, {}
    for name in s["whole"]:
        problem, truth, y = measured_whole(name, s, shop.device)
        run = pnp_pgd(
            deployed,
            y,
            problem,
            truth=truth,
            record=("psnr",),
            iterations=needs["reconstruction"].result["iterations"],
            on_divergence="ignore",
        )
        assert run.psnr is not None  # noqa: S101
        psnr[name] = round(float(run.psnr[0, int(run.iterations[0])]), 4)
        files[f"{name}.png"] = encode_image(run.images[0])
    return Outcome({"status": "completed", "psnr": psnr}, files)


def _certificate(
    cell: Cell, inputs: Inputs, needs: Mapping[str, Outcome], shop: Workshop
) -> Outcome:
    s = cell.settings
    truth = inputs.test[: s["test"]["count"]].to(shop.device, torch.float64)
    problem = problem_of(s, truth.shape[1], shop.device).to(torch.float64)
    models = {name: restored(outcome, shop.device).double() for name, outcome in needs.items()}
    y = problem.measure(truth, ids=inputs.ids[: len(truth)], seed=s["seed"])
    return certificate(models, y, problem, models["reference"])


def _fabric(shop: Workshop) -> Any:
    return one_process(torch.device(shop.device))


KINDS = {
    "model": _model,
    "adaptation": _adaptation,
    "reconstruction": _reconstruction,
    "pictures": _pictures,
    "whole": _whole,
    "certificate": _certificate,
}
