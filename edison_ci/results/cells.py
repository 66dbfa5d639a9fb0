"""Cells and cases of a run with their texts, for exports and pages.

Blocked answers are withheld, and strings that look like a key are redacted.
"""

from __future__ import annotations

import json
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.documents.secrets import redacted
from edison_ci.numeric import mean, mean_or_none, score
from edison_ci.records import CellStatus, Side
from edison_ci.results.samples import Variant
from edison_ci.store.cells import CELL_STATUSES, COUNTED, SIDES

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterator, Sequence

    from edison_ci.results.run_result import RunResult


# One result for a case with a prompt and a model, over all its repeats: a case fails if one of its
# answers does, and is in error only if nothing that was measured failed.
class ComponentResult(NamedTuple):
    """A component of the grade of one answer."""

    name: str
    kind: str
    score: float | None
    passed: bool | None
    status: CellStatus
    reason: str


class Repeat(NamedTuple):
    """One answer to a case."""

    status: CellStatus
    composite: float | None
    passed: bool | None
    error: str
    reason: str
    latency_ms: int | None
    components: tuple[ComponentResult, ...]


@dataclass(frozen=True, slots=True)
class CaseResult:
    """A case with a prompt and a model."""

    prompt: str
    model: str
    case: str
    repeats: tuple[Repeat, ...]
    quarantined: bool = False

    @property
    def outcome(self) -> str:
        """Outcome: passed, failed, error, skipped or ungraded."""
        if any(repeat.passed is False for repeat in self.repeats):
            return "failed"
        if any(repeat.status == CellStatus.ERROR or _broken(repeat) for repeat in self.repeats):
            return "error"
        if all(repeat.status == CellStatus.SKIPPED for repeat in self.repeats):
            return "skipped"
        return "passed" if any(repeat.passed for repeat in self.repeats) else "ungraded"

    @property
    def composite(self) -> float | None:
        """The mean over its repeats; None without a score."""
        scores = [repeat.composite for repeat in self.repeats if repeat.composite is not None]
        return mean_or_none(scores)

    @property
    def seconds(self) -> float:
        """How long its answers took."""
        return sum(repeat.latency_ms or 0 for repeat in self.repeats) / 1000

    def scores(self) -> dict[str, float]:
        """Return the mean of each component, by kind and name."""
        scores: dict[str, list[float]] = {}
        for repeat in self.repeats:
            for component in repeat.components:
                if component.score is not None and component.kind not in ("safety", "flag"):
                    scores.setdefault(f"{component.kind} {component.name}", []).append(
                        component.score
                    )
        return {name: mean(values) for name, values in sorted(scores.items())}

    def kind(self) -> str:
        """Return what kind of failure or error it is, in one word."""
        if self.outcome == "error":
            failed = (answer.error for answer in self.repeats if answer.status is CellStatus.ERROR)
            return next(failed, "") or "NOT_GRADED"
        statuses = {repeat.status for repeat in self.repeats if repeat.passed is False}
        return next((word for word in ("blocked", "malformed") if word in statuses), "failed")

    def why(self, *, reasons: bool) -> str:
        """Return what failed, or what went wrong; reasons may quote an answer."""
        texts: list[str] = []
        for repeat in self.repeats:
            failures = list(failures_of(repeat, COUNTED, reasons=reasons))
            texts += failures if repeat.status is CellStatus.OK else failures[:1]
        return "; ".join(dict.fromkeys(texts))


def _broken(repeat: Repeat) -> bool:
    return any(
        component.status == CellStatus.ERROR and component.kind in COUNTED
        for component in repeat.components
    )


def failures_of(
    answer: Repeat | CellResult, kinds: Collection[str] | None = None, *, reasons: bool = True
) -> Iterator[str]:
    """Yield what failed or went wrong with an answer; reasons may quote it.

    With `kinds`, of components of these kinds only.
    """
    if answer.status != CellStatus.OK:
        quoted = answer.status != CellStatus.BLOCKED
        why = answer.reason.removeprefix("blocked: ") if reasons or not quoted else ""
        yield f"{answer.error or answer.status}: {why}".removesuffix(": ")
    for component in answer.components:
        if kinds is not None and component.kind not in kinds:
            continue
        if component.passed is False or component.status == CellStatus.ERROR:
            what = "could not be graded" if component.status == CellStatus.ERROR else "failed"
            reached = "" if component.score is None else f" with {score(component.score)}"
            why = f": {component.reason}" if reasons and component.reason else ""
            yield f"{component.kind} {component.name} {what}{reached}{why}"


