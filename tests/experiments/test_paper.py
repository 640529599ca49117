"""The transcribed numbers against the differences that the paper's own text gives."""

from __future__ import annotations

import pytest

from proxmatch.experiments.paper import reported

GAINS = {
    ("deblurring", "lpn", "pm"): (2.86, 4.34, 1.69, 1.06),
    ("deblurring", "gs", "adapm"): (12.69, 10.00, 2.10, 2.30),
    ("super-resolution", "lpn", "pm"): (2.49, 3.53, 1.56, 0.45),
    ("super-resolution", "gs", "adapm"): (11.33, 8.99, 1.77, 1.61),
}


@pytest.mark.parametrize(("where", "gains"), GAINS.items())
def test_gains_are_those_of_the_text(where: tuple[str, str, str], gains: tuple[float, ...]) -> None:
    problem, family, method = where
    lines = reported()
    found = [
        lines[problem, family, method, n].psnr[0] - lines[problem, family, "mse", n].psnr[0]
        for n in (1, 5, 25, 50)
    ]
    assert found == pytest.approx(gains, abs=0.005)


def test_every_row_of_both_tables_is_there() -> None:
    lines = reported()
    assert len(lines) == 40
    assert all(line.where.startswith(("Table 2", "Table 3")) for line in lines.values())
    for (_, family, method, _), line in lines.items():
        assert (line.lipschitz is None) == (family == "lpn")
        assert (line.gap[0] == 0) == (method == "reference")
