from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch

from proxmatch.denoisers import LPN, LPNConfig
from proxmatch.experiments import certificates
from proxmatch.experiments.cells import Store, cell
from proxmatch.problems import gaussian_deblurring
from proxmatch.records import Label


def test_a_certificate_becomes_a_figure_with_its_numbers(tmp_path: Path) -> None:
    models = {}
    for name in ("source", "reference"):
        models[name] = LPN(LPNConfig(size=16, hidden=3, features=3, strides=(2,), alpha=0.5))
        models[name].double()
    problem = gaussian_deblurring(16, iterations=2, dtype=torch.float64)
    y = problem.measure(torch.rand(1, 3, 16, 16, dtype=torch.float64))
    outcome = certificates.certificate(models, y, problem, models["reference"])
    assert outcome.result["shares"] == {"source": 1.0, "reference": 1.0}
    lines = list(csv.DictReader(outcome.files["certificate.csv"].decode().splitlines()))
    matched = [
        float(line["value"])
        for line in lines
        if (line["denoiser"], line["curve"]) == ("reference", "mismatch")
    ]
    assert matched == pytest.approx([0, 0], abs=1e-12)
    store = Store(tmp_path / "cells")
    made = cell("certificate", {}, Label("lpn", problem="deblurring"))
    absent = cell("certificate", {"other": 1}, Label("lpn", problem="deblurring"))
    store.write(made.key, outcome)
    (tmp_path / "figures").mkdir()
    [entry] = certificates.write(tmp_path, [made, absent], store)
    assert "100.00 %" in entry["caption"]
    for ending in ("png", "pdf", "csv"):
        assert (tmp_path / "figures" / f"{entry['name']}.{ending}").is_file()