def cases_of(connection: sqlite3.Connection, view: RunResult) -> Iterator[CaseResult]:
    """Yield the result of each case of head, by prompt, model and case."""
    rows = connection.execute(
        "select c.prompt, c.model, c.case_id, c.status, c.composite, c.passed, c.error, c.reason, "
        "a.latency_ms, (select json_group_array(json_array(p.name, p.kind, p.score, p.passed, "
        "p.status, p.reason)) from component p where p.cell_id = c.id) from cell c "
        "left join answer a on a.request_hash = c.request_hash and a.answer_no = c.answer_no "
        "where c.run_id = ? and c.side = 'head' "
        "order by c.prompt, c.model, c.case_id, c.repeat",
        (view.run.id,),
    )
    for (prompt, model, case), group in groupby(rows, key=lambda row: row[:3]):
        repeats = tuple(_repeat(row[3:]) for row in group)
        yield CaseResult(prompt, model, case, repeats, case in view.quarantined)


def _repeat(row: Sequence[Any]) -> Repeat:
    status, composite, passed, error, reason, latency_ms, components = row
    graded = tuple(
        ComponentResult(name, kind, score, _flag(good), CELL_STATUSES[state], why or "")
        for name, kind, score, good, state, why in json.loads(components)
    )
    grade = (composite, _flag(passed), error or "", reason or "")
    return Repeat(CELL_STATUSES[status], *grade, latency_ms, graded)


_COLUMNS = (
    "c.id, c.side, c.prompt, c.version, c.model, c.case_id, c.repeat, c.status, c.composite, "
    "c.passed, c.error, c.reason, a.cost_microusd, a.cost_kind, a.tokens_in, a.tokens_out, "
    "a.latency_ms, a.finish_reason, a.served_model, c.case_hash, "
    "case when c.status <> 'blocked' then t.text end, "
    "(select json_group_array(json_array(p.name, p.kind, p.score, p.passed, p.status, p.reason)) "
    "from component p where p.cell_id = c.id)"
)
_FROM = (
    "from cell c left join answer a on a.request_hash = c.request_hash and a.answer_no = "
    "c.answer_no "
    "left join answer_text t on t.request_hash = c.request_hash and t.answer_no = c.answer_no"
)


class CellResult(NamedTuple):
    """One cell with its answer, grade and cost."""

    id: str
    side: Side
    prompt: str
    version: str
    model: str
    case: str
    repeat: int
    status: CellStatus
    composite: float | None
    passed: bool | None
    error: str | None
    reason: str
    cost_microusd: int | None
    cost_kind: str | None
    tokens_in: int | None
    tokens_out: int | None
    latency_ms: int | None
    finish_reason: str | None
    served_model: str | None
    case_hash: str | None
    text: str | None
    """None for an answer that there is not, that is gone, or that was blocked."""
    components: tuple[ComponentResult, ...]

    @property
    def outcome(self) -> str:
        """Outcome in a word."""
        if self.status != CellStatus.OK or self.passed is None:
            return self.status
        return "passed" if self.passed else "failed"


class FailingCells(NamedTuple):
    """The worst cells that do not pass, and the number of all that do not pass."""

    cells: tuple[CellResult, ...]
    total: int


