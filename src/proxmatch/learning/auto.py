"""Adaptation that chooses for itself: candidates made from some images, scored on the others.

Every candidate is made from one part of the images and scored on the other by simulated
reconstructions:

- the denoiser that was given; of several, the one that removes noise from the images best. The
  others have to beat it, and the evidence compares with it. One that takes a noise level has no
  strength of its own and is used at its best one; any other is used as it is;
- the same at its best strength; of several, the :data:`TRIED` best ones. The one that then does
  best on the first part is the nearest, and the rest is made from it:
- aligned, if it was trained at one noise level;
- gently fine-tuned, by proximal matching where it knows all noise levels;
- half fine-tuned: each weight half way between its old and its new value. It has forgotten less of
  what the few images do not show (from histology to one face 33.2 dB, fine-tuned 32.3, the source
  32.5). Where there are only one or two images to train on, no denoiser goes the whole way;
- the Wiener filter of the images: what a learned prior has to beat;
- blended: a weighted mean of the best learned one and the Wiener filter. The network has seen many
  other images, the filter only these few; they err in different ways, and together less
  (``results/adaptation``). The filter alone is returned only where there was no time for a blend.
  Where it was best on the test images of 39 adaptations, a blend was within 0.07 dB of it; where it
  only won on the held-out images, 0.97 dB were lost.

Total variation stands in the table and cannot be chosen: it has no potential.

Weights, filters, colors and strengths (:mod:`proxmatch.transforms.strength`) all come from the
first part; no held-out pixel has any part in a denoiser, and the evidence is of the very one that
is returned. A denoiser that was trained on one or two images keeps the noise level that was chosen
before: it knows them too well to choose one on them, which cost 0.1 to 0.4 dB on others.

With few images, a paler copy stands beside each, in the choice of a strength and in the scores: a
prior that suits one busy image is too weak for the smooth ones of its domain (2.4 dB were lost so
on photographs). The candidate of highest mean score wins, among those that do not lose on any
problem against the first one. The fine-tuned one must win by :data:`MARGIN`. The half fine-tuned
one need not: over 40 adaptations to five images its held-out gain was right on average, and with
the margin 0.02 dB were lost. Where there are only parts of one or two images to compare on, they
say little, and any other candidate must beat the blended one by :data:`EDGE`.

Candidates that wait for no other (all strengths of the sources, the Wiener filter, total variation)
may be computed by several workers at a time; the rest follows one after the other.

With a budget, no candidate is begun that would not end in time, but for the Wiener filter, which
takes a second; a fine-tuning is as long as the time allows, and what was not tried is reported.
"""

from __future__ import annotations

import copy
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from proxmatch._internal.cluster import Begin, at_once
from proxmatch._internal.provenance import versions
from proxmatch._internal.randomness import fingerprint, generator_of
from proxmatch.baselines import TotalVariation, Wiener
from proxmatch.baselines.total_variation import WEIGHTS
from proxmatch.baselines.wiener import SIGMAS
from proxmatch.denoisers import ProximalDenoiser, checkpoint
from proxmatch.errors import (
    AdaptationWarning,
    DegenerateStatisticsWarning,
    LevelWarning,
    NotProximalError,
    SuspiciousWarning,
    UnknownLipschitzError,
)
from proxmatch.learning.assess import Assessment, assess, with_spectrum
from proxmatch.learning.engine import RunStatus
from proxmatch.learning.evidence import LEEWAY, AdaptationResult, Candidate, Evidence
from proxmatch.learning.fine_tune import fine_tune, gentle_settings
from proxmatch.learning.hold_out import HoldOut, hold_out, psnr_from
from proxmatch.learning.settings import TrainingSettings, TrajectoryInputs
from proxmatch.learning.start import nearest_first
from proxmatch.pnp import Denoise
from proxmatch.problems import Problem
from proxmatch.transforms import Blended, Relaxed, Tuned, align, choose_strength, colors_of, tune
from proxmatch.transforms.strength import STRENGTHS, quick

