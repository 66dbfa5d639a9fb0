"""What runs show of an experiment: falls, errors, latency, and models and judges that changed."""

from __future__ import annotations

import datetime as dt
import tracemalloc
from typing import TYPE_CHECKING

import numpy as np
import pytest

from edison_ci.config.experiment import Alerts
from edison_ci.features.monitor.alert_rows import Condition, Finding, Level
from edison_ci.features.monitor.conditions import findings_of
from edison_ci.store.database import open_for_reading
from tests.features.monitor.run_history import History

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CASES = 50


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "results.db")


def scores(rng: np.random.Generator, level: float, cases: int = CASES) -> dict[str, float]:
    noise = rng.normal(0, 0.1, cases)
    own = np.linspace(-0.1, 0.1, cases)
    return {f"c{i:02}": float(x) for i, x in enumerate((level + own + noise).clip(0, 1))}


def filled(history: History, levels: Sequence[float]) -> History:
    rng = np.random.default_rng(4)
    for level in levels:
        history.add(scores(rng, level))
    return history


def found(history: History, **alerts: float) -> dict[Condition, Finding]:
    with open_for_reading(history.path) as connection:
        rows = findings_of(connection, history.experiment, Alerts.model_validate(alerts))
    assert all(row.experiment == history.experiment for row in rows)
    assert len({row.condition for row in rows}) == len(rows)
    return {row.condition: row for row in rows}


# --- falls ----------------------------------------------------------------------------------------


def test_steady_runs_show_nothing(history: History) -> None:
    assert found(filled(history, [0.8] * 20), predicted_below=0.7) == {}


@pytest.mark.nightly
def test_one_large_run_is_not_held_in_memory(history: History) -> None:
    cases = 5_000
    history.add({f"case-{number:08}": 0.5 for number in range(cases)})
    with open_for_reading(history.path) as connection:
        findings_of(connection, history.experiment, Alerts())  # imports and compiles
        tracemalloc.start()
        assert findings_of(connection, history.experiment, Alerts()) == []
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 60 * cases, "a name of each case alone would take more"


def test_without_enough_runs_there_is_nothing_to_compare(history: History) -> None:
    assert found(filled(history, [0.8])) == {}
    assert found(filled(history, [0.8] * 3 + [0.4])) == {}


def test_a_large_drop_is_an_alert_and_a_small_one_a_warning(history: History) -> None:
    large = found(filled(history, [0.8] * 10 + [0.6] * 2))
    assert [*large] == [Condition.DROP]
    assert large[Condition.DROP].level is Level.ALERT
    assert large[Condition.DROP].sentence.startswith("Quality 60 over the last 2 runs, was 80")
    assert large[Condition.DROP].detail["relative_drop"] == pytest.approx(0.25, abs=0.03)
    assert found(history, drop=0.5)[Condition.DROP].level is Level.WARN


def test_a_drop_below_the_share_that_matters_is_a_warning(history: History) -> None:
    small = found(filled(history, [0.8] * 10 + [0.75] * 4))
    assert small[Condition.DROP].level is Level.WARN


def test_more_years_between_false_alarms_need_more_evidence(history: History) -> None:
    rng = np.random.default_rng(4)
    for level in [0.8] * 10 + [0.69] * 2:
        history.add(scores(rng, level, 16))
    sure = found(history, false_alarm_years=5)[Condition.DROP]
    assert sure.level is Level.ALERT
    assert "seen at most once in 5 years on average" in sure.sentence
    unsure = found(history, false_alarm_years=1_000)[Condition.DROP]
    assert unsure.level is Level.WARN
    assert "seen at most once a quarter on average" in unsure.sentence


def test_a_slow_fall_is_named_so_and_is_no_drop_as_well(history: History) -> None:
    seen = found(filled(history, [0.85 - 0.008 * i for i in range(25)]))
    assert [*seen] == [Condition.SLOW_FALL]
    assert "Falling about" in seen[Condition.SLOW_FALL].sentence


def test_a_fall_is_predicted_to_pass_the_floor_with_its_interval(history: History) -> None:
    filled(history, [0.85 - 0.008 * i for i in range(25)])
    assert Condition.FORECAST not in found(history)
    ahead = found(history, predicted_below=0.6)[Condition.FORECAST]
    assert ahead.sentence.startswith("At this pace quality falls below 60.0 points around 2027-")
    assert "95% interval 2027-" in ahead.sentence
    low, day, high = (float(ahead.detail[key]) for key in ("low", "day", "high"))
    assert low <= day <= high
    assert Condition.FORECAST not in found(history, predicted_below=0.2)
    below = found(history, predicted_below=0.9)[Condition.FORECAST]
    assert below.sentence == "Quality fell to 72.5, below 90.0 points."


def test_runs_that_reuse_answers_are_no_evidence(history: History) -> None:
    rng = np.random.default_rng(4)
    for _ in range(10):
        history.add(scores(rng, 0.8))
    for _ in range(5):
        history.add(scores(rng, 0.4), reuse="run-010")
    assert found(history) == {}


# --- errors and latency ---------------------------------------------------------------------------


def failing(history: History, share: float, runs: int = 1, *, status: str = "COMPLETED") -> None:
    rng = np.random.default_rng(7)
    for _ in range(runs):
        fine = scores(rng, 0.8)
        names = sorted(fine)[: round(share * CASES)]
        errors = dict.fromkeys(names, "RATE_LIMIT")
        kept = {case: x for case, x in fine.items() if case not in errors}
        history.add(kept, errors=errors, status=status)


