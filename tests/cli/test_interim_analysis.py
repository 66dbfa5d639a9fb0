"""edison run --against looks several times where a gate asks for it, and stops when it is clear."""

from __future__ import annotations

import json
import re
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests import holding
from tests.cli.conftest import every
from tests.opened import opened
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    import subprocess

    from tests.cli.conftest import Edison, Kept
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

WRITE, COMPOSE = "Write a reply to this customer.", "Compose a reply to this customer."
GIVE = "Give a reply to this customer."
GOOD = f"{WRITE} Quote the shop policy exactly, apologise, and use at most 80 words."
GATE = "margin: 10pp}"
CASES = 94
HALF = 48
Looked = tuple["Folder", dict[str, Any]]


def commit(shop: Folder) -> None:
    shop.git("add", "--all")
    shop.git("commit", "--quiet", "--message", "next")


def without_clusters(shop: Folder) -> None:
    golden = shop.read("datasets/golden.jsonl")
    shop.write("datasets/golden.jsonl", re.sub(r', "cluster": "[^"]*"', "", golden))


@pytest.fixture
def shop(support: Folder) -> Folder:
    """The customer-support project in a repository."""
    support.write(".gitignore", ".edison/results.db*\n.edison/locks/\n.edison/snapshots/\n")
    support.git("init", "--quiet", "--initial-branch=main")
    commit(support)
    return support


@pytest.fixture
def repeats(shop: Folder) -> Folder:
    """A change of one word, and a gate that asks for more repeats: the second look is clear."""
    assert every(2, shop) == HALF
    shop.edit("experiments/support-reply.yaml", GATE, "margin: 10pp, if_unclear: more_repeats}")
    commit(shop)
    shop.edit("prompts/support-reply.md", WRITE, GIVE)
    return shop


@pytest.fixture
def sampled(shop: Folder) -> Folder:
    """A change that takes several batches of cases to tell, each a cluster of its own."""
    without_clusters(shop)
    shop.edit("experiments/support-reply.yaml", "stop: {", "stop: {adaptive_sampling: true, ")
    shop.edit("experiments/support-reply.yaml", GATE, "margin: 6pp}")
    commit(shop)
    shop.edit("prompts/support-reply.md", WRITE, COMPOSE)
    return shop


@pytest.fixture
def looked(edison: Edison, repeats: Folder, kept: Kept) -> Looked:
    """The project of `repeats` after its run, made once, and what the run told."""

    def make() -> None:
        done = edison(repeats, "run", "--against", "main", "--json")
        assert done.code == 0, done.all
        (run,) = json.loads(done.out)["runs"]
        repeats.write(".edison/told.json", json.dumps(run))
        repeats.write(".edison/said.txt", done.err)

    kept.begin("looked", repeats, make)
    return repeats, json.loads(repeats.read(".edison/told.json"))


def told(edison: Edison, shop: Folder, *words: str) -> tuple[int, dict[str, Any]]:
    done = edison(shop, *(words or ("run", "--against", "main")), "--json")
    (run,) = json.loads(done.out)["runs"]
    return done.code, run


def gate(run: dict[str, Any], metric: str = "composite") -> dict[str, Any]:
    return next(row for row in run["gates"] if row["metric"] == metric)


def ask(shop: Folder, sql: str) -> list[tuple[Any, ...]]:
    with opened(shop.path / ".edison/results.db") as connection:
        return connection.execute(sql).fetchall()


def comparable(run: dict[str, Any]) -> dict[str, Any]:
    """Return what of a run does not depend on when, and in how many pieces, it was made."""
    kept = ("verdict", "status", "composite", "against", "gates", "cells", "interim", "models")
    found = {name: run[name] for name in kept}
    for model in found["models"]:
        model.pop("cost_microusd")
        model.pop("components")  # their sd depends, in its last digit, on the order of the cells
    return found


# --- more repeats
# -----------------------------------------------------------------------------------


