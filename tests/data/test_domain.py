from __future__ import annotations

import json
import os
import pickle
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, strategies as st
from PIL import Image
from skimage.transform import downscale_local_mean
from torch.utils.data import DataLoader

from proxmatch.data import ImageDomain
from proxmatch.errors import DataError, InputError, SkippedFilesWarning

Array = npt.NDArray[np.uint8]


def picture(folder: Path, name: str, height: int, width: int, seed: int = 0) -> Array:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng([seed, height, width])
    pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(folder / name)
    return pixels


def chw(values: npt.NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).float().permute(2, 0, 1)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_center_crops_in_natural_order(tmp_path: Path) -> None:
    ten = picture(tmp_path, "img10.png", 21, 30)
    two = picture(tmp_path, "img2.png", 16, 16)
    domain = ImageDomain(tmp_path, 16, crop="center")
    assert [domain.name(k) for k in range(len(domain))] == ["img2.png", "img10.png"]
    assert domain[0].dtype == torch.float32
    assert torch.equal(domain[0], chw(two) / 255)
    assert torch.equal(domain[1], chw(ten[2:18, 7:23]) / 255)
    assert torch.equal(domain.tensor(), torch.stack([domain[0], domain[1]]))
    assert torch.equal(domain.tensor([-1]), domain[1][None])
    assert domain.tensor([]).shape == (0, 3, 16, 16)
    with pytest.raises(IndexError):
        domain[2]


