"""What each command does, on small models and pictures."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import safetensors.torch
import tifffile
import torch
from PIL import Image
from skimage.data import camera

from proxmatch import __version__, diagnosis
from proxmatch.baselines import Wiener
from proxmatch.commands import _screen
from proxmatch.commands.reconstruct import _table
from proxmatch.data import ImageDomain, read_file
from proxmatch.denoisers import LPN, LPNConfig, load, save, shipped
from proxmatch.metrics import psnr, ssim
from proxmatch.pnp import pnp_pgd
from proxmatch.problems import Problem, denoising, make_problem
from proxmatch.reconstruction import any_size, batch
from proxmatch.transforms import Aligned, Lifted, Relaxed, Transformed
from tests.commands.conftest import WRITTEN, Run

Models = dict[str, Path]


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from proxmatch.cli import run; assert run(['--help']) == 0; "
        "print([m for m in ('torch', 'deepinv', 'matplotlib', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip().splitlines()[-1] == "[]", done.stderr
    for name in ("info", "models", "import", "train", "adapt", "reconstruct", "diagnose"):
        assert name in done.stdout


def test_of_many_files_the_first_hundred_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    result = {"size": "64 x 64", "status": "completed", "steps": 2}
    _screen.show(
        {}, False, _table({f"{k}.png": result for k in range(20_000)}, "deblurring", False)
    )
    shown = capsys.readouterr().out
    assert shown.count(".png") == 100
    assert "and 19900 more" in shown


def test_info_and_models(proxmatch: Run) -> None:
    info = json.loads(proxmatch("info", "--json").out)
    assert info["models"] == shipped()
    assert info["torch"] == torch.__version__
    listed = json.loads(proxmatch("models", "--json").out)
    assert list(listed) == shipped()
    assert listed["gs-faces"]["sigma"] == load("gs-faces").sigma
    shown = proxmatch("models", "lpn-faces")
    assert shown.code == 0
    assert "non-commercial research only" in shown.out
    card = json.loads(proxmatch("models", "lpn-faces", "--json").out)
    assert card["card"] == load("lpn-faces").record


def test_the_list_of_models_fits_a_terminal(
    proxmatch: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = proxmatch("models").out.splitlines()
    assert max(map(len, lines)) <= 80
    for name in shipped():
        [row] = [line for line in lines if line.startswith(f"│ {name} ")]
        image, license = (row.split("│")[place].strip() for place in (2, 6))
        model = load(name)
        assert image == {1: "gray", 3: "color"}[model.channels]
        assert model.record["license"].startswith(license)  # it may go on in the next line
        assert len(license) >= len("CC BY 4.0")


def test_a_model_is_listed_with_all_it_was_trained_on(proxmatch: Run) -> None:
    """Those of faces begin where those of photographs ended."""
    listed = json.loads(proxmatch("models", "--json").out)
    for name in ("gs-faces", "lpn-faces"):
        assert [text.split(",")[0] for text in listed[name]["trained on"].split("; ")] == [
            "CelebA",
            "BSDS500",
        ]
        assert listed[name]["license"] == "non-commercial research only"
    assert listed["gs-grey"]["trained on"].count("BSDS500") == 1
    lines = proxmatch("models").out.splitlines()
    [place] = [number for number, line in enumerate(lines) if "│ lpn-faces " in line]
    assert "CelebA," in lines[place]
    assert "BSDS500" in lines[place + 1]


def test_version(proxmatch: Run) -> None:
    done = proxmatch("--version")
    assert (done.code, done.out) == (0, f"proxmatch {__version__}\n")


def test_import(proxmatch: Run, tmp_path: Path) -> None:
    model = LPN(LPNConfig.official(hidden=4, features=3))
    torch.save(model.state_dict(), tmp_path / "model.pt")
    out = tmp_path / "made"
    done = proxmatch(
        "import",
        tmp_path / "model.pt",
        "--kind",
        "lpn-official",
        "--set",
        "sigma=0.04",
        "--out",
        out,
    )
    assert done.code == 0, done.err
    assert load(out).sigma == 0.04


def test_a_sinogram_is_simulated_for_pictures_of_their_size(
    proxmatch: Run, small: Models, pictures: Path, tmp_path: Path
) -> None:
    """The operator is made for the picture, not for measurements as large as the picture."""
    done = proxmatch(
        "reconstruct", small["lpn"], pictures / "picture0.png", "--problem", "tomography",
        "--set", "views=5", "--simulate", "--iterations", 1, "--json", "--out", tmp_path / "out",
    )  # fmt: skip
    assert done.code in WRITTEN, done.err
    assert json.loads(done.out)["files"]["picture0.png"]["size"] == "64 x 64"


@pytest.mark.parametrize("name", ["lpn", "gs"])
def test_simulated_reconstruction_is_that_of_the_library(
    proxmatch: Run, small: Models, pictures: Path, tmp_path: Path, name: str
) -> None:
    files = [pictures / "picture0.png", pictures / "picture5.png"]
    done = proxmatch(
        "reconstruct", small[name], *files, "--problem", "super-resolution", "--set", "factor=2",
        "--set", "noise=0.01", "--simulate", "--iterations", 3, "--seed", 7, "--bits", 16, "--json",
        "--out", tmp_path / "out",
    )  # fmt: skip
    found = json.loads(done.out)["files"]
    suspicious = any(result["status"] == "suspicious" for result in found.values())
    assert done.code == int(suspicious), done.err  # of a denoiser that was never trained
    assert list(found) == ["picture0.png", "picture5.png"]
    model = load(small[name])
    for file in files:
        read = read_file(file)
        x = read.pixels[None]
        problem = make_problem(
            "super-resolution", (x.shape[2], x.shape[3]), ["factor=2", "noise=0.01"]
        )
        y = problem.measure(x, ids=[read.digest], seed=7)
        expected = pnp_pgd(model, y, problem, iterations=3).images
        result = found[file.name]
        assert result["psnr"] == pytest.approx(float(psnr(expected, x)), abs=2e-3)
        assert result["ssim"] == pytest.approx(float(ssim(expected, x)), abs=1e-3)
        assert result["start"] == pytest.approx(float(psnr(problem.initial(y), x)), abs=2e-3)
        written = read_file(tmp_path / "out" / file.name)
        assert written.bits == 16
        torch.testing.assert_close(
            written.pixels, expected[0].clamp(0, 1), rtol=0, atol=1 / 65535 + 1e-5
        )


def test_a_group_of_pictures_has_its_problem_built_once(
    proxmatch: Run, small: Models, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was built to measure, and once more to reconstruct."""
    sizes: list[object] = []

    def counted(name: str, size: object, *others: object, **options: object) -> Problem:
        sizes.append(size)
        return make_problem(name, size, *others, **options)  # type: ignore[arg-type]

    for module in (any_size, batch):
        monkeypatch.setattr(module, "make_problem", counted)
    options = (
        "--problem",
        "deblurring",
        "--simulate",
        "--iterations",
        2,
        "--out",
        tmp_path / "out",
    )
    assert proxmatch("reconstruct", small["lpn"], pictures, *options).code in WRITTEN
    assert sorted(sizes) == [(40, 48), (64, 64)]  # type: ignore[type-var]


