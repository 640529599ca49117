"""What the studies of priors share: the images, the priors, and one rule for their strengths.

The data folder holds, in their published layouts: ``celeba`` (full size), ``bsds/validation``,
``cbsd68``, ``kodak24``, ``brecahad``. Strengths are chosen on validation images, and nothing is
chosen on a test image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args

import torch
from deepinv.models import BM3D
from torch import Tensor

from proxmatch.baselines import BASELINES as BASELINES
from proxmatch.data import ImageDomain
from proxmatch.data.domain import Crop
from proxmatch.denoisers import (
    ProximalDenoiser,
    checkpoint,
    import_checkpoint,
    import_network,
    load,
)
from proxmatch.denoisers.published import NetworkKind
from proxmatch.errors import InputError
from proxmatch.experiments.studies.study import Work
from proxmatch.pnp import Denoise
from proxmatch.problems import Problem, make_problem
from proxmatch.problems.image_sizes import Size
from proxmatch.transforms import Lifted, choose_strength, tune
from proxmatch.transforms.strength import GRID

#: Validation images that a strength is chosen on, and that a Wiener filter is fitted to.
CHOSEN_ON = 5
#: The highest noise level that is passed to a published denoiser.
HIGHEST = 0.25
#: Six inverse problems: name in a table, name of the problem, options.
PROBLEMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "deblurring": ("deblurring", ()),
    "super-resolution": ("super-resolution", ()),
    "motion": ("motion-deblurring", ()),
    "blur 2": ("deblurring", ("kernel_size=13", "kernel_sigma=2", "noise=0.02")),
    "inpainting 70": ("inpainting", ("keep=0.3",)),
    "inpainting 90": ("inpainting", ("keep=0.1",)),
}


@dataclass(frozen=True)
class Images:
    """Images of a domain."""

    validation: tuple[str, Any]  # folder and split of those that strengths are chosen on
    test: tuple[str, Any]  # folder and split of those that figures are reported on
    channels: int = 3  # 3 or 1
    crop: Crop = "center"  # which squares of a picture: its center, or all on a grid


DOMAINS = {
    "faces": Images(("celeba", "validation"), ("celeba", "test")),
    "photographs": Images(("bsds/validation", None), ("cbsd68", None)),
    "histology": Images(("brecahad", "validation"), ("brecahad", "test"), crop="grid"),
    "gray": Images(("bsds/validation", None), ("cbsd68", None), 1),
}

#: Those that reconstructions are of.
RECONSTRUCTED = tuple(DOMAINS)
#: Faces for the models of gray images.
GRAY = "gray faces"
DOMAINS[GRAY] = Images(DOMAINS["faces"].validation, DOMAINS["faces"].test, 1)


def images_of(
    domain: str, part: str, work: Work, count: int | None, size: int = 128
) -> tuple[Tensor, str]:
    """Crops of the ``validation`` or ``test`` part of a domain, and their fingerprint."""
    return _images(domain, part, work.data, count, size)


@cache
def _images(domain: str, part: str, data: Path, count: int | None, size: int) -> tuple[Tensor, str]:
    known = DOMAINS[domain]
    folder, split = known.validation if part == "validation" else known.test
    found = ImageDomain(data / folder, size, split=split, crop=known.crop, channels=known.channels)
    number = len(found) if count is None else min(count, len(found))
    places = [round(i * len(found) / number) for i in range(number)]
    return found.tensor(places), found.fingerprint


def problem_of(name: str, channels: int, size: Size = 128) -> Problem:
    """One of ``PROBLEMS``."""
    kind, options = PROBLEMS[name]
    return make_problem(kind, size, options, channels=channels)


@cache
def prior_of(name: str) -> Any:
    """A denoiser by its name, folder, or ``kind:file`` of published weights; or ``bm3d``."""
    if name == "bm3d":
        return _bm3d()
    kind, colon, file = name.partition(":")
    if not colon:
        return load(name)
    if kind in get_args(NetworkKind):
        return import_network(file, kind)  # type: ignore[arg-type]
    return import_checkpoint(file, kind)


def lifted(name: str, channels: int) -> Any:
    """A prior for images of this many channels: itself, or lifted to them if it is proximal."""
    prior = prior_of(name)
    if isinstance(prior, ProximalDenoiser) and prior.channels != channels:
        return Lifted(prior, channels)
    return prior


def _bm3d() -> Any:
    """BM3D of deepinv, for color and gray images, which needs the extra of that name."""
    try:
        denoiser = BM3D()
    except ImportError as error:
        raise InputError("BM3D is an extra: pip install 'proxmatch[bm3d]'") from error
    denoiser.channels = None
    return denoiser


def label_of(name: str) -> str:
    """What a table calls a prior."""
    kind, colon, _ = name.partition(":")
    return kind if colon else Path(name).name


def identity_of(name: str) -> str | None:
    """A hash of what decides a prior; None for a baseline."""
    if name in BASELINES:
        return None
    prior = prior_of(name)
    if isinstance(prior, ProximalDenoiser):
        return checkpoint.fingerprint(prior)
    return checkpoint.digest_of(prior.state_dict())


def cell_of(prior: str, work: Work, images: int | None, **where: str) -> dict[str, Any]:
    """The settings of a cell about a prior."""
    return {
        **where,
        "prior": label_of(prior),
        "model": prior,
        "identity": identity_of(prior),
        "images": images,
        "seed": work.seed,
    }


def given_by(settings: Mapping[str, Any], work: Work) -> tuple[Tensor, Problem, str]:
    """The test images and the problem of a cell, and the data's fingerprint."""
    test, fingerprint = images_of(settings["domain"], "test", work, settings["images"])
    return test, problem_of(settings["problem"], test.shape[1]), fingerprint


