"""Metrics of cells: the SQL of what gates decide on, and composites that are fair to both sides.

A judge may fail on one side, or leave out a criterion. If it is a hard one, that side would look
better than it is; so in a comparison both sides are weighted by the criteria that both have, and
scored by the judges that both have (STATS 2 and 3).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from edison_ci._dataclass import dataclass
from edison_ci.checks.evaluation import check_named
from edison_ci.judges.panel import combine_scores
from edison_ci.numeric import weighted_mean
from edison_ci.records import Side
from edison_ci.results.snapshot import experiment_in, snapshot_of
from edison_ci.stats.composite import Weighted, paired_composite
from edison_ci.stats.flips import CaseFlips, PassCount, case_flips, passes_all
from edison_ci.stats.scores import units_of
from edison_ci.store.cells import COUNTED
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from edison_ci.judges.panel import Combine
    from edison_ci.results.samples import TwoSidedSample, Variant


CELLS = (
    "c.run_id = :run and c.side = :side and c.prompt = :prompt and c.model = :model "
    "and c.repeat < :repeats and (:version = '' or substr(c.version, 1, length(:version)) = "
    ":version)"
)
"""SQL of the cells of a variant on a side; see `TwoSidedSample.place`."""

ByJudge: TypeAlias = dict[str, dict[str, float]]
"""Scores by criterion, then by judge."""


def combine_of(connection: sqlite3.Connection, run_id: str) -> Combine:
    """Return how a run combined the scores of its judges."""
    run = find_run(connection, run_id)
    judges = experiment_in(snapshot_of(run), run.experiment).get("judges") or {}
    how: Combine = judges.get("combine", "mean")
    return how


def judge_scores_of(
    connection: sqlite3.Connection, cells: str, values: Mapping[str, object]
) -> ByJudge:
    """Return the scores of each judge for the cells `c` of a condition."""
    rows = connection.execute(
        "select o.criterion, o.judge, o.score from cell c join judge_score o on o.cell_id = c.id "
        f"where {cells} and o.score is not null order by o.judge",
        values,
    )
    scores: ByJudge = defaultdict(dict)
    for criterion, judge, score in rows:
        scores[criterion][judge] = score
    return dict(scores)


def shared_scores(sides: Sequence[ByJudge], combine: Combine) -> list[dict[str, float | None]]:
    """Return the scores of each side by the judges of both, where their judges differ."""
    base, head = sides
    shared: list[dict[str, float | None]] = [{}, {}]
    for criterion in sorted(base.keys() & head.keys()):
        if base[criterion].keys() == head[criterion].keys():
            continue
        both = sorted(base[criterion].keys() & head[criterion].keys())
        for scores, side in zip(shared, sides, strict=True):
            scores[criterion] = combine_scores([side[criterion][judge] for judge in both], combine)
    return shared


Kind: TypeAlias = Literal["score", "pass", "flips", "amount", "latency", "share", "wins"]

_COMPONENT = "left join component p on p.cell_id = c.id and p.kind = :kind and p.name = :component"
_ANSWER = "left join answer a on a.request_hash = c.request_hash and a.answer_no = c.answer_no"
_ANSWERED = "c.status in ('ok', 'malformed', 'blocked')"
SENT = "not (c.status = 'blocked' and c.answer_no is null)"
"""Not a cell whose input was blocked, which has no answer."""
_CELLS_READ = 20
"""Graded cells that are read for the names of components: each cell has all of them."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that gates decide on."""

    name: str
    kind: Kind
    label: str
    """Its name in a sentence."""
    value: str = "null"
    """SQL of its value in a cell; null is missing."""
    join: str = ""
    status: str = "c.status"
    """SQL of the cell's status; `inapplicable` takes the whole case out of this metric."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    complete: bool = True
    """Whether every answer should have a value, so that one without is lost."""


def metric_of(sample: TwoSidedSample, name: str) -> Metric:
    """Return a metric of a gate as the cells of a sample have it."""
    if name in _PLAIN:
        return _PLAIN[name]
    family, _, rest = name.partition(".")
    if family == "safety":
        label = f"{rest.removeprefix('input_')} in the input" if rest.startswith("input_") else rest
        return Metric(name, "share", "a finding" if rest == "any" else label)
    component = rest if family == "grader" else _full_name(sample, family, rest)
    return Metric(
        name,
        "score",
        component,
        value=_scored("p.score"),
        join=_COMPONENT,
        # A check without what it needs is skipped for the case, which is then not missing.
        status="case when p.status = 'skipped' then 'inapplicable' else c.status end",
        parameters={"kind": family, "component": component},
    )


def _scored(value: str, *, blocked: str = "null") -> str:
    """Return the SQL of a score: a malformed answer counts, with a score of 0."""
    return (
        f"case c.status when 'ok' then {value} when 'malformed' then 0 "
        f"when 'blocked' then {blocked} end"
    )


_COUNTED = ", ".join(f"'{kind}'" for kind in sorted(COUNTED))
_PART = f"p.cell_id = c.id and p.kind in ({_COUNTED}) and p.status"
_GRADED = (
    "case when c.status = 'ok' and c.passed is null and c.composite is null "
    f"and exists (select 1 from component p where {_PART} = 'skipped') "
    f"and not exists (select 1 from component p where {_PART} != 'skipped') "
    "then 'inapplicable' else c.status end"
)
"""SQL of a status that leaves out cases that nothing graded: all of their checks were skipped."""

_PLAIN = {
    "composite": Metric(
        "composite", "score", "Quality", value=_scored("c.composite"), status=_GRADED
    ),
    # A blocked answer does not pass; in a pair it is missing, which the pairing sees to.
    "pass_rate": Metric(
        "pass_rate", "pass", "Pass rate", value=_scored("c.passed", blocked="0"), status=_GRADED
    ),
    "flips": Metric(
        "flips", "flips", "Flips", value=_scored("c.passed", blocked="0"), status=_GRADED
    ),
    "win_rate": Metric("win_rate", "wins", "Win rate"),
    "errors": Metric("errors", "share", "errors"),
    "cost_usd.mean": Metric(
        "cost_usd.mean",
        "amount",
        "Cost",
        value=f"case when {_ANSWERED} then a.cost_microusd / 1000000.0 end",
        join=_ANSWER,
    ),
    "tokens.mean": Metric(
        "tokens.mean",
        "amount",
        "Tokens",
        value=f"case when {_ANSWERED} then a.tokens_in + a.tokens_out end",
        join=_ANSWER,
    ),
    "latency_ms.p95": Metric("latency_ms.p95", "latency", "Latency (p95)"),
}


def _full_name(sample: TwoSidedSample, kind: str, written: str) -> str:
    """Return the name of a criterion written by slug, or of a check written by its kind."""
    rows = sample.connection.execute(
        "select distinct p.name from (select id from cell where run_id in (?, ?) "
        "and status = 'ok' limit ?) c join component p on p.cell_id = c.id and p.kind = ?",
        (sample.head.run_id, sample.base.run_id, _CELLS_READ, kind),
    )
    names = [name for (name,) in rows]
    if kind == "check":
        return check_named(written, names) or written
    if written in names:
        return written
    return next((name for name in names if _slug(name) == _slug(written)), written)


def _slug(name: str) -> str:
    return "-".join(name.lower().split())


Composites: TypeAlias = dict[tuple[str, int], tuple[float | None, float | None]]


class _Component(NamedTuple):
    kind: str
    name: str
    score: float | None
    weight: float


def paired_composites(sample: TwoSidedSample, variant: Variant) -> Composites:
    """Return composites of base and head for the case and repeat of each pair that needs it."""
    connection, places = (
        sample.connection,
        [sample.place(variant, side) for side in (Side.BASE, Side.HEAD)],
    )
    graded = f"{CELLS} and c.status = 'ok'"
    judged = any(
        connection.execute(
            f"select exists (select 1 from (select c.id from cell c where {graded} limit 20) c "
            "join component p on p.cell_id = c.id and p.kind = 'criterion')",
            place,
        ).fetchone()[0]
        for place in places
    )
    if not judged:
        return {}
    incomplete = {
        row
        for place in places
        for row in connection.execute(
            "select distinct c.case_id, c.repeat from cell c join component p on p.cell_id = "
            "c.id and "
            f"p.kind = 'criterion' and p.score is null where {graded} and c.composite is not null "
            "union select c.case_id, c.repeat from cell c join judge_score o on o.cell_id = c.id "
            f"and o.score is null where {graded} and c.composite is not null",
            place,
        )
    }
    composites: Composites = {}
    combine = combine_of(connection, sample.head.run_id) if incomplete else "mean"
    cell = f"{graded} and c.case_id = :case and c.repeat = :repeat"
    for case, repeat in sorted(incomplete):
        cells = [{**place, "case": case, "repeat": repeat} for place in places]
        base, head = (_components(connection, values) for values in cells)
        if base and head:
            by_judge = [judge_scores_of(connection, cell, values) for values in cells]
            composites[case, repeat] = _composites(base, head, shared_scores(by_judge, combine))
    return composites


def _components(connection: sqlite3.Connection, values: Mapping[str, object]) -> list[_Component]:
    """Return the components of a cell; none if it has no composite."""
    rows = connection.execute(
        "select p.kind, p.name, p.score, p.weight from cell c join component p on p.cell_id = c.id "
        f"where {CELLS} and c.status = 'ok' and c.case_id = :case and c.repeat = :repeat "
        "and c.composite is not null",
        values,
    )
    return [_Component(*row) for row in rows]


def _composites(
    base: list[_Component], head: list[_Component], shared: Sequence[Mapping[str, float | None]]
) -> tuple[float | None, float | None]:
    """Return both composites; `shared` has the scores of criteria whose judges differ."""
    scores = [
        {**{p.name: p.score for p in side if p.kind == "criterion"}, **common}
        for side, common in zip((base, head), shared, strict=True)
    ]
    criteria = [Weighted(p.name, p.weight) for p in head if p.kind == "criterion"]
    rubrics = paired_composite(scores[0], scores[1], criteria)
    return _composite(base, rubrics.base.value), _composite(head, rubrics.head.value)


def _composite(components: list[_Component], rubric: float | None) -> float | None:
    """Return the weighted mean of what counts, with the rubric's score replaced."""
    weighted: list[tuple[float, float]] = []
    for component in components:
        value = rubric if component.kind == "rubric" else component.score
        if component.kind not in COUNTED:
            continue
        if value is None:
            if component.kind == "rubric":
                return None
            continue
        weighted.append((component.weight, value))
    return weighted_mean(weighted)