#: By how much a fine-tuned denoiser must win, in dB, over the root of the held-out images' number.
MARGIN = 0.2
#: By how much, in dB, any other candidate must beat the blended one on parts of one or two images.
#: There the scores were off by 1 dB and more (``results/adaptation``).
EDGE = 1.0
#: Windows of the images that statistics are taken from.
WINDOWS = 64
#: Of them, those that strengths are compared on.
CROPS = 4
#: With fewer windows than these, paler copies stand beside them.
ENOUGH = 4
#: A denoiser that was trained on fewer images than these goes half the way, and keeps the level of
#: its source.
KNOWN_TOO_WELL = 3
#: Kinds of candidates: the denoiser that was given, at its best strength, a mean of two others, and
#: what has no learned prior.
SOURCE, RELAXED, BLENDED = "source", "relaxed", "blended"
WIENER, VARIATION = "Wiener", "total variation"
#: Weights of the Wiener filter where it is blended with a learned denoiser. With fewer images than
#: :data:`KNOWN_TOO_WELL`, the middle one.
BLENDS = (0.25, 0.5, 0.75)
#: Of several denoisers, those whose strength is chosen.
TRIED = 3
#: Fewer steps of a fine-tuning than these are not worth beginning.
SHORTEST = 40
#: Share of the time left that a fine-tuning may take; the rest is for its strength and score.
TRAINING = 0.5
#: Share of the time left that the strength of a denoiser as it is may take.
STRENGTH = 0.3
#: Steps that are timed first.
PROBE = 3
#: Noise level and number of crops for the L of the evidence.
NOISE, SPECTRA = 0.05, 2


@dataclass(frozen=True)
class Search:
    """How much is tried."""

    strengths: Sequence[float] = STRENGTHS  # of a relaxation
    crops: int = CROPS  # windows that strengths are compared on, at most
    #: Of a fine-tuning, at most; None for all of them, 0 to fine-tune nothing.
    steps: int | None = None
    compare: bool = True  # try total variation too, which takes long and cannot be chosen


def auto(
    sources: Mapping[str, ProximalDenoiser],
    images: Sequence[Tensor],
    *,
    problems: Sequence[Problem],
    size: int,
    search: Search | None = None,
    budget: float | None = None,
    seed: int = 0,
    on_candidate: Callable[[str], None] = lambda name: None,
    begin: Begin = at_once,
) -> AdaptationResult:
    """The best that can be made of denoisers with these images; see :mod:`.auto`.

    The arguments are those of :func:`proxmatch.learning.adapt`; ``begin`` has candidates made.
    """
    split = hold_out(images, size)
    trials = explore(
        sources,
        split,
        tiles(split.training, size),
        problems=problems,
        size=size,
        search=search,
        budget=budget,
        seed=seed,
        on_candidate=on_candidate,
        begin=begin,
    )
    evidence = trials.evidence(trials.best())
    about = {"images": fingerprint(images), "size": size, "interval": evidence.interval}
    return trials.result(sources, about, evidence)


