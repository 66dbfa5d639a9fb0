"""edison costs: sums, what is estimated, what was saved, and the limits."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from docs.sample import Sample
from edison_ci import utc
from edison_ci.records import Completion
from edison_ci.store.answers import Settlement
from edison_ci.store.database import open_database
from edison_ci.store.ledger import Reservation, reserve, settle
from tests.planted import Planted, plant

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

SCORES = [0.5, 1.0, 0.75]
LARGE, SMALL = 3 * 440, 3 * 88


def days_ago(days: int) -> str:
    return utc.timestamp(utc.now() - dt.timedelta(days=days))


@pytest.fixture
def ran(mini: Folder) -> Folder:
    """A project that bought answers 40 days and 3 days ago, and used some again today."""
    mini.write("models.yaml", mini.read("models.yaml") + "large: {provider: sim, model: large}\n")
    plant(
        mini,
        Planted("r1", days_ago(40), {"small": SCORES}, version="0" * 64),
        Planted("r2", days_ago(3), {"small": SCORES, "large": SCORES}),
        Planted("r3", days_ago(0), {"large": SCORES}),
    )
    return mini


def told(edison: Edison, folder: Folder, *args: str) -> dict[str, Any]:
    done = edison(folder, "costs", *args, "--json")
    assert (done.code, done.err) == (0, ""), done.all
    document = json.loads(done.out)
    assert isinstance(document, dict)
    return document


def test_days_are_added_up_with_what_reuse_saved(edison: Edison, ran: Folder) -> None:
    document = told(edison, ran)
    assert [row["key"] for row in document["rows"]] == [days_ago(3)[:10], days_ago(0)[:10]]
    assert [row["cost_microusd"] for row in document["rows"]] == [LARGE + SMALL, 0]
    assert [row["saved_microusd"] for row in document["rows"]] == [0, LARGE]
    total = document["total"]
    assert (total["cost_microusd"], total["calls"]) == (LARGE + SMALL, 6)
    assert (total["tokens_in"], total["tokens_out"]) == (240, 24)
    assert told(edison, ran, "--since", "60")["total"]["cost_microusd"] == LARGE + 2 * SMALL


@pytest.mark.parametrize(
    ("by", "rows"),
    [
        ("experiment", [("hello", LARGE + SMALL, LARGE)]),
        ("model", [("large", LARGE, LARGE), ("small", SMALL, 0)]),
        ("phase", [("generate", LARGE + SMALL, None)]),
    ],
)
def test_the_dearest_comes_first(
    edison: Edison, ran: Folder, by: str, rows: list[tuple[str, int, int | None]]
) -> None:
    found = told(edison, ran, "--by", by)["rows"]
    assert [(row["key"], row["cost_microusd"], row["saved_microusd"]) for row in found] == rows


def test_the_table_has_a_total_and_a_line_of_days(edison: Edison, ran: Folder) -> None:
    done = edison(ran, "costs")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].split() == [
        "day",
        "cost",
        "calls",
        "failed",
        *["tokens", "in", "tokens", "out", "saved"],
    ]
    assert lines[1].split() == [days_ago(3)[:10], "$0.0016", "6", "0", "240", "24", "$0"]
    assert lines[3].split() == ["total", "$0.0016", "6", "0", "240", "24", "$0.0013"]
    assert lines[4] == "reuse saved $0.0013 at the current prices"
    assert lines[5] == "each day  █▁▁▁  up to $0.0016"
    assert "each day  #___  up to" in edison(ran, "costs", encoding="ascii").out


def test_what_is_estimated_or_unknown_is_marked(edison: Edison, ran: Folder) -> None:
    now = days_ago(0)
    with closing(open_database(ran.path / ".edison/results.db")) as connection:
        sample = Sample(connection, "hello")
        sample.failed(sample.booking("r3", "lost", "small", now), charged=True)
        sample.failed(sample.booking("r3", "refused", "small", now), charged=False)
        booking = sample.booking("try-1", "unpriced", "small", now)
        outcome = reserve(booking)(connection)
        assert isinstance(outcome, Reservation)
        settle(booking, outcome.attempt, Settlement(Completion("x"), 900, "estimated", now))(
            connection
        )
    document = told(edison, ran, "--by", "experiment")
    rows = {row["key"]: row for row in document["rows"]}
    assert (rows["hello"]["unknown"], rows["hello"]["failed"]) == (1, 1)
    assert (rows["hello"]["unknown_microusd"], rows["hello"]["estimated_microusd"]) == (900, 900)
    assert document["total"]["cost_microusd"] == LARGE + SMALL + 1800
    done = edison(ran, "costs", "--by", "experiment")
    assert "\nhello       ~$0.0034" in done.out
    assert "~ $0.000900 of it is the most for 1 answer without usage; their tokens" in done.out
    assert "~ $0.000900 of it is the maximum cost of 1 call lost or in flight" in done.out


def test_projects_of_a_folder_are_added_up_by_project_team_and_month(
    edison: Edison, ran: Folder, mini: Folder
) -> None:
    for name, team in (("chat", "support"), ("faq", "support"), ("shop", "")):
        place = f"all/{name}"
        text = f"version: 1\nproject: {name}\n" + (f"team: {team}\n" if team else "")
        mini.write(f"{place}/edison.yaml", text)
        (mini.path / place / ".edison").mkdir()
        shutil.copy(ran.path / ".edison/results.db", mini.path / place / ".edison/results.db")
    mini.write("all/new/edison.yaml", "version: 1\nproject: new\n")
    mini.write("all/broken/edison.yaml", "version: 7\n")

    def rows(*args: str) -> list[tuple[str, int, int]]:
        done = edison(mini, "costs", "--projects", "all", *args, "--json")
        assert done.code == 0, done.all
        assert "broken is left out" in done.err
        document = json.loads(done.out)
        assert document["total"]["cost_microusd"] == 3 * one
        return [(row["key"], row["cost_microusd"], row["calls"]) for row in document["rows"]]

    one = LARGE + SMALL
    assert rows() == [("chat", one, 6), ("faq", one, 6), ("shop", one, 6)]
    assert rows("--by", "team") == [("support", 2 * one, 12), ("(no team)", one, 6)]
    assert rows("--by", "month")[0][0] == days_ago(3)[:7]
    assert rows("--by", "model") == [("large", 3 * LARGE, 9), ("small", 3 * SMALL, 9)]
    shown = edison(mini, "costs", "--projects", "all", "--by", "team").out.splitlines()
    assert shown[1].split() == ["support", "$0.0032", "12", "0", "480", "48"]
    assert shown[3].split() == ["total", "$0.0048", "18", "0", "720", "72"]
    alone = edison(mini, "costs", "--by", "team")
    assert (alone.code, "--by team needs --projects" in alone.err) == (2, True)
    missing = edison(mini, "costs", "--projects", "nowhere")
    assert (missing.code, "there is no folder" in missing.err) == (2, True)


def test_limits_say_how_much_of_them_is_booked(edison: Edison, ran: Folder) -> None:
    ran.edit(
        "edison.yaml", "project: mini\n", "project: mini\nsettings: {monthly_budget_usd: 0.01}\n"
    )
    text = ran.read("experiments/hello.yaml")
    stop = "stop: {budget_usd: 0.02, daily_budget_usd: 0.05, max_total_tokens: 1000}\n"
    ran.write("experiments/hello.yaml", text + stop)
    limits = {limit["name"]: limit for limit in told(edison, ran)["limits"]}
    monthly = limits["settings.monthly_budget_usd"]
    assert (monthly["spent"], monthly["limit"]) == (LARGE + SMALL, 10_000)
    assert limits["stop.budget_usd"]["of"] == "the last run of hello"
    assert limits["stop.budget_usd"]["spent"] == 0, "the last run used what was there"
    assert limits["stop.daily_budget_usd"]["limit"] == 50_000
    out = edison(ran, "costs").out
    assert "  16%  $0.0016 of $0.0100: the project in 30 days (settings.monthly_budget_usd)" in out
    assert "of 1,000 tokens: the last run of hello (stop.max_total_tokens)" in out


def test_nothing_spent_is_said(edison: Edison, mini: Folder) -> None:
    plant(mini, Planted("r1", days_ago(40), {"small": SCORES}))
    done = edison(mini, "costs", "--since", "7")
    assert (done.code, done.err.startswith("nothing was spent since 20")) == (0, True)
    assert told(edison, mini, "--since", "7")["rows"] == []
