"""The claims of the paper, one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from proxmatch.experiments.bootstrap import Array
from proxmatch.experiments.claims import Claim, Driver
from proxmatch.experiments.paper import reported
from proxmatch.methods import FAMILIES, family_label, title
from proxmatch.records import CLAIMS, SOURCE, Setting

#: "Far below" the reference, in dB: half of the power of the signal over that of the error.
FAR = 3.0
#: "Gains exceeding 10 dB in severe settings".
SEVERE = 10.0


def paper_claims(
    families: Sequence[str], problems: Sequence[str], budgets: Sequence[int]
) -> list[Claim]:
    """The claims of the paper, for the sources its experiment is repeated with."""
    found: list[Claim] = []
    for family in families:
        for source in (SOURCE, "mild") if family == "lpn" else (SOURCE,):
            for problem in problems:
                at = Setting(family, source, "", 0, problem)
                found += _of_source(at)
                for n in budgets:
                    found += _of_budget(replace(at, n=n))
                found += _over_budgets(at, budgets)
    return found


def _of_source(at: Setting) -> Iterator[Claim]:
    reference = replace(at, method="reference", source="")
    source = replace(at, method="source")
    yield Claim(
        _id("source-far-below-reference", at),
        f"{_who(at, 'source')} reconstructs more than {FAR:g} dB worse than "
        f"{_who(at, 'reference')} in {at.problem}.",
        _reported(at, "reference", "source"),
        at,
        (reference, source),
        threshold=FAR,
        drivers=(
            Driver(
                "relaxation",
                "with the relaxation chosen for each",
                (replace(reference, relaxation="chosen"), replace(source, relaxation="chosen")),
            ),
        ),
    )


def _of_budget(at: Setting) -> Iterator[Claim]:
    proposed = replace(at, method=FAMILIES[at.family].proposed)
    mse = replace(at, method="mse")
    source = replace(at, method="source", n=0)
    names = _who(at, proposed.method), _who(at, "mse")
    drivers = tuple(_controls(at))
    said = _reported(at, proposed.method, "mse")
    for value, what, unit, scale, sign in (
        ("psnr", "has a higher PSNR than", "dB", 1.0, 1),
        ("ssim", "has a higher SSIM than", "hundredths", 100.0, 1),
        ("gap", "has a smaller gap to the reference than", "%", 1.0, -1),
    ):
        yield Claim(
            _id(f"proposed-beats-mse-{value}", at),
            f"{names[0]} {what} {names[1]} in {at.problem} at n = {at.n}.",
            said if value == "psnr" else _reported(at, proposed.method, "mse", value),
            at,
            (proposed, mse) if sign > 0 else (mse, proposed),
            value,
            unit=unit,
            scale=scale,
            drivers=drivers if sign > 0 else tuple(_turned(drivers)),
        )
    yield Claim(
        _id("proposed-above-mse-at-all-iterations", at),
        f"The PSNR of {names[0]} is above that of {names[1]} at every iteration of {at.problem}, "
        f"n = {at.n} (the smallest of the differences over the iterations).",
        "generally higher across iterations (section 5.4, figure on trajectories)",
        at,
        (proposed, mse),
        "curves",
        _smallest,
    )
    if at.n == 1 or (at.family == "gs" and at.n == 5):
        yield Claim(
            _id("mse-below-source", at),
            f"{names[1]} with n = {at.n} is worse than the source it starts from in {at.problem}.",
            _reported(at, "source", "mse"),
            at,
            (source, mse),
        )
    if at.n == 1:
        yield Claim(
            _id("proposed-above-source", at),
            f"{names[0]} with n = 1 is better than the source it starts from in {at.problem}.",
            _reported(at, proposed.method, "source"),
            at,
            (proposed, source),
        )
    if at.family == "gs" and at.n in (1, 5):
        yield Claim(
            _id("proposed-smaller-lipschitz", at),
            f"{names[0]} has a smaller L than {names[1]} along its trajectory in {at.problem} at "
            f"n = {at.n}.",
            _reported(at, proposed.method, "mse", "lipschitz"),
            at,
            (mse, proposed),
            "lipschitz",
            unit="L",
            drivers=tuple(_turned(d for d in drivers if d.arms[0].relaxation == "paper")),
        )
        yield Claim(
            _id("gain-above-ten", at),
            f"{names[0]} gains more than {SEVERE:g} dB over {names[1]} in {at.problem} at "
            f"n = {at.n}, a severe setting.",
            said,
            at,
            (proposed, mse),
            threshold=SEVERE,
        )


def _over_budgets(at: Setting, budgets: Sequence[int]) -> Iterator[Claim]:
    proposed = FAMILIES[at.family].proposed
    names = _who(at, proposed), _who(at, "mse")

    def pair(n: int) -> tuple[Setting, Setting]:
        return replace(at, method=proposed, n=n), replace(at, method="mse", n=n)

    if {1, 5, 25, 50} <= set(budgets):
        arms = tuple(arm for n in (1, 5, 25, 50) for arm in pair(n))
        yield Claim(
            _id("gain-largest-with-few", at),
            f"The gain of {names[0]} over {names[1]} in {at.problem} is larger at n = 1 and 5 (the "
            "mean of both) than at n = 25 and 50.",
            "largest gains in the few-shot regime (abstract, Tables 2 and 3)",
            at,
            arms,
            statistic=_few_less_many,
        )
        steps = tuple(replace(at, method=proposed, n=n) for n in (1, 5, 25))
        early = at.family == "lpn"
        yield Claim(
            _id("largest-step", at),
            f"{names[0]} improves more from n = {'1 to 5' if early else '5 to 25'} than from "
            f"n = {'5 to 25' if early else '1 to 5'} in {at.problem}.",
            "appendix on the adaptation budget",
            at,
            steps,
            statistic=_early if early else _late,
        )
    arms = tuple(arm for n in budgets for arm in pair(n))
    yield Claim(
        _id("lower-gap-higher-psnr", at),
        f"Lower gap goes with higher PSNR over {names[0]} and {names[1]} at all n in {at.problem} "
        "(minus Spearman's rank correlation).",
        "lower mismatch generally coincides with higher PSNR (section 5.4)",
        at,
        arms,
        "psnr,gap",
        _rank_correlation,
        unit="correlation",
    )


def _controls(at: Setting) -> Iterator[Driver]:
    def arms(first: str, second: str, **changes: Any) -> tuple[Setting, Setting]:
        return replace(at, method=first, **changes), replace(at, method=second, **changes)

    if at.family == "lpn":
        yield Driver(
            "gradient scale",
            "against MSE with PM's own gradient scale and no exponential",
            arms("pm", "scaled-mse"),
        )
        yield Driver("loss", "replacing MSE by L1 does", arms("l1", "mse"), alone=True)
        yield Driver(
            "clipping", "with gradients clipped on both sides", arms("pm-clip", "mse-clip")
        )
        yield Driver(
            "stopping",
            "with both stopped where held-out pixels are reconstructed best",
            arms("pm-best", "mse-best"),
        )
        if at.source == SOURCE:
            yield Driver("source", "from a mild source", arms("pm", "mse", source="mild"))
    else:
        yield Driver(
            "penalty", "the penalty added to MSE does", arms("mse-penalty", "mse"), alone=True
        )
        yield Driver(
            "loss", "replacing MSE by PM, without a penalty, does", arms("pm", "mse"), alone=True
        )
        yield Driver(
            "loss under the penalty",
            "against MSE with the same penalty",
            arms("adapm", "mse-penalty"),
        )
        yield Driver(
            "clipping",
            "bounding the gradient of MSE does",
            arms("mse", "mse-unclipped"),
            alone=True,
        )
        yield Driver(
            "stopping",
            "with both stopped where held-out pixels are reconstructed best",
            arms("adapm-best", "mse-best"),
        )
    yield Driver("relaxation", "with the relaxation chosen for each",
                 arms(FAMILIES[at.family].proposed, "mse", relaxation="chosen"))  # fmt: skip


def _turned(drivers: Iterable[Driver]) -> Iterator[Driver]:
    """The same drivers for a value that is better when it is smaller."""
    for driver in drivers:
        yield replace(driver, arms=(driver.arms[1], driver.arms[0]))


def _smallest(means: Sequence[Array]) -> Array:
    found: Array = (means[0] - means[1])[:, 1:].min(1)
    return found


def _few_less_many(means: Sequence[Array]) -> Array:
    gains = [means[2 * i] - means[2 * i + 1] for i in range(4)]
    return (gains[0] + gains[1] - gains[2] - gains[3]) / 2


def _early(means: Sequence[Array]) -> Array:
    return (means[1] - means[0]) - (means[2] - means[1])


def _late(means: Sequence[Array]) -> Array:
    return -_early(means)


def _rank_correlation(means: Sequence[Array]) -> Array:
    """Minus Spearman's correlation of PSNR and gap over the arms, ``(R,)``."""
    psnr, gap = (np.stack([m[:, column] for m in means], 1) for column in (0, 1))
    ranks = [values.argsort(1).argsort(1).astype(np.float64) for values in (psnr, gap)]
    a, b = (rank - rank.mean(1, keepdims=True) for rank in ranks)
    found: Array = -(a * b).sum(1) / np.sqrt((a**2).sum(1) * (b**2).sum(1))
    return found


def _id(kind: str, at: Setting) -> str:
    assert kind in CLAIMS  # noqa: S101
    parts = [kind, at.family, at.source, at.problem]
    return "/".join([*parts, f"n{at.n}"] if at.n else parts)


def _who(at: Setting, method: str) -> str:
    note = f" ({at.source} source)" if at.source != SOURCE and method != "reference" else ""
    return title(method, at.family) + note


def _reported(at: Setting, first: str, second: str, value: str = "psnr") -> str:
    lines = []
    for method in (first, second):
        n = 0 if method in ("source", "reference") else at.n
        line = reported().get((at.problem, at.family, method, n))
        if line is None:
            return f"not reported for {family_label(at.family)} at n = {at.n}"
        lines.append(line)
    numbers = [getattr(line, value) for line in lines]
    one, two = (v[0] if isinstance(v, tuple) else v for v in numbers)
    if one is None or two is None:
        return "not reported"
    unit = {"psnr": " dB", "ssim": " hundredths", "gap": " %", "lipschitz": ""}[value]
    table = lines[0].where.split(",")[0]
    return f"{one:g} against {two:g}{unit}: {one - two:+.4g} ({table})"
