"""Anything at all as pictures, settings, checkpoints and arguments: named errors and no more."""

from __future__ import annotations

import copy
import io
import json
import shutil
import tarfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
import yaml
from hypothesis import given, strategies as st
from PIL import Image

from proxmatch.cli import run
from proxmatch.data import encode_image, read_file
from proxmatch.data.shards import stored_pictures
from proxmatch.denoisers import load
from proxmatch.errors import CheckpointError, DataError, InputError
from proxmatch.learning import TrainingSettings
from tests.commands.conftest import Run
from tests.fuzz import attempt, damaged, edits, harmless, parts, usual, values

Models = dict[str, Path]


@pytest.fixture(scope="module")
def originals() -> dict[str, bytes]:
    image = torch.rand(3, 12, 14)
    found = {
        f"{kind}{bits}": encode_image(image, kind, bits)  # type: ignore[arg-type]
        for kind in ("png", "tif")
        for bits in (8, 16)
    }
    pixels = Image.fromarray((np.random.default_rng(0).random((12, 14, 3)) * 255).astype(np.uint8))
    for kind in ("jpeg", "webp", "bmp"):
        file = io.BytesIO()
        pixels.save(file, format=kind)
        found[kind] = file.getvalue()
    return found


@usual(150)
@given(
    kind=st.sampled_from(["png8", "png16", "tif8", "tif16", "jpeg", "webp", "bmp"]),
    changes=edits,
    keep=parts,
)
def test_pictures(
    tmp_path: Path, originals: dict[str, bytes], kind: str, changes: list[tuple[float, bytes]],
    keep: float,
) -> None:  # fmt: skip
    path = tmp_path / "a.png"
    path.write_bytes(damaged(originals[kind], changes, keep))
    found = attempt(lambda: read_file(path), DataError)
    if found is not None:
        assert found.pixels.ndim == 3
        assert bool(((found.pixels >= 0) & (found.pixels <= 1)).all())


@usual(60)
@given(data=st.binary(max_size=400))
def test_anything_as_a_picture(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(data)
    assert attempt(lambda: read_file(path), DataError) is None


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A file of each kind that holds many pictures."""
    folder = tmp_path_factory.mktemp("shards")
    for name, format_ in (("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT)):
        with tarfile.open(folder / f"{name}.tar", "w", format=format_) as tar:
            for k in range(2):
                content = encode_image(torch.rand(3, 5, 4))
                member = tarfile.TarInfo(f"{'deep/' * 30}\u00e9{k}.png")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    pictures = np.random.default_rng(0).random((3, 1, 8, 8), np.float32)
    for name, packing in (("plain", None), ("packed", "gzip")):
        with h5py.File(folder / f"{name}.h5", "w") as file:
            file.create_dataset("y_test", data=pictures, compression=packing)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@usual(150)
@given(
    name=st.sampled_from(["gnu.tar", "pax.tar", "plain.h5", "packed.h5"]),
    changes=edits,
    keep=parts,
)
def test_shards(
    tmp_path: Path, shards: dict[str, bytes], name: str, changes: list[tuple[float, bytes]],
    keep: float,
) -> None:  # fmt: skip
    """Refused by name, or the pictures are all there, each of them readable or refused."""
    path = tmp_path / name
    path.write_bytes(damaged(shards[name], changes, keep))
    for picture in attempt(lambda: list(stored_pictures([path])), DataError, name) or ():
        found = attempt(lambda picture=picture: picture.read(None), DataError)
        assert found is None or found.pixels.ndim == 3


names = st.sampled_from([*TrainingSettings.model_fields, "unknown"])


@usual(100)
@given(content=st.dictionaries(names, values, max_size=4) | values)
def test_settings_of_any_content(tmp_path: Path, content: object) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    found = attempt(lambda: TrainingSettings.from_yaml(path), InputError, "a.yaml")
    assert found is None or found.steps >= 1


@usual(60)
@given(
    text=st.text(max_size=60)
    | st.sampled_from(
        [
            "!!python/object/apply:os.system ['true']",
            "[" * 3000,
            "{a: " * 3000,
            f"steps: {'9' * 5000}",
            "steps: 9999-99-99",
            "steps: 2001-01-01T00:00:00+99:99",
        ]
    )
)
def test_settings_of_any_text(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    attempt(lambda: TrainingSettings.from_yaml(path), InputError, "a.yaml")


@usual(80)
@given(
    file=st.sampled_from(["config.json", "model.safetensors"]),
    changes=edits,
    keep=parts,
)
def test_checkpoints(
    tmp_path: Path, small: Models, file: str, changes: list[tuple[float, bytes]], keep: float
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(small["gs"], folder, dirs_exist_ok=True)
    (folder / file).write_bytes(damaged((small["gs"] / file).read_bytes(), changes, keep))
    attempt(lambda: load(folder), CheckpointError, str(folder))


@usual(80)
@given(
    keys=st.lists(st.sampled_from(["architecture", "record", "version", "family", "transforms"])),
    value=values,
    inner=st.sampled_from([None, "widths", "channels", "sigma", "network", "blocks"]),
)
def test_configurations(
    tmp_path: Path, small: Models, keys: list[str], value: object, inner: str | None
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(small["gs"], folder, dirs_exist_ok=True)
    config = json.loads((small["gs"] / "config.json").read_text())
    for key in keys:
        config[key] = copy.deepcopy(value)
    if inner is not None and isinstance(config["architecture"], dict):
        config["architecture"][inner] = copy.deepcopy(value)
    (folder / "config.json").write_text(json.dumps(config))
    attempt(lambda: load(folder), CheckpointError, str(folder))


words = st.one_of(
    st.sampled_from(
        [
            "info", "models", "import", "train", "adapt", "reconstruct", "diagnose", "certify",
            "gs", "pictures", "--out", "out", "--problem", "denoising", "--images", "--json",
            "--set", "noise=0.1", "--simulate", "--device", "cpu", "--seed", "1", "--number",
            "--iterations", "--bits", "8", "--kind", "gsdrunet", "--help", "--", "-", "",
        ]
    ),
    st.text(max_size=6).filter(lambda text: "\0" not in text and not text.startswith("/")),
)  # fmt: skip


@usual(120, share=0.4)
@given(arguments=st.lists(words, min_size=1, max_size=7))
def test_arguments(
    tmp_path: Path,
    small: Models,
    proxmatch: Run,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
) -> None:
    """No traceback, a known exit code, and nothing written but in folders that were named."""
    monkeypatch.chdir(tmp_path)
    for name, target in (("gs", small["gs"]), ("pictures", tmp_path / "none")):
        if not Path(name).is_symlink():
            Path(name).symlink_to(target)
    inside = sorted(p.name for p in small["gs"].iterdir())
    with harmless(tmp_path):
        done = proxmatch(*arguments)
    assert done.code in (0, 1, 2)
    assert "This is a defect" not in done.err
    assert "Traceback" not in done.err
    assert sorted(p.name for p in small["gs"].iterdir()) == inside
    written = {p.name for p in Path().iterdir()} - {"gs", "pictures"}
    assert written <= {word.split("/")[0] for word in arguments} | {"out"}


def test_nothing_in_a_picture_or_settings_runs(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    (tmp_path / "a.yaml").write_text(f"!!python/object/apply:os.system ['touch {mark}']")
    (tmp_path / "pics").mkdir()
    code = run(
        ["train", "gs", "--images", str(tmp_path / "pics"), "--config", str(tmp_path / "a.yaml"),
         "--out", str(tmp_path / "out")]
    )  # fmt: skip
    assert code == 2
    assert not mark.exists()
