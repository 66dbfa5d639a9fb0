"""Evidence that a change helps, and that it is more than luck.

Base and candidate have answered the same cases in one run. On the training cases the gain must be
more than luck (one-sided p at most .10, STATS 16); on the cases that the refiner never saw the
change must not be shown worse (STATS 15), and only their number is called the improvement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.config.cases import is_holdout
from edison_ci.errors import UsageError
from edison_ci.refine.weaknesses import aside_in, split_of
from edison_ci.results.comparison import Setting, stand
from edison_ci.results.comparison_sample import Choice, comparison_sample
from edison_ci.results.run_document import interval_json
from edison_ci.results.samples import SIDES, TwoSidedSample, metric_of
from edison_ci.rounding import exceeds, mean_or_none
from edison_ci.stats.arrays import generator_for
from edison_ci.stats.convergence import ACCEPTED_P, FEWEST_HOLDOUT_CASES, verified
from edison_ci.stats.intervals import clustered_interval, mean_interval
from edison_ci.stats.paired import Pairs
from edison_ci.stats.permutation import paired_p
from edison_ci.stats.sentences import cases, chance, signed
from edison_ci.stats.verdicts import MOST_MISSING
from edison_ci.store.runs import clusters_of, find_run, part_names, statuses_of_side

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping

    from edison_ci.refine.candidate import Change, Subject
    from edison_ci.stats.intervals import Interval
    from edison_ci.store.runs import Run

NOT_VERIFIED = "improvement not verified"
Decision = Literal["better", "worse", "same", "unclear"]
_DECISIONS: dict[str, Decision] = {
    "a_better": "worse",
    "b_better": "better",
    "same": "same",
    "unclear": "unclear",
}


class Both(NamedTuple):
    """A number before and after a change; None where it is not known."""

    before: float | None
    after: float | None


class PartChange(NamedTuple):
    """What became of a criterion, check or grader: means from 0 to 1."""

    name: str
    kind: str
    train: Both
    holdout: Both


@dataclass(frozen=True, slots=True)
class Growth:
    """How much longer a prompt gets."""

    chars: int
    percent: float
    lines_added: int
    lines_removed: int

    @classmethod
    def of(cls, change: Change) -> Growth:
        """Return how a change lengthens the prompt's file."""
        before = len(change.subject.text)
        chars = len(change.text) - before
        added, removed = len(change.patch.added), len(change.patch.removed)
        return cls(chars, round(100 * chars / before, 1), added, removed)

    def as_json(self) -> dict[str, float]:
        """Return the growth as it is stored."""
        return {
            "chars": self.chars,
            "percent": self.percent,
            "lines_added": self.lines_added,
            "lines_removed": self.lines_removed,
        }


@dataclass(frozen=True, slots=True)
class Shown:
    """What the training cases, or those that are held out, show of a change."""

    n: int
    """Cases that both sides have."""
    before: Interval | None
    after: Interval | None
    gain: float | None
    low: float | None
    high: float | None
    p: float | None
    """Two-sided."""
    luck: float | None
    """One-sided: how often a change that does nothing gains as much."""
    method: str
    decision: Decision
    fixed: tuple[str, ...]
    broken: tuple[str, ...]
    missing: int
    """Cases that lack a side."""
    passed: Both
    """Share of cases that pass."""
    preferred: str = ""
    """How a pairwise judge prefers the new answers to the old, where one compared them."""

    @property
    def enough(self) -> bool:
        """Whether not too many cases are missing."""
        return self.n > 0 and not exceeds(self.missing, MOST_MISSING * (self.n + self.missing))

    def said(self, kind: str) -> str:
        """Say the change in points, on cases of this kind."""
        if self.gain is None:
            return f"no {kind} case has a score on both sides"
        likely = ""
        if self.low is not None and self.high is not None:
            likely = f" (likely {signed(self.low)} to {signed(self.high)})"
        return f"{signed(self.gain)} points{likely} on {self.n:,} {kind} cases"

    def as_json(self, kind: str) -> dict[str, Any]:
        """Return it as it is stored."""
        return {
            "n": self.n,
            "before": interval_json(self.before),
            "after": interval_json(self.after),
            "difference": {
                "estimate": self.gain,
                "low": self.low,
                "high": self.high,
                "n": self.n,
                "p": self.p,
                "p_gain": self.luck,
                "method": self.method,
            },
            "decision": self.decision,
            "sentence": self.said(kind),
            "fixed": [*self.fixed],
            "broken": [*self.broken],
            "missing": self.missing,
            "pass_rate": self.passed._asdict(),
            "head_to_head": self.preferred or None,
        }


