"""Every command on real pictures, and wrong uses, as they look in a terminal of 80 columns.

    python -m benchmarks.transcript --data DATA --experiment RUN --out results/transcripts

DATA holds ``celeba/``, ``brecahad/`` and ``cbsd68/``; RUN is what ``reproduce`` wrote, without
which ``report`` is left out. A few small files are laid out in a folder, in which the commands
of ``RIGHT`` and ``WRONG`` run one after the other. Writes README.md and a page for each chapter (or
for those of ``--chapter``), and ends with exit code 1 if a command did not end as it should: right
uses with the exit code beside them, wrong uses with 2, on one screen and without a traceback.

With ``--tried`` it runs ``benchmarks/tried.py`` instead, what new users tried and where they were
stuck, and writes ``tried-again.md``. For that DATA holds ``xray/`` and ``weights/`` too.
"""

from __future__ import annotations

import argparse
import io
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image

import proxmatch as pm
from benchmarks.tried import OBSTACLES, SETUP, TABLE, Tried
from proxmatch._internal.files import write_together
from proxmatch.cli import run
from proxmatch.data import encode_image, read_file
from proxmatch.denoisers import LPN, LPNConfig

ROOT = Path(__file__).parents[1]
SCREEN = 24  # lines
KEPT = 24  # of an output; what is longer is cut in the middle

FEW = "--images DATA/faces --number 4 --seed 1"
BRIEF = "--problem deblurring --steps 20"
#: Commands by chapter, each with the exit code it ends with.
RIGHT: dict[str, list[tuple[str, int]]] = {
    "What there is": [
        ("--version", 0),
        ("info", 0),
        ("info --json", 0),
        ("models", 0),
        ("models gs-histology", 0),
    ],
    "Reconstruct": [
        ("reconstruct lpn-photographs DATA/blurred --problem deblurring --out OUT/sharp", 0),
        (
            "reconstruct gs-photographs DATA/photographs/crop.png --problem super-resolution "
            "--set factor=2 --simulate --iterations 10 --threads 1 --device cpu --out OUT/sr",
            0,
        ),
        (
            "reconstruct lpn-faces DATA/mixed --problem denoising --set noise=0.05 --simulate "
            "--bits 16 --format tif --out OUT/mixed",
            0,
        ),
        (
            "reconstruct gs-faces DATA/faces/000001.jpg --problem motion-deblurring --set length=9 "
            "--set angle=30 --simulate --iterations 5 --json --out OUT/motion",
            0,
        ),
        (
            "reconstruct lpn-faces DATA/faces/000001.jpg --problem inpainting --set keep=0.5 "
            "--simulate --out OUT/inpainted",
            0,
        ),
        (
            "reconstruct lpn-faces DATA/crops --problem compressed-sensing --set share=0.5 "
            "--simulate --out OUT/sensed",
            0,
        ),
        (
            "reconstruct lpn-histology DATA/faces/000001.jpg --problem deblurring --simulate "
            "--out OUT/wrong-prior",
            0,
        ),
    ],
    "Diagnose": [
        ("diagnose lpn-histology --images DATA/faces --number 2", 1),
        ("diagnose gs-faces --images DATA/faces --number 2 --out OUT/diagnosis", 0),
        (
            "diagnose gs-histology --reference gs-faces --images DATA/faces --number 2 "
            "--problem deblurring --iterations 10",
            1,
        ),
        (
            "diagnose gs-histology --images DATA/histology --downscale 2 --number 2 "
            "--problem deblurring --json",
            0,
        ),
    ],
    "Adapt": [
        (f"adapt lpn-histology {FEW} --budget 60 --out OUT/auto", 0),
        (f"adapt lpn-histology {FEW} --method align --problem deblurring --out OUT/align", 0),
        (f"adapt lpn-histology {FEW} --method pm {BRIEF} --out OUT/pm", 0),
        (f"adapt lpn-histology {FEW} --method mse {BRIEF} --out OUT/mse", 0),
        (f"adapt lpn-histology {FEW} --method l1 {BRIEF} --out OUT/l1", 0),
        (
            "adapt gs-histology --images DATA/faces --number 1 --method adapm --steps 5 "
            "--problem deblurring --device cpu --threads 1 --out OUT/adapm",
            0,
        ),
        (
            "adapt lpn-histology --measurements DATA/blurred-faces --problem deblurring "
            "--out OUT/blind",
            0,
        ),
        ("models OUT/auto/model", 0),
        (
            "reconstruct OUT/auto/model DATA/faces/000006.jpg --problem deblurring --simulate "
            "--out OUT/right-prior",
            0,
        ),
    ],
    "Train, import, certify, report": [
        (
            "train lpn --images DATA/photographs --steps 40 --batch 2 --validation 4 --seed 3 "
            "--out OUT/trained",
            0,
        ),
        (
            "import DATA/official.pt --kind lpn-official --set sigma=0.05 --out OUT/imported",
            0,
        ),
        (
            "certify lpn-histology --reference lpn-faces --images DATA/faces --number 1 "
            "--iterations 3 --out OUT/certificate",
            0,
        ),
        ("report DATA/experiment --out OUT/report.html --json", 0),
    ],
}

