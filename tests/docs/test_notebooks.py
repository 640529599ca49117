"""The examples of the gallery as the notebooks that are downloaded: their cells run in order."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

parsing = pytest.importorskip("sphinx_gallery.py_source_parser")
notebooks = pytest.importorskip("sphinx_gallery.notebook")
START = Path(__file__).parents[2] / "docs" / "gallery" / "plot_a_start.py"


@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive:UserWarning")
def test_the_ten_minute_start_runs_as_a_notebook(tmp_path: Path) -> None:
    from sphinx_gallery.gen_gallery import DEFAULT_GALLERY_CONF

    _, blocks = parsing.split_code_and_text_blocks(START)
    made = notebooks.jupyter_notebook(blocks, dict(DEFAULT_GALLERY_CONF), str(START.parent))
    notebooks.save_notebook(made, tmp_path / "start.ipynb")
    cells = json.loads((tmp_path / "start.ipynb").read_text("utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(code) >= 5
    assert any("Download" in "".join(cell["source"]) for cell in cells)
    plt.switch_backend("Agg")
    scope: dict[str, object] = {}
    for cell in code:
        exec(cell, scope)  # noqa: S102
    assert plt.get_fignums()
    plt.close("all")