@dataclass(frozen=True, slots=True)
class Evidence:
    """What trying a change showed."""

    train: Shown | None
    holdout: Shown | None
    parts: tuple[PartChange, ...]
    cost_microusd: Both
    """Mean of an answer."""
    blocked: Both
    """Answers that a screen blocked."""
    growth: Growth
    searched: bool = False
    """Whether it is the best of many on the training cases, whose gain then proves little."""

    @property
    def doubt(self) -> str:
        """Why it may not be proposed without force; empty if it may."""
        holdout = self.holdout
        if said := self._training_doubt():
            return said
        if holdout is not None and holdout.decision == "worse":
            return "shown worse on unseen cases"
        if holdout is not None and holdout.n and not holdout.enough:
            return "too many unseen cases lack a score"
        if self.searched and (said := self._unseen_doubt()):
            return said
        if exceeds(self.blocked.after or 0, self.blocked.before or 0):
            return "more answers are blocked"
        return ""

    def _training_doubt(self) -> str:
        train = self.train
        if train is None or train.gain is None or not train.enough:
            return "too few training cases have a score on both sides"
        if not exceeds(train.gain, 0):
            return "no gain on the training cases"
        if train.luck is None or train.luck > ACCEPTED_P:
            luck = "" if train.luck is None else f" ({chance(train.luck)})"
            return f"the gain on the training cases may be luck{luck}"
        return ""

    def _unseen_doubt(self) -> str:
        """Return why the unseen cases, looked at once, do not show a gain by themselves."""
        holdout = self.holdout
        if holdout is None or holdout.gain is None or not exceeds(holdout.gain, 0):
            return "no gain on the unseen cases"
        if holdout.luck is None or holdout.luck > ACCEPTED_P:
            luck = "" if holdout.luck is None else f" ({chance(holdout.luck)})"
            return f"the gain on the unseen cases may be luck{luck}"
        return ""

    @property
    def proven(self) -> bool:
        """Whether it may be proposed without force."""
        return not self.doubt

    @property
    def verified(self) -> bool:
        """Whether there are enough cases that the refiner never saw."""
        return self.holdout is not None and verified(self.holdout.n)

    @property
    def sentence(self) -> str:
        """All of it in words."""
        said = [self.holdout.said("unseen") if self.holdout is not None else "no unseen cases"]
        if self.train is not None:
            said.append(self.train.said("training"))
        told = "; ".join(said)
        if self.doubt:
            told += f". Not shown to help: {self.doubt}"
        if not self.verified:
            seen = 0 if self.holdout is None else self.holdout.n
            told += f". {NOT_VERIFIED.capitalize()}: {cases(seen)} unseen, {FEWEST_HOLDOUT_CASES}"
            told += " are needed"
        return f"{told[:1].upper()}{told[1:]}."

    def as_json(self) -> dict[str, Any]:
        """Return the evidence with the keys of the store."""
        return {
            "train": None if self.train is None else self.train.as_json("training"),
            "holdout": None if self.holdout is None else self.holdout.as_json("unseen"),
            "verified": self.verified,
            "proven": self.proven,
            "doubt": self.doubt,
            "sentence": self.sentence,
            "criteria": [
                {
                    "name": part.name,
                    "kind": part.kind,
                    **part.train._asdict(),
                    "holdout": part.holdout._asdict(),
                }
                for part in self.parts
            ],
            "cost_microusd": self.cost_microusd._asdict(),
            "blocked": self.blocked._asdict(),
            "growth": self.growth.as_json(),
        }


# --- from the cells of a trial --------------------------------------------------------------------


def evidence_of(connection: sqlite3.Connection, change: Change, run_id: str) -> Evidence:
    """Return what a trial of a change shows."""
    run, subject = find_run(connection, run_id), change.subject
    train, holdout = split_cases(subject)
    aside = aside_in(subject)
    parts = [_Part(connection, run, subject, aside | other) for other in (holdout, train)]
    shown = [part.shown() for part in parts]
    means = [
        part.means() if found is not None else {} for part, found in zip(parts, shown, strict=True)
    ]
    unknown = Both(None, None)
    return Evidence(
        train=shown[0],
        holdout=shown[1],
        parts=tuple(
            PartChange(name, kind, *(known.get((kind, name), unknown) for known in means))
            for kind, name in dict.fromkeys([*means[0], *means[1]])
        ),
        cost_microusd=_cost(_cells(connection, run, aside)) if any(shown) else unknown,
        blocked=Both(
            *(statuses_of_side(connection, run_id, side).get("blocked", 0) for side in SIDES)
        ),
        growth=Growth.of(change),
    )


