"""Ruined runs: how many does the soundness check notice, and how often is it wrong?

Denoisers of three domains, of all levels and of one, at strengths from far too weak to far too
strong, on six domains and in five problems. The limits were set on faces and photographs and are
tested on the others. A run is *ruined* if its PSNR is below that of its start, and *good*
otherwise; a second pair of columns leaves out what is within :data:`CLOSE` of the start. Runs that
diverged are neither: their status says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from proxmatch.data import ImageDomain
from proxmatch.denoisers import ProximalDenoiser
from proxmatch.experiments.studies.priors import cell_of, lifted
from proxmatch.experiments.studies.study import Study, Work, grouped, markdown
from proxmatch.metrics import psnr
from proxmatch.pnp import Status, pnp_pgd
from proxmatch.problems import make_problem
from proxmatch.reconstruction.signs import Examination, Sign
from proxmatch.reconstruction.soundness import examine, last_residual
from proxmatch.transforms import Relaxed

SIZE = 64
#: Folder, split and channels; and whether the limits were set there.
DOMAINS: dict[str, tuple[str, Any, int, bool]] = {
    "satellite": ("satellite", None, 3, False),
    "histology": ("brecahad", "test", 3, False),
    "microscopy": ("microscopy", None, 1, False),
    "x-ray": ("xray", None, 1, False),
    "faces": ("celeba", "validation", 3, True),
    "photographs": ("bsds/validation", None, 3, True),
}
PROBLEMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "deblurring": ("deblurring", ()),
    "super-resolution": ("super-resolution", ()),
    "inpainting": ("inpainting", ("keep=0.3",)),
    "motion": ("motion-deblurring", ()),
    "denoising": ("denoising", ("noise=0.05",)),
}
#: (t, s) of a denoiser of all levels: far too weak, middling, far too strong; t of one level.
STRENGTHS = ((1.0, 0.003), (0.5, 0.03), (1.0, 0.25))
ONE_LEVEL = (1.0, 0.02)
#: Steps of a run, and how far apart in a folder the images of two problems are.
STEPS, STRIDE = 40, 7
#: dB from the start within which nobody sees a difference.
CLOSE = 0.5


def plan(work: Work) -> list[dict[str, Any]]:
    """A cell for each domain, problem and denoiser; all strengths in one."""
    return [
        cell_of(model, work, work.images or 1, domain=domain, problem=problem)
        for domain in DOMAINS
        for problem in PROBLEMS
        for model in work.models
    ]


@torch.no_grad()
def compute(settings: Mapping[str, Any], work: Work) -> dict[str, Any]:
    """PSNR at the start and at the end, and what the run shows, of every strength and image."""
    folder, split, channels, _ = DOMAINS[settings["domain"]]
    domain = ImageDomain(work.data / folder, SIZE, split=split, crop="center", channels=channels)
    number = min(settings["images"], len(domain))
    places = [round((i + 0.5) * len(domain) / number) % len(domain) for i in range(number)]
    shift = list(PROBLEMS).index(settings["problem"])  # other images in every problem
    places = [(place + shift * STRIDE) % len(domain) for place in places]
    x = domain.tensor(places)
    kind, options = PROBLEMS[settings["problem"]]
    problem = make_problem(kind, SIZE, options, channels=channels)
    y = problem.measure(x, seed=settings["seed"])
    start = problem.initial(y)
    prior: ProximalDenoiser = lifted(settings["model"], channels)
    strengths = STRENGTHS if prior.conditional else tuple((t, None) for t in ONE_LEVEL)
    runs = []
    for t, level in strengths:
        denoiser = Relaxed(prior, t, level)
        run = pnp_pgd(denoiser, y, problem, iterations=STEPS, on_divergence="ignore")
        found = examine(run.images, y, problem, start=start, residual=last_residual(run))
        for i, place in enumerate(places):
            runs.append(
                {
                    "image": place,
                    "t": t,
                    "sigma": level,
                    "status": str(run.status[i]),
                    "start": round(float(psnr(start, x)[i]), 3),
                    "psnr": round(float(psnr(run.images, x)[i]), 3),
                    **{name: float(f"{float(v[i]):.5g}") for name, v in vars(found).items()},
                }
            )
    return {"runs": runs, "data": domain.fingerprint}


def tables(cells: Sequence[Mapping[str, Any]]) -> str:
    """Shares of ruined and good runs that are flagged, by domain, problem and denoiser."""
    runs = [
        {**run, "where": cell["domain"], "problem": cell["problem"], "prior": cell["prior"]}
        for cell in cells
        for run in cell["runs"]
    ]
    diverged = sum(run["status"] == Status.DIVERGED for run in runs)
    runs = [run for run in runs if run["status"] != Status.DIVERGED]
    for run, signs in zip(runs, _signs(runs), strict=True):
        run["signs"] = signs
    parts = []
    for text, here in (("limits set here", True), ("tested here", False)):
        some = [run for run in runs if DOMAINS[run["where"]][3] is here]
        if not some:
            continue
        rows = [
            _row(f"**{text}**", some),
            *(
                _row(value, found)
                for name in ("where", "problem", "prior")
                for value, found in grouped(some, name).items()
            ),
        ]
        parts.append(markdown(["", *HEADER], rows))
    tested = [run for run in runs if not DOMAINS[run["where"]][3]]
    by_sign = [
        [
            sign,
            str(sum(sign in run["signs"] for run in tested if _ruined(run))),
            str(sum(sign in run["signs"] for run in tested if not _ruined(run))),
        ]
        for sign in map(str, Sign)
    ]
    parts.append(markdown(["sign, tested runs", "ruined", "good"], by_sign))
    parts.append(f"{diverged} further runs diverged, which their status says.")
    return "\n\n".join(parts)


HEADER = (
    "runs",
    "ruined",
    "flagged",
    f"ruined by > {CLOSE:g} dB",
    "flagged",
    "good",
    "flagged",
    f"good by > {CLOSE:g} dB",
    "flagged",
)


def _row(name: str, runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Counts, and the share of them that is flagged."""

    def shares(keep: Callable[[float], bool]) -> list[str]:
        some = [run for run in runs if keep(run["psnr"] - run["start"])]
        flagged = sum(bool(run["signs"]) for run in some)
        return [str(len(some)), f"{flagged / len(some):.0%}" if some else ""]

    return [
        name,
        str(len(runs)),
        *shares(lambda gain: gain < 0),
        *shares(lambda gain: gain < -CLOSE),
        *shares(lambda gain: gain >= 0),
        *shares(lambda gain: gain >= CLOSE),
    ]


def _ruined(run: Mapping[str, Any]) -> bool:
    return bool(run["psnr"] < run["start"])


def _signs(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """What is found suspicious in each run, by the limits as they are now."""
    names = Examination.__dataclass_fields__
    columns = {name: torch.tensor([run[name] for run in runs]) for name in names}
    return [tuple(map(str, signs)) for signs in Examination(**columns).signs()]


DETECTOR = Study(
    "detector",
    "Ruined runs, noticed without the truth",
    plan,
    compute,
    tables,
    code=("reconstruction/soundness.py", "reconstruction/linear.py"),  # not the limits
)
