"""Claims in groups of one kind, with intervals as positions on a common scale.

The kind of a claim is the part of its id before the first slash.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from proxmatch.records import CLAIMS, VERDICTS, ClaimRecord, DriverRecord, Verdict
from proxmatch.report import wording
from proxmatch.report.summary import Denoiser


@dataclass(frozen=True)
class Bar:
    """An effect, its interval and what it must exceed, in percent of the width of a scale."""

    zero: float
    threshold: float
    effect: float
    low: float
    high: float


@dataclass(frozen=True)
class Driven:
    """What one control does to a claim."""

    driver: DriverRecord
    bar: Bar | None


@dataclass(frozen=True)
class Tested:
    """A claim in its group: distinguished from the others by ``what``, then by ``where``."""

    claim: ClaimRecord
    block: Denoiser
    what: str
    where: str
    bar: Bar | None
    drivers: tuple[Driven, ...]


@dataclass(frozen=True)
class Group:
    """All tests of one kind of statement."""

    title: str  # the statement, if it is one, or what its kind is called
    told: bool  # whether the title says it all; otherwise each test has a statement of its own
    paper: str  # what the paper reports, when it is the same for all
    tested: tuple[Tested, ...]  # one for each family, problem and n


def groups(claims: Iterable[ClaimRecord]) -> list[Group]:
    """In the order in which the kinds first appear."""
    found: dict[str, list[ClaimRecord]] = defaultdict(list)
    for claim in claims:
        kind, slash, _ = claim.id.partition("/")
        found[kind if slash else claim.statement].append(claim)
    return [_group(kind, members) for kind, members in found.items()]


def tally(claims: Iterable[ClaimRecord]) -> list[tuple[Verdict, int]]:
    """How many of each verdict."""
    count = Counter(claim.verdict for claim in claims)
    return [(verdict, count[verdict]) for verdict in VERDICTS]


def blocks(claims: Iterable[ClaimRecord]) -> list[Denoiser]:
    """The denoisers that the claims are about."""
    pairs = dict.fromkeys((c.family, c.source) for c in claims if c.family or c.source)
    return [Denoiser(*pair) for pair in pairs]


def _group(kind: str, members: list[ClaimRecord]) -> Group:
    statements = {claim.statement for claim in members}
    papers = {claim.paper for claim in members}
    every: list[ClaimRecord | DriverRecord] = [
        *members,
        *(d for claim in members for d in claim.drivers),
    ]
    ends = [v for e in every for v in (e.effect, e.low, e.high) if v is not None]
    ends += [claim.threshold or 0.0 for claim in members]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    margin = 0.06 * (high - low) or 1.0
    scale = (low - margin, high + margin)
    told = len(statements) == 1
    return Group(
        title=statements.pop() if told else CLAIMS.get(kind, kind.replace("-", " ").capitalize()),
        told=told,
        paper=papers.pop() if len(papers) == 1 else "",
        tested=tuple(_tested(claim, scale) for claim in members),
    )


def _tested(claim: ClaimRecord, scale: tuple[float, float]) -> Tested:
    shots = f"n = {claim.n}" if claim.n else ""
    block = Denoiser(claim.family, claim.source)
    who = wording.denoiser(block) if claim.family or claim.source else ""
    parts = [part for part in (shots, claim.problem, who) if part] or ["overall"]
    return Tested(
        claim=claim,
        block=block,
        what=parts[0],
        where=wording.context(*parts[1:]),
        bar=_bar(claim, scale),
        drivers=tuple(Driven(driver, _bar(driver, scale)) for driver in claim.drivers),
    )


def _bar(item: ClaimRecord | DriverRecord, scale: tuple[float, float]) -> Bar | None:
    if item.effect is None:
        return None
    low = item.effect if item.low is None else item.low
    high = item.effect if item.high is None else item.high
    width = scale[1] - scale[0]
    threshold = (item.threshold or 0.0) if isinstance(item, ClaimRecord) else 0.0
    values = (0.0, threshold, item.effect, low, high)
    return Bar(*(round(100 * (value - scale[0]) / width, 2) for value in values))