#: What some wrong uses need to be there.
BEFORE = [
    "reconstruct lpn-photographs DATA/crops --problem denoising --iterations 1 --out OUT/sharp",
    "train lpn --images DATA/photographs --steps 2 --validation 0 --seed 3 --out OUT/trained",
    "import DATA/official.pt --kind lpn-official --set sigma=0.05 --out OUT/imported",
]
BLUR = "--problem deblurring --out OUT/new"
#: Wrong uses: exit code 2.
WRONG = [
    "recontruct lpn-faces DATA/faces",
    "models lpn-cat",
    "models DATA/faces",
    "models OUT/broken",
    "import DATA/faces/000001.jpg --kind lpn-official --out OUT/new",
    "import DATA/official.pt --kind gsdrunet --out OUT/new",
    "import DATA/official.pt --kind lpn --out OUT/new",
    "import DATA/official.pt --kind lpn-official --set noise=3 --out OUT/new",
    "train lpn --images DATA/faces --batch 0 --out OUT/new",
    "train resnet --images DATA/faces --out OUT/new",
    "train lpn --images DATA/tiny --out OUT/new",
    "train lpn --images DATA/photographs --steps 50 --out OUT/trained",
    "train lpn --images DATA/photographs --config DATA/settings.yaml --out OUT/new",
    "adapt lpn-faces --out OUT/new",
    "adapt lpn-faces --images DATA/faces --method gan --out OUT/new",
    "adapt lpn-faces --images DATA/faces --method adapm --out OUT/new",
    "adapt lpn-faces --images DATA/faces --method align --steps 5 --out OUT/new",
    "adapt lpn-faces --images DATA/faces --method pm --budget 5 --out OUT/new",
    "adapt lpn-faces --images DATA/tiny --out OUT/new",
    "adapt lpn-faces --measurements DATA/faces --out OUT/new",
    "adapt lpn-faces --measurements DATA/faces --problem deblurring --method mse --out OUT/new",
    "adapt lpn-faces --measurements DATA/mixed --problem deblurring --out OUT/new",
    "adapt lpn-faces --images DATA/faces --problem deblurring --set factor=2 --out OUT/new",
    f"reconstruct lpn-faces DATA/nothing.png {BLUR}",
    f"reconstruct lpn-faces DATA/damaged.png {BLUR}",
    f"reconstruct lpn-faces DATA/text.png {BLUR}",
    f"reconstruct lpn-faces DATA/empty {BLUR}",
    "reconstruct lpn-faces DATA/faces --problem deblur --out OUT/new",
    f"reconstruct lpn-faces DATA/faces {BLUR} --set sigma=3",
    f"reconstruct lpn-faces DATA/faces {BLUR} --set noise=-1",
    f"reconstruct lpn-faces DATA/faces {BLUR} --set kernel_size=401",
    f"reconstruct lpn-faces DATA/faces {BLUR} --bits 12",
    f"reconstruct lpn-faces DATA/faces {BLUR} --format jpg",
    f"reconstruct lpn-faces DATA/faces {BLUR} --device cuda:7",
    f"reconstruct lpn-faces DATA/faces {BLUR} --iterations many",
    "reconstruct lpn-faces DATA/faces --problem deblurring --out OUT/sharp",
    "reconstruct lpn-faces DATA/faces --problem deblurring --out DATA/text.png",
    "reconstruct lpn-faces DATA/faces --problem kernel-deblurring --set kernel=DATA/no.png "
    "--out OUT/new",
    "diagnose lpn-faces --images DATA/faces --size 400",
    "diagnose lpn-faces --images DATA/faces --reference lpn-face",
    "diagnose lpn-faces --images DATA/faces --problem sharpening",
    "diagnose lpn-faces",
    "certify lpn-faces --images DATA/faces --out OUT/new",
    "certify lpn-faces --reference gs-faces --images DATA/faces --size 4 --out OUT/new",
    "report OUT/nothing",
    "report OUT/imported",
]


