"""Claims in groups of one statement, with intervals as positions on a common scale."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from proxmatch.report import words
from proxmatch.report.schema import Claim, Driver, Verdict

VERDICTS: tuple[Verdict, ...] = ("holds", "does not hold", "undecided")


@dataclass(frozen=True)
class Bar:
    """An effect and its interval, as per cent of a scale's width."""

    zero: float
    effect: float
    low: float
    high: float


@dataclass(frozen=True)
class Driven:
    """A control's part in a claim."""

    driver: Driver
    bar: Bar | None


@dataclass(frozen=True)
class Tested:
    """A claim in its group."""

    claim: Claim
    context: str
    bar: Bar | None
    drivers: tuple[Driven, ...]


@dataclass(frozen=True)
class Group:
    """All tests of one statement.

    Attributes:
        statement: of the paper.
        paper: what the paper reports, when it is the same for all.
        tested: one for each family, problem and n.
    """

    statement: str
    paper: str
    tested: tuple[Tested, ...]


def groups(claims: Iterable[Claim]) -> list[Group]:
    """In the order in which the statements first appear."""
    found: dict[str, list[Claim]] = defaultdict(list)
    for claim in claims:
        found[claim.statement].append(claim)
    return [_group(statement, members) for statement, members in found.items()]


def tally(claims: Iterable[Claim]) -> list[tuple[Verdict, int]]:
    """How many of each verdict."""
    count = Counter(claim.verdict for claim in claims)
    return [(verdict, count[verdict]) for verdict in VERDICTS]


def _group(statement: str, members: list[Claim]) -> Group:
    papers = {claim.paper for claim in members}
    every: list[Claim | Driver] = [*members, *(d for claim in members for d in claim.drivers)]
    ends = [v for e in every for v in (e.effect, e.low, e.high) if v is not None]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    margin = 0.06 * (high - low) or 1.0
    scale = (low - margin, high + margin)
    return Group(
        statement=statement,
        paper=papers.pop() if len(papers) == 1 else "",
        tested=tuple(_tested(claim, scale) for claim in members),
    )


def _tested(claim: Claim, scale: tuple[float, float]) -> Tested:
    shots = f"n = {claim.n}" if claim.n else ""
    return Tested(
        claim=claim,
        context=words.context(words.family(claim.family), claim.problem, shots) or "overall",
        bar=_bar(claim, scale),
        drivers=tuple(Driven(driver, _bar(driver, scale)) for driver in claim.drivers),
    )


def _bar(item: Claim | Driver, scale: tuple[float, float]) -> Bar | None:
    if item.effect is None:
        return None
    low = item.effect if item.low is None else item.low
    high = item.effect if item.high is None else item.high
    width = scale[1] - scale[0]
    zero, effect, left, right = (
        round(100 * (value - scale[0]) / width, 2) for value in (0.0, item.effect, low, high)
    )
    return Bar(zero, effect, left, right)
