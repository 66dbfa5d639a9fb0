"""edison import production: samples graded as runs of their own, and told apart in trends."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.features.monitor.production_trend import production_trend
from edison_ci.results.trends import drift_of, points_of
from edison_ci.store.database import open_database
from tests.cli.test_trends import days_ago, scores
from tests.features.monitor.test_schedule_commands import started
from tests.planted import Planted, plant

if TYPE_CHECKING:
    from edison_ci.features.monitor.production_trend import ProductionTrend
    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily

STEADY = (0.8, 0.81, 0.8, 0.79, 0.8, 0.8, 0.81, 0.79, 0.8, 0.8, 0.81, 0.8, 0.79, 0.8)
FALLING = (*STEADY[:10], 0.6, 0.59, 0.6, 0.61)


@pytest.fixture
def watched(mini: Folder) -> Folder:
    """A project whose experiment grades a sample of production."""
    text = mini.read("experiments/hello.yaml")
    mini.write(
        "experiments/hello.yaml", f'{text}\nproduction: {{files: "logs/*.jsonl", sample: 6}}\n'
    )
    return mini


def log(folder: Folder, *texts: str, day: int = 1) -> None:
    rows = [
        {
            "input": {"name": f"guest {n} of {day}"},
            "text": text,
            "time": f"2026-11-{day:02d}T10:{n:02d}:00Z",
            "latency_ms": 300,
        }
        for n, text in enumerate(texts)
    ]
    folder.write(f"logs/{day}.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))


def ask(folder: Folder, sql: str) -> list[tuple[Any, ...]]:
    with closing(open_database(folder.path / ".edison/results.db")) as connection:
        return connection.execute(sql).fetchall()


def test_a_sample_becomes_a_run_of_its_own_that_no_gate_decides(
    edison: Edison, watched: Folder
) -> None:
    log(watched, *(f"Hello, guest {n}!" for n in range(10)))
    done = edison(watched, "import", "production", "--yes")
    assert done.code == 0, done.all
    assert "10 new answers in 1 file: 6 answers sampled" in done.err
    assert ask(watched, "select trigger, status, complete, experiment from run") == [
        ("production", "COMPLETED", 1, "hello")
    ]
    assert ask(watched, "select count(*) from decision") == [(0,)]
    bought = "select count(*) from attempt where phase = 'generate' and state = 'settled'"
    assert ask(watched, f"{bought} and cost_microusd > 0") == [(0,)], "no answer is bought"
    assert ask(watched, "select count(*) from cell where model = 'production'") == [(6,)]
    again = edison(watched, "import", "production", "--yes")
    assert (again.code, again.err) == (0, "0 new answers in 1 file: nothing to grade\n")
    assert ask(watched, "select count(*) from run") == [(1,)]


def test_a_sample_is_no_evidence_of_the_project_and_its_question_is_shown(
    edison: Edison, watched: Folder
) -> None:
    log(watched, *(f"Hello, guest {n}!" for n in range(3)))
    assert edison(watched, "import", "production", "--yes").code == 0
    assert edison(watched, "leaderboard").err == "no complete run yet: edison run\n"
    (cell,) = ask(watched, "select id from cell order by id limit 1")[0]
    shown = edison(watched, "explain", cell).out
    assert "guest" in shown
    run = ask(watched, "select id from run")[0][0]
    for command in (("resume", run), ("regrade", run)):
        refused = edison(watched, *command)
        assert refused.code == 2, refused.all
        assert "edison import production hello" in refused.err


def test_without_the_key_or_anything_to_grade_with_it_is_refused(
    edison: Edison, mini: Folder
) -> None:
    refused = edison(mini, "import", "production")
    assert (refused.code, "has no `production`" in refused.err) == (2, True)


def test_a_broken_row_grades_nothing(edison: Edison, watched: Folder) -> None:
    watched.write("logs/a.jsonl", '{"input": "x", "text": "y"}\nnot json\n')
    refused = edison(watched, "import", "production", "--yes")
    assert (refused.code, "logs/a.jsonl:2" in refused.err) == (2, True)
    assert not (watched.path / ".edison/results.db").exists()


def test_a_scheduled_run_grades_a_sample_after_the_dataset(watched: Folder) -> None:
    text = watched.read("experiments/hello.yaml")
    watched.write(
        "experiments/hello.yaml", f'{text}schedule: [{{name: often, cron: "*/5 * * * *"}}]\n'
    )
    log(watched, *(f"Hello, guest {n}!" for n in range(4)))
    done = started(watched, "often", "--now")
    assert done.returncode == 0, done.stderr
    triggers = ask(watched, "select trigger, status from run order by rowid")
    assert triggers == [("schedule", "COMPLETED"), ("production", "COMPLETED")]


def test_a_sample_that_cannot_be_read_does_not_fail_the_scheduled_run(watched: Folder) -> None:
    text = watched.read("experiments/hello.yaml")
    watched.write(
        "experiments/hello.yaml", f'{text}schedule: [{{name: often, cron: "*/5 * * * *"}}]\n'
    )
    watched.write("logs/a.jsonl", "not json\n")
    done = started(watched, "often", "--now")
    assert done.returncode == 0, done.stderr
    assert ask(watched, "select trigger, status from run") == [("schedule", "COMPLETED")]


# --- told apart -----------------------------------------------------------------------------------


def trend_of(
    folder: Folder, production: tuple[float, ...], golden: tuple[float, ...], language: str = "en"
) -> ProductionTrend:
    """Plant daily samples and runs; the samples after the tenth are in another language."""
    for n, mean in enumerate(production):
        one = Planted(f"p{n}", days_ago(16 - n), {"production": scores(mean)}, fresh=True,
                      content=f"sample {n}")  # fmt: skip
        plant(folder, one)
    path = plant(
        folder,
        *(
            Planted(f"g{n}", days_ago(16 - n - 0.1), {"small": scores(mean)}, fresh=True)
            for n, mean in enumerate(golden)
        ),
    )
    with closing(open_database(path)) as connection:
        connection.execute("update run set trigger = 'production' where id like 'p%'")
        connection.execute(
            "insert into run_case select distinct run_id, case_id, json_array('length:S', "
            "'language:' || iif(substr(run_id, 2) + 0 > 9, ?, 'en')), null, 'golden', 9 "
            "from cell where run_id like 'p%'",
            (language,),
        )
        drift = drift_of(connection, points_of(connection, "hello"))
        found = production_trend(connection, "hello", drift)
    assert found is not None
    return found


def test_where_the_dataset_is_steady_the_traffic_changed(mini: Folder) -> None:
    found = trend_of(mini, FALLING, STEADY, language="de")
    assert found.alarm != "none"
    assert "over the last 4 samples, was 80" in found.sentence
    assert "The dataset is steady: the traffic changed, not the model." in found.sentence
    assert "Of the questions, language de went from 0% to 100% (p" in found.sentence
    assert [shift.category for shift in found.shifts] == ["language de"]


def test_a_fall_of_production_is_a_warn_until_a_complete_run_without_it(
    edison: Edison, mini: Folder
) -> None:
    trend_of(mini, (*FALLING, 0.6, 0.6), (*STEADY, 0.8, 0.8))
    edison(mini, "alerts", "check")
    found = json.loads(edison(mini, "alerts", "list", "--json").out)["alerts"]
    assert [(each["condition"], each["level"]) for each in found] == [("production", "warn")]
    assert "the traffic changed, not the model" in found[0]["sentence"]


@pytest.mark.nightly
def test_where_both_fall_the_model_changed(mini: Folder) -> None:
    found = trend_of(mini, FALLING, FALLING)
    assert "The dataset falls too: the model or the prompt answers worse." in found.sentence
    assert "Lengths and languages of the questions are as before." in found.sentence


@pytest.mark.nightly
def test_where_only_the_dataset_falls_production_holds(mini: Folder) -> None:
    found = trend_of(mini, STEADY, FALLING)
    assert found.alarm == "none"
    assert "Production holds: what falls in the dataset is rare in the traffic." in found.sentence


@pytest.mark.nightly
def test_where_nothing_falls_nothing_is_said_of_a_change(edison: Edison, mini: Folder) -> None:
    found = trend_of(mini, STEADY, STEADY)
    assert (
        found.sentence == "Production scores 80.0, was 80.0: no fall that 14 samples are sure of."
    )
    shown = edison(mini, "trends")
    assert found.sentence in shown.out
    told = json.loads(edison(mini, "trends", "--json").out)["experiments"][0]["production"]
    assert (len(told["samples"]), told["alarm"], told["traffic"]) == (14, "none", [])


def test_few_samples_are_said_to_be_few(mini: Folder) -> None:
    found = trend_of(mini, (0.8, 0.7), STEADY)
    assert (
        found.sentence
        == "2 samples of production since the last change; it takes 6 to detect drift."
    )