PassCounts: TypeAlias = "Iterable[tuple[str, PassCount]]"
"""Cases with the answers that pass."""
_BothCounts: TypeAlias = tuple[tuple[PassCount, ...], tuple[PassCount, ...]]
"""Counts of the base and of the head, one for each variant."""


def pass_counts(
    connection: sqlite3.Connection, cells: str, values: Sequence[str] | Mapping[str, str | int]
) -> Iterator[tuple[str, PassCount]]:
    """Yield how many answers to each case pass; `cells` is a table `c` and a condition on it.

    A case whose answers could not be graded is not among them.
    """
    rows = connection.execute(
        "select c.case_id, sum(c.status = 'ok' and c.passed = 1), count(*) "
        f"from {cells} and (c.status = 'malformed' or c.status = 'ok' and c.passed is not null) "
        "group by c.case_id",
        values,
    )
    # Few counts differ, so that each needs to be in memory once.
    shared: dict[tuple[int, int], PassCount] = {}
    for case, passed, of in rows:
        yield case, shared.setdefault((passed, of), PassCount(passed, of))


def flips_between(
    base: Sequence[PassCounts],
    head: Sequence[PassCounts],
    left_out: Collection[str] = (),
    clusters: Mapping[str, str] | None = None,
) -> tuple[dict[str, tuple[bool, bool]], CaseFlips]:
    """Return whether two sides pass each case, and how many flip; each has a count per variant."""
    counts: dict[str, _BothCounts] = {}
    shared: dict[_BothCounts, _BothCounts] = {}
    for old_rows, new_rows in zip(base, head, strict=True):
        old = dict(old_rows)
        for case, new in new_rows:
            if case in old and case not in left_out:
                before, after = counts.get(case, ((), ()))
                both = (*before, old.pop(case)), (*after, new)
                counts[case] = shared.setdefault(both, both)
    passes = {both: (passes_all(both[0]), passes_all(both[1])) for both in shared}
    cases = sorted(counts)
    groups = units_of(cases, clusters or {})
    sides = [[counts[case][side] for case in cases] for side in (0, 1)]
    flips = case_flips(sides[0], sides[1], groups)
    return {case: passes[counts[case]] for case in cases}, flips
