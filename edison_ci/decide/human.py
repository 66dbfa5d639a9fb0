"""What does a gate say that goes by people's grades (`use: human`)?

People grade some of the cases. Those can stand for all of them only if they are a random sample, so
cases that somebody picked do not count, unless every case is graded. A gate then decides on the
sample as it would decide on a run of so many cases.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci.frozen import dataclass
from edison_ci.results.human_grades import grading_seeds
from edison_ci.results.samples import SIDES, Metric, TwoSidedSample
from edison_ci.stats.sampling import random_sample
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from edison_ci.results.samples import Sample, Side, Subject
    from edison_ci.stats.sampling import RandomSample

_GRADES = (
    "join run r on r.id = c.run_id left join human_grades h on "
    "h.experiment = r.experiment and h.case_id = c.case_id and h.address = c.address "
    "and h.take = c.take"
)
_CRITERION = (
    "join run r on r.id = c.run_id left join (select g.experiment, g.case_id, g.address, "
    "g.take, avg(e.value) as score from manual_grade g, json_each(g.criteria) e "
    "where e.key = :part and g.id in (select max(id) from manual_grade "
    "group by experiment, case_id, address, take, actor) "
    "group by g.experiment, g.case_id, g.address, g.take) h on "
    "h.experiment = r.experiment and h.case_id = c.case_id and h.address = c.address "
    "and h.take = c.take"
)


def human_metric(metric: Metric) -> Metric:
    """Return a metric as people's grades have it."""
    name, said = f"human {metric.name}", f"{metric.said} by people"
    if metric.name.startswith("criterion."):
        part = {"part": metric.parameters["part"]}
        return Metric(name, "score", said, "h.score", _CRITERION, parameters=part)
    if metric.name == "pass_rate":
        # What is blocked is shown to nobody, and does not pass.
        value = "case c.status when 'blocked' then 0 else h.passed end"
        return Metric(name, "pass", said, value, _GRADES)
    return Metric(name, "score", said, "h.score", _GRADES)


@dataclass(frozen=True, slots=True)
class HumanSample(TwoSidedSample):
    """Reads what people said of the answers."""

    chosen: Collection[str] = frozenset()
    """The cases that count."""

    def sample(self, metric: Metric, subjects: Iterable[Subject], side: Side = "head") -> Sample:
        """Return the value of each case on one side; people may be divided about a case."""
        found = TwoSidedSample.sample(self, metric, subjects, side)
        found.single = found.single and all(value in (0.0, 1.0) for value in found.values)
        return found

    def _by_case(
        self, metric: Metric, subject: Subject, side: Side
    ) -> Iterator[tuple[str, list[tuple[str, int, str, float | None, str, int | None]]]]:
        for case, rows in TwoSidedSample._by_case(self, metric, subject, side):
            if case in self.chosen:
                yield case, rows


@dataclass(frozen=True, slots=True)
class Electorate:
    """The part of a run that people have graded."""

    cells: HumanSample
    sample: RandomSample

    @property
    def said(self) -> str:
        """What a reader has to know of the cases that count."""
        n, of, picked = self.sample.n, self.sample.of, self.sample.picked
        if n == of:
            return f"People graded all {of:,} cases."
        chosen = f"; {picked:,} that were picked do not count" if picked else ""
        return f"People graded {n:,} of {of:,} cases, a random sample{chosen}."


def electorate(
    cells: TwoSidedSample, metric: Metric, subjects: Iterable[Subject], *, compared: bool
) -> Electorate:
    """Return the cases of some prompts and models that people's grades can stand for."""
    about = (cells.connection, cells.base, cells.head, cells.left_out, cells.draws)
    everything = _Everything(*about)
    known: set[str] = set()
    graded: set[str] | None = None
    for subject in subjects:
        for side in SIDES if compared else SIDES[1:]:
            cases, done = everything.graded(metric, subject, side)
            known |= cases
            graded = done if graded is None else graded & done
    samples = [random_sample(known, graded or (), seed) for seed in _seeds(cells)]
    best = max(samples, key=lambda sample: sample.n)
    return Electorate(HumanSample(*about, best.cases), best)


class _Everything(TwoSidedSample):
    """Reads which cases there are to grade, and which are graded."""

    __slots__ = ()

    def graded(self, metric: Metric, subject: Subject, side: Side) -> tuple[set[str], set[str]]:
        known: set[str] = set()
        graded: set[str] = set()
        wanted = replace(metric, status="c.status")
        for case, rows in self._by_case(wanted, subject, side):
            if any(row[2] in ("ok", "malformed", "blocked") for row in rows):
                known.add(case)
            if any(row[3] is not None for row in rows):
                graded.add(case)
        return known, graded


def _seeds(cells: TwoSidedSample) -> list[int]:
    """Return the seeds by whose order people went through the answers of an experiment."""
    run = find_run(cells.connection, cells.head.run_id)
    return grading_seeds(cells.connection, run.experiment)
