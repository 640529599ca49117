"""Every example of the gallery runs as it stands."""

from __future__ import annotations

import runpy
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "gallery").glob("plot_*.py"))


def test_there_are_examples():
    assert len(EXAMPLES) >= 3


@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive:UserWarning")
@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_it_runs(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plt.switch_backend("Agg")
    try:
        runpy.run_path(str(file), run_name="__main__")
        assert plt.get_fignums()  # something to show
    finally:
        plt.close("all")
    assert not list(tmp_path.iterdir())  # an example leaves nothing behind