def test_real_measurements_of_several_kinds(proxmatch: Run, small: Models, tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 65536, (24, 20, 3), dtype=np.uint16)
    tifffile.imwrite(tmp_path / "deep.tif", values, photometric="rgb")
    Image.fromarray((values >> 8).astype(np.uint8)).save(tmp_path / "plain.jpg", quality=90)
    out = tmp_path / "out"
    done = proxmatch(
        "reconstruct", small["gs"], tmp_path, "--problem", "deblurring", "--format", "tif",
        "--iterations", 2, "--out", out,
    )  # fmt: skip
    assert done.code == int("suspicious" in done.out), done.err
    assert read_file(out / "deep.tif").bits == 16
    assert read_file(out / "plain.tif").bits == 8
    y = read_file(tmp_path / "deep.tif").pixels[None]
    problem = make_problem("deblurring", (24, 20))
    expected = pnp_pgd(load(small["gs"]), y, problem, iterations=2).images.clamp(0, 1)
    torch.testing.assert_close(
        read_file(out / "deep.tif").pixels, expected[0], rtol=0, atol=1 / 65535 + 1e-5
    )


def test_batches_and_tiles_change_nothing(
    proxmatch: Run, small: Models, pictures: Path, tmp_path: Path
) -> None:
    found = []
    for how in ((), ("--batch", 1), ("--batch", 3, "--tile", 32)):
        out = tmp_path / str(len(found))
        done = proxmatch(
            "reconstruct", small["gs"], pictures, "--problem", "inpainting", "--bits", 16,
            "--iterations", 3, *how, "--out", out,
        )  # fmt: skip
        assert done.code in WRITTEN, done.err
        found.append({p.name: read_file(p).pixels for p in out.glob("*.png")})
    assert len(found[0]) == 6
    for other in found[1:]:
        for name, image in found[0].items():
            torch.testing.assert_close(other[name], image, rtol=0, atol=1e-5 + 1 / 65535)


