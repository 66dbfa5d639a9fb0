"""Cells and cases of a run as exports and pages show them, texts included.

For exports and pages that show answers. What a screen blocked is shown to nobody, and what looks
like a key is cut short.
"""

from __future__ import annotations

import json
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.documents.secrets import redacted
from edison_ci.rounding import fixed, mean, mean_or_none
from edison_ci.store.runs import COUNTED

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from edison_ci.results.run_result import RunResult


# One result for a case with a prompt and a model, over all its draws: a case fails if one of its
# answers does, and is in error only if nothing that was measured failed.
class Graded(NamedTuple):
    """A part of the grade of one answer."""

    name: str
    kind: str
    score: float | None
    passed: bool | None
    status: str
    reason: str


class Draw(NamedTuple):
    """One answer to a case."""

    status: str
    composite: float | None
    passed: bool | None
    error: str
    reason: str
    latency_ms: int | None
    parts: tuple[Graded, ...]


@dataclass(frozen=True, slots=True)
class CaseResult:
    """A case with a prompt and a model."""

    prompt: str
    model: str
    case: str
    draws: tuple[Draw, ...]
    quarantined: bool = False

    @property
    def outcome(self) -> str:
        """How it went: passed, failed, error, skipped or ungraded."""
        if any(draw.passed is False for draw in self.draws):
            return "failed"
        if any(draw.status == "error" or _broken(draw) for draw in self.draws):
            return "error"
        if all(draw.status == "skipped" for draw in self.draws):
            return "skipped"
        return "passed" if any(draw.passed for draw in self.draws) else "ungraded"

    @property
    def composite(self) -> float | None:
        """The mean over its draws; None without a score."""
        scores = [draw.composite for draw in self.draws if draw.composite is not None]
        return mean_or_none(scores)

    @property
    def seconds(self) -> float:
        """How long its answers took."""
        return sum(draw.latency_ms or 0 for draw in self.draws) / 1000

    def scores(self) -> dict[str, float]:
        """Return the mean of each part, by kind and name."""
        found: dict[str, list[float]] = {}
        for draw in self.draws:
            for part in draw.parts:
                if part.score is not None and part.kind not in ("safety", "flag"):
                    found.setdefault(f"{part.kind} {part.name}", []).append(part.score)
        return {name: mean(each) for name, each in sorted(found.items())}

    def kind(self) -> str:
        """Return what kind of failure or error it is, in one word."""
        if self.outcome == "error":
            return next((d.error for d in self.draws if d.status == "error"), "") or "NOT_GRADED"
        statuses = {draw.status for draw in self.draws if draw.passed is False}
        return next((word for word in ("blocked", "malformed") if word in statuses), "failed")

    def why(self, *, reasons: bool) -> str:
        """Return what failed, or what went wrong; reasons may quote an answer."""
        told: list[str] = []
        for draw in self.draws:
            told += _why(draw, reasons=reasons)
        return "; ".join(dict.fromkeys(told))


def _broken(draw: Draw) -> bool:
    return any(part.status == "error" and part.kind in COUNTED for part in draw.parts)


def _why(draw: Draw, *, reasons: bool) -> Iterator[str]:
    if draw.status in ("error", "malformed", "blocked", "skipped"):
        quoted = draw.status in ("error", "malformed", "skipped")
        said = draw.reason if reasons or not quoted else ""
        yield f"{draw.error or draw.status}: {said.removeprefix('blocked: ')}".removesuffix(": ")
        return
    for part in draw.parts:
        if part.kind in COUNTED and (part.passed is False or part.status == "error"):
            what = "could not be graded" if part.status == "error" else "failed"
            reached = "" if part.score is None else f" with {fixed(100 * part.score, 1)}"
            said = f": {part.reason}" if reasons and part.reason else ""
            yield f"{part.kind} {part.name} {what}{reached}{said}"


def cases_of(connection: sqlite3.Connection, view: RunResult) -> Iterator[CaseResult]:
    """Yield how each case of head went, by prompt, model and case."""
    rows = connection.execute(
        "select c.prompt, c.model, c.case_id, c.status, c.composite, c.passed, c.error, c.reason, "
        "a.latency_ms, (select json_group_array(json_array(p.name, p.kind, p.score, p.passed, "
        "p.status, p.reason)) from part p where p.cell_id = c.id) from cell c "
        "left join answer a on a.address = c.address and a.take = c.take "
        "where c.run_id = ? and c.side = 'head' "
        "order by c.prompt, c.model, c.case_id, c.draw",
        (view.run.id,),
    )
    for (prompt, model, case), group in groupby(rows, key=lambda row: row[:3]):
        draws = tuple(_draw(row[3:]) for row in group)
        yield CaseResult(prompt, model, case, draws, case in view.quarantined)


def _draw(row: Sequence[Any]) -> Draw:
    status, composite, passed, error, reason, latency_ms, parts = row
    graded = tuple(
        Graded(name, kind, score, _flag(good), state, said or "")
        for name, kind, score, good, state, said in json.loads(parts)
    )
    return Draw(status, composite, _flag(passed), error or "", reason or "", latency_ms, graded)