@given(
    st.integers(8, 40), st.integers(8, 40), st.integers(3, 8), st.sampled_from(["grid", "center"])
)
def test_grid_is_centered_and_covers_without_overlap(
    tmp_path_factory: pytest.TempPathFactory, height: int, width: int, size: int, crop: Any
) -> None:
    root = tmp_path_factory.mktemp("grid")
    pixels = chw(picture(root, "a.png", height, width)) / 255
    domain = ImageDomain(root, size, crop=crop)
    seen = torch.zeros(height, width)
    for index, cut in enumerate(domain):  # type: ignore[arg-type, var-annotated]
        if crop == "grid":
            top, left = map(int, domain.name(index).removeprefix("a.png@").split(","))
        else:
            top, left = (height - size) // 2, (width - size) // 2
        assert torch.equal(cut, pixels[:, top : top + size, left : left + size])
        seen[top : top + size, left : left + size] += 1
    assert seen.max() == 1
    rows, columns = (height // size, width // size) if crop == "grid" else (1, 1)
    assert len(domain) == rows * columns
    used = seen.nonzero()
    for axis, (side, count) in enumerate([(height, rows), (width, columns)]):
        before, after = int(used[:, axis].min()), side - 1 - int(used[:, axis].max())
        assert 0 <= after - before <= 1
        assert before + after == side - count * size


@pytest.mark.parametrize("factor", [1, 2, 3, 5])
def test_downscaling_is_scikit_images_local_mean(tmp_path: Path, factor: int) -> None:
    pixels = picture(tmp_path, "a.png", 48, 59)
    height, width = 48 // factor * factor, 59 // factor * factor
    small = downscale_local_mean(pixels[:height, :width] / 255, (factor, factor, 1))
    domain = ImageDomain(tmp_path, 8, downscale=factor)
    top, left = (height // factor) % 8 // 2, (width // factor) % 8 // 2
    assert domain.name(0) == f"a.png@{top},{left}"
    assert torch.allclose(domain[0], chw(small[top : top + 8, left : left + 8]), atol=1e-6)
    assert len(domain) == (height // factor // 8) * (width // factor // 8)


def test_16_bits_and_gray(tmp_path: Path) -> None:
    gray = np.random.default_rng(0).integers(0, 65536, (8, 8), dtype=np.uint16)
    Image.fromarray(gray).save(tmp_path / "a.png")
    expected = torch.from_numpy((gray / 65535).astype(np.float32))
    assert torch.allclose(ImageDomain(tmp_path, 8)[0], expected.expand(3, 8, 8), atol=1e-7)
    assert torch.allclose(ImageDomain(tmp_path, 8, channels=1)[0], expected[None], atol=1e-7)


def test_white_stays_white(tmp_path: Path) -> None:
    Image.fromarray(np.full((160, 160), 65535, np.uint16)).save(tmp_path / "a.png")
    assert float(ImageDomain(tmp_path, 8, downscale=20).tensor().max()) == 1  # sums past 2^24
    Image.new("RGB", (24, 24), "white").save(tmp_path / "a.png")
    assert torch.equal(ImageDomain(tmp_path, 8, channels=1, downscale=3)[0], torch.ones(1, 8, 8))


def test_colors_to_gray(tmp_path: Path) -> None:
    pixels = picture(tmp_path, "a.png", 8, 8)
    found = ImageDomain(tmp_path, 8, channels=1)[0]
    expected = torch.from_numpy(np.asarray(Image.fromarray(pixels).convert("L")) / 255)
    assert found.shape == (1, 8, 8)
    assert float((found[0] - expected).abs().max()) < 1 / 255


def position(pixels: torch.Tensor, cut: torch.Tensor) -> tuple[int, int] | None:
    """Where in ``pixels`` a crop lies, by search."""
    size = cut.shape[-1]
    windows = pixels.unfold(1, size, 1).unfold(2, size, 1)
    found = (windows == cut[:, None, None]).all(-1).all(-1).all(0).nonzero().tolist()
    return tuple(found[0]) if found else None


def test_samples_are_crops_of_the_pictures_and_their_mirror_images(tmp_path: Path) -> None:
    pictures = [chw(picture(tmp_path, f"{k}.png", 11, 13, seed=k)) / 255 for k in range(3)]
    drawn = ImageDomain(tmp_path, 8).sample(600, generator())
    assert drawn.shape == (600, 3, 8, 8)
    count: dict[tuple[int, bool, Any], int] = {}
    for cut in drawn:
        places = [
            (index, mirrored, place)
            for index, pixels in enumerate(pictures)
            for mirrored in (False, True)
            if (place := position(pixels, cut.flip(-1) if mirrored else cut)) is not None
        ]
        assert len(places) == 1
        count[places[0]] = count.get(places[0], 0) + 1
    assert {place for _, _, place in count} == {(y, x) for y in range(4) for x in range(6)}
    for index in range(3):
        assert 140 < sum(n for key, n in count.items() if key[0] == index) < 260
    assert 240 < sum(n for key, n in count.items() if key[1]) < 360


def test_samples_of_aligned_pictures_stay_at_the_center(tmp_path: Path) -> None:
    picture(tmp_path / "img_align_celeba", "000001.png", 20, 15)
    domain = ImageDomain(tmp_path, 8)
    assert domain.crop == "center"
    drawn = domain.sample(20, generator())
    mirrored = [torch.equal(cut, domain[0].flip(-1)) for cut in drawn]
    assert 0 < sum(mirrored) < 20
    for cut, flipped in zip(drawn, mirrored, strict=True):
        assert flipped or torch.equal(cut, domain[0])


def test_samples_are_decided_by_the_generator_alone(tmp_path: Path) -> None:
    for k in range(5):
        picture(tmp_path, f"{k}.png", 12, 12, seed=k)
    one, other = ImageDomain(tmp_path, 8), ImageDomain(tmp_path, 8, cache_bytes=0)
    source = generator(1)
    first, second = one.sample(6, source), one.sample(6, source)
    torch.rand(3)
    again = generator(1)
    assert torch.equal(first, other.sample(6, again))
    assert torch.equal(second, other.sample(6, again))
    assert not torch.equal(first, second)


def test_layouts_decide_where_crops_lie(tmp_path: Path) -> None:
    for k in range(10):
        picture(tmp_path / "slides" / "images", f"{k}.png", 24, 40, seed=k)
        picture(tmp_path / "faces" / "img_align_celeba", f"{k}.png", 24, 40, seed=k)
    lines = [f"{k}.png {k % 3}\n" for k in range(10)]
    (tmp_path / "faces" / "list_eval_partition.txt").write_text("".join(lines))
    slides = ImageDomain(tmp_path / "slides", 8, split="test")
    assert (len(slides), slides.crop, slides.name(0)) == (15, "grid", "9.png@0,0")
    faces = ImageDomain(tmp_path / "faces", 8, split="test")
    assert [faces.name(k) for k in range(len(faces))] == ["2.png", "5.png", "8.png"]
    assert len(ImageDomain(tmp_path / "faces", 8, crop="grid")) == 150


def test_fingerprint(tmp_path: Path) -> None:
    for k in range(3):
        picture(tmp_path / "one", f"{k}.png", 9, 9, seed=k)
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    os.utime(tmp_path / "other" / "0.png", (0, 0))

    def fingerprint(**options: Any) -> str:
        return ImageDomain(tmp_path / "other", **{"size": 8, **options}).fingerprint

    first = ImageDomain(tmp_path / "one", 8).fingerprint
    assert first.startswith("3-")
    assert fingerprint() == first
    assert fingerprint(size=4, downscale=2, channels=1, crop="center") == first
    assert fingerprint(split="train") != first
    last = tmp_path / "other" / "2.png"
    data = last.read_bytes()
    last.write_bytes(data + b"\0")  # the same picture, another file
    assert fingerprint() != first
    last.write_bytes(data)
    assert fingerprint() == first
    last.rename(tmp_path / "other" / "3.png")
    assert fingerprint() != first


def test_description_is_json_and_holds_no_path(tmp_path: Path, monkeypatch: Any) -> None:
    picture(tmp_path / "mine", "a.png", 16, 16)
    monkeypatch.chdir(tmp_path / "mine")
    picture(tmp_path / "mine", "b.png", 4, 30)
    with pytest.warns(SkippedFilesWarning):
        domain = ImageDomain(".", 8)
    text = json.dumps(domain.describe())
    assert str(tmp_path) not in text
    assert json.loads(text) == {
        "folder": "mine",
        "split": None,
        "pictures": 1,
        "crops": 4,
        "fingerprint": domain.fingerprint,
        "size": 8,
        "crop": "grid",
        "downscale": 1,
        "channels": 3,
        "skipped": {"b.png": "30 x 4 pixels; a crop needs 8 x 8"},
    }
    assert repr(domain) == "ImageDomain(mine: 4 crops of 8 x 8)"


def test_what_cannot_be_used_is_left_out_with_one_warning(tmp_path: Path) -> None:
    good = picture(tmp_path, "c.png", 16, 16)
    picture(tmp_path, "small.png", 15, 15)
    picture(tmp_path, "cut.jpg", 60, 60)
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "cut.jpg").read_bytes()[:1000])
    (tmp_path / "a.png").write_text("words")
    (tmp_path / "b.png").touch()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        domain = ImageDomain(tmp_path, 8, downscale=2)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    warning = caught[0].message
    assert isinstance(warning, SkippedFilesWarning)
    assert list(warning.files) == ["a.png", "b.png", "cut.jpg", "small.png"]
    assert domain.skipped == warning.files
    for text in ("4 file(s)", "b.png: empty file", "15 x 15 pixels; a crop needs 16 x 16"):
        assert text in str(warning)
    assert str(pickle.loads(pickle.dumps(warning))) == str(warning)
    assert torch.allclose(
        domain.tensor()[0], chw(downscale_local_mean(good / 255, (2, 2, 1))), atol=1e-6
    )


def test_a_long_warning_is_cut_short() -> None:
    warning = SkippedFilesWarning({f"{k}.png": "empty file" for k in range(30)})
    assert "9.png: empty file; and 20 more" in str(warning)
    assert len(warning.files) == 30


def test_nothing_that_can_be_used(tmp_path: Path) -> None:
    picture(tmp_path, "a.png", 8, 8)
    with pytest.raises(DataError, match=r"none of the 1 image.*a\.png: 8 x 8 pixels"):
        ImageDomain(tmp_path, 9)
    with pytest.raises(DataError, match="there is no folder"):
        ImageDomain(tmp_path / "missing", 8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "at least 1"),
        ({"downscale": 0}, "at least 1"),
        ({"cache_bytes": -1}, "at least 0"),
        ({"channels": 4}, "1 or 3 channels"),
        ({"crop": "middle"}, "auto, center, grid"),
        ({"split": "val"}, "train, validation, test"),
    ],
)
def test_wrong_requests_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    picture(tmp_path, "a.png", 8, 8)
    with pytest.raises(InputError, match=message):
        ImageDomain(tmp_path, **{"size": 8, **options})
    with pytest.raises(InputError, match="at least 1 crop"):
        ImageDomain(tmp_path, 8).sample(0, generator())