def test_more_repeats_are_taken_until_it_is_clear(looked: Looked) -> None:
    repeats, run = looked
    row = gate(run)
    assert (run["verdict"], row["verdict"]) == ("pass", "pass")
    assert row["sentence"].endswith("Clear at interim analysis 2 of 3, at 2 repeats a case.")
    interims = [
        (interim["number"], interim["at"], round(interim["alpha"], 4))
        for interim in row["detail"]["interim_history"]
    ]
    assert interims == [(1, 1, 0.0015), (2, 2, 0.0181)]
    assert [interim["verdict"] for interim in row["detail"]["interim_history"]] == [
        "inconclusive",
        "pass",
    ]
    assert run["cells"]["total"] == run["cells"]["ok"] == 4 * HALF
    assert run["interim"] == {
        "kind": "repeats", "number": 2, "of": 3, "at": 2, "most": 3, "sentence": None
    }  # fmt: skip
    stored = ask(repeats, "select round, count(*) from decision group by round")
    assert stored == [(0, 4), (1, 4)], "both looks are kept"


def test_gates_without_more_repeats_are_decided_once_at_the_first_look(looked: Looked) -> None:
    repeats, run = looked
    assert gate(run, "pass_rate")["n"] == HALF
    assert f" of {HALF} passed" in gate(run, "pass_rate")["sentence"], "one repeat a case, not two"
    rounds = ask(repeats, "select distinct sentence from decision where metric = 'pass_rate'")
    assert len(rounds) == 1


@pytest.mark.nightly
def test_what_is_clear_at_once_takes_no_more_repeats(edison: Edison, repeats: Folder) -> None:
    repeats.edit("experiments/support-reply.yaml", "margin: 10pp", "margin: 25pp")
    repeats.git("commit", "--quiet", "--message", "wider", "experiments")
    repeats.edit("prompts/support-reply.md", GIVE, GOOD)
    _, run = told(edison, repeats)
    assert gate(run)["sentence"].endswith("Clear at interim analysis 1 of 3, at 1 repeat a case.")
    assert run["cells"]["total"] == 2 * HALF


def test_after_three_looks_it_is_neutral(edison: Edison, repeats: Folder) -> None:
    repeats.edit("experiments/support-reply.yaml", "margin: 10pp", "margin: 1pp")
    repeats.git("stash", "push", "--quiet", "prompts")
    commit(repeats)
    repeats.git("stash", "pop", "--quiet")
    done = edison(repeats, "run", "--against", "main", "--json", "--limit", "20")
    (run,) = json.loads(done.out)["runs"]
    assert (done.code, run["verdict"]) == (0, "inconclusive")
    assert gate(run)["sentence"].endswith(
        "Still not clear at interim analysis 3 of 3, at 3 repeats a case."
    )
    assert "interim analysis 1 of 3: not clear yet, continuing with 2 repeats per case" in done.err
    assert "interim analysis 2 of 3: not clear yet, continuing with 3 repeats per case" in done.err
    assert ask(repeats, "select side, repeat, count(*) from cell group by 1, 2") == [
        (side, repeat, 20) for side in ("base", "head") for repeat in range(3)
    ]


@pytest.mark.nightly
def test_a_run_killed_between_two_looks_goes_on_to_the_same_result(
    edison: Edison, looked: Looked
) -> None:
    repeats, whole = looked
    (repeats.path / ".edison/results.db").unlink()
    process = held_run(repeats)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    assert ask(repeats, "select max(round) from decision") == [(0,)]
    before = ask(repeats, "select sentence, decided_at from decision where round = 0")

    code, run = told(edison, repeats, "resume")
    assert code == 0
    kept = ("verdict", "gates", "interim", "cells")
    assert {name: run[name] for name in kept} == {name: whole[name] for name in kept}
    assert ask(repeats, "select sentence, decided_at from decision where round = 0") == before


