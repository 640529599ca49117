from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
import torch

from proxmatch.data import encode_image, read_image, stored
from proxmatch.errors import DataError


def picture(seed: int = 0) -> bytes:
    return encode_image(torch.rand(3, 6, 5, generator=torch.Generator().manual_seed(seed)))


def archive(path: Path, members: dict[str, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def test_pictures_of_an_archive_are_those_that_went_in(tmp_path: Path) -> None:
    contents = {f"set/{name}.png": picture(n) for n, name in enumerate("bca")}
    path = archive(tmp_path / "a.tar", {**contents, "set/readme.md": b"x", "set/.hid.png": b"y"})
    found = stored([path])
    assert [source.stem for source in found] == ["b", "c", "a"]
    for source, content in zip(found, contents.values(), strict=True):
        assert source.read() == content
        (tmp_path / "same.png").write_bytes(content)
        same = read_image(tmp_path / "same.png")
        assert torch.equal(source.picture().pixels, same.pixels)
        assert source.picture().digest == same.digest


def test_paths_and_links_in_an_archive_lead_nowhere(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tar", {"../../up.png": picture(), "/abs.png": picture(1)})
    with tarfile.open(path, "a") as tar:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE):
            member = tarfile.TarInfo("link.png")
            member.type, member.linkname = kind, "/etc/passwd"
            tar.addfile(member)
    assert [source.name for source in stored([path])] == ["up.png", "abs.png"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tar"]


def test_lists_of_files(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("1.png", "2.png"):
        (tmp_path / "in" / name).write_bytes(picture())
    (tmp_path / "list.txt").write_text("in/2.png\n\nin/1.png\n")
    assert [source.name for source in stored([tmp_path / "list.txt"])] == ["2.png", "1.png"]


@pytest.mark.parametrize("content", [b"", b"\n", b"nowhere.png\n", b"\xff\xfe"])
def test_lists_that_lead_nowhere_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "list.txt").write_bytes(content)
    with pytest.raises(DataError):
        stored([tmp_path / "list.txt"])


def test_archives_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    compressed = archive(tmp_path / "a.tar", {"a.png": picture()}, "w:gz")
    (tmp_path / "b.tar").write_bytes(b"no archive at all" * 100)
    empty = archive(tmp_path / "c.tar", {"readme.md": b""})
    for path in (compressed, tmp_path / "b.tar", empty):
        with pytest.raises(DataError, match=path.name):
            stored([path])


def test_an_archive_that_shrank_since(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tar", {"a.png": picture()})
    [source] = stored([path])
    path.write_bytes(path.read_bytes()[:600])
    with pytest.raises(DataError, match="ends before"):
        source.picture()