@pytest.mark.parametrize("limit", [0, 200, 500, 10**9])
def test_the_cache_keeps_its_bound_and_changes_nothing(tmp_path: Path, limit: int) -> None:
    expected = [chw(picture(tmp_path, f"{k}.png", 8, 8, seed=k)) / 255 for k in range(5)]
    domain = ImageDomain(tmp_path, 8, cache_bytes=limit)
    for index in (0, 4, 0, 1, 2, 3, 0):
        assert torch.equal(domain[index], expected[index])
        held = sum(array.nbytes for array in domain._cache._arrays.values())
        assert held == domain._cache._used == min(5, limit // 192) * 192


def test_the_cache_forgets_the_least_recently_used(tmp_path: Path) -> None:
    for k in range(3):
        picture(tmp_path, f"{k}.png", 8, 8, seed=k)
    domain = ImageDomain(tmp_path, 8, cache_bytes=2 * 192)
    for index in (0, 1, 0, 2):
        domain[index]
    assert list(domain._cache._arrays) == ["0.png", "2.png"]


def test_a_file_that_changes_under_way_is_noticed(tmp_path: Path) -> None:
    picture(tmp_path, "a.png", 8, 8)
    domain = ImageDomain(tmp_path, 8, cache_bytes=0)
    picture(tmp_path, "a.png", 8, 8, seed=1)
    with pytest.raises(DataError, match="changed since"):
        domain[0]
    (tmp_path / "a.png").unlink()
    with pytest.raises(DataError, match="can no longer be read"):
        domain[0]


def test_a_data_loader_takes_it(tmp_path: Path) -> None:
    for k in range(5):
        picture(tmp_path, f"{k}.png", 8, 8, seed=k)
    domain = ImageDomain(tmp_path, 8)
    batches = list(DataLoader(domain, batch_size=2))  # type: ignore[arg-type]
    assert torch.equal(torch.cat(batches), domain.tensor())
