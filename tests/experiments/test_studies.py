"""Studies: planned, computed once, addressed by their code, and shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from proxmatch._internal.provenance import _without_prose
from proxmatch.baselines import Identity
from proxmatch.commands.reproduce import STUDY_NAMES
from proxmatch.denoisers import LPN, GradientStep, GradientStepConfig, LPNConfig, new, save
from proxmatch.denoisers.families import config_of
from proxmatch.errors import InputError
from proxmatch.experiments.studies import STUDIES, Study, Work, run_study, study
from proxmatch.experiments.studies.ceiling import Unrolled, trained
from proxmatch.experiments.studies.modalities import PROBLEMS as MODALITY_PROBLEMS
from proxmatch.experiments.studies.priors import PROBLEMS, fitting, prior_of, problem_of
from proxmatch.experiments.studies.solver import calls
from proxmatch.experiments.studies.whole import checkerboard, grid
from proxmatch.learning import (
    AdaptationPlan,
    AdaptationResult,
    Candidate,
    RunStatus,
    plan_adaptation,
)
from proxmatch.metrics import psnr
from proxmatch.pnp import pnp_pgd

#: The toys that are trained here harm every picture, the least at levels below their own.
pytestmark = [
    pytest.mark.filterwarnings("ignore::proxmatch.errors.SuspiciousWarning"),
    pytest.mark.filterwarnings("ignore::proxmatch.errors.LevelWarning"),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders in the layout that the studies of priors read, with one small picture each."""
    root = tmp_path_factory.mktemp("data")
    generator = np.random.default_rng(0)
    for folder in ("celeba/img_align_celeba", "bsds/validation", "cbsd68", "kodak24", "brecahad"):
        (root / folder).mkdir(parents=True)
        for number in range(1, 11):
            small = generator.integers(0, 255, (5, 5, 3), dtype=np.uint8)
            picture = Image.fromarray(small).resize((140, 135))
            picture.save(root / folder / f"{number:06d}.jpg")
    lines = [f"{n:06d}.jpg {0 if n < 5 else n % 2 + 1}" for n in range(1, 11)]
    (root / "celeba" / "list_eval_partition.txt").write_text("\n".join(lines) + "\n")
    config = GradientStepConfig.scaled(widths=(4, 4), levels=(0.003, 0.25))
    save(GradientStep(config), root / "tiny")
    return root


def test_cells_are_computed_once_and_again_when_their_code_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[int] = []

    def compute(settings: Mapping[str, Any], work: Work) -> dict[str, Any]:
        computed.append(settings["n"])
        return {"square": settings["n"] ** 2 + work.seed}

    def tables(cells: Sequence[Mapping[str, Any]]) -> str:
        return ", ".join(f"{cell['n']}: {cell['square']}" for cell in cells)

    squares = Study("squares", "Squares", lambda work: [{"n": 2}, {"n": 3}], compute, tables)
    work = Work(tmp_path, ())
    page = run_study(squares, work, tmp_path / "out")
    assert page.read_text() == "# Squares\n\n2: 4, 3: 9\n"
    run_study(squares, work, tmp_path / "out")
    assert computed == [2, 3]
    monkeypatch.setattr(study, "source_digest", lambda study: "other code")
    run_study(squares, work, tmp_path / "out")
    assert computed == [2, 3, 2, 3]


