"""Train the small denoisers that ship with proxmatch, by plain MSE at one noise level.

    python tools/train_weights.py lpn photographs --images FOLDER --minutes 5
    python tools/train_weights.py gs photographs --images FOLDER --minutes 5
    python tools/train_weights.py gs photographs --images FOLDER --minutes 8 --contract

write ``src/proxmatch/weights/lpn-photographs`` and ``gs-photographs``. ``--contract`` goes on from
the weights that are there, with the contractivity penalty.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from proxmatch.denoisers import (
    LPN,
    GradientStep,
    GradientStepConfig,
    LPNConfig,
    ProximalDenoiser,
    lipschitz,
    load,
    save,
)
from proxmatch.losses import contractivity_penalty, top_direction

WEIGHTS = Path(__file__).parents[1] / "src" / "proxmatch" / "weights"
SIDE, VALIDATION_NOISE = 64, 0.05
RECIPES = {
    "lpn": {"sigma": 0.07, "rate": 1e-2, "batch": 8, "crop": 64},
    "gs": {"sigma": 0.05, "rate": 2e-3, "batch": 8, "crop": 32},
    "gs-contract": {
        "sigma": 0.05,
        "rate": 5e-4,
        "batch": 8,
        "crop": 32,
        "limit": 0.9,
        "weight": 0.1,
        "clip": 0.02,
    },
}


def read(folder: Path, reduce: int) -> tuple[list[torch.Tensor], str]:
    """All pictures of a folder, ``(3, H, W)`` bytes, and a hash of their contents."""
    digest = hashlib.sha256()
    pictures = []
    for file in sorted(p for p in folder.iterdir() if p.suffix.lower() in {".png", ".jpg", ".tif"}):
        digest.update(file.read_bytes())
        picture = Image.open(file).convert("RGB")
        pixels = np.array(picture.reduce(reduce) if reduce > 1 else picture)
        pictures.append(torch.from_numpy(pixels).permute(2, 0, 1))
    return pictures, digest.hexdigest()[:16]


def crops(
    pictures: list[torch.Tensor], count: int, side: int, generator: torch.Generator
) -> torch.Tensor:
    """Random crops with flips, ``(count, 3, side, side)`` in [0, 1]."""
    out = []
    for which in torch.randint(len(pictures), (count,), generator=generator).tolist():
        picture = pictures[which]
        top = int(torch.randint(picture.shape[1] - side + 1, (), generator=generator))
        left = int(torch.randint(picture.shape[2] - side + 1, (), generator=generator))
        crop = picture[:, top : top + side, left : left + side]
        out.append(crop.flip(-1) if torch.rand((), generator=generator) < 0.5 else crop)
    return torch.stack(out).float() / 255


def main() -> None:
    """Train one denoiser and save it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family", choices=RECIPES)
    parser.add_argument("domain")
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--reduce", type=int, default=1, help="box downscaling before cropping")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--contract", action="store_true", help="second stage, for gs")
    args = parser.parse_args()

    recipe = RECIPES["gs-contract" if args.contract else args.family]
    folder = WEIGHTS / f"{args.family}-{args.domain}"
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    pictures, fingerprint = read(args.images, args.reduce)
    training, held_out = (
        pictures[: -max(2, len(pictures) // 10)],
        pictures[-max(2, len(pictures) // 10) :],
    )
    validation = crops(held_out, 64, SIDE, torch.Generator().manual_seed(2))
    noise = torch.randn(validation.shape, generator=torch.Generator().manual_seed(3))
    noisy = validation + VALIDATION_NOISE * noise

    earlier: list[dict[str, object]] = []
    if args.contract:
        model: ProximalDenoiser = load(folder).train()
        earlier = model.record["trained"]
    elif args.family == "lpn":
        model = LPN(LPNConfig.compact(sigma=recipe["sigma"]))
    else:
        model = GradientStep(GradientStepConfig.compact(sigma=recipe["sigma"]))
    optimiser = torch.optim.Adam(model.parameters(), lr=recipe["rate"], betas=(0.9, 0.99))
    started, step = time.monotonic(), 0
    while (done := (time.monotonic() - started) / (60 * args.minutes)) < 1:
        rate = (
            recipe["rate"]
            * min(1, (step + 1) / 20)
            * (0.01 + 0.99 * (1 + math.cos(math.pi * done)) / 2)
        )
        optimiser.param_groups[0]["lr"] = rate
        clean = crops(training, int(recipe["batch"]), int(recipe["crop"]), generator)
        given = clean + recipe["sigma"] * torch.randn(clean.shape, generator=generator)
        loss = ((model(given) - clean) ** 2).mean()
        if args.contract and isinstance(model, GradientStep):
            v = top_direction(model, given, torch.randn(given.shape, generator=generator))
            excess = contractivity_penalty(model, given, v, recipe["limit"])
            loss = loss + recipe["weight"] * excess.mean()
        optimiser.zero_grad()
        loss.backward()
        if "clip" in recipe:
            torch.nn.utils.clip_grad_norm_(model.parameters(), recipe["clip"])
        optimiser.step()
        if isinstance(model, LPN):
            model.project_()
        step += 1
    with torch.no_grad():
        error = ((model(noisy) - validation) ** 2).mean((1, 2, 3))
    psnr = float(-10 * error.log10().mean())
    spectrum = lipschitz(model, noisy[:16])
    if isinstance(model, GradientStep):
        model.lipschitz = float(spectrum.constant.max())
    model.record = {
        "trained": [
            *earlier,
            {
                "domain": args.domain,
                "pictures": len(training),
                "held_out_pictures": len(held_out),
                "fingerprint": fingerprint,
                "reduce": args.reduce,
                "loss": "mse + contractivity" if args.contract else "mse",
                "steps": step,
                "minutes": args.minutes,
                "threads": torch.get_num_threads(),
                **recipe,
            },
        ],
        "validation": {
            "noise": VALIDATION_NOISE,
            "psnr": round(psnr, 2),
            "largest_eigenvalue": round(float(spectrum.largest.max()), 4),
            "smallest_eigenvalue": round(float(spectrum.smallest.min()), 4),
            "eigenvalue_residual": round(float(spectrum.largest_residual.max()), 4),
        },
        "versions": {name: version(name) for name in ("torch", "deepinv")},
    }
    print(args.family, args.domain, model.record)  # noqa: T201
    save(model, folder)


if __name__ == "__main__":
    main()
