"""Answers are compared in a run, and who is preferred is shown with what to be careful about."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.opened import opened

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

HELLO = "experiments/hello.yaml"
FIRST = json.dumps({"winner": "first", "reason": "it comes first"})
CASES = 12


@pytest.fixture
def rivals(mini: Folder) -> Folder:
    """Twelve cases, two models with different answers, and a judge that likes the shorter one."""
    rows = (
        {"id": f"c{i:02}", "input": {"name": f"Person {i:02}"}, "expected": f"Person {i:02}"}
        for i in range(CASES)
    )
    mini.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    mini.write("long.jsonl", '{"match": "", "text": "Good morning and welcome, dear friend!"}\n')
    mini.write("short.jsonl", '{"match": "", "text": "Hello!"}\n')
    judge(mini, {"match": "/data:first [0-9a-f]+>\\nHello/", "text": FIRST}, says("second"))
    mini.write(
        "models.yaml",
        "small: {provider: sim, model: script, options: {file: short.jsonl}}\n"
        "big: {provider: sim, model: script, options: {file: long.jsonl},"
        " params: {temperature: 0.5}}\n"
        "other: {provider: sim, model: script, options: {file: long.jsonl},"
        " params: {temperature: 0.6}}\n"
        "pair: {provider: sim, model: script, options: {file: judge.jsonl},"
        " params: {temperature: 0.1}}\n"
        "judge: {provider: sim, model: judge}\n",
    )
    mini.edit(HELLO, "models: [small]", "models: [small, big]")
    mini.edit(HELLO, "judges: {pointwise: [judge]}", "judges: {pairwise: {by: pair}}")
    mini.edit(HELLO, "rubric: rubrics/tone.yaml\n", "")
    return mini


def judge(folder: Folder, *lines: dict[str, Any]) -> None:
    folder.write("judge.jsonl", "".join(json.dumps(line) + "\n" for line in lines))


def says(winner: str, reason: str = "so") -> dict[str, Any]:
    return {"match": "", "text": json.dumps({"winner": winner, "reason": reason})}


def run_of(edison: Edison, folder: Folder, *args: str, code: int = 0) -> dict[str, Any]:
    done = edison(folder, *(args or ("run",)), "--json")
    assert done.code == code, done.all
    (found,) = json.loads(done.out)["runs"]
    assert isinstance(found, dict)
    return found


def rows(folder: Folder, sql: str) -> list[tuple[Any, ...]]:
    with opened(folder.path / ".edison/results.db") as connection:
        return connection.execute(sql).fetchall()


def test_models_that_differ_in_options_only_have_answers_of_their_own(
    edison: Edison, rivals: Folder
) -> None:
    rivals.edit("models.yaml", " params: {temperature: 0.5}", "")
    run_of(edison, rivals)
    found = rows(
        rivals,
        "select distinct c.model, t.text from cell c join answer_text t "
        "on t.request_hash = c.request_hash and t.answer_no = c.answer_no order by 1",
    )
    assert found == [("big", "Good morning and welcome, dear friend!"), ("small", "Hello!")]


# --- who is compared with whom --------------------------------------------------------------------


def test_every_model_is_compared_with_the_first_in_both_orders(
    edison: Edison, rivals: Folder
) -> None:
    rivals.edit(HELLO, "[small, big]", "[small, big, other]")
    run = run_of(edison, rivals)
    assert [(m["a"]["model"], m["b"]["model"]) for m in run["head_to_head"]] == [
        ("big", "small"),
        ("other", "small"),
    ]
    match = run["head_to_head"][0]
    assert match["win_rate"]["estimate"] == 0
    assert (match["won"], match["lost"], match["tied"]) == (0, CASES, 0)
    assert (match["preference"], match["judge"]) == ("b_better", "pair")
    assert match["order_effect"]["consistency"] == 1
    assert match["order_effect"]["warn"] is False
    asked = rows(rivals, "select count(*), sum(asked), sum(status = 'ok') from comparison")
    assert asked == [(2 * CASES, 2 * CASES, 2 * CASES)]


def test_all_pairs_adds_the_others_and_equal_answers_cost_nothing(
    edison: Edison, rivals: Folder
) -> None:
    rivals.edit(HELLO, "[small, big]", "[small, big, other]")
    rivals.edit(HELLO, "{by: pair}", "{by: pair, all_pairs: true}")
    run = run_of(edison, rivals)
    pairs = {(m["a"]["model"], m["b"]["model"]): m for m in run["head_to_head"]}
    assert set(pairs) == {("big", "small"), ("other", "small"), ("other", "big")}
    same = pairs["other", "big"]
    assert (same["tied"], same["win_rate"]["estimate"]) == (CASES, 0.5)
    assert same["order_effect"] is None
    assert same["win_rate"]["low"] < 0.5 < same["win_rate"]["high"]
    shown = edison(rivals, "status", "latest").out
    matrix = [line.split() for line in shown.splitlines() if line.startswith("    ")]
    assert ["big", "0-12-0"] in matrix
    assert ["other", "0-12-0", "0-0-12"] in matrix
    # Two models say the same, so that they are compared with the first in the same calls.
    asked = "select sum(calls) from spending where phase = 'pairwise'"
    assert rows(rivals, asked) == [(2 * CASES,)]


def test_head_is_compared_with_base(edison: Edison, rivals: Folder) -> None:
    rivals.write(".gitignore", ".edison/\n")
    rivals.edit(HELLO, "models: [small, big]", "models: [small]")
    rivals.edit(
        HELLO,
        "gates:\n",
        "gates:\n  - {metric: win_rate, no_worse_than: base, margin: 5pp}\n",
    )
    rivals.git("init", "--quiet", "--initial-branch=main")
    rivals.git("add", "--all")
    rivals.git("commit", "--quiet", "--message", "start")
    rivals.write(
        "short.jsonl",
        '{"match": "Greet", "text": "Good day to you all"}\n{"match": "", "text": "Hello!"}\n',
    )
    rivals.edit("prompts/hello.md", "Say hello to", "Greet")
    run = run_of(edison, rivals, "run", "--against", "main", code=1)
    (match,) = run["head_to_head"]
    assert (match["a"]["side"], match["b"]["side"]) == ("head", "base")
    assert (match["won"], match["lost"]) == (0, CASES)
    wins = next(gate for gate in run["gates"] if gate["metric"] == "win_rate")
    assert (wins["verdict"], wins["estimate"], wins["n"]) == ("fail", 0.0, CASES)
    assert wins["p_holm"] <= 0.05
    compared = json.loads(
        edison(rivals, "compare", "main", "latest", "--experiment", "hello", "--json").out
    )
    assert compared["head_to_head"]["lost"] == CASES
    assert "A preferred in 100%" in edison(rivals, "compare", "main", "latest").out


# --- through the same layer as all calls ----------------------------------------------------------


def test_a_plan_counts_comparisons_and_a_second_run_pays_for_none(
    edison: Edison, rivals: Folder
) -> None:
    before = json.loads(edison(rivals, "plan", "--json").out)["experiments"][0]
    assert before["by_phase"]["pairwise"]["calls"] == 2 * CASES
    first = run_of(edison, rivals)
    after = json.loads(edison(rivals, "plan", "--json").out)["experiments"][0]
    assert after["calls"] == {"to_make": 0, "reused": first["calls"]["made"]}
    again = run_of(edison, rivals)
    assert again["calls"]["made"] == 0
    assert again["head_to_head"] == first["head_to_head"]
    regraded = run_of(edison, rivals, "regrade", "latest")
    assert regraded["calls"]["made"] == 0
    assert regraded["head_to_head"] == first["head_to_head"]


def test_the_tokens_of_comparisons_are_in_the_sum(edison: Edison, rivals: Folder) -> None:
    run = run_of(edison, rivals)
    (total,) = rows(rivals, "select sum(tokens_in), sum(tokens_out) from answer")
    assert (run["tokens"]["in"], run["tokens"]["out"]) == total


# --- what the judge is worth ----------------------------------------------------------------------

GOLDEN = """\
  small preferred in 100% (likely 74 to 100) of 12 cases, ties counted half. Judge agreed with \