@dataclass(frozen=True)
class Done:
    """A command that ran: its text, what it printed, and its exit code."""

    command: str
    printed: str
    code: int

    def terminal(self) -> str:
        """As in a terminal, cut where it is long."""
        lines = [line.rstrip() for line in self.printed.rstrip().splitlines()]
        if len(lines) > KEPT:
            half = KEPT // 2
            lines = [*lines[:half], f"... ({len(lines) - 2 * half} lines)", *lines[-half:]]
        return "\n".join([f"$ proxmatch {self.command}", *lines, f"exit code {self.code}"])

    def message(self) -> str:
        """The command and what was wrong with it, without the frame around it."""
        lines = self.printed.rstrip().splitlines()
        framed = [line.strip("│ ") for line in lines if line.startswith("│")]
        return "\n".join([f"$ proxmatch {self.command}", *(framed or map(str.rstrip, lines))])

    def markdown(self) -> str:
        """The same as a block."""
        return f"```console\n{self.terminal()}\n```\n"


def main() -> None:
    """Run everything, write the page, and say what did not end as it should."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--experiment", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tried", action="store_true")
    parser.add_argument("--chapter", default="", help="part of the title of those that are run")
    args = parser.parse_args()
    os.environ |= {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"}
    out, data = args.out.resolve(), args.data.resolve()
    experiment = args.experiment and args.experiment.resolve()
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        lay_out(data)
        if experiment is not None:
            Path("DATA/experiment").symlink_to(experiment)
        if args.tried:
            lay_out_more(data)
        if args.tried:
            pages = {"tried-again.md": "".join(again(faults))}
        else:
            pages = dict(chapters(faults, args.chapter))
    out.mkdir(parents=True, exist_ok=True)
    write_together(out, {name: page.encode() for name, page in pages.items()})
    sys.stderr.write("".join(f"{fault}\n" for fault in faults))
    sys.exit(1 if faults else 0)


def chapters(faults: list[str], wanted: str = "") -> Iterator[tuple[str, str]]:
    """The pages, one a chapter, and their contents."""
    number = sum(map(len, RIGHT.values()))
    wrong = "Wrong uses"
    contents = "\n".join(f"- [{title}]({file_of(title)})" for title in (*RIGHT, wrong))
    yield (
        "README.md",
        "# Transcripts\n\n"
        f"`benchmarks/transcript.py`: {number} right and {len(WRONG)} wrong uses of the command "
        "line on faces (CelebA), histology (BreCaHAD) and photographs (CBSD68), in a terminal of "
        "80 columns. DATA holds a few of these pictures, OUT is where commands write. Short "
        "trainings and few images: they show the commands, not what the methods can do.\n\n"
        f"{contents}\n- [What new users tried, tried again](tried-again.md)\n",
    )
    for title, commands in RIGHT.items():
        if wanted in title:
            yield file_of(title), f"# {title}\n\n" + "".join(right_uses(commands, faults))
    if wanted in wrong:
        yield file_of(wrong), f"# {wrong}\n\n" + "".join(wrong_uses(faults))


def file_of(title: str) -> str:
    """The page of a chapter."""
    return f"{title.lower().replace(',', '').replace(' ', '-')}.md"


def right_uses(commands: list[tuple[str, int]], faults: list[str]) -> Iterator[str]:
    """Commands and what they print."""
    for text, code in commands:
        if "DATA/experiment" in text and not Path("DATA/experiment").exists():
            continue
        done = call(text)
        if done.code != code or "Traceback" in done.printed:
            faults.append(f"exit code {done.code}, not {code}: proxmatch {text}")
        yield done.markdown()


def wrong_uses(faults: list[str]) -> Iterator[str]:
    """Commands and what is wrong with them."""
    for text in BEFORE:
        call(text)
    yield "Exit code 2, and nothing is written.\n\n```console\n"
    for text in WRONG:
        done = call(text)
        unfit = [w for w in ("Traceback", "This is a defect") if w in done.printed]
        if done.code != 2 or unfit or len(done.printed.splitlines()) > SCREEN:
            faults.append(f"exit code {done.code} {unfit}: proxmatch {text}")
        if Path("OUT/new").exists() and any(Path("OUT/new").iterdir()):
            faults.append(f"it wrote {[p.name for p in Path('OUT/new').iterdir()]}: {text}")
            shutil.rmtree("OUT/new")
        yield f"{done.message()}\n"
    yield "```\n"


def again(faults: list[str]) -> Iterator[str]:
    """The page of what was tried before, piece by piece."""
    yield (
        "# Tried again\n\n`benchmarks/transcript.py --tried`: what new users tried, what happened "
        "to them then, and what happens now. Pictures and budgets are small: these lines show what "
        "is said, not what the methods can do.\n"
    )
    guides = {path.name: path.read_text() for path in sorted((ROOT / "docs").glob("*.rst"))}
    space = {"README": (ROOT / "README.md").read_text(), "GUIDES": guides, "killed": killed}
    exec(SETUP, space)  # noqa: S102
    for title, entries in (("What was tried", TABLE), ("Obstacles", OBSTACLES)):
        yield f"\n## {title}\n"
        for entry in entries:
            printed = said(entry, space)
            sys.stderr.write(f"{entry.title}\n")
            output = [line for line in printed.splitlines() if not line.startswith((">>> ", "$ "))]
            if entry.expected not in "\n".join(output) or "This is a defect" in printed:
                faults.append(f"no {entry.expected!r}: {entry.title}")
            yield f"\n### {entry.title}\n\nThen: {entry.then}.\n\n"
            yield f"```text\n{printed.rstrip()}\n```\n"


def said(entry: Tried, space: dict[str, object]) -> str:
    """The lines of an entry and what they print: commands, and pieces of Python between them."""
    pieces: list[list[str]] = []
    for line in entry.lines.splitlines():
        if not pieces or line.startswith("$") or pieces[-1][0].startswith("$"):
            pieces.append([])
        pieces[-1].append(line)
    text = ""
    for piece in pieces:
        if piece[0].startswith("$"):
            done = call(piece[0].removeprefix("$").strip())
            text += done.terminal() + "\n"
            continue
        lines = "\n".join(piece)
        shown = io.StringIO()
        with redirect_stdout(shown), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            try:
                exec(lines, space)  # noqa: S102
            except Exception as error:  # what a user would see
                shown.write(f"{type(error).__name__}: {error}\n")
        told = [f"{type(w.message).__name__}: {w.message}\n" for w in caught]
        prompt = "".join(f">>> {line}\n" for line in piece)
        text += prompt + "".join(dict.fromkeys(told)) + shown.getvalue()
    return "\n".join(line.rstrip() for line in text.splitlines())


def killed(text: str) -> None:
    """Run a command in a process of its own, and end it with SIGKILL after its first checkpoint."""
    command = [sys.executable, "-m", "proxmatch", *shlex.split(text)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    state = Path(shlex.split(text)[-1]) / "state.safetensors"
    while process.poll() is None and not state.exists():
        time.sleep(0.05)
    process.kill()
    process.wait()


def call(text: str) -> Done:
    """Run a command in this process."""
    shown = io.StringIO()
    with redirect_stdout(shown), redirect_stderr(shown):
        code = run(shlex.split(text))
    sys.stderr.write(f"{code}: proxmatch {text}\n")
    return Done(text, shown.getvalue(), code)


def lay_out(data: Path) -> None:
    """DATA: a few pictures as they are, and what the wrong uses need."""
    here = Path("DATA")
    for name in ("blurred", "blurred-faces", "mixed", "tiny", "crops", "empty", "photographs"):
        (here / name).mkdir(parents=True)
    faces = sorted((data / "celeba" / "img_align_celeba").glob("*.jpg"))[:6]
    photographs = sorted((data / "cbsd68").glob("*.png"))[:4]
    slides = sorted((data / "brecahad" / "images").glob("*.jpg"))[:2]
    (here / "faces").mkdir()
    for number, face in enumerate(faces, 1):
        shutil.copy(face, here / "faces" / f"{number:06}.jpg")
    _copy(photographs, here / "photographs")
    _copy(slides, here / "histology")
    picture = Image.open(photographs[0])
    picture.crop((100, 100, 196, 164)).save(here / "photographs" / "crop.png")
    for face in faces:
        (here / "blurred-faces" / f"{face.stem}.png").write_bytes(_blurred(face, side=64))
    for path in photographs[:2]:
        (here / "blurred" / path.name).write_bytes(_blurred(path, bits=16))
    Image.open(faces[0]).crop((12, 22, 76, 86)).save(here / "crops" / "face.png")
    Image.open(faces[0]).crop((0, 0, 20, 20)).save(here / "tiny" / "face.png")
    Image.open(faces[1]).convert("L").save(here / "mixed" / "gray.png")
    Image.open(faces[2]).crop((10, 10, 60, 90)).save(here / "mixed" / "narrow.bmp")
    (here / "mixed" / "deep.png").write_bytes(encode_image(read_file(faces[3]).pixels, bits=16))
    (here / "damaged.png").write_bytes(photographs[0].read_bytes()[:5000])
    (here / "text.png").write_text("no picture")
    (here / "settings.yaml").write_text("steps: 10\nlearning_rate: 0.1\n")
    torch.save(LPN(LPNConfig.official(hidden=4, features=3)).state_dict(), here / "official.pt")
    broken = Path("OUT/broken")
    pm.save(LPN(LPNConfig(size=8, hidden=4, features=3, strides=(2,))), broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def lay_out_more(data: Path) -> None:
    """What the lines of ``benchmarks/tried.py`` need beside that."""
    here = Path("DATA")
    (here / "gray").mkdir()
    xray = Image.open(sorted((data / "xray").glob("*.jpg"))[0]).convert("L").resize((256, 256))
    xray.crop((96, 96, 160, 160)).save(here / "gray" / "xray.png")
    deep = read_file(here / "gray" / "xray.png").pixels[:1]
    (here / "gray" / "deep.png").write_bytes(encode_image(deep, bits=16))
    photograph = Image.open(sorted((data / "cbsd68").glob("*.png"))[4])
    photograph.crop((100, 100, 228, 228)).save(here / "photographs" / "large.png")
    faces = sorted((data / "celeba" / "img_align_celeba").glob("*.jpg"))[6:16]
    _copy(faces, here / "more-faces")
    (here / "dncnn_color_blind.pth").symlink_to(data / "weights" / "dncnn_color_blind.pth")
    (here / "short.yaml").write_text("{steps: 60, batch: 2, checkpoint_every: 5}\n")


def _copy(files: list[Path], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copy(file, folder)


def _blurred(path: Path, bits: int = 8, side: int | None = None) -> bytes:
    """A measurement of a picture, or of its middle, as a picture: blurred, with noise."""
    x = read_file(path).pixels[None]
    top, left = ((n - (side or n)) // 2 for n in x.shape[2:])
    x = x[..., top : top + (side or x.shape[2]), left : left + (side or x.shape[3])]
    problem = pm.gaussian_deblurring((x.shape[2], x.shape[3]))
    return encode_image(problem.measure(x, seed=0)[0], bits=16 if bits == 16 else 8)


if __name__ == "__main__":
    main()
