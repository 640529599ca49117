"""Claims as statements that can come out either way, and what drives them.

Every claim is a number that is positive, or above a threshold, if the claim is right; its interval
over adaptation sets and images decides:

- **holds**: all of the interval is above the threshold;
- **does not hold**: none of it is;
- **undecided**: the threshold is inside.

The same comparisons are made with one thing changed (the controls). If the effect disappears with
the change, the change is what drives it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from proxmatch.experiments.bootstrap import Array, Interval
from proxmatch.experiments.collect import markdown
from proxmatch.experiments.findings import Contrast, Findings, difference
from proxmatch.records import VERDICTS, ClaimRecord, DriverRecord, Setting, Verdict

Statistic = Callable[[Sequence[Array]], Array]


@dataclass(frozen=True)
class Driver:
    """The comparison that a claim makes, with one thing changed."""

    control: str  # what is changed
    says: str  # the comparison in words
    arms: tuple[Setting, Setting]  # whose difference it is
    alone: bool = False  # it is the effect of the change by itself, not the comparison under it


@dataclass(frozen=True)
class Claim:
    """One statement."""

    id: str
    statement: str  # in words
    paper: str  # what the paper reports
    where: Setting  # family, source, problem and n; the method is not used
    arms: tuple[Setting, ...]  # of the comparison
    value: str = "psnr"  # what is compared
    statistic: Statistic = difference  # of the means of the arms; positive speaks for the claim
    threshold: float = 0.0  # what it must exceed
    unit: str = "dB"  # of the effect
    scale: float = 1.0  # of the effect to its unit
    drivers: tuple[Driver, ...] = ()  # the controls


def verdict(found: Interval, threshold: float = 0.0) -> Verdict:
    """What an interval says about an effect being above a threshold."""
    if found.low > threshold:
        return "holds"
    return "does not hold" if found.high <= threshold else "undecided"


def decide(claims: Sequence[Claim], evidence: Findings) -> list[ClaimRecord]:
    """Test claims; those for which something is missing are left out."""
    decided = []
    for claim in claims:
        found = evidence.contrast(claim.arms, claim.value, claim.statistic, claim.id)
        if found is None:
            continue
        where = claim.where
        decided.append(
            ClaimRecord(
                id=claim.id,
                statement=claim.statement,
                paper=claim.paper,
                family=where.family,
                source=where.source,
                problem=where.problem,
                n=where.n,
                **_numbers(found, claim.scale),
                unit=claim.unit,
                threshold=claim.threshold,
                verdict=verdict(_scaled(found.found, claim.scale), claim.threshold),
                drivers=list(_drivers(claim, evidence)),
                images=found.images,
                sets=found.sets,
            )
        )
    return decided


def listed(decided: Sequence[ClaimRecord]) -> str:
    """Decided claims as a Markdown table, the verdicts counted above it."""
    counts = Counter(claim.verdict for claim in decided)
    told = ", ".join(f"{counts[name]} {word}" for name, word in VERDICTS.items())
    rows = []
    for claim in decided:
        size = f"{claim.effect:+.2f} {claim.unit} [{claim.low:+.2f}, {claim.high:+.2f}]"
        controls = " ".join(driver.says for driver in claim.drivers)
        cells = (claim.statement, claim.paper, size, claim.verdict, controls)
        rows.append([text.replace("|", "\\|") for text in cells])
    header = ("claim", "paper", "here, 95 % interval", "verdict", "controls")
    return (
        f"**Claims of the paper, {len(decided)}: {told}**\n\nHere a positive number speaks for the "
        "claim; the paper's differences have their own sign.\n\n" + markdown(header, rows) + "\n"
    )


def _drivers(claim: Claim, evidence: Findings) -> Iterator[DriverRecord]:
    for driver in claim.drivers:
        name = f"{claim.id}/{driver.control}"
        found = evidence.contrast(driver.arms, claim.value, difference, name)
        if found is None:
            continue
        numbers = _numbers(found, claim.scale)
        yield DriverRecord(
            control=driver.control,
            **numbers,
            says=_sentence(driver, numbers, claim.unit),
            images=found.images,
            sets=found.sets,
        )


def _sentence(driver: Driver, numbers: dict[str, float], unit: str) -> str:
    size = f"{numbers['effect']:+.2f} {unit} [{numbers['low']:+.2f}, {numbers['high']:+.2f}]"
    if driver.alone:
        says = driver.says[0].upper() + driver.says[1:]
        if numbers["low"] > 0:
            return f"{says} good by itself: {size}."
        if numbers["high"] < 0:
            return f"{says} harm by itself: {size}."
        return f"{says} nothing that can be seen: {size}."
    if numbers["low"] > 0:
        return f"There is an advantage {driver.says}: {size}."
    if numbers["high"] < 0:
        return f"There is a disadvantage {driver.says}: {size}."
    return f"No difference can be seen {driver.says}: {size}."


def _scaled(found: Interval, scale: float) -> Interval:
    return Interval(scale * found.effect, scale * found.low, scale * found.high)


def _numbers(found: Contrast, scale: float) -> dict[str, float]:
    values = _scaled(found.found, scale)
    return {
        "effect": round(values.effect, 4),
        "low": round(values.low, 4),
        "high": round(values.high, 4),
    }
