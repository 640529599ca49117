"""A small experiment's folder with plausible numbers, and pictures made from scikit-image's own.

``python -m tests.report.fixture FOLDER`` writes one to look at.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from skimage import data, filters, transform

SHOWN = ("source", "reference", "none", "wiener", "tv", "mse", "pm", "adapm", "aligned")
FRAMES = [0, 1, 2, 3, 5, 8, 12, 16, 20, 25, 30, 35, 40]
SHOTS = [1, 5, 25, 50]
PROBLEMS = ["deblurring", "super-resolution"]
BLOCKS = [("lpn", "extreme"), ("lpn", "mild"), ("gs", "histology")]
LEVEL = {
    "source": (7.0,), "reference": (27.7,), "none": (26.1,), "wiener": (28.2,), "tv": (27.4,),
    "mse": (8.2, 11.9, 19.4, 23.8), "pm": (10.5, 20.5, 25.5, 26.1),
    "scaled-mse": (9.3, 20.1, 25.2, 25.9), "l1": (10.1, 20.9, 25.1, 25.8),
    "mse-clip": (17.2, 17.1, 24.6, 25.7), "pm-clip": (17.0, 17.7, 25.3, 25.9),
    "adapm": (26.1, 27.2, 27.4, 27.6), "aligned": (25.1, 25.2, 25.2, 25.3),
    "auto": (26.4, 27.3, 27.5, 27.8),
}  # fmt: skip


def level(family: str, source: str, method: str, n: int, problem: str) -> float:
    values = LEVEL[method]
    value = values[SHOTS.index(n)] if n else values[0]
    value += {"extreme": 0.0, "mild": 0.3 * (26.5 - value), "histology": 0.8 * (27 - value)}[source]
    return value - (5.0 if problem == "super-resolution" else 0.0)


def settings(families: set[str] | None = None) -> list[dict[str, Any]]:
    rows = []
    for family, source in BLOCKS:
        for method, values in LEVEL.items():
            if (family, method) in {("lpn", "adapm"), ("gs", "pm-clip"), ("gs", "mse-clip")}:
                continue
            for n in SHOTS if len(values) > 1 else [0]:
                for problem in PROBLEMS:
                    if families is None or family in families:
                        key = {"family": family, "source": source, "method": method, "n": n}
                        rows.append(key | {"problem": problem})
    return rows


def write_folder(out: Path, images: int = 4, pictures: int = 1, size: int = 32) -> Path:
    """Everything of the contract: CSV files, claims, tables, figures and pictures."""
    out.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    names = [f"{7500 + i:06d}.jpg" for i in range(images)]
    _measurements(out, names, random)
    write_json(out / "claims.json", claims(random))
    write_json(out / "manifest.json", manifest())
    (out / "tables").mkdir(exist_ok=True)
    (out / "tables" / "table2.md").write_text(TABLE, encoding="utf-8")
    _figures(out / "figures")
    if pictures:
        _pictures(out, names[:pictures], size, random)
    return out


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _measurements(out: Path, names: list[str], random: np.random.Generator) -> None:
    images, iterations, cells = [], [], []
    offsets = {name: random.normal(0, 1.6) for name in names}
    for key in settings():
        base = level(**key)
        sets = range(3 if key["n"] else 1)
        for number in sets:
            shift = random.normal(0, 1.2 / (1 + key["n"] / 5)) if key["n"] else 0.0
            gap = max(0.4, 3.2 * (29.5 - base - (0 if key["problem"] == "deblurring" else 5)))
            gap = gap * np.exp(0.1 * random.normal())
            for relaxation in ("paper", "chosen"):
                gain = 0.0 if relaxation == "paper" else 0.55 * max(0.0, 28.4 - base)
                tuned = {"relaxation": relaxation, "t": 1.0 if relaxation == "paper" else 0.2}
                for name in names:
                    psnr = base + shift + gain + offsets[name] + random.normal(0, 0.2)
                    images.append(
                        key | tuned | {
                            "set": number, "image": name, "psnr": f"{psnr:.4f}",
                            "ssim": f"{1 / (1 + np.exp(-(psnr - 15) / 5)):.4f}",
                            "best_psnr": f"{psnr + abs(random.normal(0, 1)):.4f}",
                            "best_iteration": int(random.integers(2, 41)),
                            "gap": "" if key["method"] in ("reference", "none", "wiener", "tv")
                            else f"{gap:.3f}",
                            "lipschitz": f"{1 + 20 / (10 + psnr):.3f}"
                            if key["family"] == "gs" else "",
                        }
                    )  # fmt: skip
                start = 24.0 if key["problem"] == "deblurring" else 20.0
                for k in range(41):
                    value = start + (base + shift + gain - start) * (1 - np.exp(-k / 9))
                    iterations.append(
                        key | {"set": number, "relaxation": relaxation, "iteration": k}
                        | {"psnr": f"{value:.4f}", "gap": f"{gap:.3f}", "images": len(names)}
                    )  # fmt: skip
            cells.append(
                key | {"set": number, "seconds": f"{random.uniform(9, 60):.1f}", "steps": 800}
                | {"step": 800, "status": "done", "key": f"{random.integers(1 << 60):015x}"}
            )  # fmt: skip
    write_csv(out / "images.csv", images)
    write_csv(out / "iterations.csv", iterations)
    write_csv(out / "cells.csv", cells)


def claims(random: np.random.Generator) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    kinds = {
        "The source": "source-far-below-reference", "Proximal matching": "proposed-beats-mse-psnr",
        "MSE with": "mse-below-source", "L of": "proposed-smaller-lipschitz",
    }  # fmt: skip

    def claim(
        statement: str, paper: str, where: tuple[str, str, int | None], effect: float
    ) -> None:
        kind = next(kind for start, kind in kinds.items() if statement.startswith(start))
        half = abs(random.normal(1.0, 0.5)) + 0.3
        low, high = effect - half, effect + half * 1.1
        verdict = "holds" if low > 0 else "does not hold" if high < 0 else "undecided"
        says = "Plain MSE with proximal matching's own gradient scale recovers most of the gain."
        driver = {"control": "MSE, scaled", "effect": 0.9 * effect, "low": 0.7 * effect}
        other = {"control": "MSE, clipped", "effect": 0.3 * effect, "low": 0.1 * effect}
        made.append(
            {"id": f"{kind}/{len(made)}", "paper": paper}
            | {"statement": f"{statement}: {where[0].upper()}, {where[1]}."}
            | {"source": "extreme" if where[0] == "lpn" else "histology", "threshold": 0.0}
            | dict(zip(("family", "problem", "n"), where, strict=True))
            | {"effect": effect, "low": low, "high": high, "unit": "dB", "verdict": verdict}
            | {"images": 100, "sets": 3, "drivers": [
                driver | {"high": 1.2 * effect, "says": says},
                other | {"high": 0.5 * effect, "says": "Clipping the gradient is part of it."},
            ] if n_of(where) else []}
        )  # fmt: skip

    def n_of(where: tuple[str, str, int | None]) -> int:
        return where[2] or 0

    for family, effect in (("lpn", 20.7), ("gs", 1.2)):
        for problem in PROBLEMS:
            claim(
                "The source denoiser ends far below the reference",
                "19.9 dB (LPN) and 12.3 dB (GS) in deblurring",
                (family, problem, None), effect - (5 if problem != "deblurring" else 0),
            )  # fmt: skip
    for problem in PROBLEMS:
        for n, effect in zip(SHOTS, (2.3, 8.6, 6.1, 0.4), strict=True):
            claim(
                "Proximal matching ends above MSE in PSNR",
                "by 2.9, 4.3, 3.6 and 3.1 dB at n = 1, 5, 25, 50 in deblurring",
                ("lpn", problem, n), effect,
            )  # fmt: skip
    claim("MSE with one image ends below the source", "by 1.7 dB", ("lpn", "deblurring", 1), -1.2)
    claim("L of AdaPM is below L of MSE", "at n = 1 and 5", ("gs", "deblurring", 1), 0.5)
    return made


def manifest() -> dict[str, Any]:
    return {
        "scale": "cpu", "created": "2026-03-14T15:09:26+00:00", "minutes": 158.2,
        "peak_memory_mb": 2310.5,
        "settings": {"size": 64, "iterations": 40, "shots": SHOTS, "sets": 3,
                     "pm": {"epochs": 200, "lr": 1e-3, "sigma": 0.07, "gamma": [0.4525, 0.0566]}},
        "seeds": {"sets": 0, "noise": 0, "training": 0},
        "versions": {"proxmatch": "0.1.0", "torch": "2.13.0", "deepinv": "0.5.0", "python": "3.11"},
        "data": {"source": {"name": "BreCaHAD", "images": 1200, "fingerprint": "a3f0" * 16},
                 "target": {"name": "CelebA", "images": 7600, "fingerprint": "09be" * 16}},
        "models": {"lpn/extreme": {"parameters": 222000, "seconds": 390, "psnr": 31.5}},
        "thinned": ["Three adaptation sets a cell: intervals at n = 1 are about 2 dB wide."],
        "cells": {"done": 118, "planned": 120},
    }  # fmt: skip


TABLE = """# Table 2, deblurring

