"""How did each case of a run go?

One result for a case with a prompt and a model, over all its draws: a case fails if one of its
answers does, and is in error only if nothing that was measured failed.
"""

from __future__ import annotations

import json
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.frozen import dataclass
from edison_ci.rounding import fixed, mean, mean_or_none

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from edison_ci.results.view import RunView

from edison_ci.store.runs import COUNTED


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


def cases_of(connection: sqlite3.Connection, view: RunView) -> Iterator[CaseResult]:
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


def _flag(value: int | None) -> bool | None:
    return None if value is None else bool(value)
