"""Weak answers of a run, as examples for a refiner, and prompts that are worse than the best one.

A loop may drop weak prompts. Overlapping intervals are no test: prompts are compared with the best
on the same cases, models and repeats by the range of their means, permuted within cases (STATS 7b),
so that of prompts that are all alike one is dropped in at most 5 of 100 runs.
"""

from __future__ import annotations

import json
from array import array
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.documents.record_json import fields_of
from edison_ci.numeric import mean
from edison_ci.records import RunStatus
from edison_ci.results.snapshot import experiment_in, snapshot_of
from edison_ci.stats.arrays import generator_for
from edison_ci.stats.convergence import Contrast, contrasts
from edison_ci.stats.scores import unit_of
from edison_ci.stats.sentences import cases as counted_cases
from edison_ci.stats.sentences import points, two_sided
from edison_ci.store.runs import TRIAL

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterator, Sequence

    from edison_ci.store.runs import Run


def refined_cases(connection: sqlite3.Connection, experiment: str) -> dict[str, bool]:
    """Return the cases of earlier trials of an experiment, and whether each was held out.

    A refinement first measures its training cases by themselves, and shows some of them to the
    refiner. All other cases of its trials are held out.
    """
    rows = connection.execute(
        "with trial as materialized (select id, coalesce(json_extract(snapshot, "
        """'$."command line".selection.part.name'), 'all') <> 'train' as held_out """
        "from run where experiment = ? and trigger = ?) "
        "select c.case_id, min(t.held_out) from trial t "
        "cross join run_case c on c.run_id = t.id group by c.case_id",
        (experiment, TRIAL),
    )
    return {case: bool(held_out) for case, held_out in rows}


_KINDS = "('criterion', 'check', 'grader')"
_CELLS = (
    "c.run_id = :run and c.side = 'head' and c.status in ('ok', 'malformed') "
    "and c.case_id not in (select value from json_each(:left_out)) "
    "and (:prompt is null or c.prompt = :prompt) "
    "and (:only is null or c.case_id in (select value from json_each(:only)))"
)
_MOST_CELLS = 1_000
"""Number of cells that are searched, the worst first."""


class ComponentRemark(NamedTuple):
    """Score and reason of one component of a grade."""

    name: str
    score: float | None
    reason: str


class WeakAnswer(NamedTuple):
    """A cell that may serve as an example."""

    cell: str
    case: str
    request_hash: str
    answer_no: int
    composite: float | None
    failed: int
    aimed: float | None
    """Mean of the components that are aimed at."""


class ExampleAnswer(NamedTuple):
    """An answer that a refiner was shown, with the components that it failed."""

    case: str
    model: str
    composite: float | None
    failed: tuple[tuple[str, str], ...]
    """Name and reason of each."""
    text: str | None


@dataclass(frozen=True, slots=True)
class WeakAnswers:
    """Reads the graded answers of a run, or of some of its cases with one prompt."""

    connection: sqlite3.Connection
    run_id: str
    left_out: frozenset[str] = frozenset()
    prompt: str | None = None
    """What the prompt is called in the run; None where it is the only one."""
    cases: frozenset[str] | None = None
    """None for all."""

    @property
    def _values(self) -> dict[str, str | None]:
        return {
            "run": self.run_id,
            "left_out": json.dumps(sorted(self.left_out)),
            "prompt": self.prompt,
            "only": None if self.cases is None else json.dumps(sorted(self.cases)),
        }

    def count(self) -> int:
        """Return how many cases have an answer that was graded."""
        query = f"select count(distinct c.case_id) from cell c where {_CELLS}"
        return int(self.connection.execute(query, self._values).fetchone()[0])

    def means(self) -> list[tuple[str, str, float]]:
        """Return name, kind and mean score of every criterion, check and grader."""
        rows = self.connection.execute(
            "select p.name, p.kind, avg(p.score) from cell c join component p on p.cell_id = c.id "
            f"where {_CELLS} and p.kind in {_KINDS} and p.status = 'ok' and p.score is not null "
            "group by 1, 2",
            self._values,
        )
        return rows.fetchall()

    def malformed_share(self) -> float:
        """Return the share of answers that could not be read."""
        row = self.connection.execute(
            f"select avg(c.status = 'malformed') from cell c where {_CELLS}", self._values
        ).fetchone()
        return float(row[0] or 0.0)

    def worst(self, components: Sequence[tuple[str, str]]) -> list[WeakAnswer]:
        """Return answers, failed ones first, then by the mean of these components."""
        pairs = ", ".join(f"(:kind{n}, :name{n})" for n in range(len(components)))
        named = {f"kind{n}": kind for n, (kind, _) in enumerate(components)}
        named |= {f"name{n}": name for n, (_, name) in enumerate(components)}
        rows = self.connection.execute(
            "select c.id, c.case_id, c.request_hash, c.answer_no, c.composite, "
            "c.status = 'malformed' or c.passed is 0 as failed, (select round(avg(p.score), 9) "
            f"from component p where p.cell_id = c.id and (p.kind, p.name) in (values {pairs})) "
            f"as aimed from cell c where {_CELLS} order by failed desc, aimed, c.composite, "
            f"c.case_id, c.model, c.repeat limit {_MOST_CELLS}",
            {**self._values, **named},
        )
        return [WeakAnswer(*row) for row in rows]

    def remarks(self, cell: str) -> tuple[ComponentRemark, ...]:
        """Return the components that an answer does not fully meet, the lowest score first."""
        rows = self.connection.execute(
            f"select name, score, reason from component where cell_id = ? and kind in {_KINDS} "
            "and (passed is 0 or score < 1) order by score, name",
            (cell,),
        )
        return tuple(ComponentRemark(*row) for row in rows)


