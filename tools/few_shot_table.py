"""What drives few-shot adaptation: losses, gradient scale, clipping, penalty, stopping.

    python tools/few_shot_table.py lpn --data DATA --out results/few-shot [--test-images 100]
    python tools/few_shot_table.py gs --data DATA --out results/few-shot --test-images 24

From the shipped histology denoiser to faces with five images, three sets of them. Every cell is a
JSON file with per-image values and its settings; a cell that is there is not computed again. All
cells of a set share images, noise, start and steps. ``--table`` prints the cells that are there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import warnings
from pathlib import Path
from typing import Any

import torch

import proxmatch as pm
from proxmatch._internal.files import write_together
from proxmatch.errors import AdaptationWarning, DivergenceWarning
from proxmatch.learning import Penalty, adapt, adaptation_settings
from proxmatch.learning.settings import TrainingSettings

SETS, NUMBER, GAP_IMAGES, CLIP = (0, 1, 2), 5, 8, 0.02
PROBLEMS = (pm.gaussian_deblurring(64), pm.super_resolution(64))
TRAINED_ON, DRAWS = NUMBER - 1, 4


def cells(family: str) -> dict[str, dict[str, Any]]:
    """Method and settings of every row of the table."""
    if family == "lpn":
        losses = ("mse", "l1", "pm", "scaled-mse")
        return {
            f"{loss}{', clipped' if clip else ''}": {"method": loss, "clip": clip}
            for loss in losses
            for clip in (None, CLIP)
        }
    return {
        f"{loss}{' + penalty' if penalty else ''}": {"method": loss, "penalty": penalty}
        for loss in ("mse", "pm")
        for penalty in (False, True)
    }


def settings_of(source: pm.ProximalDenoiser, cell: dict[str, Any]) -> TrainingSettings:
    """The settings of a cell."""
    settings = adaptation_settings(source, cell["method"], TRAINED_ON * DRAWS)
    told = settings.model_dump()
    if "clip" in cell:
        told["optimizer"]["clip"] = cell["clip"]
    if cell.get("penalty"):
        told["penalty"] = Penalty(iterations=5)
    return TrainingSettings.model_validate(told)


def measure(
    model: pm.ProximalDenoiser, reference: pm.ProximalDenoiser, test: torch.Tensor
) -> dict[str, Any]:
    """PSNR of the last and the best iterate of each test image, and the gap to the reference."""
    found: dict[str, Any] = {}
    for problem in PROBLEMS:
        y = problem.measure(test)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DivergenceWarning)
            result = pm.pnp_pgd(model, y, problem, truth=test)
            few = slice(GAP_IMAGES)
            gap = pm.pnp_pgd(model, y[few], problem, reference=reference, record=()).gap
        assert result.psnr is not None  # noqa: S101
        assert gap is not None  # noqa: S101
        last = result.psnr.gather(1, result.iterations[:, None])[:, 0]
        found[problem.name] = {
            "last": last.tolist(),
            "best": result.psnr.nan_to_num(-1).amax(1).tolist(),
            "gap": gap.nanmean(1).tolist(),
            "diverged": sum(status == "diverged" for status in result.status),
        }
    return found


def main() -> None:
    """Fill in the cells of one family."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family", choices=["lpn", "gs"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--test-images", type=int, default=100)
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    if not args.table:
        fill(args)
    print(table(args.family, args.out))  # noqa: T201


def fill(args: argparse.Namespace) -> None:
    """Compute what is missing."""
    args.out.mkdir(parents=True, exist_ok=True)
    source, reference = (pm.load(f"{args.family}-{d}") for d in ("histology", "faces"))
    faces = args.data / "celeba"
    adaptation, test_domain = (
        pm.ImageDomain(faces, 64, split=split) for split in ("validation", "test")
    )
    test = test_domain.tensor(range(args.test_images))

    def write(name: str, content: dict[str, Any]) -> None:
        text = json.dumps(content, indent=1) + "\n"
        write_together(args.out, {name: text.encode()})

    for name, model in (("source", source), ("reference", reference)):
        file = f"{args.family} {name}.json"
        if not (args.out / file).exists():
            test_data = test_domain.describe() | {"used": args.test_images}
            write(file, {"test": test_data, "last": measure(model, reference, test)})
    for set_seed in SETS:
        images = pm.few_shot(adaptation, NUMBER, set_seed)
        for name, cell in cells(args.family).items():
            file = f"{args.family} {name}, set {set_seed}.json"
            if (args.out / file).exists():
                continue
            content: dict[str, Any] = {"images": images.names}
            for select in ("last", "best"):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", AdaptationWarning)
                    result = adapt(
                        source,
                        images,
                        settings=settings_of(source, cell),
                        select=select,
                        draws=DRAWS,
                        folder=args.runs / file.removesuffix(".json"),
                    )
                content[select] = measure(result.denoiser, reference, test)
                content[f"record {select}"] = result.denoiser.record["adapted"]
                content["checks"] = [line for line in result.history if "score" in line]
            write(file, content)


def table(family: str, folder: Path) -> str:
    """The cells as Markdown: mean over sets of the mean over images, and the sets in brackets."""

    def mean(values: list[float]) -> float:
        return statistics.fmean(values)

    lines = [
        "| | selected | deblurring | SR | gap deblurring, SR | L held out | step |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    problems = [problem.name for problem in PROBLEMS]
    rows: list[tuple[str, str, tuple[str, ...]]]
    rows = [(name, name, ("last",)) for name in ("source", "reference")]
    rows += [(name, f"{name}, set *", ("last", "best")) for name in cells(family)]
    for name, pattern, selections in rows:
        found = [json.loads(f.read_text()) for f in sorted(folder.glob(f"{family} {pattern}.json"))]
        for select in selections if found else ():
            psnr, gap = (
                {p: [mean(cell[select][p][what]) for cell in found] for p in problems}
                for what in ("last", "gap")
            )
            records = [cell.get(f"record {select}") for cell in found]
            spread = {p: " / ".join(f"{v:.1f}" for v in psnr[p]) for p in problems}
            lines.append(
                f"| {name} | {select if len(selections) > 1 else ''} | "
                + " | ".join(
                    f"{mean(psnr[p]):.2f}" + (f" ({spread[p]})" if len(found) > 1 else "")
                    for p in problems
                )
                + " | "
                + ", ".join(f"{100 * mean(gap[p]):.1f} %" for p in problems)
                + " | "
                + ", ".join(f"{r['after']['lipschitz']:.2f}" for r in records if r)
                + " | "
                + ", ".join(str(r["step"]) for r in records if r)
                + " |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