def split_cases(subject: Subject) -> tuple[frozenset[str], frozenset[str]]:
    """Return the ids of the training cases and of those that are held out."""
    split = split_of(subject.experiment)
    found: tuple[set[str], set[str]] = (set(), set())
    for case in subject.project.cases(subject.experiment):
        found[is_holdout(case, split)].add(str(case.id))
    return frozenset(found[0]), frozenset(found[1])


@dataclass(frozen=True, slots=True)
class _Part:
    """The cells of a trial whose cases are not left out, set side by side."""

    connection: sqlite3.Connection
    run: Run
    subject: Subject
    left_out: frozenset[str]

    def shown(self) -> Shown | None:
        """Return what these cases show; None if there is none of them."""
        clusters = clusters_of(self.connection, self.run.id)
        setting = Setting(self.subject.experiment.file.gates, clusters, self.left_out)
        sides = (Choice("before", self.run, "base"), Choice("after", self.run, "head"))
        try:
            standing = stand(self.connection, *sides, setting)
        except UsageError:  # nothing was answered on one side
            return None
        if not standing.n and not standing.missing:
            return None
        pairs, names = self._pairs(clusters)
        wins = standing.head_to_head
        return Shown(
            n=standing.n,
            before=_interval(pairs, "base"),
            after=_interval(pairs, "head"),
            gain=standing.estimate,
            low=None if standing.interval is None else standing.interval.low,
            high=None if standing.interval is None else standing.interval.high,
            p=standing.p,
            luck=_luck(pairs, names),
            method=standing.method,
            decision=_DECISIONS[standing.verdict],
            fixed=tuple(moved.case for moved in standing.fixed),
            broken=tuple(moved.case for moved in standing.broken),
            missing=standing.missing,
            passed=self._mean("pass_rate"),
            preferred="" if wins is None else wins.said_of("the new prompt", "the old one"),
        )

    def means(self) -> dict[tuple[str, str], Both]:
        """Return the means of every criterion, check and grader, by kind and name."""
        parts = part_names(self.connection, self.run.id)
        return {(kind, name): self._mean(f"{kind}.{name}") for kind, name in parts}

    def _pairs(self, clusters: Mapping[str, str]) -> tuple[Pairs, list[str]]:
        cells = _cells(self.connection, self.run, self.left_out)
        found = cells.pairs(metric_of(cells, "composite"), cells.common_subjects())
        grouped = None
        if any(case in clusters for case in found.cases):
            grouped = tuple(clusters.get(case, f"\0alone {case}") for case in found.cases)
        return Pairs(tuple(found.base), tuple(found.head), grouped), found.cases

    def _mean(self, metric: str) -> Both:
        return _means(_cells(self.connection, self.run, self.left_out), metric)


def _cells(connection: sqlite3.Connection, run: Run, left_out: frozenset[str]) -> TwoSidedSample:
    """Return the cells of a trial without some of its cases."""
    before, after = Choice("before", run, "base"), Choice("after", run, "head")
    return comparison_sample(connection, before, after, left_out).cells


def _means(cells: TwoSidedSample, name: str) -> Both:
    metric = metric_of(cells, name)
    sides = (cells.sample(metric, cells.subjects(side), side).values for side in SIDES)
    return Both(*map(mean_or_none, sides))


def _interval(pairs: Pairs, side: Literal["base", "head"]) -> Interval | None:
    scores = pairs.means(side)
    if pairs.clusters is not None:
        return clustered_interval(scores, pairs.clusters)
    return mean_interval(scores)


def _luck(pairs: Pairs, names: Iterable[str]) -> float | None:
    if not pairs.n:
        return None
    return paired_p(pairs, rng=generator_for([*names]), side="greater").value


def _cost(cells: TwoSidedSample) -> Both:
    dollars = _means(cells, "cost_usd.mean")
    return Both(*(None if mean is None else 1e6 * mean for mean in dollars))
