from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from proxmatch.data import layouts
from proxmatch.data.layouts import Split
from proxmatch.errors import DataError

SPLITS: tuple[Split, ...] = ("train", "validation", "test")


def touch(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()
    return folder


def test_natural_order_of_what_looks_like_a_picture(tmp_path: Path) -> None:
    names = ["img1.png", "img2.JPG", "img10.jpeg", "img10.tif", "img100.webp"]
    touch(tmp_path, *reversed(names), ".img3.png", "notes.txt", "Thumbs.db", "png")
    touch(tmp_path / "folder.png", "img4.png")
    assert layouts.find(tmp_path, None).names == names


def test_equal_numbers_have_an_order_of_their_own(tmp_path: Path) -> None:
    touch(tmp_path, "a1.png", "a001.png", "a01.png")
    assert layouts.find(tmp_path, None).names == ["a001.png", "a01.png", "a1.png"]


@given(st.integers(3, 200))
def test_splits_are_disjoint_and_complete(
    tmp_path_factory: pytest.TempPathFactory, count: int
) -> None:
    root = touch(tmp_path_factory.mktemp("split"), *[f"{k}.png" for k in range(count)])
    parts = [layouts.find(root, split).names for split in SPLITS]
    assert [name for part in parts for name in part] == [f"{k}.png" for k in range(count)]
    assert len(parts[1]) == len(parts[2]) == max(1, round(count / 10))


def test_celeba(tmp_path: Path) -> None:
    faces = touch(tmp_path / "img_align_celeba", *[f"00000{k}.jpg" for k in range(1, 8)])
    lines = ["000003.jpg 0", "000001.jpg 1", "000002.jpg  2", "", "000004.jpg 0", "000009.jpg 0"]
    (tmp_path / "list_eval_partition.txt").write_text("\n".join(lines))
    found = {split: layouts.find(tmp_path, split) for split in SPLITS}
    assert all(layout.folder == faces and layout.aligned for layout in found.values())
    assert found["train"].names == ["000003.jpg", "000004.jpg"]
    assert found["validation"].names == ["000001.jpg"]
    assert found["test"].names == ["000002.jpg"]
    assert len(layouts.find(tmp_path, None).names) == 7


def test_celeba_needs_a_sound_partition_to_split(tmp_path: Path) -> None:
    touch(tmp_path / "img_align_celeba", "000001.jpg")
    partition = tmp_path / "list_eval_partition.txt"
    with pytest.raises(DataError, match=r"cannot read .*list_eval_partition\.txt"):
        layouts.find(tmp_path, "test")
    partition.write_text("000001.jpg 0\n000002.jpg 3\n")
    with pytest.raises(DataError, match="line 2"):
        layouts.find(tmp_path, "test")
    partition.write_text("000001.jpg 0\n")
    with pytest.raises(DataError, match="no image for test"):
        layouts.find(tmp_path, "test")


def test_brecahad(tmp_path: Path) -> None:
    images = touch(tmp_path / "images", "Case_1.tif", "Case_2.tif")
    layout = layouts.find(tmp_path, None)
    assert (layout.folder, layout.aligned) == (images, False)
    assert layout.names == ["Case_1.tif", "Case_2.tif"]
    touch(tmp_path, "mine.png")  # a folder's own pictures go first
    assert layouts.find(tmp_path, None).names == ["mine.png"]


def test_nothing_to_find(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no folder"):
        layouts.find(tmp_path / "missing", None)
    file = touch(tmp_path, "a.png") / "a.png"
    with pytest.raises(DataError, match="is a file"):
        layouts.find(file, None)
    touch(tmp_path / "outer" / "inner", "a.png")
    with pytest.raises(DataError, match="subfolders are not searched"):
        layouts.find(tmp_path / "outer", None)
    two = touch(tmp_path / "two", "a.png", "b.png")
    with pytest.raises(DataError, match="cannot be split in three"):
        layouts.find(two, "train")
