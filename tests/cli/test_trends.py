"""edison trends: series of runs, where they break, and what is called a drop."""

from __future__ import annotations

import datetime as dt
import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci import utc
from edison_ci.records import Verdict
from edison_ci.report.charts.trend import trend
from edison_ci.report.run_charts import trends_of
from edison_ci.results.decisions import GateRow, write_decisions
from edison_ci.results.trends import points_of
from edison_ci.store.database import open_database
from edison_ci.web.page_context import Args, Links, PageContext
from edison_ci.web.pages.experiment import experiment
from tests.planted import Planted, plant

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

CASES = 40


def scores(mean: float) -> list[float]:
    return [mean + 0.1 * (-1) ** i for i in range(CASES)]


def days_ago(days: float) -> str:
    return utc.timestamp(utc.now() - dt.timedelta(days=days))


def series(*means: float, fresh: bool = False) -> list[Planted]:
    """Return a run for each mean, the last one today, each a day after the one before."""
    return [
        Planted(f"r{n}", days_ago(len(means) - 1 - n), {"small": scores(mean)}, fresh=fresh)
        for n, mean in enumerate(means)
    ]


def told(edison: Edison, folder: Folder, *args: str) -> dict[str, Any]:
    done = edison(folder, "trends", *args, "--json")
    assert (done.code, done.err) == (0, ""), done.all
    (found,) = json.loads(done.out)["experiments"]
    assert isinstance(found, dict)
    return found


def test_runs_come_oldest_first_with_lines(edison: Edison, mini: Folder) -> None:
    plant(mini, *series(0.6, 0.7, 0.8))
    done = edison(mini, "trends")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "hello  3 whole runs in 30 days"
    assert "60.0 (56." in lines[2]
    assert "80.0 (76." in lines[4]
    assert lines[5].startswith("score        ▁▅█  60.0 to 80.0, now 80.0")
    assert lines[6].startswith("cost/answer  ▄▄▄  $0.000088 to $0.000088")
    assert lines[7].startswith("latency      ▄▄▄  204 ms to 204 ms")
    assert lines[8] == (
        "1 run since the last change; it takes 6 to detect drift. "
        "2 runs reused stored answers, which adds nothing."
    )


def test_the_document_has_the_numbers_of_each_run(edison: Edison, mini: Folder) -> None:
    plant(mini, *series(0.6, 0.7))
    found = told(edison, mini, "hello", "--days", "all")
    assert [run["run_id"] for run in found["runs"]] == ["r0", "r1"]
    first = found["runs"][0]
    assert (first["composite"]["n"], first["pass_rate"]["n"]) == (CASES, CASES)
    assert first["composite"]["low"] < 0.6 < first["composite"]["high"]
    assert (first["cost_microusd"], first["answer_cost_microusd"]) == (CASES * 88, 88)
    assert found["runs"][1]["cost_microusd"] == 0, "the same answers were used again"
    assert first["latency_ms"] == {"p50": 204, "p95": None}
    assert found["drift"]["alarm"] is None