itself after swapping on 100%.
    big against small: won 0, lost 12, tied 0; compared by pair
"""


def test_the_summary_says_who_is_preferred(edison: Edison, rivals: Folder) -> None:
    done = edison(rivals, "run")
    assert GOLDEN in done.out, done.out
    assert GOLDEN in edison(rivals, "status", "latest").out
    assert "careful" not in done.out


def test_a_judge_that_always_says_first_has_said_nothing(edison: Edison, rivals: Folder) -> None:
    judge(rivals, says("first"))
    run = run_of(edison, rivals)
    (match,) = run["head_to_head"]
    assert match["win_rate"]["estimate"] == 0.5
    assert match["tied"] == CASES
    assert match["order_effect"]["estimate"] == 0.5
    assert match["order_effect"]["consistency"] == 0
    (warning,) = match["warnings"]
    assert warning == (
        "this judge follows position on 10 of 10 cases: it prefers what it reads first "
        "(order effect +50 points)"
    )
    assert f"careful: {warning}" in edison(rivals, "status", "latest").out


@pytest.mark.nightly
def test_the_bias_of_a_simulated_judge_is_found(edison: Edison, support: Folder) -> None:
    name = "experiments/support-reply.yaml"
    support.edit(name, "models: [small]", "models: [small, large]")
    support.edit(name, "  pointwise: [judge]", "  pairwise: {by: pair}\n  pointwise: [judge]")
    models = support.read("models.yaml")
    biased = (
        "pair: {provider: sim, model: judge, options: {position_bias: 0.35},"
        " params: {temperature: 0.2}}\n"
    )
    support.write("models.yaml", models + biased)
    run = run_of(edison, support, "run", "--limit", "50")
    (match,) = run["head_to_head"]
    order = match["order_effect"]
    assert order["warn"] is True
    assert order["estimate"] > 0.15
    assert order["p"] <= 0.05
    assert any("it prefers what it reads first" in warning for warning in match["warnings"])


def test_a_judge_that_judges_its_own_answers_is_named(edison: Edison, rivals: Folder) -> None:
    judge(rivals, {"match": "/data:first [0-9a-f]+>\\nGood/", "text": FIRST}, says("second"))
    own = "pair: {provider: sim, model: script, options: {file: judge.jsonl}"
    assert own in rivals.read("models.yaml")
    run = run_of(edison, rivals)
    (match,) = run["head_to_head"]
    # Every model of this project is `sim/script`: both answers are the judge's own.
    assert match["self_preference"] is None
    rivals.edit(
        "models.yaml", "small: {provider: sim, model: script", "small: {provider: sim, model: small"
    )
    run = run_of(edison, rivals)
    (match,) = run["head_to_head"]
    assert match["self_preference"]["win_rate"] == 1
    assert match["self_preference"]["n"] == CASES
    assert any("pair compares its own answers" in said for said in match["warnings"])


def test_a_preference_for_long_answers_is_measured(edison: Edison, rivals: Folder) -> None:
    lines = [
        json.dumps({"match": f"Person {i:02}", "text": "word " * (i % 4 + 1)}) + "\n"
        for i in range(CASES)
    ]
    rivals.write("long.jsonl", "".join(lines))
    rivals.write("short.jsonl", '{"match": "", "text": "word and word"}\n')
    judge(
        rivals,
        {"match": "/data:first [0-9a-f]+>\\n(word ){3,}\\n/", "text": FIRST},
        {"match": "/data:second [0-9a-f]+>\\n(word ){3,}\\n/", **_text("second")},
        {"match": "/data:first [0-9a-f]+>\\nword and/", "text": FIRST},
        says("second"),
    )
    (match,) = run_of(edison, rivals)["head_to_head"]
    assert match["length_effect"]["estimate"] > 0.3
    assert match["length_effect"]["warn"] is True
    assert any("prefers longer answers" in said for said in match["warnings"])


def _text(winner: str) -> dict[str, str]:
    return {"text": json.dumps({"winner": winner})}


# --- what is missing ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply",
    [
        "The first answer is better, because it is longer.",
        '{"winner": "A", "reason": "letters"}',
        '{"winner": ["first", "second"]}',
        '{"winner": "first"} or rather {"winner": "second"}',
        '{"winner": "' + "x" * 1_000_000 + '"}',
        "\x1b[2J\x1b]0;title\x07{",
        "",
    ],
    ids=["prose", "letters", "list", "two", "a megabyte", "control", "empty"],
)
def test_a_hostile_judge_decides_nothing(edison: Edison, rivals: Folder, reply: str) -> None:
    judge(rivals, {"match": "", "text": reply})
    run = run_of(edison, rivals, code=3)
    assert run["verdict"] == "error"
    (match,) = run["head_to_head"]
    assert match["win_rate"]["estimate"] is None
    assert match["excluded"] == CASES
    assert match["sentence"].startswith("No case was judged in both orders.")
    shown = edison(rivals, "status", "latest")
    assert "\x1b" not in shown.out
    assert edison(rivals, "admin", "db", "check").code == 0


def test_one_usable_reply_out_of_two_orders_is_missing_not_a_tie(
    edison: Edison, rivals: Folder
) -> None:
    judge(
        rivals,
        {"match": "/Person 0[0-4](?s:.)*data:first [0-9a-f]+>\\nHello/", "text": "no idea"},
        {"match": "/data:first [0-9a-f]+>\\nHello/", "text": FIRST},
        says("second"),
    )
    (match,) = run_of(edison, rivals)["head_to_head"]
    assert (match["win_rate"]["n"], match["excluded"]) == (7, 5)
    assert "5 cases could not be compared in both orders." in match["sentence"]
    assert "very few cases" in match["warnings"]


def test_blocked_and_failed_answers_are_missing_and_a_malformed_one_loses(
    edison: Edison, rivals: Folder
) -> None:
    lines = [
        {"match": "Person 00", "text": "", "error": "CONTENT_FILTER"},
        {"match": "Person 01", "text": "call me at jane.doe@example.com"},
        {"match": "Person 02", "text": "no tags"},
        {"match": "", "text": "<response>Good morning and welcome</response>"},
    ]
    rivals.write("long.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    rivals.write("short.jsonl", '{"match": "", "text": "<response>Hello!</response>"}\n')
    rivals.edit("prompts/hello.md", "id: hello\n", "id: hello\nexpect: response\n")
    rivals.write(HELLO, rivals.read(HELLO) + "safety: {pii: block}\n")
    (match,) = run_of(edison, rivals)["head_to_head"]
    assert match["excluded"] == 2
    assert match["win_rate"]["n"] == CASES - 2
    unasked = rows(rivals, "select case_id, winner, ab_reason from head_to_head where asked = 0")
    assert unasked == [("c02", "b", "the other answer is malformed")]
    assert match["order_effect"]["n"] == CASES - 3


# --- gates and explanations -----------------------------------------------------------------------


def test_a_floor_is_about_the_models_that_are_held_against_the_first(
    edison: Edison, rivals: Folder
) -> None:
    rivals.edit(HELLO, "gates:\n", "gates:\n  - {metric: win_rate, at_least: 40%}\n")
    run = run_of(edison, rivals, code=1)
    wins = {gate["model"]: gate for gate in run["gates"] if gate["metric"] == "win_rate"}
    assert wins["big"]["verdict"] == "fail"
    assert "misses the floor of 40%" in wins["big"]["sentence"]
    assert wins["small"]["verdict"] == "skipped"
    assert wins["small"]["sentence"] == "small is listed first: the others are compared with it."


def test_a_gate_without_comparisons_says_so(edison: Edison, rivals: Folder) -> None:
    rivals.edit(HELLO, "models: [small, big]", "models: [small]")
    rivals.edit(HELLO, "gates:\n", "gates:\n  - {metric: win_rate, at_least: 40%}\n")
    assert "one model has no rival" in edison(rivals, "plan").out
    run = run_of(edison, rivals)
    assert run["head_to_head"] == []
    (gate,) = (gate for gate in run["gates"] if gate["metric"] == "win_rate")
    assert gate["verdict"] == "inconclusive"
    assert gate["sentence"] == "No answers of this run were compared head to head."


def test_explain_shows_both_orders_from_either_side(edison: Edison, rivals: Folder) -> None:
    run_of(edison, rivals)
    winner = json.loads(edison(rivals, "explain", "c00@small", "--json").out)["head_to_head"]
    loser = json.loads(edison(rivals, "explain", "c00@big", "--json").out)["head_to_head"]
    assert [(r["model"], r["preferred"]) for r in winner] == [("big", True)]
    assert [(r["model"], r["preferred"]) for r in loser] == [("small", False)]
    assert [order["winner"] for order in winner[0]["orders"]] == ["this", "this"]
    assert [order["shown"] for order in loser[0]["orders"]] == ["first", "second"]
    shown = edison(rivals, "explain", "c00@small").out
    assert "--- against big, by pair\npreferred\n" in shown
    assert "shown first: this one; it comes first" in shown


def test_the_leaderboard_ranks_by_preference_beside_the_scores(
    edison: Edison, rivals: Folder
) -> None:
    rivals.edit(HELLO, "[small, big]", "[small, big, other]")
    run_of(edison, rivals)
    board = json.loads(edison(rivals, "leaderboard", "--json").out)["boards"][0]
    ranked = board["preferences"]
    assert ranked["judge"] == "pair"
    assert ranked["simulated"] is True
    assert [row["model"] for row in ranked["rows"]] == ["small", "big", "other"]
    best = ranked["rows"][0]
    assert best["rank"]["best"] == 1
    assert best["elo_like"]["low"] < best["elo_like"]["estimate"] < best["elo_like"]["high"]
    assert ranked["rows"][1]["beats_baseline"] < 0.5
    assert ranked["rows"][1]["rank"]["worst"] == 3, "big and other were never told apart"
    shown = edison(rivals, "leaderboard")
    assert "head to head, by pair: Davidson" in shown.out
    assert "beats small" in shown.out