def test_a_readme_written_by_hand_is_kept(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# What this shows\n")
    study = Study("one", "One", lambda work: [{"n": 1}], lambda s, work: {}, lambda cells: "1")
    page = run_study(study, Work(tmp_path, ()), tmp_path)
    assert page.read_text() == "# One\n\n1\n"
    assert (tmp_path / "README.md").read_text() == "# What this shows\n"


def test_only_the_cells_that_are_asked_for_are_computed(tmp_path: Path) -> None:
    def plan(work: Work) -> list[dict[str, Any]]:
        return [{"n": n, "parity": "odd" if n % 2 else "even"} for n in range(4)]

    def tables(cells: Sequence[Mapping[str, Any]]) -> str:
        return ", ".join(str(cell["n"]) for cell in cells)

    numbers = Study("numbers", "Numbers", plan, lambda settings, work: {}, tables)
    page = run_study(numbers, Work(tmp_path, (), only={"parity": ["odd"]}), tmp_path / "out")
    assert page.read_text() == "# Numbers\n\n1, 3\n"
    with pytest.raises(InputError, match="there are even, odd"):
        run_study(numbers, Work(tmp_path, (), only={"parity": ["prime"]}), tmp_path / "out")
    with pytest.raises(InputError, match="no cell has all of these settings"):
        run_study(numbers, Work(tmp_path, (), only={"parity": ["odd"], "n": ["2"]}), tmp_path / "o")


def test_a_study_without_denoisers_asks_for_them(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="name denoisers"):
        run_study(STUDIES["denoising"], Work(tmp_path, ()), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_digest_is_of_the_code_that_computes() -> None:
    """Each study has its own; theory decides certificates and no other study."""
    digests = {name: study.source_digest(each) for name, each in STUDIES.items()}
    assert len(set(digests.values())) == len(STUDIES)
    assert STUDIES["certificates"].code == ("theory",)
    less = replace(STUDIES["certificates"], code=())
    assert study.source_digest(less) != digests["certificates"]


def test_the_digest_does_not_count_prose() -> None:
    code = 'def f(x: int) -> int:\n    """Double it."""\n    return 2 * x  # twice\n'
    said = 'def f(x: int) -> int:\n    """Twice as much."""\n\n    return 2 * x\n'
    assert _without_prose(code) == _without_prose(said)
    assert _without_prose(code) != _without_prose(code.replace("2 * x", "3 * x"))
    text = "x = 'a docstring is the first statement'\n"
    assert _without_prose(text) != _without_prose(text.replace("first", "last"))


def test_denoising_of_a_tiny_network(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxmatch.experiments.studies.denoised.WEIGHTS", (0.5, 1.0))
    monkeypatch.setattr("proxmatch.experiments.studies.denoised.STEPS", 2)
    monkeypatch.setattr("proxmatch.experiments.studies.denoised.CHOSEN_ON", 1)
    page = run_study(STUDIES["denoising"], Work(data, (str(data / "tiny"),), 1), tmp_path)
    text = page.read_text()
    assert "| faces | 15/255 | 25/255 | 50/255 | images |" in text
    cells = [json.loads(f.read_text()) for f in (tmp_path / "cells").glob("*.json")]
    domains = {cell["settings"]["domain"] for cell in cells}
    assert domains == {"faces", "histology", "photographs", "CBSD68", "Kodak24"}
    for cell in cells:
        assert len(cell["psnr"]["25"]) == 1
        assert cell["versions"]["proxmatch"]
        assert bool(cell["settings"]["identity"]) == (cell["settings"]["prior"] != "tv")
    [tv] = [
        cell
        for cell in cells
        if (cell["settings"]["prior"], cell["settings"]["domain"]) == ("tv", "faces")
    ]
    one = "{0:.2f} [{0:.2f}, {0:.2f}]".format(tv["psnr"]["25"][0])  # of one image
    assert f"| {one} |" in text
    plain = {c["settings"]["domain"] for c in cells if c["settings"]["prior"] == "tv"}
    assert plain == {"faces", "histology", "photographs"}


def test_reconstruction_compares_with_the_better_baseline(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One problem, three baselines: what the table says is what the cells hold."""
    monkeypatch.setattr(
        "proxmatch.experiments.studies.reconstructed.PROBLEMS",
        {"inpainting 70": PROBLEMS["inpainting 70"]},
    )
    monkeypatch.setattr("proxmatch.experiments.studies.priors.CHOSEN_ON", 1)
    page = run_study(STUDIES["reconstruction"], Work(data, (), 1), tmp_path)
    cells = [json.loads(f.read_text()) for f in (tmp_path / "cells").glob("*.json")]
    assert {cell["settings"]["domain"] for cell in cells} == {"faces", "photographs", "histology"}
    assert len(cells) == 9
    filtered = next(
        cell
        for cell in cells
        if (cell["settings"]["prior"], cell["settings"]["domain"]) == ("wiener", "faces")
    )
    assert filtered["psnr"][0] > filtered["start"][0]
    assert f"| wiener | {filtered['psnr'][0]:.2f} |" in page.read_text()


def test_whole_pictures_are_counted_that_end_below_their_start(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tiny network on a picture of each kind; the text counts what the cells hold."""
    module = "proxmatch.experiments.studies.whole"
    monkeypatch.setattr(f"{module}.EMBEDDED", ())
    monkeypatch.setattr(f"{module}.FOLDERS", {"kodak24": (2, 3), "cbsd68": (1, 1)})
    monkeypatch.setattr(f"{module}.CHOSEN", {3: "photographs", 1: "cbsd68"})
    monkeypatch.setattr("proxmatch.experiments.studies.priors.CHOSEN_ON", 1)
    gray = GradientStepConfig.scaled(channels=1, widths=(4, 4), levels=(0.1, 0.1))
    save(GradientStep(gray), tmp_path / "gray")
    models = (str(data / "tiny"), str(tmp_path / "gray"))
    work = Work(data, models, only={"problem": ["inpainting 70"]})
    text = run_study(STUDIES["whole"], work, tmp_path).read_text()
    cells = [json.loads(f.read_text()) for f in (tmp_path / "cells").glob("*.json")]
    rows = {name: row for cell in cells for name, row in cell["rows"].items()}
    assert {name.split("/")[0] for name in rows} == {"kodak24", "cbsd68"}
    below = sum(row["psnr"] < row["start"] for row in rows.values())
    assert f"Results below their start: {below} of 3." in text
    for name, row in rows.items():
        assert f"| {name} | {row['start']:.2f} | {row['psnr']:.2f} | {row['grid']:.2f} |" in text


def test_a_grid_is_seen_in_an_error() -> None:
    torch.manual_seed(0)
    error = 0.01 * torch.randn(3, 256, 256)
    assert grid(error) < 1.1
    for period in (8, 32):
        lines = error.clone()
        lines[:, :, ::period] += 0.02
        assert grid(lines) > 1.3
    assert checkerboard(error) == pytest.approx(1, abs=0.05)
    board = (torch.arange(256)[:, None] + torch.arange(256)).remainder(2) - 0.5
    assert checkerboard(board.expand(3, -1, -1)) == pytest.approx(4, rel=1e-5)


def test_certificates_are_of_a_family_against_its_reference(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxmatch.experiments.studies.certified.SIZE", 16)
    for number, name in enumerate(("lpn-faces", "lpn-other", "gs-other")):
        torch.manual_seed(number)
        config = LPNConfig(size=16, hidden=4, features=4, strides=(2,), unshuffle=2)
        save(LPN(config), tmp_path / name)
    work = Work(data, [str(tmp_path / n) for n in ("lpn-faces", "lpn-other", "gs-other")], 1)
    only = {"problem": ["deblurring"]}
    page = run_study(STUDIES["certificates"], replace(work, only=only), tmp_path / "out")
    lines = [line.split(" | ") for line in page.read_text().splitlines()[4:]]
    assert [line[1] for line in lines] == ["lpn-faces", "lpn-other"]
    assert all(line[3] == "100.00 %" for line in lines)
    assert all("proved" in line[6] for line in lines)


def test_a_gray_model_is_certified_against_itself_at_half_the_level(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ridge has its constants by construction: nothing is estimated, and nothing inverted."""
    monkeypatch.setattr("proxmatch.experiments.studies.certified.SIZE", 16)
    torch.manual_seed(0)
    config = config_of("ridge")(channels=1, sizes=(3,), levels=(0.003, 0.25))
    save(new(config), tmp_path / "ridge")
    work = Work(data, [str(tmp_path / "ridge")], 1, only={"problem": ["deblurring"]})
    page = run_study(STUDIES["certificates"], work, tmp_path / "out")
    lines = [line.split(" | ") for line in page.read_text().splitlines()[4:]]
    assert [line[1] for line in lines] == ["ridge at 1 x s", "ridge at 2 x s"]
    assert all(line[3] == "100.00 %" for line in lines)
    for file in (tmp_path / "out" / "cells").glob("*.json"):
        cell = json.loads(file.read_text())
        rows = [row for row in cell["rows"] if row["applies"]]
        assert {row["basis"] for row in rows} == {"proved"}
        assert cell["not_inverted"] == 0


def test_eigenvalues_are_followed_along_a_run(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few iterations find what many do; once they missed an eigenvalue below zero."""
    module = "proxmatch.experiments.studies.margins"
    monkeypatch.setattr("proxmatch.experiments.studies.priors.CHOSEN_ON", 1)
    work = Work(data, (str(data / "tiny"),), 1, only={"problem": ["inpainting 70"]})
    page = run_study(STUDIES["proximal"], work, tmp_path / "few").read_text()
    monkeypatch.setattr(f"{module}.LANCZOS", 60)
    run_study(STUDIES["proximal"], work, tmp_path / "many")
    few, many = (
        json.loads(next((tmp_path / name / "cells").glob("*.json")).read_text())
        for name in ("few", "many")
    )
    assert np.shape(few["smallest"]) == (1, 20)
    np.testing.assert_allclose(few["smallest"], many["smallest"], atol=5e-3)
    assert f"{np.min(few['smallest']):.3f} +- {np.max(few['residual']):.3f}" in page
    best = max((few["free"], few["proximal"]), key=lambda one: one["validation"])
    cost = np.subtract(best["psnr"], few["proximal"]["psnr"]).mean()
    assert page.rstrip().endswith(f"{cost:+.2f} |")


def test_the_ceiling_learns_its_problem(data: Path, tmp_path: Path) -> None:
    """A few steps make it better than its start, which is three plain gradient steps."""
    settings = {"problem": "deblurring", "model": str(data / "tiny"), "seed": 0, "steps": 30}
    _, losses = trained(settings, Work(data, ()))
    assert len(losses) == 10
    assert losses[-1] < losses[0]
    x = torch.rand(2, 3, 64, 64)
    problem = problem_of("deblurring", 3, 64)
    start = Unrolled(prior_of(str(data / "tiny")))
    y = problem.measure(x)
    plain = pnp_pgd(lambda z, sigma: z, y, problem, iterations=3, warm=0, record=())
    torch.testing.assert_close(start(y, problem), plain.images, atol=1e-5, rtol=0)
    work = Work(data, (str(data / "tiny"),), 1, steps=1, only={"problem": ["inpainting 70"]})
    page = run_study(STUDIES["ceiling"], work, tmp_path).read_text()
    cell = json.loads(next((tmp_path / "cells").glob("*.json")).read_text())
    assert f"| inpainting 70 | tiny | {cell['psnr'][0]:.2f} | 1 | 1 |" in page


def test_modalities_show_what_their_cells_hold(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A color network is lifted to gray pictures, and to the two channels of complex ones."""
    module = "proxmatch.experiments.studies.modalities"
    monkeypatch.setattr(f"{module}.SIZE", 32)
    monkeypatch.setattr(f"{module}.DOMAINS", {"x-ray": ("kodak24", 2)})
    chosen = {name: MODALITY_PROBLEMS[name] for name in ("MRI 4 x", "inpainting 70")}
    monkeypatch.setattr(f"{module}.PROBLEMS", chosen)
    work = Work(data, (str(data / "tiny"),), 1)
    text = run_study(STUDIES["modalities"], work, tmp_path).read_text()
    cells = [json.loads(f.read_text()) for f in (tmp_path / "cells").glob("*.json")]
    assert len(cells) == 6
    for problem in chosen:
        here = {c["settings"]["prior"]: c for c in cells if c["settings"]["problem"] == problem}
        scores = [f"{here[prior]['psnr'][0]:.2f}" for prior in ("tv", "wiener", "tiny")]
        start = f"{here['tv']['start'][0]:.2f}"
        assert f"| {problem} | {start} | {' | '.join(scores)} |" in text
        assert len({cell["start"][0] for cell in here.values()}) == 1  # the same measurements
        assert here["tiny"]["certified"] == 1
        assert here["tv"]["certified"] is None
        assert f"| {here['tiny']['margin']:.2f} | 100% |" in text
        assert here["wiener"]["psnr"][0] > here["wiener"]["start"][0]
        sheet = Image.open(tmp_path / f"x-ray-{problem.lower().replace(' ', '-')}.png")
        assert sheet.size == (5 * 64, 64 + 14)


def test_calls_are_counted_where_a_curve_stays() -> None:
    assert calls([20.0, 29.95, 25.0, 29.95, 30.0], 30.0) == 3
    assert calls([20.0, 21.0], 30.0) is None
    assert calls([30.05, 30.0], 30.0) == 0


def test_bm3d_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bm3d", None)  # as if it were not installed
    prior_of.cache_clear()
    with pytest.raises(InputError, match=r"pip install 'proxmatch\[bm3d\]'"):
        prior_of("bm3d")


@pytest.mark.parametrize("channels", [1, 3])
def test_bm3d_is_a_prior_for_color_and_gray(channels: int) -> None:
    pytest.importorskip("bm3d")
    prior_of.cache_clear()
    assert fitting(["bm3d"], channels) == ["bm3d"]
    x = torch.full((1, channels, 32, 32), 0.5)
    noisy = x + 0.1 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    assert float(psnr(prior_of("bm3d")(noisy, 0.1), x)) > float(psnr(noisy, x)) + 10


def test_the_help_names_every_study() -> None:
    assert set(STUDY_NAMES) == set(STUDIES)


def test_wrong_data_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a folder"):
        run_study(STUDIES["solver"], Work(tmp_path / "nowhere", ()), tmp_path)


def test_the_study_of_adaptation_counts_what_its_cells_say(data: Path) -> None:
    work = Work(data, (str(data / "tiny"),), images=2, steps=3)
    planned = STUDIES["adaptation"].plan(work)
    assert {cell["steps"] for cell in planned} == {3}
    assert {cell["n"] for cell in planned if "source" in cell} == {1, 5, 25, 50, 0}
    shift = {
        "source": "gs-histology",
        "target": "faces",
        "problem": "deblurring",
        "n": 5,
        "set": 0,
        "nearest": "gs-histology",
        "psnr": {
            "source": [20.0, 22.0],
            "relaxed": [28.0, 29.0],
            "Wiener": [30.0, 31.0],
            "total variation": [29.0, 31.0],
            "fine-tuned + relaxed": [32.0, 33.0],
            "half fine-tuned + relaxed": [31.0, 33.0],
            "blended": [31.5, 32.0],
        },
        "chosen": "fine-tuned + relaxed",
        "learned": True,
        "gain": 12.0,
        "true_gain": 11.5,
        "interval": [11.0, 13.0],
    }
    missed = {**shift, "set": 1, "chosen": "Wiener", "learned": False, "interval": [12.0, 13.0]}
    values = {"prior": 32.0, "gs-faces": 33.0, "wiener": 31.0, "awful": 23.0}
    priors = [
        {
            "prior": name,
            "target": "faces",
            "problem": "deblurring",
            "psnr": [value, value + 0.5],
        }
        for name, value in values.items()
    ]
    said = {"prior": "mismatched", "gs-faces": "matched", "awful": "badly mismatched"}
    diagnoses = [
        {
            "diagnosed": name,
            "target": "faces",
            "problem": "deblurring",
            "verdict": verdict,
            "loss": 33.1 - values[name],
        }
        for name, verdict in said.items()
    ]
    blind = {**shift, "n": 0, "psnr": {"relaxed": [29.0, 30.0]}, "chosen": "relaxed"}
    alone = STUDIES["adaptation"].tables([blind])
    assert alone.endswith("| deblurring | none | 1 |  |  |  |  |  | 29.50 |  |  |")
    text = STUDIES["adaptation"].tables([shift, missed, *priors, *diagnoses])
    reached, gains, evidence, verdicts, note = text.split("\n\n")
    assert "| 5 | 2 | 21.00 | 28.50 | 32.50 | 32.00 | 31.75 | 31.50 | 30.50 | 30.00 |" in reached
    assert "33.25 (ref.)" in reached
    assert "| 5 | 2 | +1.00 [" in gains
    assert gains.endswith("| +0.00 | 1 of 2 |")
    assert evidence.endswith("| 5 | 1 of 2 | +0.50 | 0.50 | 1.50 |")
    assert "| matched | 1 | 1 | 0.00 | 0.00 to 0.00 |" in verdicts
    assert "| mismatched | 1 | 1 | 1.00 | 1.00 to 1.00 |" in verdicts
    assert "| badly mismatched | 1 | 1 | 10.00 | 10.00 to 10.00 |" in verdicts
    assert "over 3 pairs: 1.00" in note


@pytest.mark.parametrize("n", [5, 0])
def test_the_study_of_adaptation_asks_the_library(
    data: Path, monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    """Its cells hold what ``adapt`` and ``diagnose`` say, and nothing is planned beside them."""
    module = "proxmatch.experiments.studies.adapted"
    few = torch.rand(8, 3, 128, 128, generator=torch.Generator().manual_seed(0))
    tiny = str(data / "tiny")
    plans: list[AdaptationPlan] = []

    def adapt(*given: Any, **options: Any) -> AdaptationResult:
        plans.append(plan_adaptation(*given, **options))
        scores = {"inpainting": 20.0}
        other, own = (
            Candidate(name, scores, 1.0, 0.0, kind=name, source=tiny, chosen=name == "relaxed")
            for name in ("source", "relaxed")
        )
        tried, table = dict.fromkeys(("source", "relaxed"), Identity(3)), (other, own)
        about: dict[str, Any] = {"table": table, "source": tiny, "tried": tried}
        return AdaptationResult(Identity(3), RunStatus.COMPLETED, 0, [], None, **about)

    def diagnose(denoiser: Any, images: torch.Tensor, problem: Any, **options: Any) -> Any:
        assert (list(denoiser), len(images), problem.img_size) == (["tiny"], 4, (3, 64, 64))
        assert list(options["sources"]) == ["tiny"]
        told = {"verdict": "matched", "loss": 0.1, "interval": [0, 0.2], "best": "tiny"}
        return SimpleNamespace(to_dict=lambda: {**told, "standings": [], "untried": ["far"]})

    monkeypatch.setattr(f"{module}._images", lambda *about: (few, few[:1], ["a", "b"]))
    monkeypatch.setattr(f"{module}.adapt", adapt)
    monkeypatch.setattr(f"{module}.diagnose", diagnose)
    work = Work(data, (tiny,), images=1, steps=1)
    here = {"target": "faces", "problem": "inpainting 70", "seed": 0}
    settings = {"source": tiny, "n": n, "set": 0, "images": 1, "steps": 1, **here}
    cell = STUDIES["adaptation"].compute(settings, work)
    [plan] = plans
    assert (plan.measurements is None, len(plan.images), plan.size) == (n > 0, n and 8, 64)
    assert (plan.search.steps, plan.search.compare, plan.seed) == (1, n > 0, 0)
    assert [problem.img_size[1] for problem in plan.problems] == [64 if n else 128]
    assert (cell["chosen"], cell["learned"], cell["nearest"]) == ("relaxed", True, tiny)
    assert list(cell["psnr"]) == (["source", "relaxed"] if n else ["relaxed"])
    about = {"diagnosed": "tiny", "at_hand": [tiny], "images": 1, **here}
    told = STUDIES["adaptation"].compute(about, work)
    assert (told["verdict"], told["loss"], told["untried"]) == ("matched", 0.1, ["far"])
