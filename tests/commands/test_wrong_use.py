"""Wrong uses: one screen that says what to do, exit code 2, nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from tests.commands.conftest import Run

LPN, OUT = "lpn-faces", ("--out", "out")
SR = ("--problem", "super-resolution")
BLUR = ("--problem", "deblurring")

WRONG: list[tuple[tuple[str, ...], str]] = [
    (("nonsense",), "No such command"),
    (("info", "--nonsense"), "No such option"),
    (("models", "lpn-cats"), "no such model among gs-faces"),
    (("models", "pictures"), "it has no config.json"),
    (("import", "nowhere.pt", "--kind", "lpn-official", *OUT), "no such file"),
    (("import", "text.txt", "--kind", "lpn-official", *OUT), "not a PyTorch file"),
    (("import", "text.txt", "--kind", "vgg", *OUT), "unknown kind 'vgg'"),
    (("import", "text.txt", "--kind", "gsdrunet", "--set", "sigma", *OUT), "not KEY=VALUE"),
    (("import", "text.txt", *OUT), "--kind"),
    (("train", "cnn", "--images", "pictures", *OUT), "no family or preset 'cnn'"),
    (("train", "lpn", "--images", "nowhere", *OUT), "no folder nowhere"),
    (("train", "lpn", "--images", "text.txt", *OUT), "is a file"),
    (("train", "lpn", "--images", "empty", *OUT), "no image"),
    (("train", "lpn", "--images", "pictures", "--steps", "0", *OUT), "--steps"),
    (("train", "lpn", "--images", "pictures", "--config", "text.txt", *OUT), "text.txt"),
    (("train", "lpn", "--images", "pictures"), "--out"),
    (("train", "lpn", "--images", "one", *OUT), "give at least 3"),
    (("train", "lpn", "--images", "pictures", "--config", "rate.yaml", *OUT), "no such setting"),
    (("import", "pictures/picture0.png", "--kind", "gsdrunet", *OUT), "not a PyTorch file"),
    (("adapt", LPN, *OUT), "either --images"),
    (("adapt", LPN, "--images", "pictures", "--method", "align", "--steps", "2", *OUT), "--steps"),
    (("adapt", LPN, "--images", "pictures", "--method", "pm", "--budget", "2", *OUT), "--budget"),
    (("adapt", LPN, "--images", "pictures", "--budget", "-1", *OUT), "--budget"),
    (("adapt", LPN, "--images", "pictures", "--method", "pm", "--engine", "ray", *OUT), "--engine"),
    (("adapt", LPN, "--images", "pictures", "--budget", "9", "--engine", "ray", *OUT), "--engine"),
    (
        ("adapt", LPN, "--measurements", "one", *BLUR, "--method", "pm", *OUT),
        "needs clean --images",
    ),
    (("adapt", LPN, "--measurements", "pictures", *BLUR, *OUT), "all have one size"),
    (("adapt", LPN, "--images", "pictures", "--measurements", "pictures", *OUT), "either --images"),
    (("adapt", LPN, "--measurements", "pictures", *OUT), "needs --problem"),
    (
        ("adapt", LPN, "--measurements", "one", *BLUR, "--downscale", "2", *OUT),
        "measurements are taken as they are",
    ),
    (
        ("adapt", LPN, "--measurements", "one", "--problem", "compressed-sensing", *OUT),
        "are not pictures; give clean --images",
    ),
    (("adapt", LPN, "--images", "pictures", "--downscale", "400", *OUT), "picture0.png has 64 x"),
    (("adapt", LPN, "--images", "pictures", "--method", "magic", *OUT), "no method 'magic'"),
    (("adapt", LPN, "--images", "pictures", "--method", "adapm", *OUT), "gradient-step"),
    (("adapt", LPN, "--images", "pictures", "--set", "factor=2", *OUT), "name it with --problem"),
    (("reconstruct", LPN, "pictures", "--problem", "sharpening", *OUT), "no problem 'sharpening'"),
    (("reconstruct", LPN, "pictures", *BLUR, "--set", "factor=2", *OUT), "option of deblurring"),
    (("reconstruct", LPN, "pictures", *BLUR, "--set", "noise=x", *OUT), "cannot be read"),
    (("reconstruct", LPN, "nowhere.png", *BLUR, *OUT), "no file or folder nowhere.png"),
    (("reconstruct", LPN, "text.txt", *BLUR, *OUT), "no picture of a known kind"),
    (("reconstruct", LPN, "pictures", *BLUR, "--bits", "12", *OUT), "--bits 8 or 16"),
    (("reconstruct", LPN, "pictures", *BLUR, "--format", "gif", *OUT), "png or tif"),
    (("reconstruct", LPN, "pictures", *BLUR, "--tile", "1", *OUT), "--tile"),
    (("reconstruct", LPN, "pictures", *BLUR, "--device", "warp", *OUT), "no device 'warp'"),
    (("reconstruct", LPN, "pictures", *BLUR, "--threads", "0", *OUT), "--threads"),
    (("reconstruct", LPN, "pictures", *BLUR, "--seed", "-1", *OUT), "--seed"),
    (("reconstruct", LPN, "pictures", *BLUR, "--iterations", "0", *OUT), "--iterations"),
    (("reconstruct", LPN, *BLUR, *OUT), "files"),
    (("reconstruct", LPN, "pictures", *BLUR, "--out", "pictures"), "would be overwritten"),
    (("reconstruct", LPN, "pictures", *BLUR, "--out", "text.txt"), "text.txt is a file"),
    (
        (
            "reconstruct",
            LPN,
            "pictures",
            "--problem",
            "kernel-deblurring",
            "--set",
            "kernel=no.png",
            *OUT,
        ),
        "no such file",
    ),
    (
        ("reconstruct", LPN, "pictures", "--problem", "compressed-sensing", *OUT),
        "are not pictures; with --simulate",
    ),
    (
        ("reconstruct", LPN, "pictures", "--problem", "mri", "--simulate", *OUT),
        "mri is for images of 2 channels",
    ),
    (
        ("reconstruct", LPN, "one", "--simulate", *SR, "--set", "factor=100", *OUT),
        "64 x 64 pixels, too few to become one of 100 x 100",
    ),
    (
        ("reconstruct", LPN, "pictures", "--simulate", *SR, "--set", "kernel_size=4", *OUT),
        "kernel_size must be odd",
    ),
    (
        ("reconstruct", LPN, "pictures", "--simulate", *SR, "--set", "factor=0", *OUT),
        "is at least 1, got 0",
    ),
    (("reconstruct", LPN, "one", *BLUR, "--out", "mine"), "mine/picture.png is there already"),
    (("reproduce", "quick", "--seed", "-1", *OUT), "--seed"),
    (("diagnose", LPN, "--images", "black"), "black everywhere"),
    (("diagnose", LPN, "--images", "pictures", "--out", "text.txt"), "text.txt is a file"),
    (("diagnose", LPN, "--images", "nowhere"), "no folder nowhere"),
    (("diagnose", LPN, "--images", "pictures", "--reference", "nobody"), "no such model"),
    (("diagnose", LPN, "--images", "pictures", "--problem", "x"), "no problem 'x'"),
    (("diagnose", LPN, "--images", "pictures", "--size", "640"), "640 x 640"),
    (("certify", LPN, "--images", "pictures", *OUT), "--reference"),
    (("certify", LPN, "--reference", "nobody", "--images", "pictures", *OUT), "no such model"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG, ids=[" ".join(a) for a, _ in WRONG])
def test_wrong_use(
    arguments: tuple[str, ...],
    message: str,
    proxmatch: Run,
    pictures: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    Path("pictures").symlink_to(pictures)
    Path("empty").mkdir()
    Path("text.txt").write_text("these are: [no pixels")
    Path("rate.yaml").write_text("learning_rate: 0.1")
    Path("one").mkdir()
    Path("one/picture.png").write_bytes((pictures / "picture0.png").read_bytes())
    for folder in ("mine", "black"):
        Path(folder).mkdir()
        Image.new("RGB", (64, 64)).save(f"{folder}/picture.png")
    before, mine = sorted(pictures.iterdir()), Path("mine/picture.png").read_bytes()
    done = proxmatch(*arguments)
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err
    assert "This is a defect" not in done.err
    assert len(done.err.splitlines()) <= 12
    assert done.out == ""
    assert not Path("out").exists()
    assert sorted(pictures.iterdir()) == before
    assert [Path("mine/picture.png")] == list(Path("mine").iterdir())
    assert Path("mine/picture.png").read_bytes() == mine


def test_every_command_has_an_example(proxmatch: Run) -> None:
    from proxmatch import commands

    for name in commands.names():
        done = proxmatch(name.rstrip("_"), "--help")
        assert done.code == 0
        assert f"proxmatch {name.rstrip('_')}" in done.out.split("Example:", 1)[1]