def deployed(
    settings: Mapping[str, Any], work: Work, *, proximal: bool = True
) -> tuple[Denoise, dict[str, Any]]:
    """The prior of a cell at the strength that does best on validation images of its domain.

    The search is the longer part of many cells, so that those of one process share it.
    """
    names = (settings[key] for key in ("model", "domain", "problem", "seed"))
    return _deployed(*names, work.data, proximal)


@cache
def _deployed(
    name: str, domain: str, problem: str, seed: int, data: Path, proximal: bool
) -> tuple[Denoise, dict[str, Any]]:
    images, _ = _images(domain, "validation", data, CHOSEN_ON, 128)
    solved = problem_of(problem, images.shape[1])
    return at_strength(name, images, solved, proximal=proximal, seed=seed)


def fitting(models: tuple[str, ...] | list[str], channels: int) -> list[str]:
    """The models that take this number of channels, or any."""
    return [m for m in models if prior_of(m).channels in (None, channels)]


@dataclass(frozen=True)
class _AtLevel:
    """A denoiser that is not a proximal map, at a noise level."""

    prior: Any
    level: float

    def __call__(self, z: Tensor, sigma: Any = None) -> Tensor:
        found: Tensor = self.prior(z, self.level)
        return found

    def stronger(self, factor: float) -> _AtLevel:
        return _AtLevel(self.prior, max(self.level, min(factor * self.level, HIGHEST)))


@torch.no_grad()
def at_strength(
    name: str, images: Tensor, problem: Problem, *, proximal: bool = True, seed: int = 0
) -> tuple[Denoise, dict[str, Any]]:
    """A prior at the strength that does best on given images, and what to record about it."""
    if name in BASELINES:
        found = BASELINES[name](images, problem, seed=seed)
    else:
        prior = lifted(name, images.shape[1])
        if isinstance(prior, ProximalDenoiser):
            found = choose_strength(prior, images, problem, proximal=proximal, seed=seed)
        else:
            found = tune(lambda s: _AtLevel(prior, s), GRID[::-1], images, problem, seed=seed)
    about = {
        "strength": found.chosen.strength,
        "sigma": found.chosen.sigma,
        "lipschitz": found.lipschitz,
        "margin": found.margin,
        "validation": round(found.chosen.psnr, 4),
    }
    if name == "none":
        about["iterations"] = found.chosen.iteration
    return found.denoiser, about
