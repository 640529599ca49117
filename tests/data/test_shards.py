"""Pictures in tar archives and HDF5 files; the truth is what is in the files beside them."""

from __future__ import annotations

import contextlib
import io
import itertools
import tarfile
from pathlib import Path

import deepinv
import h5py
import numpy as np
import pytest
import torch

from proxmatch.data import encode_image, read_file
from proxmatch.data.shards import stored_pictures
from proxmatch.errors import DataError


def archive(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def picture(seed: int = 0, channels: int = 3) -> bytes:
    generator = torch.Generator().manual_seed(seed)
    return encode_image(torch.rand(channels, 6, 5, generator=generator), bits=16)


def test_a_member_is_the_file_that_was_packed(tmp_path: Path) -> None:
    members = {f"deep/{k}.png": picture(k) for k in range(3)}
    path = archive(tmp_path / "shard.tar", {"0.cls": b"7", **members, "0.json": b"{}"})
    found = list(stored_pictures([path]))
    assert [one.name for one in found] == ["0.png", "1.png", "2.png"]
    for one, content in zip(found, members.values(), strict=True):
        (tmp_path / "alone.png").write_bytes(content)
        for channels in (None, 1, 3):
            alone = read_file(tmp_path / "alone.png", channels)
            read = one.read(channels)
            torch.testing.assert_close(read.pixels, alone.pixels, rtol=0, atol=0)
            assert (read.bits, read.digest, one.digest()) == (16, alone.digest, alone.digest)
            assert read.path.name == one.name
    assert sorted(p.name for p in tmp_path.iterdir()) == ["alone.png", "shard.tar"]


def test_names_lead_nowhere_and_links_are_passed_over(tmp_path: Path) -> None:
    path = archive(
        tmp_path / "shard.tar",
        {"../../up.png": picture(), "/etc/root.png": picture(), "a\\..\\back.png": picture()},
    )
    with tarfile.open(path, "a") as tar:
        for kind, name in (
            (tarfile.SYMTYPE, "link.png"),
            (tarfile.LNKTYPE, "hard.png"),
            (tarfile.CHRTYPE, "device.png"),
            (tarfile.FIFOTYPE, "pipe.png"),
            (tarfile.DIRTYPE, "folder.png"),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            tar.addfile(member)
    assert [one.name for one in stored_pictures([path])] == ["up.png", "root.png", "back.png"]


@pytest.mark.parametrize("name", ["a\nb.png", "x" * 300 + ".png", "a\0b.png"])
def test_names_that_are_none(tmp_path: Path, name: str) -> None:
    with tarfile.open(tmp_path / "s.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("short.png")
        member.pax_headers = {"path": name}
        member.size = 3
        tar.addfile(member, io.BytesIO(b"abc"))
    with pytest.raises(DataError, match="is not a name for a file"):
        list(stored_pictures([tmp_path / "s.tar"]))


def test_archives_that_announce_more_than_they_hold(tmp_path: Path) -> None:
    member = tarfile.TarInfo("big.png")
    member.size = 10**15
    (tmp_path / "s.tar").write_bytes(member.tobuf() + picture())
    with pytest.raises(DataError, match="more bytes than the archive"):
        list(stored_pictures([tmp_path / "s.tar"]))
    sparse = tarfile.TarInfo("sparse.png")  # of a size that is nowhere on the disk
    sparse.type, sparse.size = tarfile.GNUTYPE_SPARSE, 512
    (tmp_path / "t.tar").write_bytes(sparse.tobuf(tarfile.GNU_FORMAT) + bytes(2048))
    with pytest.raises(DataError, match=r"no picture in .*t\.tar"):
        list(stored_pictures([tmp_path / "t.tar"]))


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.tar", b"no archive" * 99, "not a tar archive"),
        ("a.tar.gz", b"", "is compressed"),
        ("a.h5", b"no data", "not an HDF5 file"),
    ],
)
def test_what_is_none(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=reason):
        list(stored_pictures([tmp_path / name]))


def test_an_archive_is_read_to_its_end_or_refused(tmp_path: Path) -> None:
    """A damaged header, which tarfile takes for the end, does not hide the pictures after it."""
    path = archive(tmp_path / "s.tar", {f"{k}.png": picture(k) for k in range(4)})
    content = path.read_bytes()
    members = list(stored_pictures([path]))
    starts = [member.offset - tarfile.BLOCKSIZE for member in members]
    end = members[-1].offset + -(-members[-1].size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE

    def refused(damaged: bytes) -> None:
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"s\.tar is not a tar archive, or is damaged"):
            list(stored_pictures([path]))

    for start in starts:
        for place in (start, start + 150):  # in its name, and in its checksum
            changed = bytearray(content)
            changed[place] ^= 1
            refused(bytes(changed))
        refused(content[:start] + bytes(tarfile.BLOCKSIZE) + content[start + tarfile.BLOCKSIZE :])
    for cut in (starts[2], starts[2] + 100, end, end + tarfile.BLOCKSIZE - 1):
        refused(content[:cut])
    refused(content + content)
    path.write_bytes(content[: end + tarfile.BLOCKSIZE])
    assert len(list(stored_pictures([path]))) == 4


@pytest.mark.parametrize("how", ["header", "extended"])
@pytest.mark.parametrize("name", ["a.png", "a.txt"])
def test_a_member_of_negative_size(tmp_path: Path, how: str, name: str) -> None:
    """The member after it would be itself, again and again."""
    member = tarfile.TarInfo(name)
    if how == "header":
        member.size = -512
        header = member.tobuf(tarfile.GNU_FORMAT)
    else:
        member.pax_headers = {"size": "-1536"}
        header = member.tobuf(tarfile.PAX_FORMAT)
    (tmp_path / "s.tar").write_bytes(header + bytes(1024))
    found = stored_pictures([tmp_path / "s.tar"])
    with pytest.raises(DataError, match=r"s\.tar is not a tar archive, or is damaged"):
        list(itertools.islice(found, 1000))


def test_headers_of_headers_of_headers(tmp_path: Path) -> None:
    member = tarfile.TarInfo("a.png")
    member.type = tarfile.XHDTYPE
    (tmp_path / "s.tar").write_bytes(member.tobuf() * 5000 + bytes(1024))
    with pytest.raises(DataError, match="damaged"):
        list(stored_pictures([tmp_path / "s.tar"]))


def test_a_truncated_member_is_told_when_it_is_read(tmp_path: Path) -> None:
    [one] = stored_pictures([archive(tmp_path / "s.tar", {"a.png": picture()[:60]})])
    with pytest.raises(DataError, match="damaged"):
        one.read(3)


def test_what_deepinv_writes_is_read_as_deepinv_reads_it(tmp_path: Path) -> None:
    images = torch.utils.data.TensorDataset(torch.rand(5, 1, 8, 8))
    physics = deepinv.physics.Denoising(deepinv.physics.GaussianNoise(0.3))
    path = deepinv.datasets.generate_dataset(
        images, physics, tmp_path, test_dataset=images, train_datapoints=2, verbose=False
    )
    expected = deepinv.datasets.HDF5Dataset(path, train=False)
    for clean in (False, True):
        found = list(stored_pictures([Path(path)], clean=clean))
        assert len(found) == 5
        assert found[3].name == f"{Path(path).stem}-test-000003.h5"
        for k, one in enumerate(found):
            read = one.read(None)
            assert torch.equal(read.pixels, expected[k][0 if clean else 1])
            assert read.digest == one.digest()
    assert found[0].read(3).pixels.shape == (3, 8, 8)
    expected.close()


@pytest.mark.parametrize("trick", ["external", "soft", "raw", "virtual", "huge", "volumes", "text"])
def test_hdf5_files_that_are_refused(tmp_path: Path, trick: str) -> None:
    (tmp_path / "secret").write_bytes(bytes(range(64)))
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["y_test"] = np.ones((1, 1, 8, 8), np.float32)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        if trick == "external":
            file["y_test"] = h5py.ExternalLink("other.h5", "y_test")
        elif trick == "soft":
            file["inner"] = np.ones((1, 1, 8, 8), np.float32)
            file["y_test"] = h5py.SoftLink("/inner")
        elif trick == "raw":
            raw = [(str(tmp_path / "secret"), 0, 64)]
            file.create_dataset("y_test", (1, 1, 8, 8), np.uint8, external=raw)
        elif trick == "virtual":
            layout = h5py.VirtualLayout((1, 1, 8, 8), np.float32)
            layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "y_test", (1, 1, 8, 8))
            file.create_virtual_dataset("y_test", layout)
        elif trick == "huge":
            file.create_dataset("y_test", (10**12, 1, 8, 8), np.float32, chunks=(1, 1, 8, 8))
        elif trick == "volumes":
            file["y_test"] = np.ones((1, 1, 8, 8, 8), np.float32)
        else:
            file["y_test"] = np.array([["x"]], dtype=h5py.string_dtype())
    with pytest.raises(DataError, match=r"no array of this file|more than the file|no pictures"):
        list(stored_pictures([tmp_path / "a.h5"]))


