"""The next step after a run: every row of the table, and runs that really failed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.results.next_step import ROWS, BudgetNeed, NextStep, next_step
from edison_ci.results.run_result import RunResult
from edison_ci.store.runs import find_run
from tests.loopback.script import rule
from tests.loopback.server import LoopbackServer
from tests.opened import opened
from tests.pasted import assert_parses, commands_in

if TYPE_CHECKING:
    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily

AGAIN = "edison run hello"
RESUME = "edison resume RUN"
REAL = """models = '{"answers": {"small": false}, "judges": {"judge": false}}', simulated = 0"""
BASE = "base_ref = 'main', base_commit = '1111111111111111111111111111111111111111'"
FAILED = "status = 'FAILED', verdict = 'error'"
LACKING = "update component set status = 'error', score = null, reason = 'no' where kind = '{}'"


def paused(by: str) -> str:
    return f"update run set status = 'PAUSED', verdict = null, stopped_by = '{by}'"


def gate(verdict: str, metric: str = "composite", detail: str = "{}") -> tuple[str, str]:
    """Return the changes that give a run one gate with this verdict."""
    return (
        f"update run set verdict = '{verdict}', {REAL}",
        "insert or replace into decision (run_id, round, position, metric, verdict, sentence, n, "
        f"gate, detail, decided_at) select id, 0, 0, '{metric}', '{verdict}', '-', 2, '{{}}', "
        f"'{detail}', created_at from run",
    )


def error(kind: str) -> str:
    return f"update cell set status = 'error', error = '{kind}', passed = null, composite = null"


STATES: dict[str, tuple[tuple[str, ...], str]] = {
    "import stopped": (
        (f"update run set trigger = 'outputs', {FAILED}",),
        "Import the answers again to continue; replies of judges are reused",
    ),
    "import ended": (("update run set trigger = 'outputs'",), ""),
    "detected form": (
        (f"update run set {FAILED}, stopped_by = '2 of 2 answers are malformed, because of -'",),
        f"Write that key, then: {AGAIN} (stored answers are reused)",
    ),
    "batch": (
        (paused("batch"),),
        "Batches take up to 24 hours. Collect the answers and get the verdict with: " + RESUME,
    ),
    "two budgets": (
        (paused("budget: --budget"),),
        f"Raise stop.budget_usd to 0.12, then: {AGAIN} --budget 0.12 (stored answers are reused)",
    ),
    "budget of the command": (
        (paused("budget: --budget"),),
        f"Continue with a larger budget: {RESUME} --budget 0.12",
    ),
    "budget of the day": (
        (paused("budget: stop.daily_budget_usd"),),
        f"Continue tomorrow (UTC) with: {RESUME}; or raise stop.daily_budget_usd to 0.12, "
        f"then: {AGAIN}",
    ),
    "site out of reach": (
        (paused("budget: the shared budget of x cannot be reached"),),
        f"Continue when it can be reached with: {RESUME}",
    ),
    "budget of the site": (
        (paused("budget: the shared budget of x"),),
        f"Continue when it has room with: {RESUME}",
    ),
    "budget of the project": (
        (paused("budget: settings.budget_usd"),),
        f"Raise settings.budget_usd in edison.yaml to 0.12, then continue with: {RESUME}",
    ),
    "budget of the experiment": (
        (paused("budget: stop.budget_usd"),),
        f"Raise stop.budget_usd to 0.12, then: {AGAIN} (stored answers are reused)",
    ),
    "paused": ((paused("SIGINT"),), f"Continue with: {RESUME}"),
    "cancelled": (
        ("update run set status = 'CANCELLED', verdict = null",),
        f"Start again with: {AGAIN} (stored answers are reused)",
    ),
    "running": (("update run set status = 'EXECUTING', verdict = null",), ""),
    "calls refused": (
        (f"update run set {FAILED}", error("MODEL_NOT_FOUND")),
        "small: the provider does not know this model: check the key model, and the path in "
        f"base_url; test it with: edison models test small; then: {AGAIN} (stored answers are "
        "reused)",
    ),
    "calls failed": (
        (f"update run set {FAILED}", error("QUOTA")),
        "small: the account has no quota left: add credit, or use another key; test it with: "
        f"edison models test small; then: {RESUME}",
    ),
    "calls lost": (
        (*gate("inconclusive"), error("TIMEOUT") + " where case_id = 'ada'"),
        "small: no answer in time: raise limits.timeout_s, or check the host; test it with: "
        f"edison models test small; then: {AGAIN}",
    ),
    "judge failed": (
        (f"update run set {FAILED}", LACKING.format("rubric")),
        "The judge judge gave no score. Find the cause with: edison models test judge; then: "
        f"{RESUME}; or grade the stored answers with another judge: edison regrade RUN",
    ),
    "nothing graded": (
        (
            f"update run set {FAILED}",
            LACKING.format("check"),
            "update cell set passed = null, composite = null",
        ),
        "No answer could be graded, because of check contains expected. Fix it, then: "
        "edison regrade RUN",
    ),
    "failed": ((f"update run set {FAILED}",), f"Continue with: {RESUME}"),
    "shard": (("update run set shard = '1/2', partial = 1",), ""),
    "part without gates": (
        (
            "update run set partial = 1, snapshot = json_remove(snapshot, "
            """'$."experiments/hello.yaml".gates')""",
        ),
        f"Run all cases: {AGAIN}",
    ),
    "part of the cases": (
        ("update run set partial = 1",),
        f"All cases decide the gates: {AGAIN}",
    ),
    "simulated": (
        (),
        "Simulated answers say nothing about your task; add a real model: "
        "edison models add openai/gpt-5-mini",
    ),
    "in doubt": (
        (f"update run set {BASE}", *gate("inconclusive", detail='{"doubt": true}')),
        "More cases would not decide it: a gate above says what stands in the way; then: "
        f"{AGAIN} --against main",
    ),
    "undecided": (
        (f"update run set {BASE}", *gate("inconclusive")),
        f"More cases, or more repeats (--repeats N), would decide it; then: {AGAIN} --against main",
    ),
    "too slow or expensive": (
        gate("fail", "cost_usd.mean"),
        f"Shorten prompts/hello.md, or name another model in the experiment; then: {AGAIN}",
    ),
    "cases fail": (
        (*gate("fail"), "update rollup_case set failed = 1"),
        "Change prompts/hello.md, or have a model suggest a change: edison refine hello; then: "
        f"{AGAIN}",
    ),
    "gates fail": (
        (*gate("fail"), "update cell set passed = 1, composite = 1"),
        f"Change prompts/hello.md; then: {AGAIN}",
    ),
    "not compared": (
        (f"update run set {REAL}", "update cell set passed = 1, composite = 1"),
        f"Change prompts/hello.md, then compare: {AGAIN} --against HEAD",
    ),
    "compared": (
        (*gate("pass"), f"update run set {BASE}", "update cell set passed = 1, composite = 1"),
        "",
    ),
}  # fmt: skip
"""What makes a run each state, and its next step."""


def step_after(folder: Folder, need: BudgetNeed) -> NextStep:
    with closing(sqlite3.connect(folder.path / ".edison/results.db")) as connection:
        (run_id,) = connection.execute("select id from run").fetchone()
        step = next_step(RunResult(connection, find_run(connection, run_id)), need)
    return NextStep(step.state, step.sentence.replace(run_id, "RUN"))


def test_every_row_has_a_test() -> None:
    assert [*STATES] == [row.state for row in ROWS]


@pytest.mark.parametrize("state", STATES)
def test_each_state_has_its_next_step(edison: Edison, mini: Folder, state: str) -> None:
    changes, sentence = STATES[state]
    assert edison(mini, "run", "--yes").code == 0
    with opened(mini.path / ".edison/results.db") as connection:
        for kept in ("decision_is_kept",):
            connection.execute(f"drop trigger {kept}")
        for table in ("decision", "rollup_run"):
            connection.execute(f"delete from {table}")
        for change in changes:
            connection.execute(change)
    narrower = "stop.budget_usd" if state == "two budgets" else ""
    assert step_after(mini, BudgetNeed("0.12", narrower)) == (state, sentence)
    for command in commands_in(sentence):
        assert_parses(command)


REFUSED: dict[str, dict[str, Any]] = {
    "INVALID_KEY": {"do": "status", "status": 401},
    "MODEL_NOT_FOUND": {"do": "status", "status": 404},
    "PROVIDER_ERROR": {"do": "status", "status": 500},
    "BAD_REQUEST": {"do": "status", "status": 400},
    "TIMEOUT": {"do": "hang"},
}


def remote(folder: Folder, name: str, url: str) -> None:
    """Give a model of the project to a server, with one attempt of a second for each call."""
    other = "judge" if name == "small" else "small"
    folder.write(
        "models.yaml",
        f"{other}: {{provider: sim, model: {other}}}\n"
        f"{name}: {{provider: openai_compatible, base_url: {url}, model: mock, "
        "price: {in: 1, out: 2}, limits: {timeout_s: 1, attempts: 1}}\n",
    )


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("kind", REFUSED)
def test_a_failed_run_says_what_to_check_and_the_same_later(
    edison: Edison, mini: Folder, kind: str, limited: bool
) -> None:
    body = '{"error": {"message": "no"}}'
    with LoopbackServer([rule(body=body, **REFUSED[kind])]) as server:
        remote(mini, "small", server.openai_url)
        done = edison(mini, "run", "--yes", *(("--limit", "1") if limited else ()))
        assert done.code == 3
        (step,) = [line for line in done.err.splitlines() if line.startswith("Next: ")]
        assert "edison models test small; then: edison r" in step
        assert "Change" not in step
        assert step in edison(mini, "status", "latest").err.splitlines()
        server.script = []
        command = commands_in(step.rpartition("then: ")[2])[0]
        assert edison(mini, *command.split()[1:], "--yes" if " run " in command else "-q").code == 0


def test_a_service_that_is_not_there_and_a_judge_that_does_not_answer(
    edison: Edison, mini: Folder, port: int
) -> None:
    remote(mini, "small", f"http://127.0.0.1:{port}/v1")
    done = edison(mini, "run", "--yes")
    assert done.code == 3
    assert "Next: small: the host was not reached: check that it runs" in done.err
    remote(mini, "judge", f"http://127.0.0.1:{port}/v1")
    done = edison(mini, "run", "--yes")
    assert done.code == 3
    assert "Next: The judge judge gave no score." in done.err
    assert "Change" not in done.err
