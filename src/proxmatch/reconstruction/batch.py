"""Many picture files reconstructed, here or by the workers of a cluster, with a journal.

Each picture is written first, and then a line of the journal that says so. A run that was killed
goes on where it stopped, on any number of workers. At the end the journal is also written as one
JSON file.
"""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from proxmatch._internal.cluster import (
    RETRIES,
    Workers,
    check_versions,
    connected,
    fetched,
    gpu_share,
)
from proxmatch._internal.files import write_json, write_together
from proxmatch._internal.journal import Journal
from proxmatch._internal.parcels import packed, unpacked
from proxmatch._internal.provenance import versions
from proxmatch._internal.randomness import fingerprint
from proxmatch.data import ImageFile, encode_image
from proxmatch.data.shards import StoredPicture, stored_pictures
from proxmatch.denoisers import ProximalDenoiser, checkpoint
from proxmatch.errors import DataError, InputError, SkippedFilesWarning
from proxmatch.metrics import SSIM_WINDOW, psnr, ssim
from proxmatch.pnp import Status
from proxmatch.problems.catalog import entry, make_problem, options, reduction
from proxmatch.problems.problem import ITERATIONS
from proxmatch.reconstruction.any_size import (
    TOGETHER,
    Builder,
    at_strength,
    builder,
    placed,
    reconstruct,
)
from proxmatch.transforms.fitting import fitting

RECORD, JOURNAL = "reconstruction.json", "reconstruction.jsonl"
#: Groups of files that wait at a cluster for each worker, itself included.
AHEAD = 2

Group = tuple[list[str], list[ImageFile]]
#: Results and files to write, by name; or why there is nothing for images of this size.
Outcome = tuple[dict[str, dict[str, Any]], dict[str, bytes]] | InputError


#: SSIM is left out above this: it needs about twenty copies of an image.
SSIM_PIXELS = 4_000_000


