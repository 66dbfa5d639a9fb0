"""edison run --against: two subjects on the same eval suite, and gates that decide."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.conftest import every
from tests.opened import opened

if TYPE_CHECKING:
    from tests.cli.conftest import Edison, Kept
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

CASES = 32
"""A third of those of the example: the prompts here differ by far more than that can tell."""
PLAIN = "Write a reply to this customer."
GOOD = (
    "Write a reply to this customer. Quote the shop policy exactly, apologise, and use at most 80 "
    "words. Never invent compensation."
)


@pytest.fixture
def shop(support: Folder, kept: Kept) -> Folder:
    """The customer-support project with a third of its cases, in a repository with one commit."""

    def make() -> None:
        assert every(3, support) == CASES
        support.write(".gitignore", ".edison/results.db*\n.edison/locks/\n.edison/snapshots/\n")
        support.edit("experiments/support-reply.yaml", "margin: 10pp", "margin: 5pp")
        support.edit("experiments/support-reply.yaml", "at_least: 25%", "at_least: 10%")
        support.git("init", "--quiet", "--initial-branch=main")
        support.git("add", "--all")
        support.git("commit", "--quiet", "--message", "start")

    return kept.begin("shop", support, make)


def improve(shop: Folder) -> None:
    shop.edit("prompts/support-reply.md", PLAIN, GOOD)


def worsen(shop: Folder) -> None:
    """Take away what the base has learnt."""
    improve(shop)
    shop.git("commit", "--quiet", "--all", "--message", "better")
    shop.edit("prompts/support-reply.md", GOOD, PLAIN)


def told(edison: Edison, shop: Folder, *flags: str) -> tuple[int, dict[str, Any]]:
    done = edison(shop, "run", "--against", "main", "--json", *flags)
    return done.code, json.loads(done.out)


def rows(shop: Folder, sql: str) -> list[tuple[Any, ...]]:
    with opened(shop.path / ".edison/results.db") as connection:
        return connection.execute(sql).fetchall()


def test_a_better_prompt_passes_and_the_change_has_an_interval(
    edison: Edison, shop: Folder
) -> None:
    improve(shop)
    code, found = told(edison, shop)
    (run,) = found["runs"]
    assert (code, found["verdict"], run["verdict"]) == (0, "pass", "pass")
    change = run["against"]["difference"]
    assert change["estimate"] > 0
    assert change["low"] < change["estimate"] < change["high"]
    assert run["against"]["commit"] == shop.git("rev-parse", "main")
    composite = next(row for row in run["gates"] if row["metric"] == "composite")
    assert composite["verdict"] == "pass"
    assert composite["n"] == CASES
    assert composite["sentence"].endswith(".")
    assert rows(shop, "select side, count(*) from cell group by side order by side") == [
        ("base", CASES),
        ("head", CASES),
    ]


def test_a_worse_prompt_fails_its_gate_and_the_command(edison: Edison, shop: Folder) -> None:
    worsen(shop)
    done = edison(shop, "run", "--against", "main")
    assert done.code == 1
    assert "FAIL  composite: " in done.out
    assert "against main at " in done.out
    code, found = told(edison, shop)
    assert (code, found["verdict"]) == (1, "fail")
    composite = next(row for row in found["runs"][0]["gates"] if row["metric"] == "composite")
    assert composite["p_holm"] <= 0.05


@pytest.mark.nightly
def test_an_unchanged_prompt_shares_its_answers_with_the_base(edison: Edison, shop: Folder) -> None:
    code, found = told(edison, shop)
    (run,) = found["runs"]
    assert (code, run["verdict"]) == (0, "pass")
    assert run["calls"]["made"] == 2 * CASES, "each answer and each judgment is bought once"
    assert run["calls"]["reused"] == 0, "what was bought for both sides was in store for neither"
    assert f"{2 * CASES} calls made, 0 reused" in edison(shop, "status", "latest").out
    _, again = told(edison, shop)
    assert (again["runs"][0]["calls"]["made"], again["runs"][0]["calls"]["reused"]) == (
        0,
        2 * CASES,
    )
    assert run["against"]["difference"]["estimate"] == 0
    _, fresh = told(edison, shop, "--no-cache")
    assert fresh["runs"][0]["calls"]["made"] == 2 * CASES


def test_a_changed_objective_judges_both_sides_by_either_one(edison: Edison, shop: Folder) -> None:
    text = shop.read("experiments/support-reply.yaml")
    start = text.index("objective: ")
    end = text.index("\nprompts:", start)
    mild = "objective: Every answer that exists deserves full marks in each criterion."
    shop.write("experiments/support-reply.yaml", text[:start] + mild + text[end:])
    done = edison(shop, "run", "--against", "main", "--json")
    assert "the eval suite changed: experiments/support-reply.yaml: objective" in done.err
    found = {run["against"]["eval_suite"]: run for run in json.loads(done.out)["runs"]}
    made = {suite: run["calls"]["made"] for suite, run in found.items()}
    # Both sides have equal answers: they share each judgment, as they share the objective.
    assert made == {"base": 2 * CASES, "head": CASES}, "another objective is another judge"
    assert all(run["against"]["difference"]["estimate"] == 0 for run in found.values())


def test_the_gates_of_the_base_count(edison: Edison, shop: Folder) -> None:
    worsen(shop)
    shop.edit("experiments/support-reply.yaml", "margin: 5pp", "margin: 90pp")
    code, found = told(edison, shop)
    assert (code, found["verdict"]) == (1, "fail"), "the wider margin of the change does not count"


@pytest.mark.nightly
def test_changed_material_is_announced_and_both_are_measured_on_the_old_one_too(
    edison: Edison, shop: Folder
) -> None:
    improve(shop)
    shop.edit("experiments/support-reply.yaml", "as an ai", "as a machine")
    done = edison(shop, "run", "--against", "main", "--json")
    assert "the eval suite changed: experiments/support-reply.yaml: checks" in done.err
    found = json.loads(done.out)
    assert len(found["runs"]) == 2
    snapshots = [json.loads(text) for (text,) in rows(shop, "select snapshot from run")]
    kept = [snapshot["command line"]["against"]["eval_suite"] for snapshot in snapshots]
    assert kept == ["base", "head"]
    patterns = [json.dumps(snapshot) for snapshot in snapshots]
    assert "as a machine" not in patterns[0]
    assert "as a machine" in patterns[1]


def test_an_experiment_that_is_new_has_nothing_to_be_compared_with(
    edison: Edison, shop: Folder
) -> None:
    text = shop.read("experiments/support-reply.yaml")
    shop.write("experiments/other.yaml", text.replace("support-reply ", "other ", 1))
    done = edison(shop, "run", "other", "--against", "main", "--json", "--limit", "5")
    (run,) = json.loads(done.out)["runs"]
    composite = next(row for row in run["gates"] if row["metric"] == "composite")
    assert composite["verdict"] == "skipped"
    assert "main does not have this experiment" in done.err
    assert rows(shop, "select distinct side from cell") == [("head",)]


@pytest.mark.nightly
def test_a_comparison_that_was_killed_goes_on_to_the_same_result(
    edison: Edison, shop: Folder
) -> None:
    improve(shop)
    _, whole = told(edison, shop)
    with opened(shop.path / ".edison/results.db") as connection:
        connection.execute("update run set status = 'EXECUTING', owner = 'gone', verdict = null")
        connection.execute("delete from decision")
        connection.execute("pragma foreign_keys = 0")
        connection.execute("delete from component where cell_id in (select id from cell limit 50)")
        connection.execute("delete from judgment where cell_id in (select id from cell limit 50)")
        connection.execute("delete from cell where id in (select id from cell limit 50)")
    done = edison(shop, "resume", "--json")
    found = json.loads(done.out)
    assert done.code == 0
    again, before = found["runs"][0], whole["runs"][0]
    assert again["against"] == before["against"]
    assert [row["sentence"] for row in again["gates"]] == [
        row["sentence"] for row in before["gates"]
    ]
    assert rows(shop, "select count(*) from attempt") == rows(shop, "select count(*) from answer")


@pytest.mark.nightly
def test_an_old_answer_is_not_set_against_a_new_one(edison: Edison, shop: Folder) -> None:
    """If one side must be bought and the other is older than a day, both are bought."""
    edison(shop, "run", "-q")
    with opened(shop.path / ".edison/results.db") as connection:
        connection.execute("drop trigger answer_is_kept")
        connection.execute("update answer set created_at = '2026-11-13T00:00:00.000Z'")
        days = "julianday('now') - julianday(created_at)"
        (age,) = connection.execute(f"select min({days}) from answer").fetchone()
    assert age > 1
    improve(shop)
    _, found = told(edison, shop)
    takes = rows(
        shop,
        "select side, answer_no, count(*) from cell where run_id = "
        "(select id from run order by rowid desc limit 1) group by 1, 2 order by 1, 2",
    )
    assert takes == [("base", 1, CASES), ("head", 0, CASES)]
    assert found["runs"][0]["verdict"] == "pass"


def test_without_a_repository_there_is_nothing_to_compare_with(
    edison: Edison, support: Folder
) -> None:
    done = edison(support, "run", "--against", "main")
    assert (done.code, "not in a Git repository" in done.err) == (2, True)


@pytest.mark.nightly
def test_a_model_that_only_head_has_is_no_improvement(edison: Edison, shop: Folder) -> None:
    shop.edit("experiments/support-reply.yaml", "models: [small]", "models: [small, other]")
    shop.write("models.yaml", shop.read("models.yaml") + "other: {provider: sim, model: large}\n")
    _, found = told(edison, shop)
    (run,) = found["runs"]
    assert run["against"]["difference"]["estimate"] == 0
    verdicts = {(r["metric"], r["model"]): r["verdict"] for r in run["gates"]}
    assert verdicts["composite", "small"] == "pass"
    assert verdicts["composite", "other"] == "skipped"


def test_a_prompt_is_compared_on_a_model_that_the_base_only_lists(
    edison: Edison, shop: Folder
) -> None:
    improve(shop)
    shop.edit("experiments/support-reply.yaml", "models: [small]", "models: [large]")
    _, found = told(edison, shop)
    (run,) = found["runs"]
    assert run["against"]["difference"]["estimate"] > 0
    composite = next(row for row in run["gates"] if row["metric"] == "composite")
    assert (composite["model"], composite["verdict"]) == ("large", "pass")


def test_a_base_without_the_experiment_is_not_asked_for_again(edison: Edison, shop: Folder) -> None:
    shop.git("rm", "--quiet", "--cached", "experiments/support-reply.yaml")
    shop.git("commit", "--quiet", "--message", "without it")
    for command in (
        ("run", "--against", "main"),
        (
            "compare",
            "--gates",
        ),
    ):
        said = edison(shop, *command).out
        assert "SKIPPED  composite" in said
        assert "Nothing to compare with: main has no such experiment." in said
        assert "get one with" not in said


def test_an_invalid_base_is_said_to_be_invalid(edison: Edison, shop: Folder) -> None:
    whole = shop.read("experiments/support-reply.yaml")
    shop.edit("experiments/support-reply.yaml", "repeats: 1", "repeats: none")
    shop.git("commit", "--quiet", "--message", "broken", "experiments")
    shop.write("experiments/support-reply.yaml", whole)
    done = edison(shop, "run", "--against", "main")
    problem = re.search(r"experiments/support-reply.yaml:\d+:\d+: repeats .*", done.err)
    assert problem is not None
    assert f"main has this experiment, but it is not valid there: {problem[0]}" in done.err
    assert "Nothing to compare with: the experiment is not valid at main: experiments/" in done.out
    assert "no such experiment" not in done.all
    stored = edison(shop, "compare", "--gates")
    assert "the experiment is not valid at main: experiments/" in stored.out


@pytest.mark.nightly
def test_both_summaries_say_on_which_material_they_are(edison: Edison, shop: Folder) -> None:
    improve(shop)
    shop.edit("experiments/support-reply.yaml", "words: {max: 120", "words: {max: 121")
    done = edison(shop, "run", "--against", "main")
    first, second = (s for s in done.out.splitlines() if s.startswith("support-reply  "))
    assert first.endswith("  on the eval suite of main")
    assert "eval_suite" not in second
    for once in (" cells: ", "calls made", "Look closer"):
        assert done.all.count(once) == 1, "the run with the base's eval suite is told in brief"
    assert len(re.findall(r"(?m)^  [A-Z]+  composite: ", done.out)) == 2, "with its gates"
    listed = edison(shop, "status").out.splitlines()
    assert [("eval suite of main" in row) for row in listed[1:]] == [False, True]
    found = json.loads(edison(shop, "status", "--json").out)["runs"]
    assert [run["against"]["eval_suite"] for run in found] == ["head", "base"]
