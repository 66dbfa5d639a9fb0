"""A day and a half of scheduled runs in a minute, while everything around them fails."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from benchmarks.soak_account import Account, Alert, Fire, RunRow, Seen, Spell, Told
from tests.conftest import ROOT
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.daily


PLANTED_HOURS = 39
"""After so many hours everything that is planted has happened: the last thing ends after 36."""


@pytest.mark.nightly
def test_a_day_of_kills_and_failing_servers_is_as_promised() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.soak", "--hours", str(PLANTED_HOURS), "--seed", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=5 * PATIENCE_S,  # it makes some 40 runs
    )
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    assert done.returncode == 0
    assert found["done"] + found["failed"] + found["missed"] + found["skipped"] == PLANTED_HOURS
    assert min(found[key] for key in ("failed", "missed", "skipped")) > 0
    assert found["kills_scheduler"] > 0
    assert found["kills_run"] > 0
    assert found["alerts"].keys() >= {"error_rate", "schedule_missed", "fire_skipped"}
    assert found["fall_found_hours"] is not None


# --- the account itself ---------------------------------------------------------------------------

HOURS = 6
_SPELLS = ("clock wrong", "budget too small", "model worse")


def quiet() -> Seen:
    """Return six hours in which the model got worse at the third, and all else went well."""
    seen = Seen(HOURS, 5, [Spell(what, -9, 1) for what in _SPELLS[:2]], 5)
    seen.spells.append(Spell("model worse", 3, 2))
    for hour in range(HOURS):
        due, end = (f"2026-03-01T{hour:02}:0{minute}:00.000Z" for minute in (0, 1))
        seen.fires[due] = Fire(due, due, 1, "done", f"run-{hour}", end, "")
        seen.runs.append(RunRow(f"run-{hour}", "COMPLETED", hour, 5))
        seen.told[f"id-{hour}"] = Told("sent", "run_completed", None)
        note = {"at": 3_600 * hour, "id": f"id-{hour}", "status": 200, "path": "/hook"}
        seen.hook.append(note)
        seen.memory.append((hour, 1, 50_000))
    seen.alerts.append(Alert("drop", "alert", 3.1, 5.1))
    return seen


def _lose(seen: Seen) -> None:
    fire = seen.fires.pop("2026-03-01T02:00:00.000Z")
    seen.runs = [row for row in seen.runs if row.id != fire.run_id]


def _double(seen: Seen) -> None:
    fire = seen.fires["2026-03-01T02:00:00.000Z"]
    seen.fires["again"] = fire._replace(due_at="2026-03-01T02:00:00.001Z", run_id="run-2b")
    seen.runs.append(RunRow("run-2b", "COMPLETED", 2, 5))


def _lose_a_cell(seen: Seen) -> None:
    seen.runs[1] = seen.runs[1]._replace(cells=4)


def _miss_without_alert(seen: Seen) -> None:
    due = "2026-03-01T02:00:00.000Z"
    seen.fires[due] = seen.fires[due]._replace(state="missed", run_id=None)
    del seen.runs[2]


def _alert_for_nothing(seen: Seen) -> None:
    seen.alerts.append(Alert("error_rate", "warn", 1, 2))


def _false_fall(seen: Seen) -> None:
    seen.alerts.append(Alert("slow_fall", "alert", 1, 2))


def _overlook_the_fall(seen: Seen) -> None:
    seen.alerts.clear()


def _lose_a_notification(seen: Seen) -> None:
    del seen.hook[2]


def _storm(seen: Seen) -> None:
    for n in range(11):
        seen.told[f"s-{n}"] = Told("sent", "run_completed", None)
        seen.hook.append({"at": 7_200 + n, "id": f"s-{n}", "status": 200, "path": "/hook"})


def _follow_a_redirect(seen: Seen) -> None:
    seen.hook[2]["path"] = "/elsewhere"


def _grow(seen: Seen) -> None:
    seen.memory = [(hour, 1, 50_000 + 10_000 * n) for n, (hour, _, _) in enumerate(seen.memory)]


def test_hours_that_went_well_are_as_promised() -> None:
    assert Account(quiet()).wrong == []


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_lose, "hours without a row: [2]"),
        (_double, "hours with two rows: [2]"),
        (_lose_a_cell, "runs that are not as their times say"),
        (_miss_without_alert, "schedule_missed: 1 causes"),
        (_alert_for_nothing, "error_rate: 0 causes"),
        (_false_fall, "false ALERTs"),
        (_overlook_the_fall, "the fall has not one ALERT"),
        (_lose_a_notification, "the webhook got others"),
        (_storm, "more in an hour than allowed"),
        (_follow_a_redirect, "a redirect was followed"),
        (_grow, "memory grew"),
    ],
)
def test_whatever_is_not_as_promised_is_found(spoil: Callable[[Seen], None], said: str) -> None:
    seen = quiet()
    spoil(seen)
    assert any(said in wrong for wrong in Account(seen).wrong)