@pytest.mark.nightly
def test_a_signal_between_two_looks_pauses_and_resume_goes_on(
    edison: Edison, repeats: Folder
) -> None:
    process = held_run(repeats)
    process.send_signal(signal.SIGINT)
    holding.heard(process, "stopping:")
    holding.let_go(repeats)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert ask(repeats, "select status, stopped_by from run") == [("PAUSED", "SIGINT")]
    code, run = told(edison, repeats, "resume")
    assert (code, run["verdict"], run["interim"]["number"]) == (0, "pass", 2)


@pytest.mark.nightly
def test_a_run_can_be_cancelled_between_two_looks(edison: Edison, repeats: Folder) -> None:
    process = held_run(repeats)
    holding.stopped(repeats, process, "cancel")
    process.communicate(timeout=PATIENCE_S)
    assert ask(repeats, "select status, max(round) from run join decision on run_id = id") == [
        ("CANCELLED", 0)
    ]
    assert edison(repeats, "resume").code == 2


def held_run(shop: Folder) -> subprocess.Popen[str]:
    """Start a run whose models answer no more once the first look has been taken."""
    said = "interim analysis 1 of 3: not clear yet"
    process = holding.start(shop, "run", "--against", "main", calls=3, after=said)
    holding.heard(process, said)
    return process


def stopped_after_the_first_look(shop: Folder, status: str) -> None:
    """Put the results back to where a process died after its first look."""
    with opened(shop.path / ".edison/results.db") as connection:
        connection.execute("pragma foreign_keys = 0")
        connection.execute(
            "update run set status = ?, owner = 'gone', verdict = null, complete = 0", (status,)
        )
        connection.execute("delete from decision where round > 0")
        for table, key in (("component", "cell_id"), ("judgment", "cell_id"), ("cell", "id")):
            later = "select id from cell where repeat > 0"
            connection.execute(f"delete from {table} where {key} in ({later})")


@pytest.mark.parametrize("status", ["AGGREGATING", "EXECUTING"])
def test_a_look_that_was_stored_is_neither_repeated_nor_lost(
    edison: Edison, looked: Looked, status: str
) -> None:
    repeats, whole = looked
    stopped_after_the_first_look(repeats, status)
    with opened(repeats.path / ".edison/results.db") as connection:
        connection.execute("drop trigger decision_is_kept")
        connection.execute("update decision set decided_at = 'then'")
    code, run = told(edison, repeats, "resume")
    assert (code, comparable(run)) == (0, comparable(whole))
    times = ask(repeats, "select round, decided_at = 'then' from decision group by round")
    assert times == [(0, 1), (1, 0)]
    assert run["calls"]["made"] == whole["calls"]["made"], "nothing is bought twice"


def test_a_run_killed_after_its_last_look_ends_as_it_was_decided(
    edison: Edison, looked: Looked
) -> None:
    repeats, whole = looked
    with opened(repeats.path / ".edison/results.db") as connection:
        connection.execute(
            "update run set status = 'AGGREGATING', owner = 'gone', verdict = null, complete = 0"
        )
    code, run = told(edison, repeats, "resume")
    assert (code, comparable(run)) == (0, comparable(whole))
    assert ask(repeats, "select max(round) from decision") == [(1,)]


@pytest.mark.nightly
def test_a_budget_that_ends_after_the_first_look_pauses_and_can_be_raised(
    edison: Edison, repeats: Folder
) -> None:
    price = "model: small, price: {in: 1, out: 1}, params: {max_tokens: 500}"
    repeats.edit("models.yaml", "model: small", price)
    repeats.git("stash", "push", "--quiet", "prompts")
    commit(repeats)
    repeats.git("stash", "pop", "--quiet")
    done = edison(repeats, "run", "--against", "main", "--json", "--budget", "0.03")
    (run,) = json.loads(done.out)["runs"]
    assert (done.code, run["status"], run["verdict"]) == (4, "PAUSED", None)
    assert ask(repeats, "select max(round) from decision") == [(0,)], "the first look was taken"
    assert run["cells"]["total"] == 4 * HALF
    code, run = told(edison, repeats, "resume", "--budget", "5")
    assert (code, run["status"]) == (0, "COMPLETED")
    assert run["interim"]["number"] == ask(repeats, "select max(round) from decision")[0][0] + 1 > 1


