"""A run that has ended is told from its sums, and these say what its cells say."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from docs.sample import Sample
from edison_ci.records import CellStatus, RunStatus, Side
from edison_ci.results.rollups import rollups_of
from edison_ci.results.run_result import RunResult
from edison_ci.results.spending import reused_answers, stored_reuse
from edison_ci.store.cells import CaseFacts, CellRow, Component
from edison_ci.store.database import open_database
from edison_ci.store.judgments import Judgment
from edison_ci.store.runs import NewRun, find_run, move_run, start_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path

RUN, TIME = "20261114T090000-aaaaaa", "2026-11-14T09:00:00Z"


@dataclass(frozen=True)
class Plot:
    """A run to write."""

    cases: int = 70
    """Enough for a 95th percentile."""
    sides: tuple[str, ...] = ("head",)
    prompts: tuple[str, ...] = ("p",)
    models: tuple[str, ...] = ("small",)
    repeats: int = 1
    judged: bool = False
    screened: bool = False
    clustered: bool = False
    errors: bool = False
    skips: bool = False
    shared: bool = False
    """Two cases each have the same answer, in both sides and with all prompts."""
    reused: bool = False
    """Half of the answers were bought before."""
    retried: bool = False
    priced: bool = True
    graded: bool = True
    status: str = "COMPLETED"


PLOTS = {
    "one model": Plot(),
    "several models and prompts": Plot(models=("small", "large"), prompts=("p", "q")),
    "against a base": Plot(sides=("head", "base"), models=("small", "large")),
    "repeats": Plot(repeats=3, models=("small", "large")),
    "judges": Plot(judged=True),
    "screens": Plot(screened=True),
    "clusters": Plot(clustered=True),
    "errors": Plot(errors=True, models=("small", "large")),
    "skipped": Plot(skips=True),
    "answers that cells share": Plot(shared=True, sides=("head", "base"), prompts=("p", "q")),
    "reused answers": Plot(reused=True, judged=True),
    "retries": Plot(retried=True, judged=True),
    "no price": Plot(priced=False),
    "nothing graded": Plot(cases=3, graded=False),
    "no cells": Plot(cases=0),
    "one case": Plot(cases=1, models=("small", "large")),
    "failed": Plot(errors=True, status="FAILED"),
    "everything": Plot(
        sides=("head", "base"), prompts=("p", "q"), models=("small", "large"), repeats=2,
        judged=True, screened=True, errors=True, skips=True, reused=True, retried=True,
    ),
}  # fmt: skip


class Writing:
    """Writes a run, cell by cell."""

    def __init__(self, connection: sqlite3.Connection, plot: Plot) -> None:
        self.sample, self.plot, self.connection = Sample(connection), plot, connection

    def run(self) -> None:
        """Write all of it, and its sums."""
        plot = self.plot
        ref, commit = ("main", "b" * 40) if "base" in plot.sides else (None, None)
        start_run(
            NewRun(
                RUN, "support-reply", "cli", "h", "{}", {}, 0, simulated=False, partial=False,
                owner="1-sample", now=TIME, base_ref=ref, base_commit=commit,
            )
        )(self.connection)  # fmt: skip
        self._move("EXECUTING")
        for case in range(plot.cases):
            for side in plot.sides:
                for prompt in plot.prompts:
                    for model in plot.models:
                        for repeat in range(plot.repeats):
                            self._cell(case, side, prompt, model, repeat)
        rollups_of(self.connection, RUN)(self.connection)
        reused = stored_reuse(self.connection, RUN)
        assert reused == reused_answers(self.connection, RUN)
        steps = ["JUDGING", "AGGREGATING"] if plot.status == "COMPLETED" else []
        for status in (*steps, plot.status):
            self._move(status, reused=reused)

    def _move(self, status: str, **changes: object) -> None:
        move_run(RUN, RunStatus(status), TIME, **changes)(self.connection)

    def _bought(self, call: str, model: str, phase: str) -> tuple[str, int]:
        plot = self.plot
        booking = replace(self.sample.booking(RUN, call, model, TIME), phase=phase)
        if plot.reused and booking.request_hash < "8":
            booking = replace(booking, run_id="earlier")
        if plot.retried and booking.request_hash[-1] in "0123":
            self.sample.failed(booking, charged=booking.request_hash[-1] in "01")
        if not plot.priced:
            booking = replace(booking, est_microusd=0)
        return booking.request_hash, self.sample.bought(booking, "word " * (1 + len(call) % 7))

    def _cell(self, case: int, side: str, prompt: str, model: str, repeat: int) -> None:
        plot, name = self.plot, f"{side}{prompt}{model}{case}{repeat}"
        digest = hashlib.sha256(name.encode())
        status = "ok" if plot.graded else "error"
        if plot.errors and case % 7 == 3:
            status = "error"
        elif plot.skips and case % 5 == 2:
            status = "skipped"
        elif case % 11 == 4:
            status = "malformed"
        elif plot.screened and case % 6 == 1:
            status = "blocked"
        call = f"{model}{case // 2}{repeat}" if plot.shared else name
        answered = status in ("ok", "malformed", "blocked")
        request_hash, answer_no = (
            self._bought(call, model, "generate") if answered else ("e" * 64, None)
        )
        score = digest.digest()[0] / 255 if status in ("ok", "malformed") else None
        judgments: tuple[Judgment, ...] = ()
        if plot.judged and status == "ok":
            judgments = (Judgment("large", *self._bought(f"judge {call}", "large", "judge")),)
        self.sample.finish(
            CellRow(
                id=digest.hexdigest()[:24],
                run_id=RUN,
                side=Side(side),
                prompt=prompt,
                version=f"{prompt}{side}",
                model=model,
                case_id=f"case-{(case * 37) % 101:03d}",
                repeat=repeat,
                request_hash=request_hash,
                answer_no=answer_no,
                status=CellStatus(status),
                composite=score,
                passed=None if score is None else score >= 0.3,
                error="TIMEOUT" if status == "error" else None,
                reason="too long" if status == "skipped" else None,
                cluster=f"g{case % 9}" if plot.clustered and case % 2 else None,
                facts=CaseFacts('["a"]' if case % 3 else "[]", case % 5 + 1, "golden", case),
                components=self._components(case, score, status),
                judgments=judgments,
            )
        )

    def _components(self, case: int, score: float | None, status: str) -> tuple[Component, ...]:
        components = (
            []
            if score is None
            else [Component("polite", "check", score, score > 0.3, 1.0, CellStatus.OK)]
        )
        if self.plot.judged and score is not None:
            lost = case % 13 == 5
            given = (None, None, 1.0, "error") if lost else (score / 3, None, 1.0, "ok")
            components += [
                Component("Empathy", "criterion", *given),
                Component("tone", "rubric", *given),
            ]
        if status == "blocked":
            components.append(Component("pii", "safety", 0.0, False, 1.0, CellStatus.OK, "block"))
        elif self.plot.screened and case % 4 == 0:
            components.append(Component("pii", "safety", 0.0, False, 1.0, CellStatus.OK, "flag"))
        return tuple(components)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = open_database(tmp_path / "results.db")
    connection.execute("begin")
    yield connection
    connection.close()


PARTS = (
    "prompts", "cells", "overall", "models", "components", "calls", "cost_microusd", "tokens_in",
    "tokens_out", "error_kinds", "skips", "against", "wall_s", "human_grades", "gates",
)  # fmt: skip
"""What is said of a run, but for what only sums know."""


def result(db: sqlite3.Connection, **changes: str) -> RunResult:
    return RunResult(db, replace(find_run(db, RUN), **changes))  # type: ignore[arg-type]  # texts


def told(db: sqlite3.Connection, **changes: str) -> dict[str, object]:
    found = result(db, **changes)
    return {name: getattr(found, name) for name in PARTS}


@pytest.mark.parametrize("name", PLOTS)
def test_the_sums_of_a_run_say_what_its_cells_say(db: sqlite3.Connection, name: str) -> None:
    Writing(db, PLOTS[name]).run()
    assert told(db, status="EXECUTING") == told(db), "to the last digit"


def test_a_run_that_has_ended_is_told_from_its_sums(db: sqlite3.Connection) -> None:
    Writing(db, Plot(models=("small", "large"))).run()
    db.execute("update rollup_run set composite = 0.125")
    db.execute("update rollup_model set pass_rate = 0.25, latency_p50_ms = 7")
    db.execute("update rollup_component_total set mean = 0.5")
    db.execute("update rollup_calls set retried = 11, tokens_in = 12")
    found = result(db)
    assert found.overall.composite is not None and found.overall.composite.estimate == 0.125
    assert [one.p50_ms for one in found.models] == [7, 7]
    assert [one.pass_rate and one.pass_rate.estimate for one in found.models] == [0.25, 0.25]
    assert [component.mean for component in found.components] == [0.5]
    assert (found.calls["retried"], found.tokens_in) == (11, 12)


@pytest.mark.parametrize(
    "changes",
    [{"status": "EXECUTING"}, {"status": "PAUSED"}],
    ids=["goes on", "was stopped"],
)
def test_sums_of_an_earlier_end_are_not_believed(
    db: sqlite3.Connection, changes: dict[str, str]
) -> None:
    Writing(db, Plot()).run()
    before = told(db)
    for table in ("rollup_run", "rollup_model"):
        db.execute(f"update {table} set composite = 0.125, pass_rate = 0.125, latency_p50_ms = 7")
    db.execute("update rollup_component_total set mean = 0.125")
    db.execute("update rollup_calls set retried = 11, tokens_in = 12")
    db.execute("update rollup_paid set cost_microusd = 13")
    assert told(db, **changes) == before


@pytest.mark.parametrize("table", ["run", "model", "component_total", "calls"])
def test_a_run_whose_sums_are_missing_is_added_up(db: sqlite3.Connection, table: str) -> None:
    Writing(db, Plot(models=("small", "large"), judged=True)).run()
    before = told(db)
    db.execute(f"delete from rollup_{table}")
    assert told(db) == before


def test_calls_since_the_end_of_a_run_are_counted(db: sqlite3.Connection) -> None:
    writing = Writing(db, Plot())
    writing.run()
    before = result(db).cost_microusd
    late = writing.sample.booking(RUN, "late", "small", TIME)
    writing.sample.failed(late, charged=True)
    found = result(db)
    assert found.cost_microusd == before + late.est_microusd
    assert found.calls["unknown"] == 1