@dataclass(frozen=True)
class FileBatch:
    """What is to be reconstructed, and how.

    A color denoiser is lifted to gray pictures, so that gray stays gray.

    Attributes:
        model: D.
        files: where each picture is, by the name of what is written for it.
        problem: its name.
        options: its options, read.
        out: the folder.
        settings: everything that decides the result, as JSON; a folder holds results of one.
        simulate: the files are clean.
        bits: of what is written; those of each file if None.
        format: of what is written.
        iterations: PnP steps.
        batch: images handled together.
        tile: side of the tiles.
        seed: of the noise.
        prepared: D at its strength, by the channels of the pictures; filled as they come.
    """

    model: ProximalDenoiser
    files: dict[str, StoredPicture]
    problem: str
    options: dict[str, Any]
    out: Path
    settings: dict[str, Any]
    simulate: bool
    bits: Any
    format: Any
    iterations: int | None
    batch: int | None
    tile: int
    seed: int
    prepared: dict[int, ProximalDenoiser] = field(default_factory=dict)

    @classmethod
    def planned(
        cls,
        denoiser: ProximalDenoiser,
        name: str,
        places: list[Path],
        problem: str,
        given: list[str],
        out: Path,
        **how: Any,
    ) -> FileBatch:
        """Check everything that can be checked before the work begins."""
        known = entry(problem)
        if known.channels not in (None, 1, 3):
            raise InputError(
                f"{problem} is for images of {known.channels} channels, which files of pictures "
                "cannot have: use proxmatch.reconstruct in Python"
            )
        if not known.pictures and not how["simulate"]:
            raise InputError(
                f"measurements of {problem} are not pictures; with --simulate they are made from "
                "clean pictures"
            )
        read = options(problem, given)
        if how["format"] not in ("png", "tif") or how["bits"] not in (None, 8, 16):
            raise InputError("--format is png or tif, --bits 8 or 16")
        if denoiser.channels not in (1, 3):
            raise InputError(
                f"the model is for images of {denoiser.channels} channels, not pictures"
            )
        files: dict[str, StoredPicture] = {}
        written = _recorded(out)[1]
        for picture in stored_pictures(places, clean=how["simulate"]):
            if picture.name in written and _is(picture.path, out / picture.name):
                continue  # a result of an earlier run, beside what it was made from
            target = f"{Path(picture.name).stem}.{how['format']}"
            if files.setdefault(target, picture) is not picture:
                raise InputError(
                    f"{files[target]} and {picture} would both become {target}; reconstruct them "
                    "into different folders"
                )
            if _is(picture.path, out / target):
                raise InputError(f"{picture} would be overwritten; choose another --out")
        if not files:
            raise InputError(f"all of the pictures are results in {out}; choose another --out")
        settings = {
            "model": name,
            "weights": checkpoint.fingerprint(denoiser),
            "problem": problem,
            "options": sorted(given),
            "read": {k: fingerprint([v]) for k, v in read.items() if isinstance(v, Tensor)},
            **{key: how[key] for key in ("simulate", "bits", "iterations", "seed")},
        }
        return cls(denoiser, files, problem, read, out, settings, **how)

    def earlier(self) -> dict[str, dict[str, Any]]:
        """What an earlier run with the same settings left in the folder, by name."""
        settings, files = _recorded(self.out)
        if settings is None:
            found = {file.name for file in self.out.iterdir()} if self.out.is_dir() else ()
            there = [name for name in self.files if name in found]
            if there:
                raise InputError(
                    f"{self.out / there[0]} is there already, and was not written by reconstruct; "
                    "choose another --out"
                )
            return {}
        if settings != self.settings:
            keys = sorted(settings.keys() | self.settings.keys())
            changed = [k for k in keys if settings.get(k) != self.settings.get(k)]
            raise InputError(
                f"{self.out} holds results with other settings ({', '.join(changed)}); choose "
                "another --out, or remove this one"
            )
        return {name: result for name, result in files.items() if self._stands(name, result)}

    def _stands(self, name: str, result: dict[str, Any]) -> bool:
        """Whether a result is there and its source is as it was."""
        source = self.files.get(name)
        if not (self.out / name).is_file():
            return False
        try:
            return source is None or result["digest"] == source.digest()
        except DataError:
            return False

    def steps(self, done: dict[str, Any]) -> int:
        """How many steps of single images there are to do."""
        number = self.iterations or ITERATIONS
        return number * sum(name not in done for name in self.files)

    def run(
        self,
        done: dict[str, dict[str, Any]],
        advance: Callable[[int], None],
        workers: Workers | None = None,
    ) -> dict[str, dict[str, Any]]:
        """Reconstruct what is not done, and write each picture as it comes.

        Args:
            done: what is done, by name.
            advance: called with the number of steps of single images that were made.
            workers: who does it; this process unless given.
        """
        results = {name: result for name, result in done.items() if name in self.files}
        skipped: dict[str, str] = {}
        journal = Journal(self.out / JOURNAL)
        groups = self._groups(results, skipped)
        with contextlib.closing(self._outcomes(groups, advance, workers or Workers())) as outcomes:
            for names, outcome in outcomes:
                if isinstance(outcome, InputError):
                    skipped |= {self.files[name].name: str(outcome) for name in names}
                    continue
                if not journal.exists():  # from now on what is here is ours
                    journal.begin(self.settings, done)
                found, written = outcome
                write_together(self.out, written)
                journal.append(found)
                results |= found
        if not results:
            name, reason = next(iter(skipped.items()))
            raise DataError(f"none of the {len(skipped)} file(s) can be used; {name}: {reason}")
        results = {name: results[name] for name in self.files if name in results}
        write_json(self.out, RECORD, {"settings": self.settings, "files": results | done})
        if skipped:
            warnings.warn(SkippedFilesWarning(skipped), stacklevel=2)
        return results

    def _outcomes(
        self, groups: Iterable[Group], advance: Callable[[int], None], workers: Workers
    ) -> Generator[tuple[list[str], Outcome]]:
        """What becomes of each group, as it is done."""
        if workers.engine == "ray":
            yield from self._by_ray(groups, advance, workers)
            return
        for names, files in groups:
            yield names, self._attempt(names, files, advance)

    def _by_ray(
        self, groups: Iterable[Group], advance: Callable[[int], None], workers: Workers
    ) -> Generator[tuple[list[str], Outcome]]:
        """Groups as Ray tasks. Pictures go through its object store, so that no disk is shared."""
        steps = self.iterations or ITERATIONS
        number, threads = workers.number, workers.threads
        gpus = 0 if next(self.model.parameters()).device.type == "cpu" else 1
        with connected(workers.address, workers=number, cpus=threads, gpus=gpus) as ray:
            share = gpus * gpu_share(number, ray.cluster_resources().get("GPU", 0))
            task = ray.remote(_remote).options(
                num_cpus=threads, num_gpus=share, max_retries=RETRIES
            )
            given: dict[int, Any] = {}  # this batch without its files, by the number of channels
            running: dict[Any, list[str]] = {}
            most = AHEAD * max(number, int(ray.cluster_resources().get("CPU", 1)) // threads)

            def next_one() -> tuple[list[str], Outcome]:
                [done], _ = ray.wait(list(running), num_returns=1)
                names = running.pop(done)
                outcome: Outcome = fetched(ray, done, f"{', '.join(names[:3])} ...")
                advance(steps * len(names))
                return names, outcome

            try:
                for names, files in groups:
                    channels = len(files[0].pixels)
                    if channels not in given:
                        ready = {channels: self._denoiser(channels)}
                        given[channels] = ray.put(packed(replace(self, files={}, prepared=ready)))
                    told = (threads, versions(), names, files)
                    running[task.remote([given[channels]], *told)] = names
                    if len(running) >= most:
                        yield next_one()
                while running:
                    yield next_one()
            finally:
                for reference in running:
                    ray.cancel(reference)

    def _attempt(
        self, names: list[str], files: list[ImageFile], advance: Callable[[int], None]
    ) -> Outcome:
        try:
            return self._group(names, files, advance)
        except InputError as error:  # nothing for images of this size
            return error

    def _groups(self, done: dict[str, Any], skipped: dict[str, str]) -> Iterator[Group]:
        """Files of one size together, few enough at a time; never all of them in memory."""
        waiting: dict[torch.Size, Group] = {}
        for name, picture in self.files.items():
            if name in done:
                continue
            try:
                file = self._opened(picture)
            except DataError as error:
                skipped[picture.name] = str(error)
                continue
            names, group = waiting.setdefault(file.pixels.shape, ([], []))
            names.append(name)
            group.append(file)
            pixels = group[0].pixels[0].numel()
            if len(group) * pixels >= TOGETHER or len(group) == self.batch:
                yield waiting.pop(file.pixels.shape)
            elif sum(len(g) * g[0].pixels[0].numel() for _, g in waiting.values()) > 4 * TOGETHER:
                largest = max(waiting, key=lambda s: len(waiting[s][1]) * s[-1] * s[-2])
                yield waiting.pop(largest)
        yield from waiting.values()

    def _group(
        self, names: list[str], files: list[ImageFile], advance: Callable[[int], None]
    ) -> tuple[dict[str, dict[str, Any]], dict[str, bytes]]:
        channels = len(files[0].pixels)
        truth, y, starts, simulated = self._measured(files)
        found = reconstruct(
            self._denoiser(channels),
            y,
            simulated or builder(self.problem, self.options, channels),
            iterations=self.iterations,
            tile=self.tile,
            batch=self.batch,
            on_step=advance,
            on_divergence="ignore",  # the table names them
        )
        results, written = {}, {}
        for i, (name, file) in enumerate(zip(names, files, strict=True)):
            image = found.images[i]
            results[name] = {
                "source": file.path.name,
                "digest": file.digest,
                "size": f"{image.shape[2]} x {image.shape[1]}",
                "status": str(found.status[i]),
                "steps": found.iterations[i],
                "signs": [str(sign) for sign in found.signs[i]],
            }
            if found.status[i] is Status.DIVERGED:
                missing = (self.iterations or ITERATIONS) - found.iterations[i]
                advance(max(0, missing))
            if truth is not None:
                results[name] |= {"start": starts[i], **_quality(image, truth[i].to(image))}
            written[name] = encode_image(image, self.format, self.bits or file.bits)
        return results, written

    def before(self, name: str) -> tuple[Tensor, Tensor | None] | None:
        """What a result was made from and its truth, if known, as pictures; None if it is gone."""
        try:
            file = self._opened(self.files[name])
            truth, y, _, _ = self._measured([file])
        except (DataError, InputError, OSError, KeyError):
            return None
        if truth is None:
            return y[0], None
        drawable = y.ndim == 4 and y.shape[1] in (1, 3)
        return (y if drawable else truth)[0].cpu(), truth[0].cpu()

    def _opened(self, picture: StoredPicture) -> ImageFile:
        """A picture, gray for a denoiser of gray images, else as it is."""
        return picture.read(1 if self.model.channels == 1 else None)

    def _denoiser(self, channels: int) -> ProximalDenoiser:
        """D for images of this many channels, at its strength for the problem."""
        if channels not in self.prepared:
            build = builder(self.problem, self.options, channels)
            self.prepared[channels] = at_strength(fitting(self.model, channels), None, build)
        return self.prepared[channels]

    def _measured(
        self, files: list[ImageFile]
    ) -> tuple[Tensor | None, Tensor, list[float], Builder | None]:
        """The clean images, measurements, the PSNR of x_0, and what made the measurements.

        Files that are measurements themselves have none of these but the second.
        """
        images = torch.stack([file.pixels for file in files])
        if not self.simulate:
            return None, images, [], None
        factor = reduction(self.problem, self.options)
        height, width = (n // factor * factor for n in images.shape[-2:])
        if not height or not width:
            raise InputError(
                f"{images.shape[-1]} x {images.shape[-2]} pixels, too few to become one of "
                f"{factor} x {factor}"
            )
        images = images[..., :height, :width].contiguous()
        place = next(self.model.parameters())
        channels = images.shape[1]
        problem = make_problem(self.problem, (height, width), self.options, channels=channels)
        problem = placed(problem, place)
        truth = images.to(place)
        y = problem.measure(truth, ids=[file.digest for file in files], seed=self.seed)
        starts = [round(v, 4) for v in psnr(problem.initial(y), truth).tolist()]
        return truth, y, starts, lambda size: problem


def _remote(
    batch: list[Any], threads: int, driver: dict[str, str], names: list[str], files: list[ImageFile]
) -> Outcome:
    """A group as a Ray task; the batch is in a list, so that Ray does not fetch it every time."""
    check_versions(driver)
    torch.set_num_threads(threads)
    return _batch(batch[0])._attempt(names, files, lambda steps: None)


@lru_cache(maxsize=2)
def _batch(reference: Any) -> FileBatch:
    """A batch, with its denoiser on the device of the worker, fetched once by it."""
    ray: Any = import_module("ray")
    found: FileBatch = unpacked(ray.get(reference))
    return found


def _recorded(out: Path) -> tuple[dict[str, Any] | None, dict[str, dict[str, Any]]]:
    """Settings, and results by name, of the runs that wrote to a folder; None if none did."""
    path, journal = out / RECORD, Journal(out / JOURNAL)
    if journal.exists():
        return journal.read()
    return _read(path) if path.exists() else (None, {})


def _is(path: Path, other: Path) -> bool:
    """Whether two paths lead to one file; they need not exist."""
    return os.path.exists(other) and os.path.samefile(path, other)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Settings and results of the JSON file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return dict(found["settings"]), dict(found["files"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} cannot be read ({error}); remove it") from error


def _quality(image: Tensor, truth: Tensor) -> dict[str, float | None]:
    large, small = image[0].numel() > SSIM_PIXELS, min(image.shape[-2:]) < SSIM_WINDOW
    return {
        "psnr": round(float(psnr(image[None], truth[None])), 4),
        "ssim": None if large or small else round(float(ssim(image[None], truth[None])), 5),
    }