@pytest.mark.nightly
def test_only_what_is_unclear_gets_more_repeats(edison: Edison, repeats: Folder) -> None:
    """The second prompt is the same on both sides, and clear at the first interim analysis."""
    repeats.git("stash", "push", "--quiet", "prompts")
    text = repeats.read("prompts/support-reply.md")
    repeats.write("prompts/second.md", text.replace("id: support-reply", "id: second"))
    repeats.edit(
        "experiments/support-reply.yaml",
        "[prompts/support-reply.md]",
        "[prompts/support-reply.md, prompts/second.md]",
    )
    commit(repeats)
    repeats.git("stash", "pop", "--quiet")
    _, run = told(edison, repeats)
    counted = ask(repeats, "select prompt, max(repeat) + 1, count(*) from cell group by prompt")
    assert counted == [("second", 1, 2 * HALF), ("support-reply", 2, 4 * HALF)]
    assert run["cells"]["total"] == 6 * HALF
    assert {row["verdict"] for row in run["gates"] if row["metric"] == "composite"} == {"pass"}


def test_a_shard_is_not_looked_at(edison: Edison, repeats: Folder) -> None:
    _, run = told(edison, repeats, "run", "--against", "main", "--shard", "1/2")
    assert run["interim"] is None
    assert ask(repeats, "select max(repeat) from cell") == [(0,)]


def test_gate_goes_through_the_looks_again(edison: Edison, looked: Looked) -> None:
    repeats, run = looked
    again = json.loads(edison(repeats, "compare", "--gates", "--json").out)
    assert [row["sentence"] for row in again["gates"]] == [r["sentence"] for r in run["gates"]]


def test_explain_says_at_which_look_a_cell_was_asked_for(edison: Edison, looked: Looked) -> None:
    repeats, _ = looked
    (case,) = ask(repeats, "select case_id from cell limit 1")[0]
    for repeat, number in ((0, 1), (1, 2)):
        cell = f"{case}@small#{repeat}"
        assert (
            json.loads(edison(repeats, "explain", cell, "--json").out)["interim"]["number"]
            == number
        )
        assert (
            f"asked for before interim analysis {number} of 3"
            in edison(repeats, "explain", cell).out
        )


@pytest.mark.nightly
def test_regrading_looks_as_often_as_was_looked(edison: Edison, looked: Looked) -> None:
    repeats, run = looked
    _, graded = told(edison, repeats, "regrade", "latest")
    assert [r["sentence"] for r in graded["gates"]] == [r["sentence"] for r in run["gates"]]


# --- adaptive sampling ----------------------------------------------------------------------------


def test_sampling_stops_when_it_is_clear(edison: Edison, sampled: Folder) -> None:
    sampled.edit("prompts/support-reply.md", COMPOSE, GOOD)
    code, run = told(edison, sampled)
    at = run["interim"]["at"]
    assert (code, run["verdict"]) == (0, "pass")
    assert 0 < at < CASES
    saved = f"{100 * (1 - at / CASES):.0f}%"
    assert run["interim"]["sentence"] == (
        f"Stopped after {at} of 94 cases: already clear (early-stopping corrected). "
        f"Saved about {saved} of the cost."
    )
    assert run["cells"] == {"total": 2 * at, "ok": 2 * at, **_none()}
    assert (run["partial"], run["status"]) == (False, "COMPLETED")
    assert gate(run)["detail"]["method"] == "sequential test (e-values), valid at every look"
    shown = edison(sampled, "status", "latest").out
    assert run["interim"]["sentence"] in shown


def _none() -> dict[str, int]:
    return dict.fromkeys(("malformed", "error", "blocked", "skipped"), 0)


def test_a_worse_prompt_fails_before_all_cases_are_asked(edison: Edison, sampled: Folder) -> None:
    sampled.edit("prompts/support-reply.md", COMPOSE, GOOD)
    commit(sampled)
    sampled.edit("prompts/support-reply.md", GOOD, "Say no.")
    code, run = told(edison, sampled)
    assert (code, run["verdict"]) == (1, "fail")
    assert run["interim"]["at"] < CASES
    assert gate(run)["p_holm"] <= 0.05