def explore(
    sources: Mapping[str, ProximalDenoiser],
    split: HoldOut,
    windows: Tensor,
    *,
    problems: Sequence[Problem],
    size: int,
    search: Search | None = None,
    budget: float | None = None,
    seed: int = 0,
    on_candidate: Callable[[str], None] = lambda name: None,
    begin: Begin = at_once,
    began: float | None = None,
) -> Trials:
    """Make all candidates on windows ``(N, C, H, W)``, and score them on what was held out.

    A budget counts from ``began`` on, in monotonic seconds, by default from now.
    """
    search = search or Search()
    place = next(next(iter(sources.values())).parameters(), windows)
    problems = [p.to(place.device).to(place.dtype) for p in problems]
    windows = windows.to(place)
    paler = len(windows) < ENOUGH
    few = _some(windows, search.crops)
    few = _with_paler(few) if paler else few
    several = len(sources) > 1
    trials = Trials(split, paler, problems, seed, budget, on_candidate, begin, several, began)
    clock = trials.clock
    trials.nearness = nearness = nearest_first(sources, windows, seed=seed)
    first = next(iter(nearness))
    given = sources[first]

    def chosen(base: ProximalDenoiser, level: float | None = None) -> Tuned[Any]:
        return choose_strength(
            base,
            few,
            problems,
            level=level,
            strengths=search.strengths,
            measured=not clock.over(),  # L takes long; out of time, that of the card has to do
            seed=seed,
            stop=clock.over,
        )

    def along(make: Callable[[float], Any], grid: Sequence[float]) -> Tuned[Any]:
        return tune(make, grid, few, problems, seed=seed, stop=clock.over)

    if not given.conditional:
        trials.begin(SOURCE, lambda: along(lambda _: given, (1.0,)), first)
    for name in list(nearness)[:TRIED]:
        trials.begin(RELAXED, partial(chosen, sources[name]), name)
    trials.begin(  # all strengths, whatever the budget: it takes next to no time
        WIENER, lambda: tune(partial(Wiener.fit, windows), SIGMAS, few, problems, seed=seed)
    )
    if search.compare:
        # The weakest first: in 44 of 70 adaptations it was the best.
        trials.begin(VARIATION, lambda: along(TotalVariation, WEIGHTS[::-1]))

    if not given.conditional:
        trials(SOURCE, first)
    near, best, level = first, -math.inf, None
    for name in list(nearness)[:TRIED]:
        tried = trials(RELAXED, name, share=STRENGTH)
        if tried is not None and tried.fit > best:
            near, best, level = name, tried.fit, tried.candidate.sigma
    trials.nearest = near
    linear = trials(WIENER, always=True)
    base = nearest = sources[near]
    if colors_of(nearest) is not None and not nearest.conditional:
        base = _aligned(nearest, windows)
        trials.made("aligned + relaxed", partial(chosen, base), near)
    if nearest.trainable and search.steps != 0:
        settings = gentle_settings(nearest, len(split.training), seed=seed)
        if search.steps is not None:
            settings = _shorter(settings, search.steps)

        begun = "" if base is nearest else "aligned + "
        half = f"{begun}half fine-tuned + relaxed"

        def trained() -> ProximalDenoiser:
            return _trained(base, split.training, settings, problems, size, clock.left)

        if len(split.training) < KNOWN_TOO_WELL:
            trials.made(half, lambda: chosen(halfway(base, trained()), level), near)
        else:
            full = f"{begun}fine-tuned + relaxed"
            found = trials.made(full, lambda: chosen(trained()), near, trained=True)
            if found is not None and isinstance(found.denoiser, Relaxed):
                mean = halfway(base, found.denoiser.inner)
                trials.made(half, lambda: chosen(mean), near)
    if linear is not None:
        learned = trials.best(but=linear)
        weights = BLENDS if len(split.training) >= KNOWN_TOO_WELL else BLENDS[1:2]
        blend = partial(_blended, partial(along, grid=weights), learned, linear)
        trials.made(BLENDED, blend, learned.candidate.source)
    if search.compare:
        trials(VARIATION)
    return trials


def tiles(images: Sequence[Tensor], size: int) -> Tensor:
    """Windows side by side, from all images alike, ``(N, C, size, size)`` with N <= 64."""
    found = [
        image[:, top : top + size, left : left + size]
        for image in images
        for top in range(0, image.shape[1] - size + 1, size)
        for left in range(0, image.shape[2] - size + 1, size)
    ]
    return _some(torch.stack(found), WINDOWS)


