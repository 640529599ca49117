"""Where the bytes of a picture come from: a file of its own, a tar archive, or an HDF5 file.

- ``.tar``, as WebDataset has it: its regular files with the ending of a picture. Each is read from
  its place in the archive, and nothing is unpacked to the disk. Of its name only the last part
  counts; links, folders, sparse files and everything else are passed over.
- ``.h5`` and ``.hdf5``, as ``deepinv.datasets.generate_dataset`` writes them: the measurements
  ``y_SPLIT``, or the images ``x_SPLIT``, ``(N, C, H, W)``. The split is ``test`` if there is one.
  Data in another file are refused, which deepinv's own reader would follow.
"""

from __future__ import annotations

import hashlib
import math
import tarfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch

from proxmatch.data.any_form import WHITE, converted
from proxmatch.data.decoding import MAX_PIXELS, SUFFIXES
from proxmatch.data.images import ImageFile, decode_image, image_files, read_file
from proxmatch.data.layouts import is_picture
from proxmatch.errors import DataError

HDF5 = (".h5", ".hdf5")
COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst", ".zip")
#: Largest picture file in an archive, and largest part of an HDF5 file that is read at once.
MAX_BYTES = 12 * MAX_PIXELS
#: What tarfile and h5py raise for damaged files.
DAMAGED = (
    ArithmeticError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    tarfile.TarError,
)
#: Bytes behind the end of an archive that are looked at together.
PIECE = 1 << 16
#: An upper bound of HDF5's compression ratio (deflate: 1032).
DENSEST = 1100
#: Longest name of a file that every file system takes, in bytes.
LONGEST_NAME = 200


@dataclass(frozen=True)
class StoredPicture(ABC):
    """A picture that has not been read."""

    path: Path  # the file that holds it

    @property
    @abstractmethod
    def name(self) -> str:
        """A file name for it, without a folder."""

    @abstractmethod
    def read(self, channels: int | None) -> ImageFile:
        """The picture, with this many channels or its own; raises DataError if it is damaged."""

    @abstractmethod
    def digest(self) -> str:
        """SHA-256 of its bytes; raises DataError if they are not there."""

    def __str__(self) -> str:
        """Where it is."""
        return f"{self.name} in {self.path}"


@dataclass(frozen=True)
class PictureFile(StoredPicture):
    """A file of its own."""

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.path.name

    def read(self, channels: int | None) -> ImageFile:
        """The picture."""
        return read_file(self.path, channels)

    def digest(self) -> str:
        """SHA-256 of its bytes."""
        if not self.path.is_file():
            raise DataError("no such file, or not a regular one")
        try:
            with self.path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise DataError(f"cannot be opened: {error.strerror}") from None

    def __str__(self) -> str:
        """Where it is."""
        return str(self.path)


@dataclass(frozen=True)
class TarMember(StoredPicture):
    """A file in an archive that is not compressed."""

    member: str
    offset: int  # of its first byte
    size: int  # in bytes

    @property
    def name(self) -> str:
        """The last part of its name in the archive."""
        return self.member

    def read(self, channels: int | None) -> ImageFile:
        """The picture."""
        return decode_image(self._content(), self.path / self.member, channels)

    def digest(self) -> str:
        """SHA-256 of its bytes."""
        return hashlib.sha256(self._content()).hexdigest()

    def _content(self) -> bytes:
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                return file.read(self.size)
        except OSError as error:
            raise DataError(f"cannot be opened: {error.strerror}") from None


@dataclass(frozen=True)
class HDF5Row(StoredPicture):
    """An image or a measurement in an HDF5 file."""

    field: str  # the array that holds it
    index: int  # its number there

    @property
    def name(self) -> str:
        """A name made of the file, the split and the number."""
        return f"{self.path.stem}-{self.field.partition('_')[2]}-{self.index:06d}.h5"

    def read(self, channels: int | None) -> ImageFile:
        """The picture."""
        found = self._content()
        if found.dtype.kind == "f":
            with np.errstate(over="ignore"):  # not finite then
                pixels, bits = torch.from_numpy(found.astype(np.float32)), 16
            if not pixels.isfinite().all():
                raise DataError("its values are not finite")
        else:
            pixels = torch.from_numpy(found)
            pixels, bits = pixels.float() / WHITE[pixels.dtype], 8 * found.dtype.itemsize
        digest = hashlib.sha256(found.tobytes()).hexdigest()
        return ImageFile(
            self.path / self.name, converted(pixels, channels), 8 if bits == 8 else 16, digest
        )

    def digest(self) -> str:
        """SHA-256 of its bytes."""
        return hashlib.sha256(self._content().tobytes()).hexdigest()

    def _content(self) -> Any:
        try:
            with _opened(self.path) as file:
                return _field(file, self.field)[self.index]
        except DAMAGED as error:
            raise DataError(f"cannot be read: {error}") from None