def test_many_errors_are_an_alert_at_once(history: History) -> None:
    failing(history, 0.3)
    seen = found(history)[Condition.ERROR_RATE]
    assert seen.level is Level.ALERT
    assert seen.sentence == (
        "15 of 50 calls failed in the newest run, 30% (limit 5%): 15 RATE_LIMIT."
    )
    assert found(history, error_rate=0.4) == {}


def test_a_few_errors_more_than_allowed_are_noise_in_one_run_and_not_in_many(
    history: History,
) -> None:
    failing(history, 0.08, 1)
    assert found(history) == {}
    failing(history, 0.08, 19)
    assert found(history)[Condition.ERROR_RATE].level is Level.WARN
    failing(history, 0.08, 40)
    assert found(history)[Condition.ERROR_RATE].level is Level.ALERT
    failing(history, 0.04)
    assert found(history) == {}


def test_a_run_that_failed_for_its_errors_shows_them(history: History) -> None:
    failing(history, 0.0, 3)
    failing(history, 0.6, status="FAILED")
    assert found(history)[Condition.ERROR_RATE].level is Level.ALERT


def test_calls_of_a_run_that_reached_nothing_are_errors(history: History) -> None:
    failing(history, 0.0, 3)
    history.unanswered([f"c{i:02}" for i in range(20)], "NETWORK: connection refused")
    seen = found(history)[Condition.ERROR_RATE]
    assert seen.level is Level.ALERT
    assert seen.sentence == (
        "20 of 20 calls failed in the newest run, 100% (limit 5%): 20 NETWORK."
    )


def test_calls_that_were_not_sent_are_no_errors(history: History) -> None:
    failing(history, 0.0, 3)
    history.unanswered([f"c{i:02}" for i in range(20)], "given up before it was sent")
    assert found(history) == {}


def test_unanswered_calls_of_one_cluster_count_once(history: History) -> None:
    history.clusters = {f"c{i:02}": "d" for i in range(CASES)}
    failing(history, 0.0, 3)
    history.unanswered([f"c{i:02}" for i in range(20)], "NETWORK: connection refused")
    assert found(history) == {}


def test_errors_of_one_cluster_count_once(history: History) -> None:
    failing(history, 0.3)
    assert Condition.ERROR_RATE in found(history)
    other = History(history.path.with_name("clustered.db"))
    names = [f"c{i:02}" for i in range(CASES)]
    other.clusters = {name: f"d{int(i >= 15)}" for i, name in enumerate(names)}
    failing(other, 0.3)
    assert found(other) == {}


def test_answers_that_are_too_slow_are_an_alert(history: History) -> None:
    fine = scores(np.random.default_rng(1), 0.8)
    history.add(fine, latency_ms=900)
    assert found(history) == {}
    assert found(history, latency_ms=1_000) == {}
    history.add(fine, latency_ms={case: 3_000 if case < "c20" else 900 for case in fine})
    seen = found(history, latency_ms=1_000)[Condition.LATENCY]
    assert seen.level is Level.ALERT
    assert seen.sentence == (
        "40% of 50 answers of the newest run took longer than 1,000 ms (at most 5% may)."
    )
    history.add(fine, reuse="run-002")
    assert found(history, latency_ms=1_000) == {}


# --- models and judges that changed ---------------------------------------------------------------


def test_a_model_that_is_served_under_another_name_is_a_warning_for_a_while(
    history: History,
) -> None:
    fine = scores(np.random.default_rng(1), 0.8)
    for _ in range(4):
        history.add(fine)
    assert found(history) == {}
    history.add(fine, served="model-2")
    seen = found(history)[Condition.MODEL_DRIFT]
    assert seen.level is Level.WARN
    assert seen.sentence == (
        "small is now served as model-2, was model-1. Scores before and after may differ."
    )
    for _ in range(19):
        history.add(fine, served="model-2")
    assert found(history) == {}


def graded_again(history: History, levels: Sequence[float]) -> None:
    """Grade the answers of the first run again, by a judge of this mind."""
    rng = np.random.default_rng(9)
    for level in levels:
        history.add(scores(rng, level), regrade="run-001")


@pytest.mark.parametrize("level", [0.6, 0.97])
def test_a_judge_that_grades_the_same_answers_otherwise_has_changed(
    history: History, level: float
) -> None:
    filled(history, [0.8] * 3)
    graded_again(history, [0.8] * 8)
    assert found(history) == {}
    graded_again(history, [level] * 2)
    seen = found(history)
    assert [*seen] == [Condition.JUDGE_DRIFT]
    judge = seen[Condition.JUDGE_DRIFT]
    assert judge.level is Level.ALERT
    assert "though the answers are the same: the judge changed." in judge.sentence


def test_anchor_answers_tell_whether_a_fall_is_that_of_the_model(history: History) -> None:
    filled(history, [0.8] * 10)
    graded_again(history, [0.8] * 6)
    filled(history, [0.6] * 2)
    drop = found(history)[Condition.DROP]
    assert drop.sentence.endswith(
        "The judges grade anchor answers as before: the model changed, not the judge."
    )
    graded_again(history, [0.6] * 3)
    drop = found(history)[Condition.DROP]
    assert drop.sentence.endswith("the judge changed.")


def test_times_of_runs_are_what_evidence_is_counted_in(tmp_path: Path) -> None:
    """The same runs within an hour are far less evidence than in a month."""
    levels = {}
    for name, step in (("days", dt.timedelta(days=1)), ("minutes", dt.timedelta(minutes=2))):
        history = History(tmp_path / f"{name}.db", step=step)
        rng = np.random.default_rng(4)
        for level in [0.8] * 10 + [0.69] * 2:
            history.add(scores(rng, level, 16))
        seen = found(history, false_alarm_years=1).get(Condition.DROP)
        levels[name] = None if seen is None else seen.level
    assert levels == {"days": Level.ALERT, "minutes": None}