@pytest.mark.nightly
def test_an_undecided_end_stays_undecided(edison: Edison, sampled: Folder) -> None:
    """The fixed rule would pass these cases; it is not applied to them."""
    sampled.edit("experiments/support-reply.yaml", "margin: 6pp}", "margin: 7pp}")
    sampled.edit("prompts/support-reply.md", COMPOSE, WRITE)
    commit(sampled)
    sampled.edit("prompts/support-reply.md", WRITE, COMPOSE)
    code, run = told(edison, sampled)
    row = gate(run)
    assert (code, row["verdict"], run["interim"]["at"]) == (0, "inconclusive", CASES)
    assert run["interim"]["sentence"] == (
        "Still not clear after 94 of 94 cases (early-stopping corrected)."
    )
    assert len(row["detail"]["interim_history"]) == run["interim"]["number"] > 3
    sampled.edit("experiments/support-reply.yaml", "adaptive_sampling: true, ", "")
    fixed = edison(sampled, "run", "--against", "main", "--json")
    row = gate(json.loads(fixed.out)["runs"][-1])
    assert row["verdict"] == "pass", row["sentence"]


@pytest.mark.nightly
def test_a_sampled_run_goes_on_where_it_was_killed(edison: Edison, sampled: Folder) -> None:
    _, whole = told(edison, sampled)
    assert whole["interim"]["number"] > 2
    with opened(sampled.path / ".edison/results.db") as connection:
        connection.execute("pragma foreign_keys = 0")
        connection.execute(
            "update run set status = 'EXECUTING', owner = 'gone', verdict = null, complete = 0"
        )
        last = "select max(round) from decision"
        connection.execute(f"delete from decision where round >= ({last}) - 1")
        gone = "select id from cell order by rowid desc limit 45"
        for table, key in (("component", "cell_id"), ("judgment", "cell_id"), ("cell", "id")):
            connection.execute(f"delete from {table} where {key} in ({gone})")
    code, run = told(edison, sampled, "resume")
    assert (code, comparable(run)) == (0, comparable(whole))


def test_cases_are_taken_in_random_order_and_clusters_stay_together(
    edison: Edison, sampled: Folder
) -> None:
    sampled.edit("prompts/support-reply.md", COMPOSE, GOOD)
    told(edison, sampled)
    files = ("datasets/golden.jsonl", "datasets/adversarial.jsonl")
    rows = [json.loads(line) for name in files for line in sampled.read(name).splitlines()]
    known = {row["id"]: row.get("cluster") for row in rows}
    taken = {case for (case,) in ask(sampled, "select distinct case_id from cell")}
    assert list(known)[: len(taken)] != sorted(taken), "never the first ones first"
    clusters = {known[case] for case in taken if known[case]}
    assert {case for case, cluster in known.items() if cluster in clusters} <= taken


def test_identical_prompts_need_no_sampling(edison: Edison, sampled: Folder) -> None:
    sampled.edit("prompts/support-reply.md", COMPOSE, WRITE)
    _, run = told(edison, sampled)
    assert run["interim"]["number"] == 1
    assert gate(run)["sentence"].startswith("Nothing to compare: identical outputs")


@pytest.mark.nightly
def test_a_budget_pauses_sampling_and_resume_goes_on(edison: Edison, sampled: Folder) -> None:
    price = "model: small, price: {in: 1, out: 1}, params: {max_tokens: 500}"
    sampled.edit("models.yaml", "model: small", price)
    sampled.git("stash", "push", "--quiet", "prompts")
    commit(sampled)
    sampled.git("stash", "pop", "--quiet")
    done = edison(sampled, "run", "--against", "main", "--json", "--budget", "0.03")
    (run,) = json.loads(done.out)["runs"]
    assert (done.code, run["status"]) == (4, "PAUSED")
    interims = ask(sampled, "select max(round) from decision")
    code, run = told(edison, sampled, "resume", "--budget", "5")
    assert code == 0
    assert run["interim"]["number"] > interims[0][0] + 1


