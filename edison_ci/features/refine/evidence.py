"""Evidence that a change helps beyond chance.

Base and candidate answered the same cases in one run. On the training cases the gain must be beyond
chance (one-sided p at most .10, STATS 16); on the held-out cases, which the refiner never saw, the
change must not be significantly worse (STATS 15), there must be at least 16 of them, and only their
difference is called the improvement. The sentences are sent to the refiner with later requests:
changing them changes those.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.documents import record_json
from edison_ci.errors import UsageError
from edison_ci.features.refine.weaknesses import holdout_for, quarantined_cases
from edison_ci.numeric import exceeds, mean_or_none, rounded
from edison_ci.records import Move, Side
from edison_ci.results.comparison import ComparisonSettings, compare_choices
from edison_ci.results.comparison_sample import CellChoice, comparison_sample
from edison_ci.results.metrics import metric_of
from edison_ci.results.samples import SIDES, TwoSidedSample
from edison_ci.results.scores import interval_json
from edison_ci.stats.arrays import generator_for
from edison_ci.stats.convergence import ACCEPTED_P, FEWEST_HOLDOUT_CASES, verified
from edison_ci.stats.intervals import clustered_interval, mean_interval
from edison_ci.stats.paired import Pairs
from edison_ci.stats.permutation import paired_p
from edison_ci.stats.sentences import cases, p_words, signed
from edison_ci.stats.verdicts import MOST_MISSING
from edison_ci.store.cells import cell_statuses, clusters_of, component_names
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping, Sequence

    from edison_ci.proposals.candidate import Change, RefineTarget
    from edison_ci.stats.arrays import Range
    from edison_ci.stats.intervals import Interval
    from edison_ci.store.runs import Run

NOT_VERIFIED = "improvement not verified"
_LOOKS = "sequential test (e-values), valid at every look"
_CLEAR_P = 0.05
"""Two-sided p-value from which on a change of the training cases is called better or worse."""
Decision = Literal["better", "worse", "same", "unclear"]
_DECISIONS: dict[str, Decision] = {
    "a_better": "worse",
    "b_better": "better",
    "same": "same",
    "unclear": "unclear",
}


class BeforeAfter(NamedTuple):
    """A number before and after a change; None where it is unknown."""

    before: float | None
    after: float | None


class ComponentChange(NamedTuple):
    """Means (0-1) of a criterion, check or grader before and after a change."""

    name: str
    kind: str
    train: BeforeAfter
    holdout: BeforeAfter


@dataclass(frozen=True, slots=True)
class Growth:
    """Growth of the prompt's file."""

    chars: int
    percent: float
    lines_added: int
    lines_removed: int

    @classmethod
    def of(cls, change: Change) -> Growth:
        """Return the growth that a change causes."""
        before = len(change.target.text)
        chars = len(change.text) - before
        added, removed = len(change.patch.added), len(change.patch.removed)
        return cls(chars, rounded(100 * chars / before, 1), added, removed)


@dataclass(frozen=True, slots=True)
class SplitEvidence:
    """Evidence from the training or from the held-out cases."""

    n: int
    """Cases with a score on both sides."""
    before: Interval | None
    after: Interval | None
    gain: float | None
    low: float | None
    high: float | None
    p: float | None
    """Two-sided p-value."""
    p_gain: float | None
    """One-sided p-value: how often a change without effect gains as much."""
    method: str
    decision: Decision
    moved: Mapping[Move, tuple[str, ...]]
    """The cases that changed."""
    missing: int
    """Cases without a score on one side."""
    pass_rate: BeforeAfter
    """Share of cases that pass."""
    preference: str = ""
    """Result of a pairwise judge, where one compared new and old answers."""

    @property
    def is_complete(self) -> bool:
        """Whether few enough cases are missing."""
        return self.n > 0 and not exceeds(self.missing, MOST_MISSING * (self.n + self.missing))

    def sentence(self, kind: str) -> str:
        """Return the change in points on cases of this kind, as a sentence."""
        if self.gain is None:
            return f"no {kind} case has a score on both sides"
        likely = ""
        if self.low is not None and self.high is not None:
            likely = f" (likely {signed(self.low)} to {signed(self.high)})"
        return f"{signed(self.gain)} points{likely} on {self.n:,} {kind} cases"

    def as_json(self, kind: str) -> dict[str, Any]:
        """Return the evidence as a JSON value."""
        return {
            "n": self.n,
            "before": interval_json(self.before),
            "after": interval_json(self.after),
            "difference": {
                "estimate": self.gain,
                **record_json.fields_of(self, "low", "high", "n", "p", "p_gain", "method"),
            },
            "decision": self.decision,
            "sentence": self.sentence(kind),
            **{str(move): [*self.moved.get(move, ())] for move in Move},
            **record_json.fields_of(self, "missing", "pass_rate"),
            "head_to_head": self.preference or None,
        }


