"""Networks of others and of one's own, from their files to a certificate.

    python -m benchmarks.own --data DATA --out results/own

DATA holds ``weights/`` (``ffdnet_color.pth`` and ``dncnn_color_blind.pth`` of KAIR),
``bsds/train``, ``cbsd68`` and ``celeba/``. For each network of :data:`NETWORKS` the lines of a user
are run as they stand: import it, train it shortly as a gradient step on photographs, diagnose it on
faces, adapt it to four of them, reconstruct two others and certify the run.
Then denoising is measured on photographs before and after the training, and the L(s) that says at
which (s, t) it is a proximal map. Writes a JSON file for each network, and README.md with the
lines and what they print, of all that are there.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import sys
import tempfile
import time
import warnings
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import proxmatch as pm
from proxmatch._internal.files import write_together
from proxmatch._internal.provenance import versions
from proxmatch._internal.randomness import generator_of
from proxmatch.denoisers import ProximalDenoiser
from proxmatch.metrics import psnr

#: Before everything else.
SHARED = """\
import deepinv as dinv
import torch
import proxmatch as pm

torch.manual_seed(0)
photographs = pm.ImageDomain("DATA/bsds/train", 32)
faces = pm.ImageDomain("DATA/celeba", 40, split="validation", crop="center").tensor(range(4))
problem = pm.make_problem("deblurring", 40, iterations=10)
x = pm.ImageDomain("DATA/celeba", 40, split="test", crop="center").tensor(range(2))
y = problem.measure(x)
"""
#: What makes each network a denoiser, and how it is trained.
NETWORKS = {
    "FFDNet": (
        'own = pm.denoisers.import_checkpoint("DATA/weights/ffdnet_color.pth", "ffdnet")\n',
        'trained = pm.train(own, photographs, "OUT", steps=60).denoiser\n',
    ),
    "DnCNN": (
        'own = pm.denoisers.import_checkpoint("DATA/weights/dncnn_color_blind.pth", "dncnn")\n',
        'trained = pm.train(own, photographs, "OUT", steps=60).denoiser\n',
    ),
    "deepinv's DRUNet, random weights": (
        "network = dinv.models.DRUNet(nc=(16, 32, 64, 64), nb=1, pretrained=None)\n"
        "own = pm.GradientStep.of(network, smooth=True, levels=(0.01, 0.2))\n",
        "quick = pm.learning.Optimizer(rate=2e-3, clip=1.0)\n"
        "settings = pm.learning.TrainingSettings(\n"
        "    noise=pm.learning.Levels(low=0.01, high=0.2), batch=4, optimizer=quick\n"
        ")\n"
        'trained = pm.train(own, photographs, "OUT", settings=settings, steps=200).denoiser\n',
    ),
    "a residual network of one's own, random weights": (
        "class Block(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.a = torch.nn.Conv2d(24, 24, 3, padding=1)\n"
        "        self.b = torch.nn.Conv2d(24, 24, 3, padding=1)\n"
        "        self.act = torch.nn.ReLU()\n"
        "    def forward(self, x):\n"
        "        return x + self.b(self.act(self.a(x)))\n"
        "\n"
        "network = torch.nn.Sequential(\n"
        "    torch.nn.Conv2d(3, 24, 3, padding=1), *(Block() for _ in range(4)),\n"
        "    torch.nn.Conv2d(24, 3, 3, padding=1),\n"
        ")\n"
        "own = pm.GradientStep.of(network, smooth=True, residual=True, sigma=0.1)\n",
        "quick = pm.learning.Optimizer(rate=2e-3, clip=1.0)\n"
        "settings = pm.learning.TrainingSettings(noise=0.1, batch=4, optimizer=quick)\n"
        'trained = pm.train(own, photographs, "OUT", settings=settings, steps=200).denoiser\n',
    ),
}
#: After that, for all of them.
USE = """\
print(pm.diagnose(trained, faces, problem, sources=()).advice())
adapted = pm.adapt(trained, faces, problem, steps=20)
print(adapted.table)
print(adapted.evidence)
found = pm.reconstruct(adapted.denoiser, y, problem)
print(found)
runs = {"trained": trained, "adapted": adapted.denoiser}
certificate = pm.certify(
    runs, y[:1], problem, reference=adapted.denoiser, iterations=3, local=()
)
print(certificate)
"""
#: Noise levels of the tables.
LEVELS = (0.02, 0.05, 0.1)
#: Test photographs that denoising is measured on, and of these those that L is measured on.
PICTURES, SPECTRA = 4, 2
LANCZOS = 12


def main() -> None:
    """Run the lines, measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", help="part of the name of one network")
    args = parser.parse_args()
    os.environ |= {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    out, data = args.out.resolve(), args.data.resolve()
    photographs = pm.ImageDomain(data / "cbsd68", 48, crop="center")
    places = [round(i * len(photographs) / PICTURES) for i in range(PICTURES)]
    test = photographs.tensor(places)
    out.mkdir(parents=True, exist_ok=True)
    for name, (made, trained) in NETWORKS.items():
        if args.only and args.only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            Path("DATA").symlink_to(data)
            space: dict[str, Any] = {"__name__": "own"}
            said(SHARED, space)
            parts = []
            for lines in (made, trained, USE):
                began = time.monotonic()
                printed = said(lines, space)
                seconds = round(time.monotonic() - began, 1)
                parts.append({"lines": lines, "printed": printed, "seconds": seconds})
                if lines is made:
                    before = deepcopy(space["own"])
        record = {
            "name": name,
            **measured(before, space, test),
            "parts": parts,
            "levels": LEVELS,
            "data": photographs.fingerprint,
            "images": places,
            "versions": versions(),
        }
        write_together(out, {file_of(name): (json.dumps(record, indent=1) + "\n").encode()})
        sys.stderr.write(f"{name}: {[part['seconds'] for part in parts]} s\n")
    there = [out / file_of(name) for name in NETWORKS if (out / file_of(name)).exists()]
    found = {r["name"]: r for r in (json.loads(file.read_text()) for file in there)}
    page = heading(found) + "".join(chapter(name, r["parts"]) for name, r in found.items())
    write_together(out, {"README.md": page.encode()})


def file_of(name: str) -> str:
    """Where the figures of a network are kept."""
    return f"{name.partition(',')[0].replace(' ', '-').replace(chr(39), '').lower()}.json"


def said(lines: str, space: dict[str, Any]) -> str:
    """What lines print, with their warnings."""
    shown = io.StringIO()
    with (
        contextlib.redirect_stdout(shown),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("default")
        exec(lines, space)  # noqa: S102
    told = {f"{type(w.message).__name__}: {w.message}\n" for w in caught}
    return "".join(sorted(told)) + shown.getvalue()


@torch.no_grad()
def measured(before: ProximalDenoiser, space: dict[str, Any], test: Tensor) -> dict[str, Any]:
    """Denoising and L of the network, of its gradient step and of the trained one; and the run."""
    trained: ProximalDenoiser = space["trained"]
    x, run = space["x"], space["found"]
    noisy = {
        s: test + s * torch.randn(test.shape, generator=generator_of(0, f"own {s}")) for s in LEVELS
    }

    def network(z: Tensor, s: float) -> Tensor:
        levels = [z.new_full((len(z), 1, 1, 1), s)] if before.conditional else []
        out: Tensor = before.get_submodule("network")(z, *levels)
        return out

    def denoising(denoise: Any) -> list[float]:
        return [round(float(psnr(denoise(y, s), test).mean()), 3) for s, y in noisy.items()]

    def constants(denoiser: ProximalDenoiser) -> list[float]:
        found = []
        for s, y in noisy.items():
            told = s if denoiser.conditional else None
            spectrum = pm.jacobian_spectrum(denoiser, y[:SPECTRA], told, iterations=LANCZOS)
            found.append(round(float(spectrum.constant.max()), 4))
        return found

    return {
        "parameters": sum(p.numel() for p in trained.parameters()),
        "noisy": denoising(lambda y, _: y),
        "network": denoising(network),
        "gradient step": denoising(before),
        "trained": denoising(trained),
        "L before": constants(before),
        "L trained": constants(trained),
        "start": psnr(space["problem"].initial(space["y"]), x).tolist(),
        "reconstructed": psnr(torch.stack(run.images), x).tolist(),
        "status": [str(s) for s in run.status],
        "candidates": [asdict(candidate) for candidate in space["adapted"].table],
        "certified": {name: r.share for name, r in space["certificate"].runs.items()},
    }


def heading(found: dict[str, Any]) -> str:
    """The tables."""
    levels = " | ".join(f"{s:g}" for s in LEVELS)
    dashes = " | ".join("---" for _ in LEVELS)
    lines = [
        "# Networks of others and of one's own\n",
        "`benchmarks/own.py`: the lines of a user, from the file of a network to a certificate, "
        "run as they stand below with what they print. FFDNet and DnCNN are the published files of "
        "KAIR. "
        f"PSNR in dB on {PICTURES} crops of CBSD68 (48 x 48), by noise level; the training takes "
        "crops of BSDS.\n",
        f"| denoising | | {levels} |",
        f"| --- | --- | {dashes} |",
    ]
    for name, figures in found.items():
        for row in ("noisy", "network", "gradient step", "trained"):
            cells = " | ".join(f"{v:.2f}" for v in figures[row])
            lines.append(f"| {name} | {ROWS[row]} | {cells} |")
    lines += [
        "\nD = Id - t grad g is a proximal map where t < 1 / L(s). L is the largest absolute "
        f"eigenvalue of the Hessian of g at {SPECTRA} of the noisy crops ({LANCZOS} Lanczos "
        "iterations): a measurement there, not a bound everywhere.\n",
        f"| L(s), and the largest t | | {levels} |",
        f"| --- | --- | {dashes} |",
    ]
    for name, figures in found.items():
        for row in ("L before", "L trained"):
            cells = " | ".join(f"{v:.2f}: t < {min(1.0, 1 / v):.2f}" for v in figures[row])
            lines.append(f"| {name} | {ROWS[row]} | {cells} |")
    lines += [
        "\nDeblurring of two faces (40 x 40, 10 steps) with the network that was trained and "
        "adapted to four other faces. Its own strength: the one that is best for it on the four, "
        "with t L along its run. The share of the inequalities that hold along three steps is with "
        "the adapted denoiser as the reference. The seconds below are those of a busy machine.\n",
        "| | its own strength | t L | adapt chose | start | reconstructed | status | certified |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, figures in found.items():
        own = next(c for c in figures["candidates"] if c["name"] == "relaxed")
        chosen = next(c["name"] for c in figures["candidates"] if c["chosen"])
        level = "" if own["sigma"] is None else f"s {own['sigma']:.3g}, "
        start, end = (sum(figures[k]) / 2 for k in ("start", "reconstructed"))
        shares = ", ".join(
            f"{k} {'none applies' if math.isnan(v) else f'{v:.1%}'}"
            for k, v in figures["certified"].items()
        )
        lines.append(
            f"| {name} | {level}t {own['strength']:.2g} | {own['margin']:.2f} | {chosen} | "
            f"{start:.2f} | {end:.2f} | {', '.join(sorted(set(figures['status'])))} | {shares} |"
        )
    return "\n".join(lines) + f"\n\nFirst, for all of them:\n\n```python\n{SHARED}```\n"


ROWS = {
    "noisy": "noisy",
    "network": "the network itself",
    "gradient step": "its gradient step, untrained",
    "trained": "its gradient step, trained",
    "L before": "untrained",
    "L trained": "trained",
}


def chapter(name: str, parts: list[dict[str, Any]]) -> str:
    """The lines of one network and what they print."""
    text = f"\n## {name}\n"
    for part in parts:
        text += f"\n```python\n{part['lines']}```\n"
        if part["printed"].strip():
            shown = "\n".join(line.rstrip() for line in part["printed"].rstrip().splitlines())
            text += f"\n```text\n{shown}\n```\n"
    return text


if __name__ == "__main__":
    main()
