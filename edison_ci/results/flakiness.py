"""Flaky cases: questions whose answers disagree."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.numeric import fixed, reaches, snap
from edison_ci.results.snapshot import MOST_RUNS, complete_runs, grading_hash

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

# What is repeated is the same question: one case as it is now, one prompt version, one model. Its
# answers are its repeats and what was bought again, in complete runs that were graded
# alike. An answer that was graded both ways, by a judge who was asked twice, counts for both.
FEWEST = 3
"""Answers to one question below which its flakiness is not reported."""
SHARE = 0.2
"""A question is flaky if at least this share of its answers disagrees with the others."""
APART = 0.5
"""Distance from which two scores disagree (STATS 3)."""
RULE = (
    f"at least {FEWEST} answers to the same question, and at least {fixed(100 * SHARE)}% of them "
    f"come out otherwise than the rest, or two are {fixed(100 * APART)} or more points apart"
)


@dataclass(frozen=True, slots=True)
class Flaky:
    """A question whose answers disagree."""

    case: str
    prompt: str
    version: str
    model: str
    answers: int
    passed: int
    low: float | None
    """Lowest and highest score."""
    high: float | None
    regraded: int
    """Answers that were graded both ways: there it is the judges who disagree."""

    @property
    def disagreeing(self) -> float:
        """Share of the answers that are in the minority."""
        return min(self.passed, self.answers - self.passed) / self.answers

    @property
    def spread(self) -> float:
        """How far apart the scores are."""
        return 0.0 if self.low is None or self.high is None else self.high - self.low

    @property
    def is_flaky(self) -> bool:
        """Whether the rule holds."""
        if self.answers < FEWEST:
            return False
        return reaches(self.disagreeing, SHARE) or reaches(self.spread, APART)


@dataclass(slots=True)
class Flakiness:
    """Flaky cases of an experiment, by its answers."""

    runs: int = 0
    simulated: bool = False
    questions: int = 0
    """Cases with a prompt version and a model that have enough answers."""
    too_few: int = 0
    """Those that have fewer."""
    found: list[Flaky] = field(default_factory=list)
    """The most disagreeing first."""

    @property
    def cases(self) -> list[str]:
        """Return the flaky cases, the most disagreeing first."""
        return list(dict.fromkeys(flaky.case for flaky in self.found))


def flakiness_of(connection: sqlite3.Connection, experiment: str) -> Flakiness:
    """Return the flaky cases by the answers to the prompts and models of its newest run."""
    runs = complete_runs(connection, experiment, MOST_RUNS)
    if not runs:
        return Flakiness()
    wanted = grading_hash(runs[0])
    alike = [run for run in runs if grading_hash(run) == wanted]
    result = Flakiness(len(alike), any(run.simulated for run in alike))
    for flaky in _questions(connection, runs[0].id, [run.id for run in alike]):
        if flaky.answers < FEWEST:
            result.too_few += 1
            continue
        result.questions += 1
        if flaky.is_flaky:
            result.found.append(flaky)
    result.found.sort(key=lambda f: (-f.disagreeing, -snap(f.spread), f.case, f.model))
    return result


def _questions(connection: sqlite3.Connection, newest: str, runs: list[str]) -> Iterator[Flaky]:
    """Yield the answers to each question that the newest run asked, counted."""
    places = ", ".join("?" * len(runs))
    rows = connection.execute(
        "with graded as (select distinct c.case_id, c.prompt, c.version, c.model, c.request_hash, "
        "c.answer_no, c.passed, c.composite from cell c "
        "join cell n on n.run_id = ? and n.side = 'head' and n.repeat = 0 "
        "and n.case_id = c.case_id and n.prompt = c.prompt and n.version = c.version "
        "and n.model = c.model and n.case_hash is c.case_hash "
        f"where c.run_id in ({places}) and c.passed is not null and c.answer_no is not null "
        "and c.status in ('ok', 'malformed')), "
        "answered as (select case_id, prompt, version, model, request_hash, answer_no, "
        "max(passed) as most, "
        "min(passed) as least, min(composite) as low, max(composite) as high "
        "from graded group by 1, 2, 3, 4, 5, 6) "
        "select case_id, prompt, version, model, count(*) + sum(most > least), sum(most), "
        "min(low), max(high), sum(most > least) from answered group by 1, 2, 3, 4",
        [newest, *runs],
    )
    for row in rows:
        yield Flaky(*row)
