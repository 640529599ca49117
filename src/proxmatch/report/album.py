"""Pictures as data URIs, within a budget of bytes.

Strips are embedded as they are if they fit. Otherwise they become JPEG files without color
subsampling, whose 8 x 8 blocks stay within the columns of a strip. If that is not enough, the
strips of controls, of later sets and of later images are left out. A note on the page says what was
done.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from proxmatch.errors import DataError
from proxmatch.records import Figure, Pictures, Strip
from proxmatch.report.folder import inside
from proxmatch.report.method_styles import styles

QUALITIES = (92, 80)
FIGURES = 5_000_000  # bytes of all figures together before they are compressed
WIDEST = 1800  # pixels of a compressed figure
PIXELS = 40_000_000  # of any picture that is opened

Drawn = list[tuple[Figure, str]]


@dataclass(frozen=True)
class Album:
    """The pictures of the page."""

    strips: tuple[tuple[Strip, int], ...]  # each with the place of its file in files
    truth: dict[str, int]  # place of the file, by image
    degraded: dict[str, dict[str, int]]  # the same, by problem and image
    files: tuple[str, ...]  # data URIs
    notes: tuple[str, ...]  # what was changed or left out, in sentences


def uri(content: bytes, kind: str = "png") -> str:
    """A data URI."""
    return f"data:image/{kind};base64,{base64.b64encode(content).decode('ascii')}"


def figures(folder: Path, described: Iterable[Figure]) -> tuple[Drawn, list[str]]:
    """Each figure with its data URI, and what was done to make them fit."""
    described = list(described)
    contents = [checked_png(inside(folder, f"figures/{f.name}.png")) for f in described]
    if sum(map(len, contents)) <= FIGURES:
        return [(f, uri(c)) for f, c in zip(described, contents, strict=True)], []
    small = [(f, uri(_webp(c), "webp")) for f, c in zip(described, contents, strict=True)]
    return small, ["The figures are compressed on this page; figures/ has them in full."]


def album(folder: Path, pictures: Pictures, budget: int) -> Album:
    """The pictures that are there, in at most ``budget`` bytes of data URIs.

    Raises:
        DataError: a file is not a PNG file of the right size, or lies outside the folder.
    """
    size, frames = pictures.size, len(pictures.frames)
    single = _Shelf(folder, (size, size))
    truth = {i: k for i, name in pictures.truth.items() if (k := single.put(name)) is not None}
    degraded = {
        problem: {i: k for i, name in of.items() if (k := single.put(name)) is not None}
        for problem, of in pictures.degraded.items()
    }
    shelf = _Shelf(folder, (size * frames, 2 * size))
    wanted = sorted(pictures.entries, key=_importance(pictures))
    placed = [(strip, place) for strip in wanted if (place := shelf.put(strip.file)) is not None]
    missing = len(wanted) - len(placed)
    notes = [f"{missing} strips of pictures are missing in the folder."] if missing else []
    fixed = [uri(content) for content in single.contents]
    rest = budget - sum(map(len, fixed))
    encoded, note = _encode(shelf.contents, rest)
    kept = _that_fit(encoded, rest)
    if note:
        notes.append(note)
    if kept < len(encoded):
        notes.append(
            f"{len(encoded) - kept} of {len(encoded)} strips of pictures are left out to keep the "
            "page small; pictures/ has them."
        )
    offset = len(fixed)
    return Album(
        strips=tuple((strip, offset + place) for strip, place in placed if place < kept),
        truth=truth,
        degraded=degraded,
        files=(*fixed, *encoded[:kept]),
        notes=tuple(notes),
    )


def crop(data_uri: str, column: int, row: int, size: int) -> str:
    """One picture of a strip, as a PNG data URI."""
    with Image.open(io.BytesIO(base64.b64decode(data_uri.partition(",")[2]))) as strip:
        left, top = column * size, row * size
        part = strip.convert("RGB").crop((left, top, left + size, top + size))
    file = io.BytesIO()
    part.save(file, "PNG")
    return uri(file.getvalue())


class _Shelf:
    """Files of one size, each once."""

    def __init__(self, folder: Path, shape: tuple[int, int]) -> None:
        self.folder, self.shape = folder, shape
        self.places: dict[Path, int] = {}
        self.contents: list[bytes] = []

    def put(self, name: str) -> int | None:
        """Its place; None if there is no such file."""
        path = inside(self.folder, name)
        if not path.is_file():
            return None
        if path not in self.places:
            self.contents.append(checked_png(path, self.shape))
            self.places[path] = len(self.contents) - 1
        return self.places[path]


def checked_png(path: Path, shape: tuple[int, int] | None = None) -> bytes:
    """A PNG file, of (width, height) pixels where they are given."""
    content = path.read_bytes()
    try:
        with Image.open(io.BytesIO(content), formats=("PNG",)) as image:
            if shape is not None and image.size != shape:
                raise DataError(f"{path} has {image.size} pixels, {shape} were expected")
            if image.width * image.height > PIXELS:
                raise DataError(f"{path} has {image.size} pixels: too many for a page")
            image.verify()
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} is not a PNG file, or damaged: make it again") from None
    return content


def _encode(contents: list[bytes], budget: int) -> tuple[list[str], str]:
    """All strips at the best quality that fits, or else at the lowest."""
    encoded, note = [uri(content) for content in contents], ""
    for quality in QUALITIES:
        if sum(map(len, encoded)) <= budget:
            break
        encoded = [uri(_jpeg(content, quality), "jpeg") for content in contents]
        note = (
            f"Strips of pictures are JPEG files of quality {quality} on this page: error maps are "
            "approximate. pictures/ has them without loss."
        )
    return encoded, note


def _that_fit(encoded: list[str], budget: int) -> int:
    total = 0
    for count, text in enumerate(encoded):
        total += len(text)
        if total > budget:
            return count
    return len(encoded)


def _importance(pictures: Pictures) -> Callable[[Strip], tuple[int, ...]]:
    """A sort key: what the story needs comes first."""
    looks = styles(strip.method for strip in pictures.entries)
    order = {name: place for place, name in enumerate(looks)}
    image = {name: place for place, name in enumerate(pictures.images)}
    pairs = dict.fromkeys((strip.family, strip.problem) for strip in pictures.entries)
    block = {pair: place for place, pair in enumerate(pairs)}

    def key(strip: Strip) -> tuple[int, ...]:
        return (
            image.get(strip.image, len(image)) > 0,
            looks[strip.method].control,
            strip.relaxation != "paper",
            strip.set,
            image.get(strip.image, len(image)),
            block[strip.family, strip.problem],
            order[strip.method],
            strip.n,
        )

    return key


def _jpeg(content: bytes, quality: int) -> bytes:
    file = io.BytesIO()
    with Image.open(io.BytesIO(content)) as image:
        image.convert("RGB").save(file, "JPEG", quality=quality, subsampling=0)
    return file.getvalue()


def _webp(content: bytes) -> bytes:
    file = io.BytesIO()
    with Image.open(io.BytesIO(content)) as image:
        picture = image.convert("RGB")
        picture.thumbnail((WIDEST, 4 * WIDEST))
        picture.save(file, "WEBP", quality=85)
    return file.getvalue()