def test_a_run_that_a_look_stopped_early_is_marked_everywhere(edison: Edison, mini: Folder) -> None:
    path = plant(mini, *series(0.6, 0.7, 0.8))
    interims = {"r0": ("cases", 40), "r1": ("cases", 20), "r2": ("repeats", 1)}
    most = {"cases": 40, "repeats": 3}
    with closing(open_database(path)) as connection:
        for run, (kind, at) in interims.items():
            for number in (1, 2):
                interim = {"kind": kind, "number": number, "of": 3, "alpha": 0.01}
                interim |= {"at": at * number // 2, "most": most[kind]}
                detail = {"interim": interim}
                row = GateRow("composite", None, None, Verdict.PASS, "fine", detail=detail)
                write_decisions(run, [row], now=days_ago(0))(connection)
    found = told(edison, mini)["runs"]
    assert [run["stopped_early"] for run in found] == [
        None,
        {"kind": "cases", "at": 20, "most": 40},
        {"kind": "repeats", "at": 1, "most": 3},
    ]
    rows = edison(mini, "trends").out.splitlines()[2:5]
    assert ["stopped early" in row for row in rows] == [False, True, True]
    assert rows[1].endswith("stopped early: 20 of 40 cases")
    assert edison(mini, "report", "r2", "--format", "html", "--out", "run.html").code == 0
    assert "r1, stopped early: 20 of 40 cases" in mini.read("run.html")
    with closing(open_database(path)) as connection:
        drawn = trend(trends_of(connection, points_of(connection, "hello"))[0])
    assert [row[-1] for row in drawn.table.rows] == [
        "",
        "stopped early: 20 of 40 cases",
        "stopped early: 1 of 3 repeats",
    ]


def test_a_sure_drop_is_an_alert(edison: Edison, mini: Folder) -> None:
    plant(mini, *series(0.8, 0.81, 0.8, 0.79, 0.8, 0.8, 0.6, fresh=True))
    drift = told(edison, mini)["drift"]
    assert (drift["alarm"], drift["runs_since_change"], drift["current_runs"]) == ("alert", 7, 1)
    assert drift["false_alarm_years"] >= 20
    assert drift["sentence"] == (
        "Quality 60, was 80 (5-run reference): -25%. "
        "Without a change, seen at most once in 20 years on average."
    )
    assert "ALERT  Quality 60, was 80" in edison(mini, "trends").out


def test_a_steady_series_is_called_steady(edison: Edison, mini: Folder) -> None:
    plant(mini, *series(0.8, 0.81, 0.8, 0.79, 0.8, 0.81, fresh=True))
    assert told(edison, mini)["drift"]["alarm"] == "none"
    shown = edison(mini, "trends").out
    assert "steady  Quality 81, was 80 (5-run reference): +1%, within the noise" in shown


def test_runs_that_reuse_answers_are_one_observation(edison: Edison, mini: Folder) -> None:
    """A low run that is repeated from stored answers is not seen more often by that."""
    plant(mini, *series(0.8, 0.81, 0.8, 0.79, 0.8, 0.8, fresh=True))
    before = told(edison, mini)["drift"]
    again = [Planted(f"again{n}", days_ago(-1 - n), {"small": scores(0.6)}) for n in range(3)]
    plant(mini, *again)
    after = told(edison, mini)["drift"]
    assert (after["runs_since_change"], after["runs_reused"]) == (6, 3)
    assert after["sentence"].endswith(" 3 runs reused stored answers, which adds nothing.")
    assert {**before, "runs_reused": 3, "sentence": after["sentence"]} == after


def test_cases_of_a_document_fall_together(edison: Edison, mini: Folder) -> None:
    """Four documents cannot show what forty cases can."""
    path = plant(mini, *series(0.8, 0.81, 0.8, 0.79, 0.8, 0.8, 0.6, fresh=True))
    with closing(open_database(path)) as connection:
        connection.execute("update cell set cluster = 'd' || (substr(case_id, 2) % 4)")
    assert told(edison, mini)["drift"]["alarm"] == "warn"


def test_a_fall_is_forecast_to_the_gate(edison: Edison, mini: Folder) -> None:
    mini.edit(
        "experiments/hello.yaml", "gates:\n", "gates:\n  - {metric: composite, at_least: 70%}\n"
    )
    falling = [0.82 - 0.008 * n + 0.002 * (-1) ** n for n in range(12)]
    plant(mini, *series(*falling, fresh=True))
    drift = told(edison, mini)["drift"]
    line = drift["trend"]
    assert line["slope_per_day"] == pytest.approx(-0.008, abs=0.0005)
    assert line["intercept"] == pytest.approx(0.82, abs=0.003)
    assert (line["n"], line["p"] < 0.001) == (12, True)
    assert drift["forecast"]["day"] is not None
    assert (
        "points a week (from 82, two-sided p < 0.001 for any trend); at this pace it reaches 70"
        in drift["sentence"]
    )


def test_a_change_starts_a_new_series(edison: Edison, mini: Folder) -> None:
    experiment = {"objective": "o", "checks": [], "gates": [], "prompts": ["p.md"]}
    old = {"e.yaml": experiment, "p.md": ["aa"], "the price of small": 1}
    new = {**old, "p.md": ["bb"]}
    dear = {**new, "the price of small": 2, "e.yaml": {**experiment, "gates": [1]}}
    found = []
    for n, (snapshot, plan) in enumerate([(old, "1"), (new, "2"), (dear, "3"), (dear, "4")]):
        text = json.dumps({**snapshot, "command line": n})
        one = Planted(f"r{n}", days_ago(4 - n), {"small": scores(0.7)}, snapshot=text)
        found.append(Planted(**{**vars(one), "plan_hash": plan}))
    plant(mini, *found)
    trend = told(edison, mini)
    assert [run["changed"] for run in trend["runs"]] == [[], ["p.md"], [], ["the cases"]]
    assert trend["drift"]["runs_since_change"] == 1
    assert [run["comparable"] for run in trend["runs"]] == [True, True, True, False]
    shown = edison(mini, "trends").out.splitlines()
    assert [line[:1] for line in shown[2:6]] == [" ", "+", " ", "*"]
    assert shown[3].endswith("new version: p.md")
    assert shown[5].endswith("changed: the cases")


def test_a_new_prompt_on_other_cases_or_beside_other_changes_does_not_compare(
    edison: Edison, mini: Folder
) -> None:
    experiment = {"objective": "o", "checks": [], "gates": [], "prompts": ["p.md"]}
    stricter = {**experiment, "checks": ["x"]}
    plant(
        mini,
        *(
            Planted(
                f"r{n}",
                days_ago(3 - n),
                {"small": scores(0.7)},
                snapshot=json.dumps({"e.yaml": file, "p.md": [str(n)]}),
                plan_hash=str(n),
                content=content,
            )
            for n, (file, content) in enumerate(
                [(experiment, "one"), (experiment, "two"), (stricter, "two")]
            )
        ),
    )
    runs = told(edison, mini)["runs"]
    assert [run["changed"] for run in runs] == [[], ["p.md"], ["e.yaml", "p.md"]]
    assert [run["comparable"] for run in runs] == [True, False, False]


def test_days_limit_what_is_shown(edison: Edison, mini: Folder) -> None:
    early = Planted("r0", days_ago(40), {"small": scores(0.6)})
    plant(mini, early, Planted("r1", days_ago(10), {"small": scores(0.7)}))
    assert [len(told(edison, mini, "--days", days)["runs"]) for days in ("7", "30", "all")] == [
        0, 1, 2,
    ]  # fmt: skip
    assert edison(mini, "trends", "--days", "7").out == "hello  0 whole runs in 7 days\n"


def test_parts_and_unfinished_runs_do_not_count(edison: Edison, mini: Folder) -> None:
    plant(
        mini,
        Planted("r0", days_ago(2), {"small": scores(0.6)}, partial=True),
        Planted("r1", days_ago(1), {"small": scores(0.7)}, complete=False),
        Planted("r2", days_ago(0), {"small": scores(0.7)}, simulated=True),
    )
    assert [run["run_id"] for run in told(edison, mini)["runs"]] == ["r2"]
    assert "simulated" in edison(mini, "trends").out


def test_real_runs_make_a_series(edison: Edison, mini: Folder) -> None:
    for _ in range(2):
        assert edison(mini, "run", "-q").code == 0
    found = told(edison, mini)
    assert len(found["runs"]) == 2
    assert found["runs"][1]["changed"] == []
    mini.edit("prompts/hello.md", "friendly", "kind")
    edison(mini, "run", "-q")
    assert "prompts/hello.md" in told(edison, mini)["runs"][2]["changed"]
    with closing(open_database(mini.path / ".edison/results.db")) as connection:
        interim = PageContext(
            connection=connection,
            path={"experiment": "hello"},
            args=Args({}),
            links=Links(str, "results", several=False),
            root=mini.path,
            now=utc.now(),
        )
        page = experiment(interim).values
        drawn = trend(trends_of(connection, points_of(connection, "hello"))[0])
    assert [point.changed for point in page["versions"]] == [("prompts/hello.md",)]
    assert page["changes"] == [], "a new version of a prompt is what the line is there to show"
    assert [row[-1] for row in drawn.table.rows] == ["", "", "new version: prompts/hello.md"]
