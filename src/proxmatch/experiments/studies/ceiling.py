"""The ceiling: networks trained for one problem each, on thousands of pairs of its domain.

A proximal map knows images and no problem. What the knowledge of the problem would add is shown by
an unrolled network: three gradient steps on the data fit, each followed by a network of its own
that starts with the weights of the gradient-step denoiser's and as the identity, all trained end to
end on pairs of faces and their measurements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from proxmatch._internal.hardware import bfloat16_is_fast
from proxmatch._internal.randomness import generator_of
from proxmatch.data import ImageDomain
from proxmatch.denoisers import GradientStep
from proxmatch.denoisers.unet import ScaledUNet
from proxmatch.errors import InputError
from proxmatch.experiments.studies.priors import (
    PROBLEMS as KNOWN,
    cell_of,
    given_by,
    prior_of,
    problem_of,
)
from proxmatch.experiments.studies.study import Study, Work, markdown
from proxmatch.learning.sources import windows
from proxmatch.metrics import psnr
from proxmatch.problems import Problem, make_problem

PROBLEMS = ("deblurring", "super-resolution", "inpainting 70")
#: Noise levels of the networks of the steps at the start; they are trained too.
LEVELS = (0.1, 0.05, 0.03)
#: Steps of the training, pairs a step and side of their crops.
STEPS, BATCH, CROP = 14_000, 4, 64
RATE, WARMUP, CLIP = 5e-4, 50, 0.1
#: The weights are a mean in which those of k steps before count this to the power of k.
AVERAGING = 0.997
#: Side of the images that the crops are cut from.
SIDE = 128
#: Images reconstructed at once.
TOGETHER = 10


class Unrolled(nn.Module):
    """x_{k+1} = N_k(x_k - eta grad f(x_k), s_k), with networks N_k and levels s_k of their own.

    Args:
        denoiser: whose network gives all N_k their first weights, but for the last layer.
    """

    def __init__(self, denoiser: GradientStep) -> None:
        super().__init__()
        self.networks = nn.ModuleList(deepcopy(denoiser.network) for _ in LEVELS)
        for network in self.networks:
            for parameter in network.get_submodule("tail").parameters():
                nn.init.zeros_(parameter)
        self.log_levels = nn.Parameter(torch.tensor(LEVELS).log())

    def forward(self, y: Tensor, problem: Problem) -> Tensor:
        """Images from measurements; in a training, with the networks in bfloat16 if it is fast."""
        fast = self.training and bfloat16_is_fast(y.device)
        mixed = torch.autocast(y.device.type, torch.bfloat16, enabled=fast)
        x = problem.initial(y)
        for network, log_level in zip(self.networks, self.log_levels, strict=True):
            residual = problem.physics.A(x) - y
            z = x - problem.eta * problem.physics.A_adjoint(residual)
            with mixed:
                x = network(z, log_level.exp())
        return x


def plan(work: Work) -> list[dict[str, Any]]:
    """A cell for each problem and denoiser to start from."""
    return [
        cell_of(model, work, work.images, domain="faces", problem=problem)
        | {"steps": work.steps or STEPS}
        for problem in PROBLEMS
        for model in work.models
        if isinstance(getattr(prior_of(model), "network", None), ScaledUNet)
    ]


def compute(settings: Mapping[str, Any], work: Work) -> dict[str, Any]:
    """PSNR of every test image after the training."""
    test, problem, fingerprint = given_by(settings, work)
    model, losses = trained(settings, work)
    found: list[float] = []
    with torch.no_grad():
        for some in torch.split(test, TOGETHER):
            y = problem.measure(some, seed=settings["seed"])
            found += psnr(model(y, problem), some).tolist()
    return {
        "psnr": [round(v, 4) for v in found],
        "levels": [round(v, 4) for v in model.log_levels.exp().tolist()],
        "losses": losses,
        "data": fingerprint,
    }


def trained(settings: Mapping[str, Any], work: Work) -> tuple[Unrolled, list[float]]:
    """The network of a cell after its training, and the mean loss of every tenth of it."""
    steps, seed = settings["steps"], settings["seed"]
    denoiser = prior_of(settings["model"])
    model = Unrolled(denoiser).train()
    faces = ImageDomain(work.data / "celeba", SIDE, split="train", crop="center")
    draw = windows(faces.sample, CROP)
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda k: min(1, (k + 1) / WARMUP) * (0.51 + 0.49 * float(np.cos(np.pi * k / steps))),
    )
    mean = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(AVERAGING))  # type: ignore[no-untyped-call]
    losses = []
    for step in range(steps):
        clean = draw(BATCH, generator_of(seed, step, "images"))
        problem = _problem(settings["problem"], clean.shape[1], step)
        y = problem.measure(clean, seed=seed + 1)
        loss = F.mse_loss(model(y, problem), clean)
        if not bool(loss.isfinite()):
            raise InputError(f"the loss is not finite at step {step}; lower the rate")
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        schedule.step()
        mean.update_parameters(model)
        losses.append(loss.item())
    parts = np.array_split(losses, min(10, steps))
    model.load_state_dict(mean.module.state_dict())
    return model.eval(), [round(float(part.mean()), 6) for part in parts]


def _problem(name: str, channels: int, step: int) -> Problem:
    """The problem at the size of the crops; where pixels are missing, others at every step."""
    kind, options = KNOWN[name]
    if kind == "inpainting":
        return make_problem(kind, CROP, (*options, f"seed={step + 1}"), channels=channels)
    return problem_of(name, channels, CROP)


def tables(cells: Sequence[Mapping[str, Any]]) -> str:
    """One row per problem."""
    rows = [
        [
            cell["problem"],
            cell["prior"],
            f"{np.mean(cell['psnr']):.2f}",
            str(len(cell["psnr"])),
            str(cell["steps"]),
            f"{cell.get('seconds', 0) / 60:.0f}",
        ]
        for cell in cells
    ]
    header = ["problem", "starts from", "PSNR, dB", "faces", "steps", "minutes"]
    return markdown(header, rows)


CEILING = Study("ceiling", "Networks trained for one problem each", plan, compute, tables)
