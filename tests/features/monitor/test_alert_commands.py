"""edison alerts: what it prints, its JSON, and its exit codes."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING

import pytest

from docs.sample import build
from edison_ci.access.site import open_site
from edison_ci.features.monitor.alert_rows import Condition, Finding, Level
from edison_ci.features.monitor.alerts import raise_alert
from edison_ci.store.database import open_for_change

if TYPE_CHECKING:
    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily


@pytest.fixture
def ran(mini: Folder) -> Folder:
    """A project with results of the experiment hello."""
    (mini.path / ".edison").mkdir()
    build(mini.path / ".edison/results.db")
    mini.git("config", "--global", "user.email", "ada@example.org")
    with sqlite3.connect(mini.path / ".edison/results.db") as connection:
        connection.execute("update run set experiment = 'hello'")
    connection.close()
    return mini


def opened(folder: Folder, level: Level) -> None:
    site = open_site(folder.path)
    with open_for_change(site.results) as connection:
        said = "A run was missed at 02:00 UTC."
        finding = Finding(Condition.SCHEDULE_MISSED, level, said, "hello")
        raise_alert(connection, site, finding)


@pytest.mark.parametrize(
    ("level", "fail_on", "code"),
    [
        (None, "warn", 0),
        (Level.WARN, "alert", 0),
        (Level.WARN, "warn", 1),
        (Level.ALERT, "alert", 1),
        (Level.ALERT, "warn", 1),
        (Level.ALERT, "never", 0),
    ],
)
def test_the_exit_code_of_a_check_says_what_is_open(
    edison: Edison, ran: Folder, level: Level | None, fail_on: str, code: int
) -> None:
    if level is not None:
        opened(ran, level)
    assert edison(ran, "alerts", "check", "--fail-on", fail_on).code == code
    document = json.loads(edison(ran, "alerts", "check", "--fail-on", fail_on, "--json").out)
    assert document["exit_code"] == code


def test_what_is_acknowledged_still_fails_and_what_is_muted_does_not(
    edison: Edison, ran: Folder
) -> None:
    opened(ran, Level.ALERT)
    assert edison(ran, "alerts", "ack", "1").out == "alert 1 is acknowledged by ada@example.org\n"
    assert edison(ran, "alerts", "check").code == 1
    assert edison(ran, "alerts", "mute", "1").code == 0
    assert edison(ran, "alerts", "check").code == 0
    assert edison(ran, "alerts", "mute", "1", "--off").code == 0
    assert edison(ran, "alerts", "check").code == 1


def test_an_alert_is_listed_with_its_sentence_and_who_takes_care(
    edison: Edison, ran: Folder
) -> None:
    assert edison(ran, "alerts", "list").out == "no open alert\n"
    opened(ran, Level.WARN)
    edison(ran, "alerts", "ack", "1", "--note", "on it")
    edison(ran, "alerts", "mute", "hello", "--for", "2h", "--reason", "move")
    done = edison(ran, "alerts", "list")
    first, second, third = done.out.splitlines()
    assert first == "  1  WARN   hello: schedule missed"
    assert second.strip() == "A run was missed at 02:00 UTC."
    assert "; acknowledged by ada@example.org: on it; muted" in third
    assert "by ada@example.org: all alerts of hello: move" in done.err


def test_lists_are_documents(edison: Edison, ran: Folder) -> None:
    opened(ran, Level.ALERT)
    edison(ran, "alerts", "mute", "1", "--reason", "move")
    document = json.loads(edison(ran, "alerts", "list", "hello", "--json").out)
    (alert,), (muted,) = document["alerts"], document["mutes"]
    assert list(alert) == [
        "number", "condition", "experiment", "level", "state", "sentence", "detail", "run_id",
        "opened_at", "seen_at", "closed_at", "closed_why", "acknowledged_by", "acknowledged_at",
        "note", "muted_until",
    ]  # fmt: skip
    assert (alert["condition"], alert["level"], alert["state"]) == (
        "schedule_missed", "alert", "muted",
    )  # fmt: skip
    assert alert["muted_until"] == muted["until"]
    assert (muted["experiment"], muted["condition"], muted["by"], muted["reason"]) == (
        "hello", "schedule_missed", "ada@example.org", "move",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("ack", "5"), "there is no alert 5"),
        (("ack", "x"), "'x' is not a valid integer"),
        (("mute", "5"), "there is no alert 5"),
        (("mute", "helo"), "no run of an experiment 'helo' is stored"),
        (("list", "helo"), "did you mean 'hello'?"),
        (("mute", "hello", "--for", "2y"), "'2y' is not a time such as 30m, 12h, 7d or 2w"),
        (("mute", "hello", "--for", "60w"), "60w is longer than 365d"),
        (("mute", "hello", "--off"), "all alerts of hello is not muted"),
    ],
)
def test_what_cannot_be_done_is_said(
    edison: Edison, ran: Folder, args: tuple[str, ...], said: str
) -> None:
    done = edison(ran, "alerts", *args)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_without_results_there_is_nothing_to_check(edison: Edison, mini: Folder) -> None:
    done = edison(mini, "alerts", "check")
    assert done.code == 2
    assert "there are no results yet" in done.err


# --- after a run ----------------------------------------------------------------------------------


def test_a_run_opens_and_closes_alerts_by_itself(edison: Edison, mini: Folder) -> None:
    names = [f"name{i}" for i in range(12)]
    rows = ({"id": name, "input": {"name": name}, "expected": name} for name in names)
    mini.write("datasets/names.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    start = mini.read("experiments/hello.yaml")
    mini.write("experiments/hello.yaml", f"{start}alerts: {{latency_ms: 1}}\n")
    done = edison(mini, "run")
    assert "ALERT latency: 100% of 12 answers" in done.err
    assert "see: edison alerts list" in done.err
    assert edison(mini, "alerts", "list").out.startswith("  1  ALERT  hello: latency")
    mini.write("experiments/hello.yaml", start)
    done = edison(mini, "run", "--no-cache")
    assert "alert 1 is closed" in done.err
    assert edison(mini, "alerts", "list").out == "no open alert\n"


def judge_calls(folder: Folder) -> int:
    with sqlite3.connect(folder.path / ".edison/results.db") as connection:
        sql = "select count(*) from attempt where phase = 'judge'"
        found = connection.execute(sql).fetchone()[0]
    connection.close()
    return int(found)


def test_a_run_becomes_an_anchor_when_its_judges_are_asked_again(
    edison: Edison, mini: Folder
) -> None:
    edison(mini, "run")
    asked = judge_calls(mini)
    assert edison(mini, "regrade", "--json").code == 0
    assert judge_calls(mini) == asked
    assert edison(mini, "regrade", "--no-cache", "--json").code == 0
    assert judge_calls(mini) == 2 * asked
    done = edison(mini, "regrade", "--no-cache", "--failed")
    assert (done.code, "--no-cache grades a whole run again" in done.err) == (2, True)