def test_what_is_done_is_not_done_again(
    proxmatch: Run, small: Models, pictures: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    common = ("--problem", "denoising", "--iterations", 2, "--out", out)
    first = pictures / "picture0.png"
    assert proxmatch("reconstruct", small["gs"], first, *common).code in WRITTEN
    stamp = (out / first.name).stat().st_mtime_ns
    assert proxmatch("reconstruct", small["gs"], pictures, *common).code in WRITTEN
    assert (out / first.name).stat().st_mtime_ns == stamp
    assert len(list(out.glob("*.png"))) == 6
    changed = tmp_path / first.name
    changed.write_bytes((pictures / "picture1.png").read_bytes())
    assert proxmatch("reconstruct", small["gs"], changed, *common).code in WRITTEN
    again, twin = (read_file(out / name).pixels for name in (first.name, "picture1.png"))
    torch.testing.assert_close(again, twin, rtol=0, atol=1.01 / 255)
    other = proxmatch("reconstruct", small["lpn"], pictures, *common)
    assert other.code == 2
    assert "other settings (model, weights)" in other.err


def test_an_archive_is_the_folder_that_was_packed(
    proxmatch: Run, small: Models, pictures: Path, tmp_path: Path
) -> None:
    """Nothing is unpacked, and what is done is not done again."""
    with tarfile.open(tmp_path / "shard.tar", "w") as tar:
        for path in sorted(pictures.glob("*.png")):
            tar.add(path, f"../{path.name}")
    common = ("--problem", "denoising", "--simulate", "--iterations", 2, "--sheet", "--out")
    found = {}
    for name, place in (("packed", tmp_path / "shard.tar"), ("loose", pictures)):
        out = tmp_path / name
        assert proxmatch("reconstruct", small["gs"], place, *common, out).code in WRITTEN
        found[name] = {path.name: path.read_bytes() for path in out.glob("*.*")}
    assert found["packed"] == found["loose"]
    assert len(list((tmp_path / "packed" / "sheets").iterdir())) == 6
    stamp = (tmp_path / "packed" / "picture3.png").stat().st_mtime_ns
    same = ("reconstruct", small["gs"], tmp_path / "shard.tar", *common, tmp_path / "packed")
    assert proxmatch(*same).code in WRITTEN
    assert (tmp_path / "packed" / "picture3.png").stat().st_mtime_ns == stamp


def test_results_of_another_denoiser_or_mask_are_not_taken_for_these(
    proxmatch: Run, small: Models, pictures: Path, tmp_path: Path
) -> None:
    """The weights, and the words of the command, are the same."""
    model, mask, out = tmp_path / "model", tmp_path / "mask.png", tmp_path / "out"
    first = pictures / "picture5.png"
    common = ("reconstruct", model, first, "--problem", "inpainting", "--set", f"mask={mask}")
    common = (*common, "--iterations", 1, "--out", out)
    pixels = np.random.default_rng(0).integers(0, 2, (40, 48), dtype=np.uint8) * 255
    Image.fromarray(pixels).save(mask)
    save(Relaxed(load(small["gs"]), 0.9), model)
    assert proxmatch(*common).code in WRITTEN
    assert proxmatch(*common).code in WRITTEN
    Image.fromarray(255 - pixels).save(mask)
    other = proxmatch(*common)
    assert (other.code, "other settings (read)" in other.err) == (2, True)
    Image.fromarray(pixels).save(mask)
    save(Relaxed(load(small["gs"]), 0.1), model)
    other = proxmatch(*common)
    assert (other.code, "other settings (weights)" in other.err) == (2, True)


def test_gray_in_gray_out(proxmatch: Run, small: Models, pictures: Path, tmp_path: Path) -> None:
    with Image.open(pictures / "picture0.png") as picture:
        gray = picture.convert("L")
    gray.save(tmp_path / "gray.png")
    deep = np.asarray(gray, np.uint16) * 257
    tifffile.imwrite(tmp_path / "deep.tif", deep)
    out = tmp_path / "out"
    done = proxmatch(
        "reconstruct", small["lpn"], tmp_path / "gray.png", tmp_path / "deep.tif", "--problem",
        "denoising", "--iterations", 2, "--out", out,
    )  # fmt: skip
    assert done.code in (0, 1), done.err
    y = read_file(tmp_path / "gray.png", None).pixels[None]
    problem = make_problem("denoising", (y.shape[2], y.shape[3]), channels=1)
    expected = pnp_pgd(Lifted(load(small["lpn"])), y, problem, iterations=2).images[0].clamp(0, 1)
    for name, bits in (("gray.png", 8), ("deep.png", 16)):
        found = read_file(out / name, None)
        assert (len(found.pixels), found.bits) == (1, bits)
        torch.testing.assert_close(found.pixels, expected, rtol=0, atol=0.51 / (2**bits - 1) + 1e-5)


def test_a_ruined_picture_is_told(proxmatch: Run, small: Models, tmp_path: Path) -> None:
    """By an LPN that was never trained."""
    Image.fromarray(camera()[128:192, 128:192]).save(tmp_path / "camera.png")
    done = proxmatch(
        "reconstruct", small["lpn"], tmp_path / "camera.png", "--problem", "inpainting",
        "--simulate", "--iterations", 20, "--out", tmp_path / "out",
    )  # fmt: skip
    assert done.code == 1
    assert "suspicious" in done.out
    assert "try: proxmatch diagnose" in done.out
    record = json.loads((tmp_path / "out" / "reconstruction.json").read_text())["files"]
    assert record["camera.png"]["psnr"] < record["camera.png"]["start"]
    assert record["camera.png"]["signs"]


def test_a_picture_that_is_too_small_is_named_and_left_out(
    proxmatch: Run, small: Models, pictures: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "mixed"
    folder.mkdir()
    (folder / "good.png").write_bytes((pictures / "picture0.png").read_bytes())
    Image.new("RGB", (3, 3)).save(folder / "dot.png")
    done = proxmatch(
        "reconstruct", small["gs"], folder, "--problem", "super-resolution", "--simulate",
        "--iterations", 1, "--out", tmp_path / "out",
    )  # fmt: skip
    assert done.code == int("suspicious" in done.out), done.err
    assert "1 file(s) left out: dot.png: 3 x 3 pixels, too few" in done.err
    assert [p.name for p in (tmp_path / "out").glob("*.png")] == ["good.png"]


def test_a_damaged_picture_is_named_and_left_out(
    proxmatch: Run, small: Models, pictures: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "mixed"
    folder.mkdir()
    (folder / "good.png").write_bytes((pictures / "picture0.png").read_bytes())
    (folder / "bad[red].png").write_bytes((pictures / "picture0.png").read_bytes()[:99])
    done = proxmatch(
        "reconstruct", small["gs"], folder, "--problem", "denoising", "--iterations", 1, "--out",
        tmp_path / "out",
    )  # fmt: skip
    assert done.code == int("suspicious" in done.out)
    assert "warning: 1 file(s) left out: bad[red].png: damaged" in done.err
    assert [p.name for p in (tmp_path / "out").glob("*.png")] == ["good.png"]


def test_two_files_of_one_name(
    proxmatch: Run, small: Models, pictures: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "picture0.png"
    copy.write_bytes((pictures / "picture1.png").read_bytes())
    done = proxmatch(
        "reconstruct",
        small["gs"],
        pictures,
        copy,
        "--problem",
        "denoising",
        "--out",
        tmp_path / "o",
    )
    assert done.code == 2
    assert "would both become picture0.png" in done.err


@pytest.mark.parametrize("journal", [True, False])
def test_results_beside_what_they_were_made_from(
    proxmatch: Run, small: Models, pictures: Path, tmp_path: Path, journal: bool
) -> None:
    """The same command again takes the results for no measurements."""
    for k in range(2):
        with Image.open(pictures / f"picture{k}.png") as image:
            image.save(tmp_path / f"{k}.jpg")
    arguments = (
        "reconstruct", small["gs"], tmp_path, "--problem", "denoising", "--iterations", 1,
        "--out", tmp_path,
    )  # fmt: skip
    assert proxmatch(*arguments).code in WRITTEN
    if not journal:
        (tmp_path / "reconstruction.jsonl").unlink()
    before = {name: (tmp_path / name).stat().st_mtime_ns for name in ("0.png", "1.png")}
    record = (tmp_path / "reconstruction.json").read_bytes()
    assert proxmatch(*arguments).code in WRITTEN
    assert before == {name: (tmp_path / name).stat().st_mtime_ns for name in before}
    assert record == (tmp_path / "reconstruction.json").read_bytes()
    (tmp_path / "1.png").unlink()
    assert proxmatch(*arguments).code in WRITTEN
    assert sorted(path.name for path in tmp_path.glob("*.png")) == ["0.png", "1.png"]
    (tmp_path / "0.jpg").unlink()
    (tmp_path / "1.jpg").unlink()
    done = proxmatch(*arguments)
    assert done.code == 2
    assert "all of the pictures are results" in done.err


def test_divergence_is_an_answer(proxmatch: Run, pictures: Path, tmp_path: Path) -> None:
    model = LPN(LPNConfig(size=8, hidden=4, features=3, strides=(2,)))
    with torch.no_grad():
        for p in model.constrained().values():
            p.mul_(30)
    save(model, tmp_path / "wild")
    done = proxmatch(
        "reconstruct", tmp_path / "wild", pictures / "picture0.png", "--problem", "denoising",
        "--out", tmp_path / "out",
    )  # fmt: skip
    assert done.code == 1, done.err
    assert "diverged" in done.out


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "settings.yaml"
    path.write_text("{steps: 3, batch: 2, checkpoint_every: 1, log_every: 1}")
    return path


def test_train_and_go_on(proxmatch: Run, pictures: Path, tmp_path: Path, settings: Path) -> None:
    out = tmp_path / "run"
    common = ("train", "gs", "--images", pictures, "--config", settings, "--out", out, "--json")
    done = proxmatch(*common, "--validation", 0, "--seed", 5)
    assert done.code == 0, done.err
    record = json.loads(done.out)
    assert (record["status"], record["steps"]) == ("completed", 3)
    assert load(out / "model").record["settings"]["seed"] == 5
    again = proxmatch(*common, "--validation", 0, "--seed", 5)
    assert again.code == 0
    other = proxmatch(*common, "--validation", 0, "--seed", 6)
    assert other.code == 2
    assert "other settings (seed)" in other.err


def test_an_interrupted_training_says_where_it_goes_on(
    proxmatch: Run, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "settings.yaml").write_text("{steps: 3, batch: 2, checkpoint_every: 1}")

    @contextmanager
    def stopped(total: int, title: str) -> Iterator[Callable[[int, float], None]]:
        def on_step(step: int, loss: float) -> None:
            if step == 2:
                raise KeyboardInterrupt

        yield on_step

    common = (
        "train", "gs", "--images", pictures, "--config", tmp_path / "settings.yaml",
        "--validation", 0, "--out", tmp_path / "run",
    )  # fmt: skip
    with monkeypatch.context() as patched:
        patched.setattr("proxmatch.learning.progress.bar", stopped)
        assert proxmatch(*common).code == 130
    done = proxmatch(*common)
    assert done.code == 0, done.err
    assert "resumed at step 1 of 3" in done.err
    done = proxmatch(*common, "--seed", 5)
    assert done.code == 2
    assert "holds a run with other settings" in done.err
    assert "resumed" not in done.err


def test_train_goes_on_from_the_folder_of_a_model(
    proxmatch: Run, small: Models, pictures: Path, tmp_path: Path
) -> None:
    model = load(small["gs"])
    done = proxmatch(
        "train", small["gs"], "--images", pictures, "--steps", 2, "--validation", 0,
        "--out", tmp_path / "run",
    )  # fmt: skip
    assert done.code == 0, done.err
    trained = load(tmp_path / "run" / "model")
    assert trained.record["settings"]["steps"] == 2
    moved = [
        float((p - q).abs().max())
        for p, q in zip(trained.parameters(), model.parameters(), strict=True)
    ]
    assert 0 < max(moved) < 0.01
    none = proxmatch("train", "resnet", "--images", pictures, "--out", tmp_path / "no")
    assert none.code == 2
    assert "folders of models" in none.err


def test_the_seed_of_a_file_stands_unless_another_is_given(
    proxmatch: Run, pictures: Path, tmp_path: Path
) -> None:
    (tmp_path / "settings.yaml").write_text("{steps: 1, batch: 2, seed: 7}")
    done = proxmatch(
        "train", "gs", "--images", pictures, "--config", tmp_path / "settings.yaml",
        "--validation", 0, "--out", tmp_path / "run",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert load(tmp_path / "run" / "model").record["settings"]["seed"] == 7


def test_adapt_writes_a_model_and_its_evidence(
    proxmatch: Run, small: Models, pictures: Path, tmp_path: Path
) -> None:
    out = tmp_path / "adapted"
    done = proxmatch(
        "adapt", small["gs"], "--images", pictures, "--method", "mse", "--number", 2, "--steps", 2,
        "--out", out, "--json",
    )  # fmt: skip
    record = json.loads(done.out)
    assert done.code == (0 if sum(record["gains"].values()) > 0 else 1), done.err
    assert json.loads((out / "adaptation.json").read_text())["step"] == record["step"]
    adapted = load(out / "model")
    assert adapted.record["adapted"]["number"] == 2
    card = json.loads(proxmatch("models", out / "model", "--json").out)
    assert card["L"] == record["after"]["lipschitz"]
    save(Relaxed(adapted, 0.5), tmp_path / "relaxed")
    assert json.loads(proxmatch("models", tmp_path / "relaxed", "--json").out)["L"] is None


def test_an_adaptation_for_another_problem_is_another_one(
    proxmatch: Run, small: Models, pictures: Path, tmp_path: Path
) -> None:
    model, common = tmp_path / "model", ("--images", pictures, "--method", "mse", "--number", 2)
    common = (*common, "--steps", 2, "--problem", "denoising", "--out", tmp_path / "out")
    save(load(small["gs"]), model)
    assert proxmatch("adapt", model, *common).code in (0, 1)
    assert proxmatch("adapt", model, *common).code in (0, 1)
    for changed in (("--set", "noise=0.3"), ("--set", "eta=0.5")):
        other = proxmatch("adapt", model, *common, *changed)
        assert (other.code, "other settings (problems)" in other.err) == (2, True)
    save(Aligned(load(small["gs"]), 1.0, torch.eye(3), [0.4] * 3, [0.5] * 3), model)
    other = proxmatch("adapt", model, *common)
    assert (other.code, "other settings (source)" in other.err) == (2, True)


@pytest.mark.parametrize("kind", ["tar", "h5"])
def test_adapt_to_a_shard_is_to_adapt_to_its_pictures(
    proxmatch: Run, small: Models, pictures: Path, tmp_path: Path, kind: str
) -> None:
    names = [f"picture{k}.png" for k in range(5)]
    folder, shard = tmp_path / "folder", tmp_path / f"shard.{kind}"
    folder.mkdir()
    for name in names:
        (folder / name).write_bytes((pictures / name).read_bytes())
    if kind == "tar":
        with tarfile.open(shard, "w") as tar:
            for name in names:
                tar.add(folder / name, f"deep/{name}")
    else:
        arrays = np.stack([np.asarray(Image.open(folder / name)) for name in names])
        with h5py.File(shard, "w") as file:
            file["x_test"] = arrays.transpose(0, 3, 1, 2)
            file["y_test"] = np.zeros_like(file["x_test"])
    for place in (folder, shard):
        done = proxmatch("adapt", small["gs"], "--images", place, "--method", "mse", "--steps", 2,
                         "--out", tmp_path / f"of-{place.stem}")  # fmt: skip
        assert done.code in WRITTEN, done.err
    a, b = (load(tmp_path / f"of-{name}" / "model").state_dict() for name in ("folder", "shard"))
    assert all(torch.equal(a[name], b[name]) for name in a)


def tried(out: Path) -> list[str]:
    return [candidate["name"] for candidate in json.loads(out.read_text())["tried"]]


def test_adapt_by_itself(proxmatch: Run, small: Models, pictures: Path, tmp_path: Path) -> None:
    """Out of time after the first candidate, auto fits the filter and says what is untried."""
    out = tmp_path / "auto"
    done = proxmatch(
        "adapt", small["gs"], "--images", pictures, "--number", 2, "--problem", "deblurring",
        "--budget", 0, "--device", "cpu", "--threads", 1, "--out", out,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "trying: source" in done.err
    told = "left no time for relaxed, half fine-tuned + relaxed, blended, total variation"
    assert told in done.err
    assert "Wiener *" in done.out
    assert tried(out / "adaptation.json") == ["source", "Wiener"]
    assert isinstance(load(out / "model").core, Wiener)


def test_the_seed_of_an_adaptation_decides(
    proxmatch: Run, small: Models, pictures: Path, tmp_path: Path
) -> None:
    scores = []
    for run, seed in enumerate((3, 3, 4)):
        out = tmp_path / str(run)
        proxmatch(
            "adapt", small["gs"], "--images", pictures, "--number", 1, "--problem", "deblurring",
            "--budget", 0, "--seed", seed, "--out", out,
        )  # fmt: skip
        record = json.loads((out / "adaptation.json").read_text())
        scores.append(record["tried"][0]["scores"]["deblurring"])
    assert scores[0] == scores[1] != scores[2]


def test_adapt_by_alignment_and_from_measurements(
    proxmatch: Run, pictures: Path, tmp_path: Path
) -> None:
    model = LPN(LPNConfig(size=8, hidden=4, features=3, strides=(2,), sigma=0.07))
    model.record = {"colors": {"mean": [0.5] * 3, "covariance": np.eye(3).tolist()}}
    save(model, tmp_path / "source")
    aligned = proxmatch(
        "adapt", tmp_path / "source", "--images", pictures, "--method", "align", "--number", 2,
        "--downscale", 2, "--problem", "denoising", "--out", tmp_path / "aligned",
    )  # fmt: skip
    assert aligned.code in (0, 1), aligned.err
    found = load(tmp_path / "aligned" / "model")
    assert isinstance(found, Aligned)
    (tmp_path / "measured").mkdir()
    for i in range(3):
        source = pictures / f"picture{i}.png"
        (tmp_path / "measured" / source.name).write_bytes(source.read_bytes())
    blind = proxmatch(
        "adapt", tmp_path / "source", "--measurements", tmp_path / "measured", "--problem",
        "denoising", "--json", "--out", tmp_path / "blind",
    )  # fmt: skip
    rows = json.loads(blind.out)["tried"]
    names = ["source", "relaxed", "Wiener", "aligned + relaxed", "blended"]
    assert [row["name"] for row in rows] == names
    assert blind.code == (1 if rows[0]["chosen"] else 0), blind.err
    (chosen,) = (row["name"] for row in rows if row["chosen"])
    returned = load(tmp_path / "blind" / "model")
    assert isinstance(returned, Wiener if chosen == "Wiener" else LPN | Transformed)


def test_the_worst_verdict_is_the_one_that_is_spoken(
    proxmatch: Run,
    small: Models,
    pictures: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Matched for the first problem and mismatched for the second is no reason to use it."""
    crops = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    found = diagnosis.diagnose(load(small["gs"]), crops, denoising(32), sources=(), iterations=1)

    def by_problem(_: object, __: object, problem: Problem, *___: object, **____: object) -> object:
        blurred = problem.name == "deblurring"
        verdict = diagnosis.Grade.MATCHED if blurred else diagnosis.Grade.BADLY
        return replace(found, problem=problem.name, verdict=verdict)

    monkeypatch.setattr(diagnosis, "diagnose", by_problem)
    done = proxmatch("diagnose", small["gs"], "--images", pictures, "--size", 32, "--number", 1)
    assert done.code == 1
    assert "super-resolution: badly mismatched" in done.out.splitlines()[-2]
    assert done.out.splitlines()[-1].strip().startswith("proxmatch adapt")
    spaced = tmp_path / "my faces"
    spaced.symlink_to(pictures)
    done = proxmatch(
        "diagnose", "gs-faces", "--images", spaced, "--size", 32, "--number", 1, "--downscale", 2,
        "--problem", "super-resolution", "--set", "factor=2",
    )  # fmt: skip
    words = shlex.split("".join(done.out.partition("proxmatch adapt")[1:]))
    expected = ["proxmatch", "adapt", "gs-faces", "--from", "all", "--images", str(spaced)]
    expected += [
        "--downscale",
        "2",
        "--problem",
        "super-resolution",
        "--set",
        "factor=2",
        "--out",
        "adapted",
    ]
    assert words == expected


def test_diagnose_is_that_of_the_library(
    proxmatch: Run, small: Models, pictures: Path, tmp_path: Path
) -> None:
    done = proxmatch(
        "diagnose", small["gs"], "--images", pictures, "--reference", small["lpn"], "--problem",
        "denoising", "--set", "noise=0.1", "--size", 32, "--number", 2, "--iterations", 2,
        "--seed", 5, "--out", tmp_path / "told", "--json", "--from", small["gs"],
    )  # fmt: skip
    assert done.code in (0, 1), done.err
    domain = ImageDomain(pictures, 32)
    crops = domain.tensor([0, len(domain) - 1])
    noisy = make_problem("denoising", 32, ["noise=0.1"])
    expected = diagnosis.diagnose(
        load(small["gs"]), crops, noisy, load(small["lpn"]), sources=(), iterations=2, seed=5
    ).to_dict()
    record = json.loads(done.out)
    assert record == json.loads((tmp_path / "told" / "diagnosis.json").read_text())
    found = record["diagnoses"]["denoising"]
    for key in ("gap", "loss", "psnr", "as_it_is", "lipschitz"):
        assert found[key] == pytest.approx(expected[key], rel=1e-4, abs=1e-4), key


def test_certify_tells_the_deployed_from_the_reference(
    proxmatch: Run,
    small: Models,
    pictures: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    common = (
        "certify", small["gs"], "--reference", small["lpn"], "--images", pictures, "--number", 1,
        "--size", 16, "--iterations", 1, "--json", "--out",
    )  # fmt: skip
    done = proxmatch(*common, tmp_path / "one")
    assert done.code == 0, done.err
    runs = json.loads(done.out)["runs"]
    assert max(runs["matched"]["curves"]["mismatch"][0]) < 1e-9
    assert min(runs["deployed"]["curves"]["mismatch"][0]) > 1e-3
    monkeypatch.setattr("proxmatch.theory.certificate.Run.share", 0.5)
    assert proxmatch(*common, tmp_path / "two").code == 1


def test_certify(proxmatch: Run, small: Models, pictures: Path, tmp_path: Path) -> None:
    out = tmp_path / "certificate"
    done = proxmatch(
        "certify", small["lpn"], "--reference", small["lpn"], "--images", pictures, "--number", 1,
        "--size", 16, "--iterations", 2, "--out", out, "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert json.loads(done.out) == json.loads((out / "certificate.json").read_text())
    assert (out / "certificate.png").read_bytes()[:4] == b"\x89PNG"


def test_names_that_are_no_text(
    proxmatch: Run, small: Models, pictures: Path, tmp_path: Path
) -> None:
    name = b"caf\xe9[b].png"
    folder = tmp_path / "names"
    folder.mkdir()
    target = Path(str(folder)) / name.decode("utf-8", "surrogateescape")
    try:
        target.write_bytes((pictures / "picture0.png").read_bytes())
    except OSError:
        pytest.skip("this file system wants names that are text")
    for more in ((), ("--json",)):
        done = proxmatch(
            "reconstruct", small["gs"], folder, "--problem", "denoising", "--iterations", 1,
            "--out", tmp_path / "out", *more,
        )  # fmt: skip
        assert done.code in WRITTEN, done.err
        assert "[b]" in done.out


def test_the_weights_stay_as_they_are(small: Models) -> None:
    """The commands above must not have changed the models they were given."""
    for folder in small.values():
        assert safetensors.torch.load_file(folder / "model.safetensors")
        load(folder)  # checks the hash
