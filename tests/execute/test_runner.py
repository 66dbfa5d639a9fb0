"""Fallback models: where a scheduled run does not reach a model, they answer and never count."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.access.site import open_site
from edison_ci.features.monitor.scheduler import Scheduler
from edison_ci.features.monitor.schedules import read_schedules
from edison_ci.features.upkeep.retention import Retention, collect
from edison_ci.store.integrity import problems_in
from tests import forked
from tests.conftest import Result
from tests.features.monitor.test_scheduler import Ended
from tests.loopback.script import rule
from tests.loopback.server import LoopbackServer
from tests.opened import opened
from tests.ports import held_port
from tests.timing import PATIENCE_S, poll

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edison_ci.api.run_process import RunLaunch
    from tests.conftest import Edison, Folder

MODEL = "{{provider: openai_compatible, model: {0}, base_url: '{1}', price: {2}{3}}}"
NAMES = [f"N{number}" for number in range(8)]
EXPERIMENT = """\
experiment: hello
objective: Greet people by their name in a friendly way.
prompts: [prompts/hello.md]
models: [main]
dataset: datasets/names.jsonl
checks:
  - contains: Welcome
gates:
  - {metric: pass_rate, at_least: 90%}
schedule: [{name: hourly, cron: "0 * * * *"}]
"""
DOWN = rule(model="main-1", status=401, body="no such key")
"""After which the model is asked no more; one that is only out of order is waited for."""
WELL = rule(model="main-1", text="Welcome!")
STANDING_IN = rule(model="backup-1", text="Go away.")


class Outage:
    """A project whose model can be out of order, and whose fallback answers badly."""

    def __init__(self, folder: Folder, edison: Edison, server: LoopbackServer) -> None:
        self.folder, self._edison, self.server = folder, edison, server
        rows = ({"id": name.lower(), "name": name} for name in NAMES)
        folder.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        folder.write("experiments/hello.yaml", EXPERIMENT)
        self.models()
        self.serve(DOWN, STANDING_IN)

    def serve(self, *rules: Any) -> None:
        self.server.script[:] = rules

    def models(self, url: str = "", fallback: str = "backup", **more: str) -> None:
        """Write models.yaml; `more` are entries of further models."""
        here = self.server.openai_url
        limits = f", limits: {{attempts: 1, concurrency: 1}}, fallback: [{fallback}]"
        known = {
            "main": MODEL.format("main-1", url or here, "{in: 1, out: 2}", limits),
            "backup": MODEL.format("backup-1", here, "{in: 3, out: 4}", ""),
            **more,
        }
        self.folder.write("models.yaml", "".join(f"{k}: {v}\n" for k, v in known.items()))

    def scheduled(self, launch: Any = None) -> Result:
        """Let the scheduler start the run; return how its last process ended."""
        ended: list[Result] = []

        def in_this_process(root: Path, launch: RunLaunch) -> Ended:
            ended.append(self(*launch.words))
            return Ended(ended[-1].code)

        scheduler = Scheduler(self.folder.path, launch=launch or in_this_process)
        try:
            (hourly,) = read_schedules(open_site(self.folder.path)).schedules
            scheduler.run_once(hourly, lambda _: False)
        finally:
            scheduler.close()
        return ended[-1] if ended else Result(0, "", "")

    def __call__(self, *words: str) -> Result:
        return self._edison(self.folder, *words)

    def told(self, *words: str) -> Any:
        done = self(*words, "--json")
        assert done.out.startswith("{"), done.all
        return json.loads(done.out)

    def asked(self, model: str) -> int:
        """Return how many requests a model got."""
        return sum(json.loads(each.body)["model"] == model for each in self.server.requests)

    def rows(self, query: str) -> list[Any]:
        with opened(self.folder.path / ".edison/results.db") as connection:
            return connection.execute(query).fetchall()


@pytest.fixture
def outage(mini: Folder, edison: Edison) -> Iterator[Outage]:
    with LoopbackServer() as server:
        yield Outage(mini, edison, server)


def few(outage: Outage, *names: str) -> None:
    """Let the model fail for these names only."""
    down = [rule(model="main-1", contains=f"to {name} ", status=503) for name in names]
    outage.serve(*down, WELL, STANDING_IN)


# --- what becomes of a cell -----------------------------------------------------------------------


def test_a_cell_that_a_fallback_answers_stays_in_error_with_the_answer_beside_it(
    outage: Outage,
) -> None:
    few(outage, "N3")
    done = outage.scheduled()
    assert done.code == 0, done.all
    assert outage.asked("backup-1") == 1
    assert outage.rows("select case_id, error, answer_no from cell where status = 'error'") == [
        ("n3", "PROVIDER_ERROR", None)
    ]
    ((model, cost, price_out, passed),) = outage.rows(
        "select t.model, a.cost_microusd, 3 * a.tokens_in + 4 * a.tokens_out, f.passed "
        "from fallback_answer f join answer a using (request_hash, answer_no) "
        "join attempt t on t.id = a.attempt"
    )
    assert (model, cost, passed) == ("backup", price_out, 0), "the one that answers is booked"
    assert (
        outage.rows(
            "select 1 from fallback_answer f join cell c on c.request_hash = f.request_hash"
        )
        == []
    ), "it is no answer of the model that was asked first"


FACTS = (
    "select verdict, complete, status from run where id = ?",
    "select verdict, sentence, estimate, low, high, n, p, gate from decision where run_id = ?",
    "select cells, ok, error, composite, composite_low, composite_high, composite_n, pass_rate, "
    "pass_low, pass_high, pass_n, answers, bought, missing, composite_worst from rollup_run "
    "where run_id = ?",
    "select model, cells, ok, error, composite, pass_rate, answers from rollup_model "
    "where run_id = ?",
    "select case_id, cells, ok, error, passed, failed, composite from rollup_case where run_id = ?",
    "select kind, value, cases from rollup_marked where run_id = ?",
    "select model, name, n, mean, passed from rollup_component where run_id = ?",
)


def test_no_number_and_no_decision_differs_from_those_without_the_fallback(outage: Outage) -> None:
    few(outage, "N3")
    assert outage("run").code == 0
    assert outage.scheduled().code == 0
    assert outage.asked("backup-1") == 1
    plain, scheduled = (run for (run,) in outage.rows("select id from run order by rowid"))
    for query in FACTS:
        without, with_it = (
            outage.rows(query.replace("?", f"'{run}'")) for run in (plain, scheduled)
        )
        assert without, query
        assert with_it == without


@pytest.mark.nightly
def test_a_run_that_only_its_fallback_answers_is_not_measured(outage: Outage) -> None:
    outage.serve(DOWN, rule(model="backup-1", text="Welcome!"))
    with held_port() as port, held_port() as other:
        spare = MODEL.format("s", f"http://127.0.0.1:{other}/v1", "free", "")
        outage.models(f"http://127.0.0.1:{port}/v1", "spare, backup", spare=spare)
        done = outage.scheduled()
    assert done.code == 3, done.all
    assert outage.rows("select status, verdict from run") == [("FAILED", "error")]
    assert outage.asked("backup-1") == len(NAMES), "every cell, after the model was given up"
    assert outage.rows("select distinct model, status from fallback_answer") == [("backup", "ok")]
    assert outage.rows("select count(*) from cell where status = 'error'") == [(len(NAMES),)]
    ((condition, sentence),) = outage.rows("select condition, sentence from alert")
    assert condition == "error_rate"
    assert sentence.startswith("8 of 8 calls failed in the newest run, 100%"), "not of the spare"


def test_only_a_schedule_asks_fallback_models(outage: Outage) -> None:
    few(outage, "N3")
    assert outage("run").code == 0
    assert outage.asked("backup-1") == 0
    assert outage.rows("select count(*) from fallback_answer") == [(0,)]


@pytest.mark.parametrize(
    ("status", "body", "asked"),
    [
        (500, "broken", True),
        (401, "no such key", True),
        (400, "no such parameter", False),
        (400, {"error": {"code": "context_length_exceeded", "message": "too long"}}, False),
        (400, {"error": {"code": "content_filter", "message": "not that"}}, False),
    ],
)
def test_a_model_that_was_reached_and_refused_is_not_replaced(
    outage: Outage, status: int, body: Any, asked: bool
) -> None:
    failing = rule(model="main-1", contains="to N3 ", status=status, body=body)
    outage.serve(failing, WELL, STANDING_IN)
    outage.scheduled()
    assert failing.applied == 1
    assert (outage.asked("backup-1") > 0) is asked


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("{provider: openai, model: gpt-4o}", "OPENAI_API_KEY"),
        ("{provider: openai_compatible, model: x, base_url: 'http://127.0.0.1:9/v1'}", "price"),
        (
            "{provider: command, options: {run: [python, a.py], files: [a.py]}, price: free}",
            "runs a program of the repository",
        ),
    ],
)
def test_a_fallback_that_cannot_be_asked_is_passed_over_and_named(
    outage: Outage, entry: str, why: str
) -> None:
    few(outage, "N3")
    outage.folder.write("a.py", "")
    outage.models("", "other, backup", other=entry)
    done = outage.scheduled()
    assert done.code == 0, done.all
    assert "the fallback model cannot be asked" in done.err
    assert why in done.err
    assert outage.rows("select model from fallback_answer") == [("backup",)]


def test_what_a_fallback_costs_counts_against_the_budget(outage: Outage) -> None:
    outage.folder.edit("models.yaml", "{in: 3, out: 4}", "{in: 100, out: 200}")
    outage.folder.edit("experiments/hello.yaml", '* *"}', '* *", budget_usd: 0.5}')
    done = outage.scheduled()
    assert done.code == 4, done.all
    assert outage.asked("backup-1") == 0, "the worst case does not fit"
    assert outage.rows("select status, stopped_by from run") == [("PAUSED", "budget: --budget")]


def test_a_screen_withholds_what_a_fallback_says(outage: Outage) -> None:
    outage.folder.write("experiments/hello.yaml", f"{EXPERIMENT}safety: {{pii: block}}\n")
    secret = "ada@example.org"
    outage.serve(
        rule(model="main-1", contains="to N3 ", status=503),
        WELL,
        rule(model="backup-1", text=f"Ask {secret}."),
    )
    assert outage.scheduled().code == 0
    assert outage.rows("select status, reason from fallback_answer") == [
        ("blocked", "blocked: pii")
    ]
    shown = outage("explain", "n3")
    assert secret not in shown.all
    assert "blocked, therefore not shown" in shown.out
    assert secret not in json.dumps(outage.told("explain", "n3"))


# --- afterwards -----------------------------------------------------------------------------------


def test_a_resumed_run_asks_the_model_again_and_forgets_who_stood_in(outage: Outage) -> None:
    outage.scheduled()
    assert outage.rows("select count(*) from fallback_answer") == [(len(NAMES),)]
    outage.serve(WELL, STANDING_IN)
    asked = outage.asked("backup-1")
    done = outage("resume")
    assert done.code == 0, done.all
    assert outage.asked("backup-1") == asked
    assert outage.rows("select count(*) from fallback_answer") == [(0,)]
    assert outage.rows("select status, verdict from run") == [("COMPLETED", "inconclusive")]


def test_no_later_run_takes_the_answer_of_a_fallback_for_that_of_the_model(outage: Outage) -> None:
    outage.scheduled()
    outage.serve(WELL, STANDING_IN)
    before = outage.asked("main-1")
    assert outage("run").code == 0
    assert outage.asked("main-1") == before + len(NAMES)


@pytest.mark.nightly
def test_a_killed_run_goes_on_with_its_fallback_and_buys_nothing_twice(outage: Outage) -> None:
    held = rule(model="backup-1", contains="to N5 ", held=True, text="Go away.")
    outage.serve(DOWN, held, STANDING_IN)
    started: list[list[str]] = []

    def killed_once(root: Path, launch: RunLaunch) -> Ended:
        words = launch.words
        started.append(words)
        if len(started) > 1:
            return Ended(outage(*words).code)
        command = [sys.executable, "-P", "-m", "edison_ci", "--quiet", *words]
        with forked.Popen(command, cwd=root, stderr=subprocess.DEVNULL) as process:
            try:
                poll("the fallback is asked", lambda: held.applied > 0)
            finally:
                process.kill()
        outage.server.release()
        outage.serve(DOWN, STANDING_IN)
        return Ended(process.returncode)

    outage.scheduled(killed_once)
    assert [words[0] for words in started] == ["run", "resume"]
    assert outage.rows("select status from run") == [("FAILED",)]
    assert outage.rows("select count(*) from fallback_answer") == [(len(NAMES),)]
    bought = outage.rows("select request_hash from answer")
    assert len(bought) == len(set(bought)) == len(NAMES)


def test_a_fallback_at_work_can_be_steered(outage: Outage) -> None:
    held = rule(model="backup-1", contains="to N5 ", held=True, text="Go away.")
    outage.serve(DOWN, held, STANDING_IN)
    steered: list[Result] = []

    def while_it_runs(root: Path, launch: RunLaunch) -> Ended:
        command = [sys.executable, "-P", "-m", "edison_ci", "--quiet", *launch.words]
        with forked.Popen(command, cwd=root, stderr=subprocess.DEVNULL) as process:
            try:
                poll("the fallback is asked", lambda: held.applied > 0)
                steered.append(outage("runs", "steer", "--concurrency", "backup=1"))
            finally:
                outage.server.release()
                process.wait(PATIENCE_S)
        return Ended(process.returncode)

    outage.scheduled(while_it_runs)
    assert steered[0].code == 0, steered[0].all
    assert outage.rows("select done from steering") == [(1,)]


def test_retention_leaves_its_grade_and_takes_its_texts(outage: Outage) -> None:
    outage.folder.write("experiments/hello.yaml", f"{EXPERIMENT}safety: {{pii: block}}\n")
    outage.serve(DOWN, rule(model="backup-1", text="Ask ada@example.org."))
    outage.scheduled()
    with opened(outage.folder.path / ".edison/results.db") as connection:
        collect(connection, Retention("2999-01-01"))
    assert outage.rows("select distinct status, passed, reason from fallback_answer") == [
        ("blocked", 0, "")
    ]
    assert outage.rows("select count(*) from answer_text") == [(0,)]


# --- what people see ------------------------------------------------------------------------------


def test_every_report_says_who_answered_and_that_it_does_not_count(outage: Outage) -> None:
    few(outage, "N3", "N4")
    outage.folder.edit("experiments/hello.yaml", "schedule:", "max_errors: 50%\nschedule:")
    done = outage.scheduled()
    said = (
        "2 cells of main were answered by its fallback backup (score 0.0, 0 of 2 pass). They stay "
        "in error: these answers count in no score and no gate."
    )
    assert said in done.out
    assert "a fallback model answers" in done.err
    assert said in outage("status", "latest").out
    (run,) = outage.told("status", "latest")["runs"]
    assert run["fallbacks"] == [
        {
            "instead_of": "main",
            "model": "backup",
            "simulated": False,
            "cells": 2,
            "composite": 0.0,
            "passed": 0,
            "failed": 2,
        }
    ]
    for kind in ("md", "junit", "json"):
        path = outage.folder.path / f"report.{kind}"
        assert outage("report", "--format", kind, "--out", str(path)).code == 0
        assert said in path.read_text(encoding="utf-8"), kind
    junit = (outage.folder.path / "report.junit").read_text(encoding="utf-8")
    assert "backup answered in its place, which does not count" in junit


def test_who_is_told_of_the_run_is_told_of_its_fallback(outage: Outage) -> None:
    few(outage, "N3")
    told = "notifications: [{name: ops, on: [run_completed], webhook_env: NOT_SET_HERE}]\n"
    outage.folder.write("edison.yaml", f"version: 1\nproject: mini\n{told}")
    outage.scheduled()
    ((message,),) = outage.rows("select message from notification where occasion = 'run_completed'")
    assert "1 cell of main was answered by its fallback backup" in message


def test_a_cell_shows_the_answer_in_its_place(outage: Outage) -> None:
    few(outage, "N3")
    outage.scheduled()
    shown = outage("explain", "n3").out
    assert "--- answer\nthere is no answer\n" in shown
    assert "--- answer of the fallback model backup\n" in shown
    assert "\nGo away.\nscore 0.0; fail\n" in shown
    found = outage.told("explain", "n3")
    assert (found["answer"], found["fallback"]["text"]) == (None, "Go away.")
    assert outage.told("explain", "n1")["fallback"] is None


@pytest.mark.nightly
def test_pages_show_the_answer_in_its_place_as_text(outage: Outage) -> None:
    outage.serve(
        rule(model="main-1", contains="to N3 ", status=503),
        WELL,
        rule(model="backup-1", text="<b>Go</b> away."),
    )
    outage.scheduled()
    assert outage("report", "--out", "public/").code == 0
    found = {
        path.name: path.read_text(encoding="utf-8")
        for path in (outage.folder.path / "public").glob("*.html")
    }
    said = "1 cell of main was answered by its fallback backup"
    assert any(said in text for name, text in found.items() if name.startswith("run-"))
    (cell,) = (text for text in found.values() if "Answer of the fallback model" in text)
    assert "This answer counts in no score and no gate." in cell
    assert "&lt;b&gt;Go&lt;/b&gt; away." in cell and "<b>Go" not in cell


def test_a_bundle_takes_it_along(outage: Outage, tmp_path: Path) -> None:
    few(outage, "N3")
    outage.scheduled()
    assert outage("report", "--out", str(tmp_path / "run.zip")).code == 0
    query = (
        "select f.model, f.composite, f.passed, t.text from fallback_answer f "
        "join answer_text t using (request_hash, answer_no)"
    )
    before = outage.rows(query)
    assert before == [("backup", 0.0, 0, "Go away.")]
    (outage.folder.path / ".edison/results.db").unlink()
    done = outage("import", "bundle", str(tmp_path / "run.zip"))
    assert done.code == 0, done.all
    assert outage.rows(query) == before
    assert outage("admin", "db", "check").code == 0
    with opened(outage.folder.path / ".edison/results.db") as connection:
        assert "a score is not between 0 and 1" not in problems_in(connection)
        connection.execute("update fallback_answer set composite = 7.5")
        assert "a score is not between 0 and 1" in problems_in(connection)
