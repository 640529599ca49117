"""Many picture files reconstructed one after the other, with a record of what is done."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from proxmatch._internal.files import write_together
from proxmatch._internal.randomness import fingerprint
from proxmatch.data import ImageFile, encode_image, image_files, read_file
from proxmatch.denoisers import ProximalDenoiser, checkpoint
from proxmatch.errors import DataError, InputError, SkippedFilesWarning
from proxmatch.metrics import SSIM_WINDOW, psnr, ssim
from proxmatch.pnp import Status
from proxmatch.problems.catalog import entry, image_side, make_problem, options, reduction
from proxmatch.reconstruction.any_size import TOGETHER, at_strength, placed, reconstruct
from proxmatch.transforms.fitting import fitting

RECORD = "reconstruction.json"
#: SSIM is left out above this: it needs about twenty copies of an image.
SSIM_PIXELS = 4_000_000


@dataclass(frozen=True)
class FileBatch:
    """What is to be reconstructed, and how.

    A color denoiser works on gray pictures as it is lifted to them, so that gray stays gray.

    Attributes:
        model: D.
        files: by the name of what is written for each.
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
    files: dict[str, Path]
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
        if not entry(problem).pictures and not how["simulate"]:
            raise InputError(f"measurements of {problem} are not pictures: add --simulate")
        read = options(problem, given)
        if how["format"] not in ("png", "tif") or how["bits"] not in (None, 8, 16):
            raise InputError("--format is png or tif, --bits 8 or 16")
        if denoiser.channels not in (1, 3):
            raise InputError(
                f"the model is for images of {denoiser.channels} channels, not pictures"
            )
        files: dict[str, Path] = {}
        for path in image_files(places):
            target = f"{path.stem}.{how['format']}"
            if files.setdefault(target, path) is not path:
                raise InputError(
                    f"{files[target]} and {path} would both become {target}; reconstruct them into "
                    "different folders"
                )
            if (out / target).resolve() == path.resolve():
                raise InputError(f"{path} would be overwritten; choose another --out")
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
        path = self.out / RECORD
        if not path.exists():
            there = [name for name in self.files if (self.out / name).exists()]
            if there:
                raise InputError(
                    f"{self.out / there[0]} is there already, and was not written by reconstruct; "
                    "choose another --out"
                )
            return {}
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            settings, files = dict(found["settings"]), dict(found["files"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path} cannot be read ({error}); remove it") from error
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
        return source is None or (source.is_file() and result["digest"] == _digest(source))

    def steps(self, done: dict[str, Any]) -> int:
        """How many steps of single images there are to do."""
        number = self.iterations or 40
        return number * sum(name not in done for name in self.files)

    def run(
        self, done: dict[str, dict[str, Any]], advance: Callable[[int], None]
    ) -> dict[str, dict[str, Any]]:
        """Reconstruct what is not done, and write each picture with the record beside it."""
        results = {name: result for name, result in done.items() if name in self.files}
        skipped: dict[str, str] = {}
        for names, images in self._groups(results, skipped):
            try:
                found, written = self._group(names, images, advance)
            except InputError as error:  # nothing for images of this size
                skipped |= {self.files[name].name: str(error) for name in names}
                continue
            if not (self.out / RECORD).exists():  # from now on what is here is ours
                self._write({}, {})
            results |= found
            self._write({**done, **results}, written)
        if not results:
            name, reason = next(iter(skipped.items()))
            raise DataError(f"none of the {len(skipped)} file(s) can be used; {name}: {reason}")
        if skipped:
            warnings.warn(SkippedFilesWarning(skipped), stacklevel=2)
        return {name: results[name] for name in self.files if name in results}

    def _write(self, results: dict[str, dict[str, Any]], written: dict[str, bytes]) -> None:
        record = {"settings": self.settings, "files": results}
        text = json.dumps(record, indent=1, allow_nan=False) + "\n"
        write_together(self.out, {**written, RECORD: text.encode()})

    def _groups(
        self, done: dict[str, Any], skipped: dict[str, str]
    ) -> Iterator[tuple[list[str], list[ImageFile]]]:
        """Files of one size together, few enough at a time; never all of them in memory."""
        waiting: dict[torch.Size, tuple[list[str], list[ImageFile]]] = {}
        channels = 1 if self.model.channels == 1 else None
        for name, path in self.files.items():
            if name in done:
                continue
            try:
                file = read_file(path, channels)
            except DataError as error:
                skipped[path.name] = str(error)
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
        truth, y, starts = self._measured(files)
        found = reconstruct(
            self._denoiser(len(files[0].pixels)),
            y,
            self.problem,
            options=self.options,
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
                missing = (self.iterations or 40) - found.iterations[i]
                advance(max(0, missing))
            if truth is not None:
                results[name] |= {"start": starts[i], **_quality(image, truth[i].to(image))}
            written[name] = encode_image(image, self.format, self.bits or file.bits)
        return results, written

    def _denoiser(self, channels: int) -> ProximalDenoiser:
        """D for images of so many channels, at its strength for the problem."""
        if channels not in self.prepared:
            fits = fitting(self.model, channels)
            self.prepared[channels] = at_strength(
                fits,
                None,
                lambda size: make_problem(
                    self.problem,
                    image_side(self.problem, size, self.options),
                    self.options,
                    channels=channels,
                ),
            )
        return self.prepared[channels]

    def _measured(self, files: list[ImageFile]) -> tuple[Tensor | None, Tensor, list[float]]:
        """The clean images (if they are), measurements, and the PSNR of x_0."""
        images = torch.stack([file.pixels for file in files])
        if not self.simulate:
            return None, images, []
        factor = reduction(self.problem, self.options)
        height, width = (n // factor * factor for n in images.shape[-2:])
        images = images[..., :height, :width].contiguous()
        place = next(self.model.parameters())
        size = image_side(self.problem, (height // factor, width // factor), self.options)
        problem = make_problem(self.problem, size, self.options, channels=images.shape[1])
        problem = placed(problem, place)
        truth = images.to(place)
        y = problem.measure(truth, ids=[file.digest for file in files], seed=self.seed)
        return truth, y, [round(v, 4) for v in psnr(problem.initial(y), truth).tolist()]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _quality(image: Tensor, truth: Tensor) -> dict[str, float | None]:
    large, small = image[0].numel() > SSIM_PIXELS, min(image.shape[-2:]) < SSIM_WINDOW
    return {
        "psnr": round(float(psnr(image[None], truth[None])), 4),
        "ssim": None if large or small else round(float(ssim(image[None], truth[None])), 5),
    }
