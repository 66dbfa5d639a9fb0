"""A prompt is measured, a diff asked for, held to the guardrails, tried, decided about and kept."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.config.holdout import holdout_of
from edison_ci.config.load import load_project
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.errors import BusyError, CallFailed, OutOfBudget
from edison_ci.features.refine.evidence import NOT_VERIFIED, split_cases
from edison_ci.features.refine.refiner import RE_ASKS
from edison_ci.records import SuggestionStatus
from edison_ci.store.database import open_for_change
from edison_ci.store.liveness import experiment_lock
from edison_ci.store.suggestions import find_suggestion, move_suggestion
from tests.documents.test_text_diff import BAD
from tests.features.refine.workbench import (
    PATH,
    PROMPT,
    SHOUT,
    WELCOME,
    Museum,
    greeting,
    project,
    reply,
)
from tests.opened import opened

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.records import Case, Request
    from tests.conftest import Folder

pytestmark = pytest.mark.daily


@pytest.fixture
def museum(folder: Folder) -> Folder:
    return project(folder)


def stored(folder: Folder, sql: str) -> list[tuple[Any, ...]]:
    with opened(folder.path / ".edison/results.db") as connection:
        return connection.execute(sql).fetchall()


def files(folder: Folder) -> dict[str, bytes]:
    """Return every file of the working tree but the results."""
    found = (path for path in folder.path.rglob("*") if path.is_file())
    return {str(p): p.read_bytes() for p in found if ".edison" not in p.parts}


def held_out(folder: Folder) -> list[Case]:
    loaded = load_project(folder.path)
    experiment = loaded.experiments["hello"]
    return [*filter(holdout_of(loaded, experiment).has, loaded.cases(experiment))]


def test_a_change_that_helps_is_proposed_with_its_evidence(museum: Folder) -> None:
    before = files(museum)
    found = Museum(museum, [reply(WELCOME)]).refine()
    (one,) = found.suggestions
    assert one.status is SuggestionStatus.PROPOSED
    assert one.targets == ("welcome",)
    assert f"+{WELCOME}" in one.diff
    assert all(rail.ok for rail in one.guardrails)
    train, holdout = one.evidence["train"], one.evidence["holdout"]
    assert train["n"] + holdout["n"] == 60
    assert [train[s]["estimate"] for s in ("before", "after")] == [0.5, 1.0]
    assert holdout["difference"]["estimate"] == 0.5
    assert holdout["decision"] == "better"
    assert len(holdout["fixed"]) == holdout["n"]
    assert one.evidence["criteria"][-1] == {
        "name": "welcome",
        "kind": "check",
        "before": 0.0,
        "after": 1.0,
        "holdout": {"before": 0.0, "after": 1.0},
    }
    assert one.evidence["growth"]["lines_added"] == 1
    assert one.evidence["verified"] is True
    assert one.simulation == "simulated"
    assert one.cost_microusd > 0
    assert files(museum) == before, "refining writes nothing into the working tree"


def test_everything_is_stored_together_with_an_event(museum: Folder) -> None:
    found = Museum(museum, [reply(WELCOME)]).refine()
    (one,) = found.suggestions
    assert stored(museum, "select id, status from suggestion") == [(one.id, "proposed")]
    ((data,),) = stored(museum, "select data from event where type = 'refine:completed'")
    assert json.loads(data) == {"suggestions": [{"id": one.id, "status": "proposed"}]}


@pytest.mark.nightly
def test_a_trial_is_neither_the_latest_run_nor_a_base(museum: Folder) -> None:
    museum.edison("run", "hello")
    ((own,),) = stored(museum, "select id from run")
    Museum(museum, [reply(WELCOME)]).refine()
    assert museum.edison("status", "latest", "--json").out.count(own) == 1
    triggers = stored(museum, "select trigger, commit_id from run order by rowid")
    assert triggers == [("cli", None), ("refine", None), ("refine", None)]
    assert stored(museum, "select run_id from latest_runs") == [(own,)]
    trial = stored(museum, "select id from run where trigger = 'refine'")[0][0]
    refused = museum.edison("resume", trial)
    assert refused.code == 2
    assert "edison refine hello" in refused.err


def test_a_change_without_a_gain_is_only_tried(museum: Folder) -> None:
    found = Museum(museum, [reply("Smile a little.")]).refine()
    (one,) = found.suggestions
    assert one.status is SuggestionStatus.TRIED
    assert one.reason == "no gain on the training cases"
    assert one.evidence["proven"] is False
    assert "Not shown to help" in one.evidence["sentence"]


def test_force_proposes_the_best_one_and_says_that_it_is_unproven(museum: Folder) -> None:
    harm = reply(SHOUT, note="Louder.")
    nothing = reply("Smile a little.")
    found = Museum(museum, [harm, nothing]).refine(candidates=2, force=True)
    first, second = found.suggestions
    assert (first.status, first.forced, first.proven) == (SuggestionStatus.PROPOSED, True, False)
    assert "Smile" in first.diff
    assert (second.status, second.forced) == (SuggestionStatus.TRIED, False)


def test_candidates_are_ranked_by_the_training_cases(museum: Folder) -> None:
    replies = [reply("Smile a little."), reply(WELCOME)]
    found = Museum(museum, replies).refine(candidates=2)
    assert [one.status for one in found.suggestions] == [
        SuggestionStatus.PROPOSED,
        SuggestionStatus.TRIED,
    ]


def test_what_helps_in_training_and_harms_elsewhere_is_not_proposed(museum: Folder) -> None:
    held = {case.id.replace("c", "Visitor") for case in held_out(museum)}
    greet = Museum(museum, [reply(WELCOME)])

    def answer(request: Request) -> str:
        said = greeting(request)
        name = said.partition("Hello ")[2].partition(".")[0]
        if name not in held:
            return said
        return "..." if "Welcome" in said else f"Welcome {name}."

    greet.greeter.answer = answer
    (one,) = greet.refine().suggestions
    assert one.status is SuggestionStatus.TRIED
    assert one.reason == "shown worse on unseen cases"
    assert one.evidence["train"]["decision"] == "better"
    assert len(one.evidence["holdout"]["newly_failing"]) == len(held)


def test_few_unseen_cases_leave_the_improvement_unverified_and_only_tried(folder: Folder) -> None:
    found = Museum(project(folder, cases=25), [reply(WELCOME)]).refine()
    (one,) = found.suggestions
    assert one.status is SuggestionStatus.TRIED
    assert one.evidence["train"]["decision"] == "better"
    assert one.evidence["verified"] is False
    assert not one.proven
    assert str(one.reason).startswith(NOT_VERIFIED)
    assert one.evidence["sentence"].lower().count(NOT_VERIFIED) == 1
    assert "Not shown to help" not in one.evidence["sentence"]
    (forced,) = Museum(folder, []).refine(force=True).suggestions
    assert (forced.id, forced.status, forced.forced) == (one.id, SuggestionStatus.PROPOSED, True)


def test_a_change_that_only_lacked_cases_is_measured_again_when_there_are_more(
    folder: Folder,
) -> None:
    Museum(project(folder, cases=25), [reply(WELCOME)]).refine()
    project(folder, cases=60)
    more = Museum(folder, [reply(WELCOME)])
    (one,) = more.refine().suggestions
    assert one.status is SuggestionStatus.PROPOSED
    assert all("tried, and not shown to help" not in asked for asked in more.questions)


def test_a_pairwise_judge_compares_old_and_new_answers_and_nothing_else(museum: Folder) -> None:
    museum.write(
        "models.yaml", museum.read("models.yaml") + "judge: {provider: sim, model: judge}\n"
    )
    museum.edit("experiments/hello.yaml", "refine:", "judges: {pairwise: {by: judge}}\nrefine:")
    found = Museum(museum, [reply(WELCOME)]).refine()
    (one,) = found.suggestions
    assert "the new prompt" in one.evidence["holdout"]["head_to_head"]
    compared = {run for (run,) in stored(museum, "select distinct run_id from comparison")}
    assert compared == {*one.runs}


def test_more_blocked_answers_are_no_improvement(museum: Folder) -> None:
    museum.edit("experiments/hello.yaml", "refine:", "safety: {pii: block}\nrefine:")
    greet = Museum(museum, [reply(WELCOME)])
    greet.greeter.answer = lambda request: (
        f"Welcome {greeting(request)}" + (" bo@example.com" if "Visitor7 " in told(request) else "")
        if WELCOME in told(request)
        else greeting(request)
    )
    (one,) = greet.refine().suggestions
    assert one.status is SuggestionStatus.TRIED
    assert one.reason == "more answers are blocked"
    assert one.evidence["blocked"] == {"before": 0, "after": 1}


def told(request: Request) -> str:
    return request.messages[-1].content


def test_a_prompt_without_a_fault_is_left_alone(museum: Folder) -> None:
    museum.write(PATH, PROMPT + f"{WELCOME}\n")
    greet = Museum(museum)
    found = greet.refine()
    assert found.suggestions == ()
    assert not greet.refiner.asked


# --- what the refiner is shown --------------------------------------------------------------------


def test_the_refiner_is_shown_what_is_weak_and_training_cases_only(museum: Folder) -> None:
    greet = Museum(museum, [reply(WELCOME)])
    greet.refine()
    (asked,) = greet.questions
    assert '"name": "welcome"' in asked
    assert "Say hello to {{ name }}" in asked
    assert asked.count("<data:example json") == 5
    seen = {f"c{n}" for n in range(60) if f'"Visitor{n}"' in asked}
    assert len(seen) == 5
    assert not seen & {case.id for case in held_out(museum)}


def test_a_rejection_and_what_was_tried_in_vain_are_told_to_the_next_one(museum: Folder) -> None:
    (tried,) = Museum(museum, [reply("Smile a little.")]).refine().suggestions
    (good,) = Museum(museum, [reply(WELCOME)]).refine().suggestions
    with open_for_change(museum.path / ".edison/results.db") as connection:
        known = find_suggestion(connection, good.id)
        move_suggestion(
            connection, known, SuggestionStatus.REJECTED, reason="we never bid anybody welcome"
        )
    greet = Museum(museum, [reply(WELCOME), reply("Smile a little."), reply("Be kind.")])
    found = greet.refine()
    asked = greet.questions
    assert "we never bid anybody welcome" in asked[0]
    assert "no gain on the training cases" in asked[0]
    statuses = [one.status for one in found.suggestions]
    assert statuses == [SuggestionStatus.TRIED, SuggestionStatus.REFUSED, SuggestionStatus.REFUSED]
    assert "the same change was rejected before" in asked[1]
    assert "the same change was tried before" in asked[2]
    with open_for_change(museum.path / ".edison/results.db") as connection:
        assert find_suggestion(connection, tried.id).status is SuggestionStatus.TRIED
        assert find_suggestion(connection, good.id).status is SuggestionStatus.REJECTED


def test_two_candidates_are_never_the_same(museum: Folder) -> None:
    replies = [reply(WELCOME), reply(WELCOME), reply(WELCOME, "Smile.")]
    greet = Museum(museum, replies)
    found = greet.refine(candidates=2)
    assert "the same as another candidate" in greet.questions[2]
    assert (
        len({one.new_hash for one in found.suggestions if one.status is SuggestionStatus.PROPOSED})
        == 2
    )


def sides_of(museum: Folder) -> tuple[set[str], set[str]]:
    """Return the training and the held-out cases of the next refinement."""
    found = split_cases(Museum(museum, []).bench().target)
    return {*map(str, found[0])}, {*map(str, found[1])}


@pytest.mark.parametrize("cases", [60, 240])
def test_what_a_refiner_may_have_seen_is_never_held_out_later_nor_the_reverse(
    folder: Folder, cases: int
) -> None:
    project(folder, cases=cases)
    training, held = sides_of(folder)
    Museum(folder, [reply(WELCOME)]).refine()
    assert sides_of(folder) == (training, held)
    project(folder, cases=cases + 30)
    folder.edit("experiments/hello.yaml", "holdout: 0.4, seed: 0", "holdout: 0.5, seed: 9")
    later, unseen = sides_of(folder)
    assert training <= later and held <= unseen
    assert len(later) > len(training) and len(unseen) > len(held)
    greet = Museum(folder, [reply("Smile a little.")] * 3)
    greet.refine()
    for asked in greet.questions:
        assert not [name for name in unseen if f'"Visitor{name[1:]}"' in asked]


def test_few_cases_that_become_many_keep_their_sides(folder: Folder) -> None:
    project(folder, cases=60)
    training, held = sides_of(folder)
    Museum(folder, [reply(WELCOME)]).refine()
    project(folder, cases=260)
    later, unseen = sides_of(folder)
    assert training <= later and held <= unseen


def test_results_of_an_older_program_say_who_was_held_out(folder: Folder) -> None:
    """Its trials have no clusters in their part, and no part where all cases were measured."""
    project(folder, cases=60)
    training, held = sides_of(folder)
    Museum(folder, [reply(WELCOME)]).refine()
    with open_for_change(folder.path / ".edison/results.db") as connection:
        connection.execute(
            """update run set snapshot = json_remove(snapshot,
            '$."command line".selection.part.clusters')"""
        )
        connection.execute(
            """update run set snapshot = json_set(snapshot,
            '$."command line".selection.part', null)
            where json_extract(snapshot, '$."command line".selection.part.name') = 'all'"""
        )
    folder.edit("experiments/hello.yaml", "seed: 0", "seed: 4")
    assert sides_of(folder) == (training, held)


def test_the_assignment_is_recorded_with_each_trial(museum: Folder) -> None:
    _, held = sides_of(museum)
    Museum(museum, [reply(WELCOME)]).refine()
    kept = stored(
        museum,
        """select json_extract(snapshot, '$."command line".selection.part') from run""",
    )
    parts = [json.loads(part) for (part,) in kept]
    assert [part["name"] for part in parts] == ["train", "all"]
    assert all({*part["clusters"]} == held for part in parts)


# --- hostile replies ------------------------------------------------------------------------------

KINDS = sorted(BAD)
SETS = [KINDS[n : n + 15] for n in range(0, len(KINDS), 15)]


@pytest.mark.parametrize("kinds", SETS, ids=lambda kinds: kinds[0])
def test_hostile_diffs_are_refused_told_back_and_recorded(museum: Folder, kinds: list[str]) -> None:
    before = files(museum)
    kinds = (kinds * 2)[:15]
    bad = [BAD[kind][0].replace("prompts/reply.md", PATH) for kind in kinds]
    greet = Museum(museum, [json.dumps({"note": "Better.", "diff": diff}) for diff in bad])
    found = greet.refine(candidates=5)
    assert len(greet.refiner.asked) == 5 * (1 + RE_ASKS)
    assert {one.status for one in found.suggestions} == {SuggestionStatus.REFUSED}
    assert len(found.suggestions) == len({*bad})
    for one in found.suggestions:
        assert one.reason
        assert not all(rail.ok for rail in one.guardrails)
    kept = {row[0] for row in stored(museum, "select status from suggestion")}
    assert kept == {"refused"}
    reasons = [str(one.reason)[:60] for one in found.suggestions]
    for asked in (*greet.questions[1::3], *greet.questions[2::3]):
        assert any(reason in asked for reason in reasons), "the next question says what was wrong"
    assert files(museum) == before
    assert stored(museum, "select count(*) from run") == [(1,)], "nothing was tried"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I would rather not.",
        '{"note": "no diff"}',
        '{"note": 3, "diff": "x"}',
        '{"note": "", "diff": "x"}',
        '{"note": "n", "diff": ["x"]}',
        '{"note": "n", "diff": "a"} {"note": "n", "diff": "b"}',
        '{"note": "n", "diff": "' + "+" * 200_000 + '"}',
        '{"note": "n", "diff": "\\ud800"}',
    ],
)
def test_a_reply_without_a_diff_is_refused(museum: Folder, text: str) -> None:
    found = Museum(museum, [text] * 3).refine()
    assert {one.status for one in found.suggestions} == {SuggestionStatus.REFUSED}
    assert {rail.rule for one in found.suggestions for rail in one.guardrails} <= {
        "reply",
        "applies",
    }


def test_a_refused_diff_may_be_mended(museum: Folder) -> None:
    bad = json.dumps({"note": "n", "diff": "nonsense\n"})
    found = Museum(museum, [bad, bad, reply(WELCOME)]).refine()
    assert [one.status for one in found.suggestions] == [
        SuggestionStatus.PROPOSED,
        SuggestionStatus.REFUSED,
    ]


# --- money, locks and failures --------------------------------------------------------------------


def test_asking_again_costs_nothing(museum: Folder) -> None:
    first = Museum(museum, [reply(WELCOME)])
    (one,) = first.refine().suggestions
    again = Museum(museum, [])
    found = again.refine()
    assert [each.id for each in found.suggestions] == [one.id]
    assert found.cost_microusd == 0
    assert not again.refiner.asked
    assert not again.greeter.asked


def test_a_budget_stops_it_and_the_same_command_goes_on(museum: Folder) -> None:
    whole = Museum(museum, [reply(WELCOME)]).refine().cost_microusd
    (museum.path / ".edison/results.db").unlink()
    short = Museum(museum, [reply(WELCOME)], budget_microusd=13_000)
    with pytest.raises(OutOfBudget):
        short.refine()
    assert stored(museum, "select count(*) from suggestion") == [(0,)]
    assert {row[0] for row in stored(museum, "select status from run")} <= {
        "COMPLETED",
        "CANCELLED",
    }
    on = Museum(museum, [reply(WELCOME)])
    found = on.refine()
    assert [one.status for one in found.suggestions] == [SuggestionStatus.PROPOSED]
    ((spent,),) = stored(museum, "select sum(cost_microusd) from attempt where state = 'settled'")
    assert spent == whole


def test_a_refiner_that_cannot_be_asked_is_said(museum: Folder) -> None:
    failing = CallError(ErrorKind.INVALID_KEY, "no such key", charged=False)
    with pytest.raises(CallFailed, match="no such key"):
        Museum(museum, [failing]).refine()


def test_a_busy_experiment_is_not_refined(museum: Folder) -> None:
    locks: Path = museum.path / ".edison/locks"
    with experiment_lock(locks, "hello", "another-run"), pytest.raises(BusyError):
        Museum(museum, [reply(WELCOME)]).refine()
