"""What people see of results: figures that show the data, tables, short texts."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import proxmatch as pm
from proxmatch.denoisers import LPNConfig
from proxmatch.errors import InputError
from proxmatch.learning.engine import RunStatus
from proxmatch.learning.evidence import AdaptationResult, Candidate
from proxmatch.learning.settings import Preset, TrainingSettings
from proxmatch.plots import plot_curves, plot_images, plot_losses, plot_scores, text_table
from proxmatch.pnp import PnPResult
from proxmatch.transforms.strength import Trial, Tuned


@pytest.fixture(scope="module")
def run() -> tuple[PnPResult, torch.Tensor, torch.Tensor]:
    x = torch.rand(2, 3, 24, 32, generator=torch.Generator().manual_seed(0))
    problem = pm.make_problem("deblurring", (24, 32), iterations=3)
    y = problem.measure(x)
    return pm.pnp_pgd(pm.baselines.Identity(), y, problem, truth=x), y, x


def test_images_are_drawn_with_the_detail_that_was_asked_for() -> None:
    image = torch.rand(3, 20, 30)
    figure = plot_images({"one": image}, zoom=(4, 6, 5), figure=Figure())
    whole, detail = (axis.images[0].get_array() for axis in figure.axes)
    np.testing.assert_array_equal(whole, image.permute(1, 2, 0))
    np.testing.assert_array_equal(detail, image.permute(1, 2, 0)[4:9, 6:11])


def test_the_detail_that_is_found_is_the_busy_one() -> None:
    image = torch.zeros(1, 30, 30)
    image[:, 20:, 20:] = torch.rand(1, 10, 10)
    figure = plot_images({"one": image}, figure=Figure())
    assert float(figure.axes[1].images[0].get_array().std()) > 0.2


@pytest.mark.parametrize("zoom", [(0, 0, 25), (-1, 0, 4), (18, 0, 4)])
def test_a_detail_outside_the_image_is_refused(zoom: tuple[int, int, int]) -> None:
    with pytest.raises(InputError, match="not inside"):
        plot_images({"one": torch.rand(3, 20, 30)}, zoom=zoom, figure=Figure())


def test_a_run_is_drawn_beside_its_measurements_and_the_truth(run) -> None:
    result, y, x = run
    figure = result.plot(1, measured=y, truth=x, figure=Figure())
    titles = [axis.get_title() for axis in figure.axes][:3]
    assert titles == ["measured", f"reconstruction\n{float(result.psnr[1, -1]):.2f} dB", "truth"]
    np.testing.assert_array_equal(figure.axes[2].images[0].get_array(), x[1].permute(1, 2, 0))


def test_curves_are_those_of_the_run(run) -> None:
    result, _, _ = run
    figure = result.plot_curves(figure=Figure())
    assert [axis.get_title() for axis in figure.axes] == ["PSNR, dB", "relative change"]
    mean = figure.axes[0].lines[-1].get_ydata()
    np.testing.assert_allclose(mean, result.psnr.double().mean(0), rtol=1e-6)
    with pytest.raises(InputError, match="record"):
        plot_curves({}, figure=Figure())


def test_texts_are_short_and_notebooks_have_pictures(run) -> None:
    result, _, _ = run
    assert len(repr(result)) < 120
    assert f"{float(result.psnr[:, -1].mean()):.2f} dB" in repr(result)
    assert "data:image/png;base64," in result._repr_html_()
    model = pm.load("lpn-photographs")
    assert repr(model).count("\n") == 0
    relaxed = pm.transforms.Relaxed(model, 0.5)
    assert repr(relaxed) == f"Relaxed({model!r}, t=0.5)"


def adapted() -> AdaptationResult:
    table = (
        Candidate("source", {"deblurring": 27.0}, 1.0, 0.5),
        Candidate("fine-tuned", {"deblurring": 29.25}, 0.5, 30.0, chosen=True, sigma=0.03),
    )
    model = pm.load("lpn-photographs")
    return AdaptationResult(model, RunStatus.COMPLETED, 0, [], None, table=table)


def test_what_was_tried_prints_as_a_table() -> None:
    result = adapted()
    head, first, second = str(result.table).splitlines()
    assert head.split()[:3] == ["candidate", "deblurring,", "dB"]
    assert first.split()[:2] == ["source", "27.00"]
    assert "fine-tuned (chosen)" in second
    assert result.table[1].score == 29.25
    assert "<td>29.25</td>" in result._repr_html_()
    assert "fine-tuned" in repr(result)


def test_candidates_are_bars_of_their_scores() -> None:
    figure = adapted().plot(figure=Figure())
    widths = [bar.get_width() for bar in figure.axes[0].patches]
    assert sorted(widths) == [27.0, 29.25]
    with pytest.raises(InputError, match="nothing"):
        plot_scores({}, figure=Figure())


def test_trials_are_points_of_their_levels() -> None:
    trials = tuple(
        Trial(0.5, p, p, 1, 0.1, {"deblurring": p}, s) for s, p in ((0.01, 28.0), (0.02, 29.0))
    )
    tuned = Tuned(pm.baselines.Identity(), trials[1], trials, 1.9)
    figure = tuned.plot(figure=Figure())
    np.testing.assert_array_equal(figure.axes[0].lines[0].get_xdata(), [0.01, 0.02])
    assert repr(tuned) == "Tuned(level 0.02, strength 0.5, 29.00 dB, best of 2, t L = 0.95)"
    assert str(tuned.table).splitlines()[0].split() == [
        "level",
        "strength",
        "PSNR,",
        "dB",
        "seconds",
    ]


def test_columns_line_up() -> None:
    lines = text_table(["a", "number"], [["long name", "1.5"], ["b", "22.25"]]).splitlines()
    assert len({len(line) for line in lines[1:]}) == 1


def test_the_logger_is_silent_until_it_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    handlers = logging.getLogger("proxmatch").handlers
    assert [type(each) for each in handlers] == [logging.NullHandler]
    problem = pm.make_problem("denoising", 16, iterations=1)
    with caplog.at_level("INFO", "proxmatch"):
        pm.choose_strength(pm.baselines.Identity(), torch.rand(1, 3, 16, 16), problem)
    assert "denoising" in caplog.text


def test_a_diagnosis_shows_what_was_compared() -> None:
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    problem = pm.gaussian_deblurring(32, iterations=2)
    found = pm.diagnose(pm.baselines.Identity(), images, problem, sources=())
    figure = found.plot(figure=Figure())
    widths = [bar.get_width() for bar in figure.axes[0].patches]
    assert sorted(widths) == sorted(each.score for each in found.standings)
    assert len(repr(found)) < 140
    assert all(f"<td>{each.score:.2f}</td>" in found._repr_html_() for each in found.standings)


def test_a_spectrum_is_drawn_from_its_smallest_to_its_largest_eigenvalue() -> None:
    images = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    found = pm.jacobian_spectrum(pm.baselines.Wiener.fit(images, 0.1), images, iterations=4)
    figure = found.plot(figure=Figure())
    ends = [line.get_xdata() for line in figure.axes[0].lines if len(line.get_xdata()) == 2]
    drawn = np.sort(np.concatenate([np.asarray(each, float) for each in ends]))
    wanted = np.sort(torch.cat([found.smallest, found.largest]).double().numpy())
    assert set(wanted.round(6)) <= set(drawn.round(6))
    assert f"L = {float(found.constant.max()):.3f}" in repr(found)
    assert "data:image/png;base64," in found._repr_html_()


def test_a_training_shows_its_loss(tmp_path: Path) -> None:
    layout = LPNConfig(size=16, hidden=4, features=3, strides=(2,), sigma=0.1)
    settings = TrainingSettings(steps=4, noise=0.1, log_every=2)
    preset = Preset(model=layout, size=16, settings=settings)
    found = pm.train(preset, torch.rand(2, 3, 16, 16), tmp_path)
    [line] = found.plot(figure=Figure()).axes[0].lines
    logged = {entry["step"]: entry["loss"] for entry in found.run.history if "loss" in entry}
    assert dict(zip(line.get_xdata(), line.get_ydata(), strict=True)) == logged
    assert "4 steps" in repr(found)
    assert repr(found).count("\n") == 0
    assert "data:image/png;base64," in found._repr_html_()
    with pytest.raises(InputError, match="no loss"):
        plot_losses([], figure=Figure())