def stored_pictures(places: Iterable[Path], *, clean: bool = False) -> Iterator[StoredPicture]:
    """The pictures of files, folders, archives and HDF5 files, without reading one.

    Args:
        places: each a picture, a folder of pictures, a ``.tar`` or an HDF5 file.
        clean: of an HDF5 file, the images and not the measurements.

    Raises:
        DataError: a place does not exist, holds no picture, or cannot be read.

    Example:
        >>> from proxmatch.data import encode_image
        >>> _ = Path("a.png").write_bytes(encode_image(torch.ones(1, 4, 6)))
        >>> with tarfile.open("shard.tar", "w") as archive:
        ...     archive.add("a.png", "deep/down/a.png")
        >>> [picture] = stored_pictures([Path("shard.tar")])
        >>> picture.name, picture.read(3).pixels.shape
        ('a.png', torch.Size([3, 4, 6]))
    """
    for place in places:
        name = place.name.lower()
        if name.endswith(COMPRESSED) and place.is_file():
            raise DataError(
                f"{place} is compressed, so that its pictures cannot be read one by one: unpack "
                "it, or pack it as a plain .tar"
            )
        if name.endswith(".tar") and place.is_file():
            yield from _of_archive(place)
        elif name.endswith(HDF5) and place.is_file():
            yield from _of_hdf5(place, "x" if clean else "y")
        else:
            yield from map(PictureFile, image_files([place]))


def _of_archive(path: Path) -> Iterator[TarMember]:
    size, found = path.stat().st_size, False
    for member in _members(path):
        name = PurePosixPath(member.name.replace("\\", "/")).name
        if not member.isreg() or member.issparse() or not is_picture(name):
            continue
        if not name.isprintable() or len(name.encode()) > LONGEST_NAME:
            raise DataError(f"{path}: {name[:40]!r} ... is not a name for a file: rename it")
        if member.size > min(MAX_BYTES, size - member.offset_data):
            raise DataError(f"{path}: {name} has more bytes than the archive, or too many")
        found = True
        yield TarMember(path, name, member.offset_data, member.size)
    if not found:
        raise DataError(f"no picture in {path} (endings {', '.join(SUFFIXES)})")


def _members(path: Path) -> Iterator[tarfile.TarInfo]:
    """All members of an archive.

    ``tarfile`` takes a damaged header for the end, and what follows would be lost without a word.
    """
    try:
        with tarfile.open(path, "r:") as archive:
            while (member := archive.next()) is not None:
                if member.size < 0:  # the next header would be before this one, without end
                    raise ValueError("a member of negative size")
                archive.members.clear()  # type: ignore[attr-defined] # it would keep them all
                yield member
            _check_end(path, archive.offset)
    except DAMAGED as error:
        raise DataError(f"{path} is not a tar archive, or is damaged: {error}") from error


def _check_end(path: Path, end: int) -> None:
    """Raise ValueError unless a block of zeros, and nothing but zeros, is at the end."""
    with path.open("rb") as file:
        file.seek(end)
        piece = file.read(PIECE)
        if len(piece) < tarfile.BLOCKSIZE:
            raise ValueError("its end is missing")
        while piece:
            if any(piece):
                raise ValueError(f"no header of a member at byte {end}, and more after it")
            piece = file.read(PIECE)


def _of_hdf5(path: Path, kind: str) -> Iterator[HDF5Row]:
    try:
        with _opened(path) as file:
            fields = sorted(name for name in file if name.startswith(f"{kind}_"))
            if f"{kind}_test" in fields:
                fields = [f"{kind}_test"]
            if len(fields) != 1:
                there = ", ".join(file) or "nothing"
                raise DataError(
                    f"there is no {kind}_test, and not one {kind}_SPLIT alone (it has {there}); "
                    "deepinv.datasets.generate_dataset writes x_test and y_test"
                )
            array = _field(file, fields[0])
            # Asked once: it takes the longer, the more parts there are.
            if array.nbytes > DENSEST * array.id.get_storage_size():
                raise DataError(
                    f"{fields[0]} announces {array.nbytes:.1e} bytes, more than the file can hold"
                )
            number = len(array)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except DAMAGED as error:
        raise DataError(f"{path} is not an HDF5 file, or is damaged: {error}") from error
    yield from (HDF5Row(path, fields[0], index) for index in range(number))


def _opened(path: Path) -> Any:
    import h5py

    return h5py.File(path, "r")


def _field(file: Any, name: str) -> Any:
    """An array of pictures that is in this file and nowhere else, in parts that can be read."""
    import h5py

    inside = isinstance(file.get(name, getlink=True), h5py.HardLink)
    array = file[name] if inside else None
    if not isinstance(array, h5py.Dataset) or array.external or array.is_virtual:
        raise DataError(f"{name} is no array of this file")
    kinds = (np.float32, np.float64, np.uint8, np.uint16)
    if array.ndim != 4 or array.shape[1] not in (1, 3) or array.dtype not in kinds:
        raise DataError(
            f"{name} holds no pictures (N, 1 or 3, H, W) of 8 or 16 bits or floating point, but "
            f"{array.shape} of {array.dtype}"
        )
    if math.prod(array.shape[2:]) > MAX_PIXELS:
        raise DataError(f"{name} has pictures of more than {MAX_PIXELS // 10**6} million pixels")
    if math.prod(array.chunks or (0,)) * array.dtype.itemsize > MAX_BYTES:
        raise DataError(f"{name} is compressed in parts of more than {MAX_BYTES // 10**6} MB")
    return array