MOST_FAILING = 40
MOST_CASES = 100_000
"""Cases of a run whose inputs are kept in memory for a table."""


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of stored runs."""

    connection: sqlite3.Connection
    texts: bool = True
    """Whether texts, and reasons which may quote them, may leave the results."""

    def of(self, view: RunResult) -> Iterator[CellResult]:
        """Yield every cell of a run, head before base, by prompt, model, case and repeat."""
        groups = self.connection.execute(
            "select distinct side, prompt, model from cell where run_id = ? "
            "order by side desc, prompt, model",
            (view.run.id,),
        )
        for group in groups.fetchall():
            # In the order of an index: all cells of a large run are more than can be sorted.
            rows = self.connection.execute(
                f"select {_COLUMNS} {_FROM} where c.run_id = ? and c.side = ? and c.prompt = ? "
                "and c.model = ? order by c.case_id, c.repeat",
                (view.run.id, *group),
            )
            for row in rows:
                yield self._cell(row)

    def case_hashes(self, view: RunResult) -> dict[str, str | None]:
        """Return the cases of a run with the hash of their content; none of a very large run."""
        rows = self.connection.execute(
            "select distinct case_id, case_hash from cell where run_id = ? limit ?",
            (view.run.id, MOST_CASES + 1),
        ).fetchall()
        return dict(rows) if len(rows) <= MOST_CASES else {}

    def failing(self, view: RunResult, most: int = MOST_FAILING) -> FailingCells:
        """Return the worst cells of head that do not pass, and the number of all of them."""
        where = "c.run_id = ? and c.side = 'head' and (c.passed = 0 or c.status = 'error')"
        (total,) = self.connection.execute(
            f"select count(*) from cell c where {where}", (view.run.id,)
        ).fetchone()
        rows = self.connection.execute(
            f"select {_COLUMNS} {_FROM} where {where} "
            "order by c.status = 'error', coalesce(c.composite, 0), c.case_id, c.prompt, c.model, "
            "c.repeat limit ?",
            (view.run.id, most),
        )
        return FailingCells(tuple(self._cell(row) for row in rows), int(total))

    def _cell(self, row: tuple[Any, ...]) -> CellResult:
        *values, text, components = row
        values[1], values[7] = SIDES[values[1]], CELL_STATUSES[values[7]]
        blocked = values[7] is CellStatus.BLOCKED
        graded = tuple(
            # Only the screen gives a reason for a blocked answer, and it names no more than a kind.
            ComponentResult(
                name,
                kind,
                score,
                _flag(passed),
                CELL_STATUSES[state],
                "" if blocked and kind != "safety" else self._reason(reason),
            )
            for name, kind, score, passed, state, reason in json.loads(components)
        )
        values[9] = _flag(values[9])
        values[11] = self._reason(values[11])
        visible_text = redacted(text) if self.texts and text is not None else None
        return CellResult._make((*values, visible_text, graded))

    def _reason(self, reason: str | None) -> str:
        return redacted(reason) if reason and self.texts else ""


def _flag(value: int | None) -> bool | None:
    return None if value is None else bool(value)


MOST_CASES = 200
MOST_COLUMNS = 12


class Square(NamedTuple):
    """Outcome of a case with a prompt and a model, over its repeats."""

    outcome: str
    composite: float | None
    repeats: int


@dataclass(frozen=True, slots=True)
class Grid:
    """Cases by prompts with models, the worst cases first."""

    columns: tuple[Variant, ...]
    rows: tuple[tuple[str, tuple[Square | None, ...]], ...]
    cases: int
    """How many there are."""


def grid_of(result: RunResult) -> Grid:
    """Return the worst cases of a run by prompts with models."""
    scored = (measured.place for measured in result.variants if measured.place.side == Side.HEAD)
    columns = tuple(dict.fromkeys(Variant(p.prompt, p.model) for p in scored))[:MOST_COLUMNS]
    connection, run_id = result.connection, result.run.id
    (cases,) = connection.execute(
        "select count(distinct case_id) from cell where run_id = ? and side = 'head'", (run_id,)
    ).fetchone()
    worst = connection.execute(
        "select case_id from cell where run_id = ? and side = 'head' group by case_id "
        "order by sum(passed = 0) desc, round(avg(composite), 9), case_id limit ?",
        (run_id, MOST_CASES),
    )
    names = [name for (name,) in worst.fetchall()]
    squares: dict[str, dict[Variant, Square]] = {name: {} for name in names}
    rows = connection.execute(
        "select case_id, prompt, model, avg(composite), count(*), sum(passed = 0), sum(passed), "
        "min(status), max(status) from cell where run_id = ? and side = 'head' "
        "and case_id in (select value from json_each(?)) group by case_id, prompt, model",
        (run_id, json.dumps(names)),
    )
    for case, prompt, model, composite, repeats, *how in rows:
        squares[case][Variant(prompt, model)] = Square(_outcome(*how), composite, repeats)
    placed = ((name, tuple(squares[name].get(column) for column in columns)) for name in names)
    return Grid(columns, tuple(placed), int(cases))


def _outcome(failed: int | None, passed: int | None, least: str, most: str) -> str:
    """Return how repeats went together: one that fails decides, an error counts if nothing else."""
    if least == most != "ok":
        return most
    if failed:
        return "failed"
    return "passed" if passed else "ungraded" if most == "ok" else most