_COLUMNS = (
    "c.id, c.side, c.prompt, c.version, c.model, c.case_id, c.draw, c.status, c.composite, "
    "c.passed, c.error, c.reason, a.cost_microusd, a.cost_kind, a.tokens_in, a.tokens_out, "
    "a.latency_ms, a.finish_reason, a.served_model, c.case_hash, "
    "case when c.status <> 'blocked' then t.text end, "
    "(select json_group_array(json_array(p.name, p.kind, p.score, p.passed, p.status, p.reason)) "
    "from part p where p.cell_id = c.id)"
)
_FROM = (
    "from cell c left join answer a on a.address = c.address and a.take = c.take "
    "left join answer_text t on t.address = c.address and t.take = c.take"
)


class CellResult(NamedTuple):
    """One cell: what was asked of whom, what came of it, and what it cost."""

    id: str
    side: str
    prompt: str
    version: str
    model: str
    case: str
    draw: int
    status: str
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
    parts: tuple[Graded, ...]

    @property
    def outcome(self) -> str:
        """What became of it, in a word."""
        if self.status != "ok" or self.passed is None:
            return self.status
        return "passed" if self.passed else "failed"


class Failing(NamedTuple):
    """The worst cells that do not pass, and how many do not pass at all."""

    cells: tuple[CellResult, ...]
    total: int


# Cases by models, how scores are spread, what it cost whom, and the answers that failed: as much
# of it as a reader looks at, the worst first, and how much there is.
MOST_FAILING = 40


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of stored runs."""

    connection: sqlite3.Connection
    texts: bool = True
    """Whether texts, and reasons which may quote them, may leave the results."""

    def of(self, view: RunResult) -> Iterator[CellResult]:
        """Yield every cell of a run, head before base, by prompt, model, case and draw."""
        groups = self.connection.execute(
            "select distinct side, prompt, model from cell where run_id = ? "
            "order by side desc, prompt, model",
            (view.run.id,),
        )
        for group in groups.fetchall():
            # In the order of an index: all cells of a large run are more than can be sorted.
            rows = self.connection.execute(
                f"select {_COLUMNS} {_FROM} where c.run_id = ? and c.side = ? and c.prompt = ? "
                "and c.model = ? order by c.case_id, c.draw",
                (view.run.id, *group),
            )
            for row in rows:
                yield self._made(row)

    def failing(self, view: RunResult, most: int = MOST_FAILING) -> Failing:
        """Return the worst cells of head that do not pass, and how many do not pass at all."""
        where = "c.run_id = ? and c.side = 'head' and (c.passed = 0 or c.status = 'error')"
        (total,) = self.connection.execute(
            f"select count(*) from cell c where {where}", (view.run.id,)
        ).fetchone()
        rows = self.connection.execute(
            f"select {_COLUMNS} {_FROM} where {where} "
            "order by c.status = 'error', coalesce(c.composite, 0), c.case_id, c.prompt, c.model, "
            "c.draw limit ?",
            (view.run.id, most),
        )
        return Failing(tuple(self._made(row) for row in rows), int(total))

    def _made(self, row: tuple[Any, ...]) -> CellResult:
        *known, text, parts = row
        blocked = known[7] == "blocked"
        graded = tuple(
            # What was blocked is quoted by nobody but the screen, which names a kind.
            Graded(
                name,
                kind,
                score,
                _flag(passed),
                state,
                "" if blocked and kind != "safety" else self._said(said),
            )
            for name, kind, score, passed, state, said in json.loads(parts)
        )
        known[9] = _flag(known[9])
        known[11] = self._said(known[11])
        shown = redacted(text) if self.texts and text is not None else None
        return CellResult._make((*known, shown, graded))

    def _said(self, reason: str | None) -> str:
        return redacted(reason) if reason and self.texts else ""


def _flag(value: int | None) -> bool | None:
    return None if value is None else bool(value)


# --- cases by prompts with models -----------------------------------------------------------------

MOST_CASES = 200
MOST_COLUMNS = 12


class Variant(NamedTuple):
    """A prompt with a model."""

    prompt: str
    model: str


class Square(NamedTuple):
    """How a case went with a prompt and a model, over its draws."""

    outcome: str
    composite: float | None
    draws: int


@dataclass(frozen=True, slots=True)
class Grid:
    """Cases by prompts with models, the worst cases first."""

    columns: tuple[Variant, ...]
    rows: tuple[tuple[str, tuple[Square | None, ...]], ...]
    cases: int
    """How many there are."""


def grid_of(result: RunResult) -> Grid:
    """Return the worst cases of a run by prompts with models."""
    scored = (measured.place for measured in result.variants if measured.place.side == "head")
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
    found: dict[str, dict[Variant, Square]] = {name: {} for name in names}
    rows = connection.execute(
        "select case_id, prompt, model, avg(composite), count(*), sum(passed = 0), sum(passed), "
        "min(status), max(status) from cell where run_id = ? and side = 'head' "
        "and case_id in (select value from json_each(?)) group by case_id, prompt, model",
        (run_id, json.dumps(names)),
    )
    for case, prompt, model, composite, draws, *how in rows:
        found[case][Variant(prompt, model)] = Square(_outcome(*how), composite, draws)
    placed = ((name, tuple(found[name].get(column) for column in columns)) for name in names)
    return Grid(columns, tuple(placed), int(cases))


def _outcome(failed: int | None, passed: int | None, least: str, most: str) -> str:
    """Return how draws went together: one that fails decides, an error counts if nothing else."""
    if least == most != "ok":
        return most
    if failed:
        return "failed"
    return "passed" if passed else "ungraded" if most == "ok" else most