# --- what is said before --------------------------------------------------------------------------


def test_the_plan_says_the_range_of_calls(edison: Edison, looked: Looked) -> None:
    repeats, _ = looked
    (repeats.path / ".edison/results.db").unlink()
    done = edison(repeats, "plan")
    said = "with --against both sides are run: 192 calls before the first interim analysis, "
    said += "at most 576"
    assert f"{said} (more_repeats)" in done.out
    (plan,) = json.loads(edison(repeats, "plan", "--json").out)["experiments"]
    assert plan["interim"] == {"kind": "repeats", "calls": {"low": 192, "high": 576}}
    said = repeats.read(".edison/said.txt")
    assert "48 cases, 96 cells; 192 to 576 calls (more_repeats)" in said, "and the run"


def test_the_plan_of_sampling_starts_at_one_batch(edison: Edison, sampled: Folder) -> None:
    (plan,) = json.loads(edison(sampled, "plan", "--json").out)["experiments"]
    assert plan["interim"] == {"kind": "cases", "calls": {"low": 80, "high": 376}}


# --- several prompts ------------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_prompt_that_falls_behind_is_told_and_nothing_else(edison: Edison, shop: Folder) -> None:
    text = shop.read("prompts/support-reply.md")
    for name, said in (("good", GOOD), ("plain", COMPOSE)):
        new = text.replace("id: support-reply", f"id: {name}").replace(WRITE, said)
        shop.write(f"prompts/{name}.md", new)
    prompts = "[prompts/support-reply.md, prompts/good.md, prompts/plain.md]"
    shop.edit("experiments/support-reply.yaml", "[prompts/support-reply.md]", prompts)
    every(2, shop)
    _, run = told(edison, shop, "run")
    weak = {one["prompt"]: one for one in run["weak_prompts"]}
    assert set(weak) == {"support-reply", "plain"}
    assert {one["best"] for one in weak.values()} == {"good"}
    assert weak["plain"]["level"] == 0.05
    shown = edison(shop, "status", "latest").out
    assert weak["plain"]["sentence"] in shown
    assert "good would" not in shown
    shop.edit("experiments/support-reply.yaml", "stop: {", "stop: {prune_weak_prompts: false, ")
    _, run = told(edison, shop, "run")
    assert run["weak_prompts"] == []


# --- stricter and milder rules --------------------------------------------------------------------


@pytest.fixture
def worse(edison: Edison, shop: Folder, kept: Kept) -> Folder:
    """A change for the worse, of which all answers are known, and which is not yet proposed."""

    def make() -> None:
        without_clusters(shop)
        shop.edit("prompts/support-reply.md", WRITE, GOOD)
        commit(shop)
        shop.edit("prompts/support-reply.md", GOOD, WRITE)
        assert told(edison, shop)[1]["verdict"] == "fail"

    return kept.begin("a worse prompt", shop, make)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("rule", "verdict", "method"),
    [
        ("guarantee: strict", "fail", "sequential test (e-values), read once at the end"),
        (
            "fail_rule: beyond_margin",
            "fail",
            "paired t bound that allows for failures",
        ),
        ("margin: 14pp, fail_rule: beyond_margin", "inconclusive", "paired t bound"),
        ("margin: 14pp", "fail", "paired t bound"),
    ],
)
def test_stricter_and_milder_rules_reach_the_verdict(
    edison: Edison, worse: Folder, rule: str, verdict: str, method: str
) -> None:
    written = rule if "margin: " in rule else f"margin: 10pp, {rule}"
    worse.edit("experiments/support-reply.yaml", GATE, f"{written}}}")
    worse.git("commit", "--quiet", "--message", "rule", "experiments")
    _, run = told(edison, worse)
    row = gate(run)
    assert (row["verdict"], row["detail"]["method"][: len(method)]) == (verdict, method)