def example_answer(connection: sqlite3.Connection, cell: str) -> ExampleAnswer | None:
    """Return an answer that was an example for a refiner; None if its cell is gone."""
    row = connection.execute(
        "select c.case_id, c.model, c.composite, t.text from cell c left join answer_text t "
        "on t.request_hash = c.request_hash and t.answer_no = c.answer_no where c.id = ?",
        (cell,),
    ).fetchone()
    if row is None:
        return None
    failed = connection.execute(
        "select name, reason from component where cell_id = ? and passed = 0 order by kind, name",
        (cell,),
    )
    case, model, composite, text = row
    return ExampleAnswer(case, model, composite, tuple(failed.fetchall()), text)


@dataclass(frozen=True, slots=True)
class PromptContrast:
    """A prompt compared with the best one, on the same cases, in words."""

    found: Contrast

    @property
    def weak(self) -> bool:
        """Whether it is shown to be worse."""
        return self.found.weak

    @property
    def sentence(self) -> str:
        """What a loop would do with it, and why."""
        prompt = self.found.prompt
        if not self.weak:
            return f"{prompt} would be run again in a loop: it is not shown to be worse."
        return f"{prompt} would not be run again in a loop: {self._behind('on the same')}."

    @property
    def dropped(self) -> str:
        """Why a loop has dropped it."""
        return f"{self.found.prompt} is dropped: {self._behind('on')}"

    def _behind(self, on: str) -> str:
        contrast = self.found
        behind = f"{points(-contrast.value)} points below {contrast.best}"
        return f"{behind} {on} {counted_cases(contrast.n)}, {two_sided(contrast.p)}"

    def as_json(self) -> dict[str, Any]:
        """Return it with everything that led to it."""
        contrast = self.found
        return {
            **fields_of(contrast, "prompt", "best", "n", estimate="value"),
            **fields_of(contrast, "p", "level", "method", "draws", "weak"),
            "sentence": self.sentence,
        }


def weak_prompts(connection: sqlite3.Connection, run: Run) -> tuple[PromptContrast, ...]:
    """Return the prompts that a loop would not run again; none if its experiment keeps them all."""
    snapshot = snapshot_of(run)
    stop = experiment_in(snapshot, run.experiment).get("stop", {})
    if run.status is not RunStatus.COMPLETED or not stop.get("prune_weak_prompts", True):
        return ()
    aside = frozenset(snapshot.get("quarantine.yaml") or ())
    return tuple(rival for rival in rivals_in(connection, run.id, aside) if rival.weak)


def rivals_in(
    connection: sqlite3.Connection,
    run_id: str,
    left_out: Collection[str] = frozenset(),
    *,
    level: float = 0.05,
) -> tuple[PromptContrast, ...]:
    """Compare the prompts of a run with the best of them; none if it has only one.

    Cases in quarantine are left out, and in a loop those that are held out.
    """
    names = _prompts(connection, run_id)
    if len(names) < 2:
        return ()
    scores: dict[str, array[float]] = {name: array("d") for name in names}
    cases: list[str] = []
    units: list[str] = []
    for case in _by_case(connection, run_id, left_out):
        if common := case.common(names):
            cases.append(case.id)
            units.append(case.unit)
            for prompt, score in common.items():
                scores[prompt].append(score)
    clustered = any(unit.startswith("cluster ") for unit in units)
    compared = contrasts(
        scores, rng=generator_for(cases), clusters=units if clustered else None, level=level
    )
    return tuple(PromptContrast(contrast) for contrast in compared)


class _Case(NamedTuple):
    """The scores of one case, by prompt and then by model and repeat."""

    id: str
    unit: str
    scores: dict[str, dict[tuple[str, int], float]]

    def common(self, prompts: Collection[str]) -> dict[str, float]:
        """Return the mean of each prompt over what all of them answered."""
        if not all(prompt in self.scores for prompt in prompts):
            return {}
        shared = set.intersection(*(set(self.scores[prompt]) for prompt in prompts))
        if not shared:
            return {}
        return {prompt: mean([self.scores[prompt][key] for key in shared]) for prompt in prompts}


def _prompts(connection: sqlite3.Connection, run_id: str) -> list[str]:
    rows = connection.execute(
        "select distinct prompt from cell where run_id = ? and side = 'head' "
        "and composite is not null order by 1",
        (run_id,),
    )
    return [name for (name,) in rows]


def _by_case(
    connection: sqlite3.Connection, run_id: str, quarantined: Collection[str]
) -> Iterator[_Case]:
    """Yield the cases of a run one by one; nothing is held that grows with their number."""
    rows = connection.execute(
        "select case_id, cluster, prompt, model, repeat, composite from cell where run_id = ? "
        "and side = 'head' and status in ('ok', 'malformed') and composite is not null "
        "order by case_id",
        (run_id,),
    )
    for case_id, cells in groupby(rows, key=itemgetter(0)):
        if case_id in quarantined:
            continue
        scores: dict[str, dict[tuple[str, int], float]] = {}
        unit = unit_of(case_id, None)
        for _, cluster, prompt, model, repeat, composite in cells:
            unit = unit if cluster is None else unit_of(case_id, cluster)
            scores.setdefault(prompt, {})[model, repeat] = composite
        yield _Case(case_id, unit, scores)
