"""The certificate as a whole: table, JSON, figure and what-if."""

from __future__ import annotations

import io
import json

import pytest
import torch
from rich.console import Console

from proxmatch.errors import DivergenceWarning, InputError
from proxmatch.theory import (
    Certificate,
    Constants,
    ExactDenoiser,
    Perturbed,
    certify,
    draw,
    trace,
)
from proxmatch.theory.known import Gaussian, Mixture
from proxmatch.transforms import Aligned, Relaxed, Symmetrized
from tests.theory.test_trajectory import measured, problem

TARGET = ExactDenoiser(Mixture(((0.2,), (0.8,)), 0.3), 0.2)


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    torch.manual_seed(0)
    p = problem()
    others = {"source": ExactDenoiser(Gaussian(0.2, 0.1), 0.3, 1), "matched": TARGET}
    return certify(others, measured(p, 3), p, reference=TARGET, iterations=6, local=(1,), group=2)


def test_groups_make_no_difference(certificate: Certificate) -> None:
    torch.manual_seed(0)
    p = problem()
    whole = trace(TARGET, measured(p, 3), p, reference=TARGET, iterations=6)
    path = certificate.runs["matched"].path
    for name in ("stationarity", "objective", "mismatch"):
        assert torch.allclose(getattr(path, name), getattr(whole, name), atol=1e-13)
    assert len(path.status) == 3


def test_all_rows_hold_and_the_floor_is_where_it_should_be(certificate: Certificate) -> None:
    assert all(run.share == 1 for run in certificate.runs.values())
    source, matched = certificate.runs["source"], certificate.runs["matched"]
    assert source.effective_smoothness <= source.path.smoothness * (1 + 1e-9)
    assert float(matched.path.stationarity[:, -1].max()) < float(
        source.path.stationarity[:, -1].min()
    )
    lowest = torch.stack([run.path.objective.amin(1) for run in certificate.runs.values()])
    assert torch.equal(certificate.infimum, lowest.amin(0))


TRANSFORMS = {
    "relaxed": lambda d: Relaxed(d, 0.4),
    "aligned": lambda d: Aligned(d, 0.7, [[1.0]], [0.1], [0.3]),
    "symmetrized": lambda d: Symmetrized(d, "flips"),
    "all": lambda d: Relaxed(Aligned(Symmetrized(d, "flips"), 0.7, [[1.0]], [0.1], [0.3]), 0.6),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transformed_denoisers_obey_the_theory_too(name: str) -> None:
    torch.manual_seed(0)
    p, target = problem(), TRANSFORMS[name](TARGET)
    found = certify(
        {"mismatched": TARGET, "matched": target}, measured(p, 2), p, reference=target, iterations=5
    )
    assert all(run.share == 1 for run in found.runs.values())
    applies = sum(int(row.applies.sum()) for row in found.runs["mismatched"].rows)
    assert applies > 50
    assert float(found.runs["mismatched"].path.mismatch.min()) > 0 or name == "symmetrized"


def test_table_and_json_tell_the_same(certificate: Certificate) -> None:
    console = Console(file=io.StringIO(), width=200, record=True)
    console.print(certificate.table())
    text = console.export_text()
    record = json.loads(certificate.to_json())
    for row in record["runs"]["source"]["rows"]:
        assert row["name"] in text
    assert record["runs"]["source"]["share"] == 1
    assert len(record["runs"]["matched"]["curves"]["stationarity"][0]) == 7
    assert record["runs"]["matched"]["smoothness_along_error"] is None


def test_figure_shows_what_was_measured(certificate: Certificate) -> None:
    figure = draw(certificate, certificate)
    panels = [axis for axis in figure.axes if axis.get_title()]
    assert [axis.get_title() for axis in panels] == ["source", "matched"] * 2
    path = certificate.runs["source"].path
    expected = ((path.stationarity[:, 1:] ** 2).cumsum(1) / torch.arange(1, 7)).median(0).values
    lines = [torch.as_tensor(line.get_ydata()) for line in panels[0].lines]
    assert any(torch.allclose(line, expected) for line in lines)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=40)
    assert file.getvalue().startswith(b"\x89PNG")


def test_what_if_solves_the_bound(certificate: Certificate) -> None:
    run = certificate.runs["source"]
    outlook, constants = run.outlook, Constants.paper(run.path)
    c0 = -constants.decrease * certificate.infimum
    t = outlook.worthwhile()
    assert torch.allclose(c0 / t, constants.mismatch * (run.path.mismatch**2).mean(1))
    wanted = float((2 * c0 / 100).sqrt().max())
    d = outlook.affordable(wanted, 100)
    assert torch.allclose(c0 / 100 + constants.mismatch * d**2, torch.tensor(wanted**2).double())
    assert bool((outlook.affordable(wanted) > d).all())
    assert bool(outlook.affordable(float((c0 / 200).sqrt().min()), 100).isnan().any())
    seen = outlook.affordable_measured(1.0)
    assert bool((seen >= outlook.affordable(1.0)).all())  # the bound is the more careful one
    with pytest.raises(InputError, match="positive"):
        outlook.affordable(0.0)


def test_what_diverged_has_not_settled() -> None:
    p = problem()
    with pytest.warns(DivergenceWarning):
        found = certify({"boom": lambda z, _: 40 * z}, measured(p), p, reference=TARGET, local=())
    run = found.runs["boom"]
    assert bool(run.outlook.settled.isnan().all())
    assert set(found.to_dict()["runs"]["boom"]["settled_after"]) == {None}


def test_nothing_to_certify_is_refused() -> None:
    p = problem()
    with pytest.raises(InputError, match="1 or more, got 0"):
        certify({"source": TARGET}, measured(p), p, reference=TARGET, iterations=0)
    with pytest.raises(InputError, match="at least one"):
        certify({}, measured(p), p, reference=TARGET)


def test_what_a_certificate_says_of_a_parabola() -> None:
    p, target = problem(), ExactDenoiser(Gaussian(0.3, 0.5), 0.2)
    infimum = torch.tensor([-7.0, -8.0]).double()
    found = certify(
        {"off": Perturbed(target, lambda k: 0.3)},
        measured(p, 2),
        p,
        reference=target,
        iterations=8,
        infimum=infimum,
        local=(),
    )
    off = found.runs["off"]
    assert torch.equal(found.infimum, infimum)
    assert off.effective_smoothness == pytest.approx(off.path.smoothness, rel=1e-6)
    g2 = off.path.stationarity[:, 1:] ** 2
    level = g2[:, -2:].mean(1)
    assert torch.allclose(off.outlook.measured, level / 0.3**2)
    settled = [
        next(k for k, v in enumerate(row, 1) if v <= 2 * end)
        for row, end in zip(g2, level, strict=True)
    ]
    assert off.outlook.settled.tolist() == settled