@pytest.mark.parametrize(
    "place", [b"OHDR", b"TREE", b"y_test", bytes([8, 0, 0, 0, 0, 0, 0, 0] * 3)]
)
def test_hdf5_files_that_are_damaged(tmp_path: Path, place: bytes) -> None:
    """Whatever h5py raises for it."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("y_test", data=np.ones((2, 1, 8, 8), np.float32), compression="gzip")
    content = path.read_bytes()
    start = content.find(place)
    for offset in range(40):
        changed = bytearray(content)
        changed[start + offset] ^= 0xFF
        path.write_bytes(changed)
        with contextlib.suppress(DataError):  # and nothing else
            for row in stored_pictures([path]):
                row.read(None)


def test_an_hdf5_file_is_checked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for every row: the size of all its parts takes time in proportion to their number."""
    pictures = np.random.default_rng(0).random((9, 1, 8, 8), np.float32)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("y_test", data=pictures, chunks=(1, 1, 8, 8), compression="gzip")
    asked: list[int] = []
    size = h5py.Dataset.nbytes

    def counted(array: h5py.Dataset) -> int:
        asked.append(1)
        return int(size.fget(array))

    monkeypatch.setattr(h5py.Dataset, "nbytes", property(counted))
    found = [row.read(None).pixels.numpy() for row in stored_pictures([tmp_path / "a.h5"])]
    np.testing.assert_array_equal(found, pictures)
    assert len(asked) == 1
