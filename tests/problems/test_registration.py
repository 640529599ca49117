"""A problem is its module and one registration: everything else follows."""

from __future__ import annotations

import importlib
import inspect
import json
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from proxmatch import problems
from proxmatch.cli import run
from proxmatch.denoisers import GradientStep, GradientStepConfig
from proxmatch.errors import InputError, StepSizeError
from proxmatch.problems import PROBLEMS, gaussian_deblurring, make_problem
from proxmatch.reconstruction import reconstruct

MADE_UP = '''
from typing import Annotated

import torch
from deepinv.physics import LinearPhysics

from proxmatch.problems import Design, register
from proxmatch.problems.registration import Noise, gaussian_noise


@register("binning", "mean of neighbors", factor="bins", channels=2)
def binning(img_size, *, bins: Annotated[int, "pixels of a bin"] = 2, noise: Noise = 0.01):
    """Means of squares."""

    def operator(device, dtype):
        return LinearPhysics(
            A=lambda x: torch.nn.functional.avg_pool2d(x, bins),
            A_adjoint=lambda y: y.repeat_interleave(bins, 2).repeat_interleave(bins, 3) / bins**2,
            device=device,
        )

    return Design(operator, gaussian_noise(noise))
'''


@pytest.fixture
def binning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module beside the others, and nothing else; the package is then imported anew."""
    (tmp_path / "made_up_binning.py").write_text(MADE_UP)
    monkeypatch.setattr(problems, "__path__", [*problems.__path__, str(tmp_path)])
    problems.discover()
    yield
    del PROBLEMS["binning"], sys.modules["proxmatch.problems.made_up_binning"]


@pytest.mark.usefixtures("binning")
def test_it_can_be_built_and_solved() -> None:
    problem = make_problem("binning", (8, 12), ["bins=4"])
    assert problem.img_size == (2, 8, 12)
    assert (problem.name, problem.iterations) == ("binning", 40)
    assert problem.gradient_bound.value == pytest.approx(1 / 16, rel=0.1)
    y = problem.measure(torch.full((1, 2, 8, 12), 0.5))
    assert y.shape == (1, 2, 2, 3)
    model = GradientStep(GradientStepConfig(channels=2, widths=(4, 4), sigma=0.05))
    found = reconstruct(model, y, "binning", options=["bins=4"], iterations=2)
    assert found.images[0].shape == (2, 8, 12)


@pytest.mark.usefixtures("binning")
def test_mistakes_are_named() -> None:
    with pytest.raises(InputError, match=r"an option of binning; there are bins=..., noise=..., "):
        make_problem("binning", 8, ["size=3"])
    with pytest.raises(InputError, match="there are binning, box-inpainting"):
        make_problem("bining", 8)
    with pytest.raises(InputError, match="bins='two' cannot be read"):
        make_problem("binning", 8, ["bins=two"])
    with pytest.raises(InputError, match="binning takes images of 2 channels, got 3"):
        make_problem("binning", 8, channels=3)
    with pytest.raises(StepSizeError, match="allow_large_step"):
        make_problem("binning", 8, ["eta=100"])


@pytest.mark.usefixtures("binning")
def test_the_command_line_knows_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["problems", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert list(listed) == sorted(PROBLEMS)
    assert listed["binning"] == {
        "title": "mean of neighbors",
        "channels": 2,
        "pictures": True,
        "options": {
            "bins": {"needed": False, "default": 2, "help": "pixels of a bin"},
            "noise": {
                "needed": False,
                "default": 0.01,
                "help": "standard deviation of the noise; 0 for none",
            },
            "eta": listed["binning"]["options"]["eta"],
        },
    }
    assert run(["problems", "binning"]) == 0
    assert "pixels of a bin" in capsys.readouterr().out
    assert run(["problems", "bining"]) == 2


@pytest.mark.usefixtures("binning")
def test_the_documentation_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "docs")
    table = importlib.import_module("problem_table")
    page = ["before\n\n.. problem-table::\n\nafter\n"]
    table.insert(None, "commands", page)
    assert ".. problem-table::" not in page[0]
    row = ("* - `binning`", "- mean of neighbors; 2 channels", "- `bins` 2, `noise` 0.01, `eta`")
    assert "\n     ".join(row) in page[0]


def test_the_public_function_reads_like_one() -> None:
    signature = inspect.signature(gaussian_deblurring)
    assert list(signature.parameters) == [
        "size", "kernel_size", "kernel_sigma", "noise",
        "channels", "eta", "iterations", "allow_large_step", "device", "dtype",
    ]  # fmt: skip
    assert signature.parameters["kernel_size"].default == 5
    assert signature.parameters["kernel_size"].annotation is int
    text = inspect.getdoc(gaussian_deblurring)
    assert text is not None
    for name, option in PROBLEMS["deblurring"].options.items():
        assert f"    {name}: {option.help}." in text
    assert pickle.loads(pickle.dumps(gaussian_deblurring)) is gaussian_deblurring


def test_two_modules_cannot_share_a_name() -> None:
    before = dict(PROBLEMS)
    with pytest.raises(InputError, match=r"problems\.deblurring has a problem 'deblurring'"):

        @problems.register("deblurring", "mine")
        def mine(img_size):  # type: ignore[no-untyped-def]
            """Not to be."""

    assert before == PROBLEMS
