"""Metrics are read as Prometheus reads them, and say what the results say."""

from __future__ import annotations

import datetime as dt
import json
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from docs.sample import build
from edison_ci.config.load import load_project
from edison_ci.features.monitor import metrics
from edison_ci.features.monitor.alert_rows import Condition, Finding, Level, open_alert
from edison_ci.features.monitor.metrics import (
    MOST_VALUES,
    OF_PROJECT,
    OF_SERVER,
    Metric,
    MetricSource,
    ModelCalls,
    Sample,
    calls_by_model,
    project_samples,
    render,
    server_metrics,
    unfinished_runs,
)
from edison_ci.results.spending import WITHIN_MS
from edison_ci.store.database import open_database
from edison_ci.web.databases import BOUNDS_S, Traffic
from tests.conftest import ROOT

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily

NOW = dt.datetime(2026, 11, 15, 12, tzinfo=dt.UTC)
Values = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(text: str) -> Values:
    """Return every sample as Prometheus reads it, and fail if a series is there twice."""
    found: Values = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found


def value(found: Values, name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


@pytest.fixture
def ran(mini: Folder) -> Folder:
    """A project with results."""
    (mini.path / ".edison").mkdir(exist_ok=True)
    build(mini.path / ".edison/results.db")
    return mini


@pytest.fixture
def db(ran: Folder) -> Iterator[sqlite3.Connection]:
    with closing(open_database(ran.path / ".edison/results.db")) as connection:
        yield connection


def read(folder: Folder, connection: sqlite3.Connection) -> Values:
    project = load_project(folder.path)
    file = folder.path / ".edison/results.db"
    source = MetricSource(connection, file, project, NOW)
    return parsed(render(OF_PROJECT, project_samples(source)))


def test_calls_tokens_and_latency_are_those_of_the_answers(
    ran: Folder, db: sqlite3.Connection
) -> None:
    found = read(ran, db)
    rows = db.execute(
        "select t.model, t.phase, count(*), sum(a.tokens_in), sum(a.tokens_out), "
        "sum(a.latency_ms), sum(a.latency_ms <= 1000) from answer a join attempt t "
        "on t.id = a.attempt where t.phase <> 'replay' group by 1, 2"
    ).fetchall()
    assert rows
    for model, phase, calls, tokens_in, tokens_out, latency_ms, within in rows:
        of = {"model": model, "phase": phase}
        assert value(found, "edison_calls_total", **of) == calls
        assert value(found, "edison_tokens_total", **of, direction="in") == tokens_in
        assert value(found, "edison_tokens_total", **of, direction="out") == tokens_out
        duration = "edison_call_duration_seconds"
        assert value(found, f"{duration}_sum", **of) == pytest.approx(latency_ms / 1000)
        assert value(found, f"{duration}_count", **of) == calls
        assert value(found, f"{duration}_bucket", **of, le="1") == within
        counts = [value(found, f"{duration}_bucket", **of, le=f"{ms / 1000:g}") for ms in WITHIN_MS]
        assert counts == sorted(counts), "they are cumulative"


def test_errors_and_reuse_are_counted(ran: Folder, db: sqlite3.Connection) -> None:
    found = read(ran, db)
    states = dict(db.execute("select state, count(*) from attempt group by 1").fetchall())
    for outcome, state in (("failed", "released"), ("unknown", "unknown")):
        series = [v for (name, labels), v in found.items() if name == "edison_call_errors_total"
                  and ("outcome", outcome) in labels]  # fmt: skip
        assert sum(series) == states[state] > 0
    reused = db.execute("select sum(reused) from rollup_calls").fetchone()[0]
    assert value(found, "edison_cache_hits_total") == reused > 0


def test_what_is_under_way_waits_and_is_old(ran: Folder, db: sqlite3.Connection) -> None:
    assert value(read(ran, db), "edison_oldest_unfinished_run_seconds") == 0
    db.execute("update run set status = 'EXECUTING' where rowid = (select min(rowid) from run)")
    (run,) = unfinished_runs(db)
    db.execute(
        "insert into event (time, run_id, type, data) values ('t', ?, 'run:progress', ?)",
        (run.run_id, json.dumps({"done": 3, "total": 10, "cost_microusd": 0})),
    )
    found = read(ran, db)
    assert value(found, "edison_queue_cells", experiment=run.experiment) == 7
    begun = dt.datetime.fromisoformat(run.created_at)
    age = value(found, "edison_oldest_unfinished_run_seconds")
    assert age == (NOW - begun).total_seconds() > 0


def test_budgets_alerts_duties_and_suggestions_are_there(
    ran: Folder, db: sqlite3.Connection
) -> None:
    ran.write("edison.yaml", "version: 1\nproject: m\nsettings: {monthly_budget_usd: 5}\n")
    ran.edit("experiments/hello.yaml", "gates:", "stop: {daily_budget_usd: 2}\ngates:")
    (spent,) = db.execute("select sum(microusd) from booked where scope = 'project'").fetchone()
    open_alert(db, Finding(Condition.DROP, Level.ALERT, "It fell.", "support-reply"), "2026-11-15")
    db.execute(
        "insert into duty (name, every_s, due_at, started_at, failures, done_at) "
        "values ('backup', 86400, 'x', 'x', 2, '2026-11-14T12:00:00.000Z')"
    )
    found = read(ran, db)
    monthly = {"experiment": "", "budget": "settings.monthly_budget_usd"}
    assert value(found, "edison_budget_left_usd", **monthly) == pytest.approx(5 - spent / 1e6)
    daily = {"experiment": "hello", "budget": "stop.daily_budget_usd"}
    assert value(found, "edison_budget_left_usd", **daily) == 2
    alert = {"experiment": "support-reply", "condition": "drop", "level": "alert"}
    assert value(found, "edison_alerts_open", **alert) == 1
    assert value(found, "edison_duty_failures", duty="backup") == 2
    done = value(found, "edison_duty_done_timestamp_seconds", duty="backup")
    assert NOW.timestamp() - done == 86_400


def test_approved_suggestions_are_counted(ran: Folder, db: sqlite3.Connection) -> None:
    for number, status in enumerate(("approved", "approved", "proposed")):
        db.execute(
            "insert into suggestion (id, hash, experiment, prompt, path, base_hash, diff, note, "
            "targets, guardrails, evidence, status, simulated, cost_microusd, created_at) values "
            "(?1, ?1, 'support-reply', 'p', 'p', 'b', 'd', 'n', '', '', '{}', ?2, 0, 0, '2026')",
            (str(number), status),
        )
    found = read(ran, db)
    assert value(found, "edison_suggestions", status="approved") == 2
    assert value(found, "edison_suggestions", status="proposed") == 1


def test_hostile_names_are_escaped_and_clean() -> None:
    metric = Metric("edison_x", "gauge", "X.", ("model",))
    text = render([metric], [Sample(metric, 1, {"model": 'a"} 9\nb\\c\x1b[31m'})])
    assert len(text.splitlines()) == 3
    assert "\x1b" not in text
    ((_, labels),) = parsed(text)
    ((_, told),) = labels
    assert told.startswith('a"} 9')


def test_rare_models_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    within = (1,) * len(WITHIN_MS)
    rows = [
        ModelCalls(f"m{n}", phase, 1000 - n, 1, 2, 3, 4, 5, 6, within)
        for n in range(MOST_VALUES + 5)
        for phase in ("generate", "judge")
    ]
    found = metrics._bounded(rows)
    assert len({row.model for row in found}) == MOST_VALUES + 1
    for phase in ("generate", "judge"):
        (other,) = (row for row in found if row.model == "(other)" and row.phase == phase)
        assert other.calls == sum(1000 - n for n in range(MOST_VALUES, MOST_VALUES + 5))
        assert (other.tokens_in, other.within) == (15, (5,) * len(WITHIN_MS))


def test_the_sums_are_read_and_no_answers(ran: Folder, db: sqlite3.Connection) -> None:
    """A scrape costs the same with any number of answers."""
    asked: list[str] = []
    db.set_trace_callback(asked.append)
    read(ran, db)
    db.set_trace_callback(None)
    assert calls_by_model(db)
    for sql in asked:
        plan = db.execute(f"explain query plan {sql}").fetchall()
        steps = " ".join(str(row[-1]) for row in plan)
        for table in ("answer", "attempt", "cell"):
            assert f"SCAN {table}" not in steps, sql


# --- the server -----------------------------------------------------------------------------------


def test_requests_are_counted_by_page_and_time() -> None:
    traffic = Traffic()
    for status, seconds in ((200, 0.02), (200, 0.3), (500, 30.0)):
        traffic.count("run", "GET", status, seconds)
    traffic.count("run", "BREW", 405, 0.0)
    traffic.count("sign-in", "POST", 303, 0.1)
    traffic.count("sign-in", "POST", 401, 0.1)
    traffic.count("sign-in", "GET", 200, 0.1)
    found = parsed(server_metrics(traffic, 4))
    get = {"page": "run", "method": "GET"}
    assert value(found, "edison_http_requests_total", **get, status="200") == 2
    assert value(found, "edison_http_requests_total", **get, status="500") == 1
    other = {"page": "run", "method": "other", "status": "405"}
    assert value(found, "edison_http_requests_total", **other) == 1
    duration = "edison_http_request_duration_seconds"
    assert value(found, f"{duration}_bucket", page="run", le="0.025") == 2
    assert value(found, f"{duration}_bucket", page="run", le=f"{BOUNDS_S[-1]:g}") == 3
    assert value(found, f"{duration}_bucket", page="run", le="+Inf") == 4
    assert value(found, "edison_sign_ins_total", outcome="accepted") == 1
    assert value(found, "edison_sign_ins_total", outcome="refused") == 1
    assert value(found, "edison_sessions") == 4
    assert "edison_sessions" not in server_metrics(traffic, None)


# --- the command and the documentation ------------------------------------------------------------


def test_the_command_prints_what_prometheus_reads(edison: Edison, ran: Folder) -> None:
    done = edison(ran, "admin", "metrics")
    assert done.code == 0
    found = parsed(done.out)
    assert value(found, "edison_runs", experiment="support-reply", status="completed") == 2
    listed = json.loads(edison(ran, "admin", "metrics", "--json").out)["metrics"]
    assert len(listed) == len(found)
    assert {row["name"] for row in listed} == {name for name, _ in found}
    ran.write("experiments/hello.yaml", "experiment: [")
    assert edison(ran, "admin", "metrics").code == 0, "budgets are left out"


def test_rules_of_the_documentation_use_metrics_that_exist() -> None:
    text = (ROOT / "docs" / "operating.md").read_text("utf-8")
    known = {metric.name for metric in (*OF_PROJECT, *OF_SERVER)}
    (rules,) = (block for block in text.split("```") if "alert: Edison" in block)
    groups = yaml.safe_load(rules.partition("\n")[2])["groups"]
    found = [rule["expr"] for group in groups for rule in group["rules"]]
    used = {word for expr in found for word in _words(expr) if word.startswith("edison_")}
    assert len(used) >= 4
    assert used <= known | {f"{name}_{part}" for name in known for part in ("bucket", "count")}


def _words(text: str) -> list[str]:
    return "".join(c if c.isalnum() or c == "_" else " " for c in text).split()