@dataclass(frozen=True, slots=True)
class Sampling:
    """What the looks of a sampled trial showed on the training cases."""

    p_gain: float
    """One-sided p-value for a gain, valid however often one looked."""
    p_worse: float
    """The same for a loss."""
    interval: Range | None
    """Of the gain: valid at every look, or of all training cases at half of the error."""
    gain: float | None
    measured: int
    """Training cases that were taken."""
    planned: int
    """All training cases."""
    clear: bool
    """Whether further training cases are not needed."""

    @property
    def promising(self) -> bool:
        """Whether a gain is shown, so that the held-out cases are worth their cost."""
        return self.gain is not None and exceeds(self.gain, 0) and self.p_gain <= ACCEPTED_P

    def correct(self, train: SplitEvidence) -> SplitEvidence:
        """Return the evidence with numbers that allow for early stopping."""
        p = min(1.0, 2 * min(self.p_gain, self.p_worse))
        decision: Decision = "unclear"
        if p <= _CLEAR_P and train.gain:
            decision = "better" if exceeds(train.gain, 0) else "worse"
        return replace(
            train,
            low=None if self.interval is None else self.interval.low,
            high=None if self.interval is None else self.interval.high,
            p=p,
            p_gain=self.p_gain,
            method=_LOOKS if self.measured < self.planned else f"{_LOOKS}, exact at the end",
            decision=decision,
        )

    @property
    def sentence(self) -> str:
        """How early the trial stopped, as a sentence; empty if it took all training cases."""
        if self.measured >= self.planned:
            return ""
        taken = f"{self.measured:,} of {cases(self.planned)}"
        return f"Stopped after {taken} for training: already clear (early-stopping corrected)"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence of a trial of a change."""

    train: SplitEvidence | None
    holdout: SplitEvidence | None
    components: tuple[ComponentChange, ...]
    cost_microusd: BeforeAfter
    """Mean cost of an answer."""
    blocked: BeforeAfter
    """Number of blocked answers."""
    growth: Growth
    from_search: bool = False
    """Whether it is the best of many on the training cases, so that their gain is biased."""
    sampling: Sampling | None = None
    """How the training cases were sampled; None if all cases were measured at once."""
    outdone: str = ""
    """Why it was not measured further: another candidate is better; empty otherwise."""

    @property
    def doubt(self) -> str:
        """Why the change is not proven to help; empty if it is."""
        holdout = self.holdout
        if self.outdone:
            return self.outdone
        if doubt := self._training_doubt():
            return doubt
        if holdout is not None and holdout.decision == "worse":
            return "shown worse on unseen cases"
        if holdout is not None and holdout.n and not holdout.is_complete:
            return "too many unseen cases lack a score"
        if self.from_search and (doubt := self._unseen_doubt()):
            return doubt
        if exceeds(self.blocked.after or 0, self.blocked.before or 0):
            return "more answers are blocked"
        return self.unverified

    @property
    def unverified(self) -> str:
        """Why too few held-out cases were measured to verify a gain; empty if enough were."""
        if self.verified or self.spared:
            return ""
        n = 0 if self.holdout is None else self.holdout.n
        return f"{NOT_VERIFIED}: {cases(n)} unseen, {FEWEST_HOLDOUT_CASES} are needed"

    def _training_doubt(self) -> str:
        train = self.train
        if train is None or train.gain is None or not train.is_complete:
            return "too few training cases have a score on both sides"
        if not exceeds(train.gain, 0):
            return "no gain on the training cases"
        if train.p_gain is None or train.p_gain > ACCEPTED_P:
            return f"the gain on the training cases may be luck{_luck(train.p_gain)}"
        return ""

    def _unseen_doubt(self) -> str:
        """Return why the held-out cases alone do not show a gain; empty if they do."""
        holdout = self.holdout
        if holdout is None or holdout.gain is None or not exceeds(holdout.gain, 0):
            return "no gain on the unseen cases"
        if holdout.p_gain is None or holdout.p_gain > ACCEPTED_P:
            return f"the gain on the unseen cases may be luck{_luck(holdout.p_gain)}"
        return ""

    @property
    def proven(self) -> bool:
        """Whether the change is shown to help."""
        return not self.doubt

    @property
    def verified(self) -> bool:
        """Whether there are enough held-out cases."""
        return self.holdout is not None and verified(self.holdout.n)

    @property
    def spared(self) -> bool:
        """Whether the held-out cases were not measured because there was nothing to verify."""
        stopped = self.sampling is not None and not self.sampling.promising
        return self.holdout is None and (stopped or bool(self.outdone))

    @property
    def sentence(self) -> str:
        """The evidence as one sentence."""
        parts = [self.holdout.sentence("unseen") if self.holdout is not None else "no unseen cases"]
        if self.spared:
            parts = ["the unseen cases were not measured"]
        if self.train is not None:
            parts.append(self.train.sentence("training"))
        text = "; ".join(parts)
        if self.doubt and self.doubt != self.unverified:
            text += f". Not shown to help: {self.doubt}"
        if self.sampling is not None and self.sampling.sentence:
            text += f". {self.sampling.sentence}"
        if self.unverified:
            text += f". {self.unverified.capitalize()}"
        return f"{text[:1].upper()}{text[1:]}."

    def as_json(self) -> dict[str, Any]:
        """Return the evidence as a JSON value, as it is stored."""
        return {
            "train": None if self.train is None else self.train.as_json("training"),
            "holdout": None if self.holdout is None else self.holdout.as_json("unseen"),
            **record_json.fields_of(self, "verified", "proven", "doubt", "sentence"),
            "criteria": [
                {
                    **record_json.fields_of(component, "name", "kind"),
                    **component.train._asdict(),
                    "holdout": component.holdout._asdict(),
                }
                for component in self.components
            ],
            **record_json.fields_of(self, "cost_microusd", "blocked", "growth"),
            "sampling": None
            if self.sampling is None
            else record_json.fields_of(self.sampling, "measured", "planned", "clear"),
        }


def evidence_of(
    connection: sqlite3.Connection,
    change: Change,
    run_id: str,
    sampling: Sampling | None = None,
    outdone: str = "",
) -> Evidence:
    """Return the evidence of a trial of a change."""
    run, target = find_run(connection, run_id), change.target
    train, holdout = split_cases(target)
    aside = quarantined_cases(target)
    splits = [_Split(connection, run, target, aside | other) for other in (holdout, train)]
    found = [split.evidence() for split in splits]
    if sampling is not None and found[0] is not None:
        found[0] = sampling.correct(found[0])
    means = [
        split.means() if evidence is not None else {}
        for split, evidence in zip(splits, found, strict=True)
    ]
    unknown = BeforeAfter(None, None)
    return Evidence(
        train=found[0],
        holdout=found[1],
        components=tuple(
            ComponentChange(name, kind, *(known.get((kind, name), unknown) for known in means))
            for kind, name in dict.fromkeys([*means[0], *means[1]])
        ),
        cost_microusd=_cost(_cells(connection, run, aside)) if any(found) else unknown,
        blocked=BeforeAfter(
            *(cell_statuses(connection, run_id, side=side).get("blocked", 0) for side in SIDES)
        ),
        growth=Growth.of(change),
        sampling=sampling,
        outdone=outdone,
    )


class PairedScores(NamedTuple):
    """The scores of both sides of a trial, with the ids of their cases."""

    pairs: Pairs
    cases: Sequence[str]


def training_pairs(
    connection: sqlite3.Connection, target: RefineTarget, run_id: str
) -> PairedScores:
    """Return the scores of the training cases that a trial has so far."""
    left_out = quarantined_cases(target) | split_cases(target)[1]
    try:
        found = _Split(connection, find_run(connection, run_id), target, left_out)
        return PairedScores(*found.pairs(clusters_of(connection, run_id)))
    except UsageError:  # one side has no answers
        return PairedScores(Pairs((), ()), ())


def split_cases(target: RefineTarget) -> tuple[frozenset[str], frozenset[str]]:
    """Return the ids of the training and of the held-out cases."""
    holdout = holdout_for(target)
    found: tuple[set[str], set[str]] = (set(), set())
    for case in target.project.cases(target.experiment):
        found[holdout.has(case)].add(str(case.id))
    return frozenset(found[0]), frozenset(found[1])


@dataclass(frozen=True, slots=True)
class _Split:
    """The cells of a trial, paired by case, without the cases in `left_out`."""

    connection: sqlite3.Connection
    run: Run
    target: RefineTarget
    left_out: frozenset[str]

    def evidence(self) -> SplitEvidence | None:
        """Return the evidence of these cases; None if there are none."""
        clusters = clusters_of(self.connection, self.run.id)
        setting = ComparisonSettings(self.target.experiment.file.gates, clusters, self.left_out)
        sides = (
            CellChoice("before", self.run, Side.BASE),
            CellChoice("after", self.run, Side.HEAD),
        )
        try:
            standing = compare_choices(self.connection, *sides, setting)
        except UsageError:  # one side has no answers
            return None
        if not standing.n and not standing.missing:
            return None
        pairs, names = self.pairs(clusters)
        wins = standing.head_to_head
        return SplitEvidence(
            n=standing.n,
            before=_interval(pairs, "base"),
            after=_interval(pairs, "head"),
            gain=standing.estimate,
            low=None if standing.interval is None else standing.interval.low,
            high=None if standing.interval is None else standing.interval.high,
            p=standing.p,
            p_gain=_p_gain(pairs, names),
            method=standing.method,
            decision=_DECISIONS[standing.verdict],
            moved={
                move: tuple(moved.case for moved in cases) for move, cases in standing.moved.items()
            },
            missing=standing.missing,
            pass_rate=self._mean("pass_rate"),
            preference="" if wins is None else wins.sentence_for("the new prompt", "the old one"),
        )

    def means(self) -> dict[tuple[str, str], BeforeAfter]:
        """Return the means of all components, by kind and name."""
        components = component_names(self.connection, self.run.id)
        return {(kind, name): self._mean(f"{kind}.{name}") for kind, name in components}

    def pairs(self, clusters: Mapping[str, str]) -> tuple[Pairs, list[str]]:
        """Return the scores of both sides by case, and the ids of the cases."""
        cells = _cells(self.connection, self.run, self.left_out)
        found = cells.pairs(metric_of(cells, "composite"), cells.common_variants())
        grouped = None
        if any(case in clusters for case in found.cases):
            grouped = tuple(clusters.get(case, f"\0alone {case}") for case in found.cases)
        return Pairs(tuple(found.base), tuple(found.head), grouped), found.cases

    def _mean(self, metric: str) -> BeforeAfter:
        return _means(_cells(self.connection, self.run, self.left_out), metric)


def _cells(connection: sqlite3.Connection, run: Run, left_out: frozenset[str]) -> TwoSidedSample:
    """Return the cells of a trial without some of its cases."""
    before, after = CellChoice("before", run, Side.BASE), CellChoice("after", run, Side.HEAD)
    return comparison_sample(connection, before, after, left_out).cells


def _means(cells: TwoSidedSample, name: str) -> BeforeAfter:
    metric = metric_of(cells, name)
    sides = (cells.sample(metric, cells.variants(side), side).values for side in SIDES)
    return BeforeAfter(*map(mean_or_none, sides))


def _interval(pairs: Pairs, side: Literal["base", "head"]) -> Interval | None:
    scores = pairs.means(side)
    if pairs.clusters is not None:
        return clustered_interval(scores, pairs.clusters)
    return mean_interval(scores)


def _luck(p_gain: float | None) -> str:
    """Return how likely chance gains as much, in parentheses after a space."""
    return "" if p_gain is None else f" (one-sided {p_words(p_gain)} for any gain)"


def _p_gain(pairs: Pairs, names: Iterable[str]) -> float | None:
    if not pairs.n:
        return None
    return paired_p(pairs, rng=generator_for([*names]), side="greater").value


def _cost(cells: TwoSidedSample) -> BeforeAfter:
    dollars = _means(cells, "cost_usd.mean")
    return BeforeAfter(*(None if mean is None else 1e6 * mean for mean in dollars))
