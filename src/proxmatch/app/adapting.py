"""Adapt a denoiser to dropped pictures, and show the evidence."""

from __future__ import annotations

import io
import zipfile
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from proxmatch.app.denoisers import Denoisers, described
from proxmatch.app.jobs import Job
from proxmatch.app.pages import Dropped, Page, crops_of
from proxmatch.app.runs import Value, options_of
from proxmatch.denoisers import ProximalDenoiser
from proxmatch.denoisers.checkpoint import packed
from proxmatch.learning import adapt as adapted_to
from proxmatch.problems import make_problem

#: Side of the windows.
SIZE = 64


class AdaptWish(BaseModel):
    """What a page asks for."""

    model_config = ConfigDict(extra="forbid")

    pictures: list[str] = Field(min_length=1, max_length=24)  # their ids
    side: int | None = Field(256, ge=64, le=1024)  # the longest side they are made smaller to
    problem: str = Field("deblurring", max_length=64)  # that decides what is best
    options: dict[str, Value] = Field(default_factory=dict, max_length=12)
    denoiser: str = Field(max_length=64)  # where to start from
    budget: int = Field(120, ge=1, le=3600)  # seconds after which nothing more is tried


def adapt(
    job: Job, wish: AdaptWish, pictures: list[Dropped], page: Page, denoisers: Denoisers
) -> None:
    """Adapt; the denoiser is kept for the page under a new name."""
    job.begin("looking at the pictures")
    read = options_of(wish.problem, wish.options)
    source = denoisers.load(wish.denoiser, page)
    images = [image[: source.channels] for image in crops_of(pictures, SIZE, wish.side)]
    problem = make_problem(wish.problem, SIZE, read, channels=source.channels)
    tried: list[str] = []

    def candidate(name: str) -> None:
        tried.append(name)
        job.begin(f"trying: {name}")
        job.tell(trying=list(tried))

    found = adapted_to(
        source, images, problem=problem, budget=float(wish.budget), on_candidate=candidate
    )
    denoiser = found.denoiser
    name = _name(wish.denoiser, page)
    page.denoisers[name] = denoiser
    job.tell(
        adapted=described(name, denoiser),
        evidence=str(found.evidence) if found.evidence is not None else None,
        gain=None if found.evidence is None else round(found.evidence.gain, 2),
        table=[_row(each) for each in found.table],
    )
    with job.lock:
        job.files[f"{name}.zip"] = _bundle(denoiser, name)


def _row(candidate: Any) -> dict[str, Any]:
    return {
        "name": candidate.name,
        "score": round(candidate.score, 2),
        "seconds": round(candidate.seconds, 1),
        "chosen": candidate.chosen,
    }


def _name(source: str, page: Page) -> str:
    base = source.rpartition(" ")[0] if source in page.denoisers else f"{source} adapted"
    number = 1
    while f"{base} {number}" in page.denoisers:
        number += 1
    return f"{base} {number}"


def _bundle(denoiser: ProximalDenoiser, name: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for part, content in packed(denoiser).items():
            archive.writestr(f"{name}/{part}", content)
    return file.getvalue()
