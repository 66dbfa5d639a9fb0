"""edison leaderboard: ranks, ties, and what is left out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.store.database import open_database
from tests.opened import opened
from tests.planted import Planted, plant

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

CASES = 40
GOOD = [0.8 + 0.1 * (i % 2) for i in range(CASES)]
CLOSE = [0.8 + 0.1 * ((i + i // 5) % 2) for i in range(CASES)]
BAD = [0.3 + 0.1 * (i % 3) for i in range(CASES)]


@pytest.fixture
def ran(mini: Folder) -> Folder:
    """A project in which two models are alike and one is worse."""
    rows = (
        {"id": f"c{i}", "input": {"name": f"P{i}"}, "expected": f"P{i}", "tags": [f"t{i % 2}"]}
        for i in range(CASES)
    )
    mini.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    scores = {"small": BAD, "large": GOOD, "medium": CLOSE}
    plant(mini, Planted("r1", "2026-11-14T09:00:00Z", scores))
    return mini


def board(edison: Edison, folder: Folder, *args: str) -> dict[str, Any]:
    done = edison(folder, "leaderboard", *args, "--json")
    assert (done.code, done.err) == (0, ""), done.all
    (found,) = json.loads(done.out)["boards"]
    assert isinstance(found, dict)
    return found


def test_what_is_shown_is_told_from_what_is_a_tie(edison: Edison, ran: Folder) -> None:
    done = edison(ran, "leaderboard")
    assert (done.code, done.err) == (0, "")
    head, titles, first, second, third, *said = done.out.splitlines()
    assert head == "hello  3 rows from 1 complete run"
    assert titles.split() == [
        "rank", "model", "prompt", "score", "passed", "cost/answer", "latency",
    ]  # fmt: skip
    assert first.startswith("1-2   large   v1 (aaaaaaaa)  85.0 (83.")
    assert "$0.000440" in first, "44 tokens at 10 micro-dollars"
    assert "1,004 ms" in first
    assert second.startswith("1-2   medium  v1 (aaaaaaaa)  84.0 (82.")
    assert third.startswith("3     small   v1 (aaaaaaaa)  39.8 (37.")
    assert "33% of 40 (20 to 48)" in third
    assert said[0].startswith("shown  large over small: +45.3 points (likely +")
    assert said[0].endswith("on 40 cases, two-sided p < 0.001 for any difference")
    assert said[2].startswith("tie    large and medium: +1.0 points (likely -")
    assert said[3] == "3 comparisons were made; 2 stand out after correction for their number."


def test_the_document_carries_every_number(edison: Edison, ran: Folder) -> None:
    found = board(edison, ran)
    assert found["experiment"] == "hello"
    row = found["rows"][0]
    assert row["rank"] == {"best": 1, "worst": 2}
    assert row["prompt"] == {"id": "hello", "hash": "aaaaaaaa", "label": "v1"}
    assert (row["model"], row["run_id"], row["answers"]) == ("large", "r1", CASES)
    assert row["composite"]["n"] == row["pass_rate"]["n"] == CASES
    assert row["composite"]["low"] < row["composite"]["estimate"] < row["composite"]["high"]
    assert row["answer_cost_microusd"] == 440
    first = found["comparisons"][0]
    assert (first["better"], first["worse"], first["shown"]) == (0, 1, False)
    assert (first["n"], first["family"]) == (CASES, 3)
    assert first["p"] <= first["p_holm"]


def test_versions_of_different_runs_meet_on_the_same_cases(edison: Edison, ran: Folder) -> None:
    later = Planted("r2", "2026-11-15T09:00:00Z", {"small": GOOD}, version="c" * 64, label="v2")
    plant(ran, later)
    found = board(edison, ran)
    assert [(row["model"], row["prompt"]["label"]) for row in found["rows"]][:2] == [
        ("small", "v2"),
        ("large", "v1"),
    ]
    assert found["runs"] == 2
    assert len(found["comparisons"]) == 6


def test_a_version_counts_with_its_newest_complete_run(edison: Edison, ran: Folder) -> None:
    plant(
        ran,
        Planted("r2", "2026-11-15T09:00:00Z", {"small": GOOD}, simulated=True),
        Planted("r3", "2026-11-15T10:00:00Z", {"small": BAD}, complete=False),
    )
    rows = {row["model"]: row for row in board(edison, ran)["rows"]}
    assert (rows["small"]["run_id"], rows["small"]["simulated"]) == ("r2", True)
    assert rows["large"]["run_id"] == "r1"
    assert "simulated" in edison(ran, "leaderboard").out


def test_a_whole_run_goes_before_a_part_of_one(edison: Edison, ran: Folder) -> None:
    plant(ran, Planted("r2", "2026-11-15T09:00:00Z", {"small": GOOD[:5]}, partial=True))
    rows = {row["model"]: row for row in board(edison, ran)["rows"]}
    assert (rows["small"]["run_id"], rows["small"]["partial"]) == ("r1", False)


def test_the_base_of_a_comparison_is_a_version_too(edison: Edison, ran: Folder) -> None:
    run = Planted("r2", "2026-11-15T09:00:00Z", {"small": GOOD}, version="c" * 64, label="v2")
    plant(ran, Planted(**{**vars(run), "base": {"small": BAD}}))
    hashes = {row["prompt"]["hash"]: row for row in board(edison, ran)["rows"]}
    assert hashes["bbbbbbbb"]["prompt"]["label"] is None
    assert hashes["bbbbbbbb"]["rank"]["worst"] > hashes["cccccccc"]["rank"]["best"]


def test_a_base_has_the_label_that_an_earlier_run_gave_it(edison: Edison, ran: Folder) -> None:
    base = dict.fromkeys(("small", "large", "medium"), BAD)
    run = Planted("r2", "2026-11-15T09:00:00Z", {"small": GOOD}, base, "c" * 64, "a" * 64, "v2")
    plant(ran, run)
    labels = {row["prompt"]["hash"]: row["prompt"]["label"] for row in board(edison, ran)["rows"]}
    assert labels == {"aaaaaaaa": "v1", "cccccccc": "v2"}


def test_cases_that_were_changed_are_not_compared(edison: Edison, ran: Folder) -> None:
    later = {"version": "c" * 64, "label": "v2", "content": "other"}
    plant(ran, Planted("r2", "2026-11-15T09:00:00Z", {"small": GOOD}, **later))  # type: ignore[arg-type]  # texts
    found = board(edison, ran)
    assert len(found["rows"]) == 4
    assert len(found["comparisons"]) == 3, "those inside the first run"
    assert "3 pairs not compared: too few cases in common" in edison(ran, "leaderboard").out


def test_scores_by_another_yardstick_are_left_out_and_counted(edison: Edison, ran: Folder) -> None:
    told = {"objective": "o", "checks": [], "judges": {}, "prompts": [], "rubric": {"path": "r"}}
    snapshot = json.dumps({"experiments/hello.yaml": told, "r": {"criteria": ["Warmth"]}})
    plant(ran, Planted("r2", "2026-11-15T09:00:00Z", {"small": GOOD}, snapshot=snapshot))
    found = board(edison, ran)
    assert [row["run_id"] for row in found["rows"]] == ["r2"]
    assert found["left_out"]["graded_otherwise"] == 2
    said = edison(ran, "leaderboard").err
    assert "2 rows left out: graded with another rubric, checks or judges" in said


def test_a_tag_and_a_least_number_of_cases(edison: Edison, ran: Folder) -> None:
    found = board(edison, ran, "hello", "--tag", "t1")
    assert {row["composite"]["n"] for row in found["rows"]} == {CASES // 2}
    assert found["rows"][0]["answers"] == CASES // 2
    found = board(edison, ran, "--tag", "t1", "--min-cases", "21")
    assert (found["rows"], found["left_out"]["too_few_cases"]) == ([], 3)
    assert board(edison, ran, "--top", "2")["left_out"]["beyond_top"] == 1


def test_a_tag_that_no_case_has_is_an_error(edison: Edison, ran: Folder) -> None:
    done = edison(ran, "leaderboard", "--tag", "t7")
    assert (done.code, "no case has the tag 't7'" in done.err) == (2, True)


def test_cases_in_quarantine_and_errors_do_not_count(edison: Edison, ran: Folder) -> None:
    broken = [None, None, *GOOD[2:]]
    plant(ran, Planted("r2", "2026-11-15T09:00:00Z", {"large": broken}))
    aside = "{experiment: hello, case: c0, reason: flaky, since: 2026-01-01, until: 2027-01-01, "
    ran.write("quarantine.yaml", f"cases:\n  - {aside}owner: ada}}\n")
    done = edison(ran, "leaderboard")
    assert "1 missing" in done.out
    assert "1 case in quarantine left out" in done.err
    rows = {row["model"]: row for row in board(edison, ran)["rows"]}
    assert (rows["large"]["composite"]["n"], rows["small"]["composite"]["n"]) == (38, 39)


def test_clusters_widen_what_is_likely(edison: Edison, ran: Folder) -> None:
    before = board(edison, ran)["rows"][0]["composite"]
    with opened(ran.path / ".edison/results.db") as connection:
        connection.execute("update cell set cluster = 'd' || (substr(case_id, 2) % 2)")
    after = board(edison, ran)["rows"][0]["composite"]
    assert after["estimate"] == before["estimate"]
    assert after["high"] - after["low"] > 3 * (before["high"] - before["low"])


def test_names_from_results_are_made_harmless(edison: Edison, mini: Folder) -> None:
    plant(mini, Planted("r1", "2026-11-14T09:00:00Z", {"evil\x1b[2J\u202e": GOOD}))
    done = edison(mini, "leaderboard")
    assert done.code == 0
    assert "\x1b" not in done.out
    assert "\u202e" not in done.out


def test_it_reads_while_a_run_writes(edison: Edison, ran: Folder) -> None:
    writer = open_database(ran.path / ".edison/results.db")
    writer.execute("begin immediate")
    writer.execute("update run set status = 'FAILED'")
    assert len(board(edison, ran)["rows"]) == 3
    writer.execute("rollback")
    writer.close()


def test_without_a_complete_run_there_is_nothing_to_rank(edison: Edison, mini: Folder) -> None:
    plant(mini, Planted("r1", "2026-11-14T09:00:00Z", {"small": GOOD}, complete=False))
    done = edison(mini, "leaderboard")
    assert (done.code, done.out, done.err) == (0, "", "no complete run yet: edison run\n")
    assert edison(mini, "leaderboard", "hallo").code == 2
    assert "did you mean 'hello'?" in edison(mini, "leaderboard", "hallo").err


def test_a_real_run_gets_on_the_board(edison: Edison, mini: Folder) -> None:
    assert edison(mini, "run", "-q").code == 0
    found = board(edison, mini)
    assert (found["rows"][0]["model"], found["rows"][0]["simulated"]) == ("small", True)
    assert found["comparisons"] == []


def test_prices_of_simulated_models_let_budgets_gates_and_best_value_be_tried(
    edison: Edison, mini: Folder
) -> None:
    prices = (("small", "{in: 1, out: 4}"), ("large", "{in: 100, out: 400}"))
    entries = (f"{name}: {{provider: sim, model: {name}, price: {p}}}\n" for name, p in prices)
    mini.write("models.yaml", "".join(entries) + "judge: {provider: sim, model: judge}\n")
    mini.edit("experiments/hello.yaml", "[small]", "[small, large]")
    gate = "gates:\n  - {metric: cost_usd.mean, at_most: 0.0001}\n"
    mini.write(
        "experiments/hello.yaml", mini.read("experiments/hello.yaml").split("gates:")[0] + gate
    )
    assert edison(mini, "run", "--budget", "0.00001").code == 4, "the budget stops it"
    assert edison(mini, "run", "--json").code == 1
    (run,) = json.loads(edison(mini, "status", "latest", "--json").out)["runs"]
    gates = run["gates"]
    assert {gate["model"]: gate["verdict"] for gate in gates} == {"small": "pass", "large": "fail"}
    done = edison(mini, "leaderboard", "--recommend", "--json")
    (advice,) = json.loads(done.out)["experiments"]
    costs = {model["name"]: model["answer_cost_microusd"] for model in advice["models"]}
    assert 0 < 50 * costs["small"] < costs["large"]
    assert advice["best_value"] in costs
    assert "$" in edison(mini, "costs").out