def _some(images: Tensor, most: int) -> Tensor:
    """At most ``most`` of the images, evenly spread."""
    return images[:: -(-len(images) // most)]


def _with_paler(images: Tensor) -> Tensor:
    """Images, and each once more with half its contrast, ``(2 N, C, H, W)``."""
    return torch.cat([images, (images + images.mean((-2, -1), keepdim=True)) / 2])


def _shorter(settings: TrainingSettings, steps: int) -> TrainingSettings:
    bound = min(steps, settings.steps)
    return settings.model_copy(update={"steps": bound, "check_every": bound})


def _trained(
    base: ProximalDenoiser,
    images: Sequence[Tensor],
    settings: TrainingSettings,
    problems: Sequence[Problem],
    size: int,
    left: float,
) -> ProximalDenoiser:
    """A denoiser trained on images, for no longer than a share of the seconds that are left."""

    def run(settings: TrainingSettings) -> ProximalDenoiser:
        return fine_tune(
            base, images, settings, problems=problems, size=size, select="last", held_out=False
        ).denoiser

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AdaptationWarning)
        if left < math.inf:
            steps = int(TRAINING * left / _seconds(settings, run))
            if steps < min(SHORTEST, settings.steps):
                raise _OutOfTime
            settings = _shorter(settings, steps)
        return run(settings)


def _seconds(settings: TrainingSettings, run: Callable[[TrainingSettings], object]) -> float:
    """Of one step of a training, with its share of the query points that many steps use."""

    def probe(trajectory: TrajectoryInputs | None) -> float:
        started = time.monotonic()
        run(_shorter(settings, PROBE).model_copy(update={"trajectory": trajectory}))
        return time.monotonic() - started

    alone = probe(None)
    if settings.trajectory is None:
        return alone / PROBE
    more = max(probe(settings.trajectory) - alone, 0.0)
    return alone / PROBE + more / settings.trajectory.refresh


@torch.no_grad()
def halfway(one: ProximalDenoiser, other: ProximalDenoiser) -> ProximalDenoiser:
    """A denoiser with the mean of the weights of two: a convex one if both are."""
    found = copy.deepcopy(other)
    for mine, theirs in zip(found.parameters(), one.parameters(), strict=True):
        mine.lerp_(theirs.to(mine), 0.5)
    return found


def _blended(
    along: Callable[[Callable[[float], Blended]], Tuned[Blended]], learned: Tried, linear: Tried
) -> Tuned[Blended]:
    """A weighted mean of two candidates; its t L follows from those of both."""
    found = along(partial(Blended, quick(learned.made), linear.made))
    found = replace(found, denoiser=Blended(learned.made, linear.made, found.chosen.strength))
    if learned.candidate.margin is None:
        return found
    return replace(found, lipschitz=(1 - found.denoiser.convexity()) / found.chosen.strength)


def _aligned(denoiser: ProximalDenoiser, windows: Tensor) -> ProximalDenoiser:
    with warnings.catch_warnings():  # it is scored like the others
        warnings.simplefilter("ignore", DegenerateStatisticsWarning)
        return align(denoiser, windows)


class _OutOfTime(Exception):
    """A candidate cannot be made in the time that is left."""


@contextmanager
def _quietly() -> Iterator[None]:
    """Without warnings of one candidate: of its level, and that it is worse than the start.

    How good it is at that level is measured, and the winner is compared with the start at the end.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LevelWarning)
        warnings.simplefilter("ignore", SuspiciousWarning)
        yield


def _scored(
    make: Callable[[], Tuned[Any]], score: Callable[[Denoise], Assessment]
) -> tuple[Tuned[Any], Assessment, float, float]:
    """A candidate, its figures, and the seconds that both took."""
    began = time.monotonic()
    with _quietly():
        made = make()
        between = time.monotonic()
        seen = score(made.denoiser)
    return made, seen, between - began, time.monotonic() - between


@dataclass(frozen=True)
class Tried:
    """A candidate."""

    candidate: Candidate  # what is reported about it
    denoiser: Denoise
    seen: Assessment  # its figures on what was held out, paler copies at the end
    fit: float  # PSNR on the images that its strength was chosen on, in dB
    trained: bool  # whether it is fine-tuned all the way

    @property
    def made(self) -> ProximalDenoiser:
        """The denoiser, if it is not total variation."""
        assert isinstance(self.denoiser, ProximalDenoiser)  # noqa: S101
        return self.denoiser


@dataclass
class Clock:
    """When the present candidate must be made, in monotonic seconds."""

    deadline: float = math.inf

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.deadline - time.monotonic()

    def over(self) -> bool:
        """Whether no time is left."""
        return self.left <= 0


class Trials:
    """Candidates, made and scored while there is time."""

    def __init__(
        self,
        split: HoldOut,
        paler: bool,
        problems: Sequence[Problem],
        seed: int,
        budget: float | None,
        on_candidate: Callable[[str], None],
        begin: Begin,
        several: bool,
        began: float | None,
    ) -> None:
        self.began, self.budget = began or time.monotonic(), budget
        self.end = math.inf if budget is None else self.began + budget
        self.clock = Clock(self.end)
        self.split, self.problems, self.seed = split, problems, seed
        self.crops = _with_paler(split.crops) if paler else split.crops
        self.first = split.first * (2 if paler else 1)
        self.on_candidate, self._begin, self._several = on_candidate, begin, several
        self.begun: dict[str, Callable[[], tuple[Tuned[Any], Assessment, float, float]]] = {}
        self.scoring = 0.0  # seconds that a score takes
        self.nearness: dict[str, float] = {}  # denoising PSNR in dB of the sources, best first
        self.nearest = ""  # name of the source that the rest was made from
        self.tried: list[Tried] = []  # the one that the others have to beat first
        self.untried: list[str] = []  # names of those that there was no time for

    def begin(self, kind: str, make: Callable[[], Tuned[Any]], source: str = "") -> None:
        """Begin to make and score a candidate of a source, if there are workers for that."""
        score = partial(
            assess,
            images=self.crops,
            problems=self.problems,
            first=self.first,
            spectrum=False,
            seed=self.seed,
        )
        self.begun[self._name(kind, source)] = self._begin(partial(_scored, make, score))

    def made(
        self, kind: str, make: Callable[[], Tuned[Any]], source: str, trained: bool = False
    ) -> Tried | None:
        """A candidate that waited for another one; the arguments are those of the others."""
        self.begin(kind, make, source)
        return self(kind, source, trained=trained)

    def _name(self, kind: str, source: str) -> str:
        """What to call a candidate; where there is one of its kind only, by its kind."""
        single = not source or not self._several or kind in (SOURCE, BLENDED)
        return kind if single else f"{source}, {kind}"

    def __call__(
        self,
        kind: str,
        source: str = "",
        *,
        trained: bool = False,
        share: float = 1.0,
        always: bool = False,
    ) -> Tried | None:
        """A candidate that was begun; None if there is no time for it.

        Args:
            kind: how it is made.
            source: name of what it is made from, if it is made from one.
            trained: whether it is fine-tuned all the way.
            share: of the time left that it may take.
            always: whether it is made even if there is no time left, because it takes next to none.
        """
        started, name = time.monotonic(), self._name(kind, source)
        room = self.end - started - 3 * self.scoring  # to score it, and to end
        if self.tried and room <= 2 * self.scoring and not always:
            self.untried.append(name)
            return None
        self.clock.deadline = started + share * room
        self.on_candidate(name)
        try:
            made, seen, making, scoring = self.begun.pop(name)()
        except _OutOfTime:
            self.untried.append(name)
            return None
        self.scoring = max(self.scoring, scoring)
        scores = {p: float(values.mean()) for p, values in seen.reconstruction.items()}
        chosen = made.chosen
        candidate = Candidate(
            name,
            scores,
            chosen.strength,
            making + scoring,
            sigma=chosen.sigma,
            margin=made.margin,
            kind=kind,
            source=source,
        )
        tried = Tried(candidate, made.denoiser, seen, chosen.psnr, trained)
        self.tried.append(tried)
        return tried

    def best(self, but: Tried | None = None) -> Tried:
        """The winner, of all candidates or of all but one; the first one is always there.

        One that is known not to be a proximal map wins only where no other is sound, and the Wiener
        filter alone only where it is not blended.
        """
        source = self.tried[0].candidate
        margin = MARGIN / math.sqrt(len(set(self.split.owners)))
        edge = EDGE if any(self.split.first) else 0.0  # only parts of the images are held out

        def score(tried: Tried) -> float:
            bonus = edge * (tried.candidate.kind == BLENDED) - margin * tried.trained
            return tried.candidate.score + bonus

        blended = any(tried.candidate.kind == BLENDED for tried in self.tried)
        sound = [
            tried
            for tried in self.tried
            if tried is not but
            and not (blended and tried.candidate.kind == WIENER)
            and isinstance(tried.denoiser, ProximalDenoiser)
            and all(tried.candidate.scores[p] >= s - LEEWAY for p, s in source.scores.items())
        ]
        return max([t for t in sound if not self._expands(t)] or sound, key=score)

    def _expands(self, tried: Tried) -> bool:
        """Whether it is known that J_D has negative eigenvalues, so that D is not a proximal map.

        Of the source as it is, L may be known from its relaxed version alone.
        """
        own = tried.candidate
        if own.kind == SOURCE:
            for other in (t.candidate for t in self.tried if t.candidate.source == own.source):
                if other.kind == RELAXED and other.margin is not None and other.strength:
                    return other.margin / other.strength >= 1
        try:
            return tried.made.convexity() < 0
        except (UnknownLipschitzError, NotProximalError):
            return False

    def evidence(self, winner: Tried) -> Evidence:
        """The figures of the first candidate and the winner, paler copies left out."""
        crops = self.split.crops
        noise = torch.randn(crops.shape, generator=generator_of(self.seed, "noise"))
        noisy = (crops + NOISE * noise)[:SPECTRA]

        def figures(tried: Tried) -> Assessment:
            at = noisy.to(next(tried.made.parameters(), noisy))
            return with_spectrum(tried.seen.of_first(len(crops)), tried.made, at)

        with _quietly():
            before = figures(self.tried[0])
            after = before if winner is self.tried[0] else figures(winner)
        return Evidence(before, after, self.split.owners, self.split.whole)

    def result(
        self,
        sources: Mapping[str, ProximalDenoiser],
        about: Mapping[str, Any],
        evidence: Evidence | None = None,
    ) -> AdaptationResult:
        """The winner, with a record of what it was made from and compared with."""
        winner = self.best()
        self._warn(winner)
        table = tuple(replace(tried.candidate, chosen=tried is winner) for tried in self.tried)
        denoiser, chosen = winner.made, winner.candidate
        if chosen.kind != SOURCE:
            record = {
                **about,
                "sources": {n: checkpoint.fingerprint(source) for n, source in sources.items()},
                "nearness": self.nearness,
                "nearest": self.nearest,
                "problems": [p.name for p in self.problems],
                "seed": self.seed,
                "chosen": chosen.name,
                "strength": chosen.strength,
                "sigma": chosen.sigma,
                "untried": self.untried,
                "table": {
                    c.name: {**c.scores, "strength": c.strength, "sigma": c.sigma} for c in table
                },
                "seconds": round(time.monotonic() - self.began, 1),
                "versions": versions(),
            }
            denoiser.record = {**denoiser.record, "auto": record}
        return AdaptationResult(
            denoiser,
            RunStatus.COMPLETED,
            0,
            [],
            evidence,
            table=table,
            source=chosen.source or self.nearest,
            nearness=self.nearness,
            untried=tuple(self.untried),
            tried={tried.candidate.name: tried.denoiser for tried in self.tried},
        )

    def _start(self) -> float:
        """PSNR of the starts of the reconstructions that the scores are of, mean in dB."""
        found = []
        for problem in self.problems:
            crops = self.crops.to(problem.device, problem.dtype)
            start = problem.initial(problem.measure(crops, seed=self.seed))
            found.append(float(psnr_from(start, crops, self.first).mean()))
        return sum(found) / len(found)

    def _warn(self, winner: Tried) -> None:
        """Say that nothing was better, that nothing helps, or that there was no time."""
        parts = []
        if winner is self.tried[0] and winner.candidate.sigma is None:
            parts.append(
                "nothing that was tried is better than the denoiser as it is, which is returned"
            )
        start = self._start()
        if winner.candidate.score < start:
            parts.append(
                f"even the best has only {winner.candidate.score:.2f} dB on what was held out; the "
                f"start of the iteration has {start:.2f} dB there"
            )
        if self.untried:
            parts.append(
                f"the budget of {self.budget:g} s left no time for {', '.join(self.untried)}: "
                "give it more"
            )
        if parts:
            warnings.warn("; ".join(parts), AdaptationWarning, stacklevel=6)  # to who calls adapt