| | n | PSNR here | PSNR in the paper |
| --- | ---: | ---: | ---: |
| LPN-source | | 7.04(1.1) | 11.52(2.36) |
| LPN-MSE | 5 | 11.90(2.0) | 23.52(3.09) |
| **LPN-PM** | 5 | **20.50(2.4)** | 27.86(2.66) |

Mean and standard deviation over 100 images.
"""


def _figures(folder: Path) -> None:
    from matplotlib.figure import Figure

    index = []
    for name, title in (
        ("domains", "Domain samples"),
        ("scatter", "PSNR against mismatch"),
        ("certificate-deblurring", "Deblurring, LPN"),
    ):
        figure = Figure(figsize=(7, 2.6), layout="constrained")
        axis = figure.subplots()
        k = np.arange(1, 41)
        axis.plot(k, 1 / k, color="#0072B2")
        axis.plot(k, 1.5 / k + 0.2, color="#E69F00", linestyle="--")
        axis.set(xlabel="iterations", ylabel="mean square gradient")
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=110)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.png").write_bytes(file.getvalue())
        caption = "The measured curve stays below its bound, and the bound has a floor."
        alt = f"{title}: two decaying curves over 40 iterations"
        index.append({"name": name, "title": title, "caption": caption, "alt": alt})
    write_json(folder / "index.json", index)


def _pictures(out: Path, names: list[str], size: int, random: np.random.Generator) -> None:
    (out / "pictures").mkdir(exist_ok=True)
    crops = [data.astronaut()[20:212, 130:322], data.chelsea()[60:252, 110:302],
             data.coffee()[100:356, 220:476], data.astronaut()[300:492, 300:492]]  # fmt: skip
    truth: dict[str, str] = {}
    degraded: dict[str, dict[str, str]] = {problem: {} for problem in PROBLEMS}
    entries: list[dict[str, Any]] = []
    for i, name in enumerate(names):
        x = transform.resize(crops[i % len(crops)], (size, size), anti_aliasing=True)
        truth[name] = _save(out, f"truth-{i}", x)
        start = {
            p: filters.gaussian(x, s, channel_axis=2)
            for p, s in zip(PROBLEMS, (1, 2.2), strict=True)
        }
        for problem in PROBLEMS:
            noisy = start[problem] + random.normal(0, 0.02, x.shape)
            degraded[problem][name] = _save(out, f"degraded-{problem}-{i}", noisy)
        fields = [filters.gaussian(random.normal(size=x.shape), 1.5, channel_axis=2), x - x.mean()]
        pattern = fields[0] / fields[0].std() + 0.8 * fields[1] / fields[1].std()
        for key in settings({"lpn"} if i else None):
            if key["source"] == "mild" or key["n"] not in (0, 5) or key["method"] not in SHOWN:
                continue
            rms = 10 ** (-level(**key) / 20)
            frames = []
            for k in FRAMES:
                share = 1 - np.exp(-k / 9)
                e = (1 - share) * (start[key["problem"]] - x) + share * rms * pattern
                blur = start[key["problem"]] - x
                frames.append(np.concatenate([x + e + 0.4 * share * blur, x + e]))
            strip = np.concatenate(frames, axis=1)
            file = _save(out, f"{len(entries):04d}", strip)
            entries.append(key | {"set": 0, "relaxation": "paper", "image": name})
            entries[-1]["file"] = file
    write_json(
        out / "pictures" / "index.json",
        {"size": size, "frames": FRAMES, "images": names, "problems": PROBLEMS,
         "entries": entries, "truth": truth, "degraded": degraded},
    )  # fmt: skip


def _save(out: Path, name: str, pixels: np.ndarray[Any, Any]) -> str:
    file = f"pictures/{name}.png"
    eight = np.rint(255 * np.clip(pixels, 0, 1)).astype(np.uint8)
    Image.fromarray(eight).save(out / file, optimize=False)
    return file


if __name__ == "__main__":
    print(write_folder(Path(sys.argv[1]), images=8, pictures=2, size=64))
