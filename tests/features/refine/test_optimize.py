"""A search finds more than one change, looks at unseen cases once, and goes on where it stopped."""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
import sqlite3
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.config.load import load_project
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.documents.text_diff import diff_of
from edison_ci.errors import BusyError, CallFailed, OutOfBudget, UsageError
from edison_ci.features.refine.evidence import split_cases
from edison_ci.features.refine.refiner import RE_ASKS
from edison_ci.features.refine.search import SCREEN_CASES
from edison_ci.proposals.guardrails import WIDER
from edison_ci.proposals.prompt_file import apply_suggestion
from edison_ci.records import SuggestionStatus
from edison_ci.store.database import open_for_change
from edison_ci.store.liveness import experiment_lock
from edison_ci.store.suggestions import MadeBy, find_suggestion
from tests.features.refine.workbench import (
    MANNERS,
    PATH,
    PROMPT,
    SHOUT,
    Museum,
    Scripted,
    mannered,
    mended,
    reply,
    well_mannered,
)
from tests.opened import opened

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from edison_ci.features.refine.optimize import OptimizeResult
    from edison_ci.records import Request
    from tests.conftest import Folder

pytestmark = pytest.mark.daily


def museum(
    folder: Folder, refiner: Callable[[Request], str] = mended, budget: int | None = None
) -> Museum:
    found = Museum(folder, budget_microusd=budget, greeter=Scripted(well_mannered))
    found.refiner = Scripted(refiner)
    return found


@pytest.fixture
def door(folder: Folder) -> Folder:
    return mannered(folder, cases=45)


@dataclass
class Past:
    """Searches that have ended, by name: their folders, to be copied, and what they returned."""

    path: Path
    results: dict[str, OptimizeResult] = field(default_factory=dict)

    def copied(self, name: str, folder: Folder, search: Callable[[], OptimizeResult]) -> Folder:
        """Search for the first test that asks, and copy what that left for the others."""
        if name in self.results:
            shutil.copytree(self.path / name, folder.path, dirs_exist_ok=True)
        else:
            self.results[name] = search()
            shutil.copytree(folder.path, self.path / name)
        return folder


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Past:
    return Past(tmp_path_factory.mktemp("past"))


@pytest.fixture
def searched(door: Folder, past: Past) -> Folder:
    """The project after a search."""
    return past.copied("usual", door, museum(door).optimize)


@pytest.fixture
def limited(folder: Folder, past: Past) -> Folder:
    """The project after a search of small steps."""
    door = mannered(folder, cases=45, limits=", max_lines: 1, max_lines_change: 0")
    search = functools.partial(museum(door).optimize, generations=8, population=6)
    return past.copied("limited", door, search)


def ask(folder: Folder, sql: str) -> list[tuple[Any, ...]]:
    with opened(folder.path / ".edison/results.db") as connection:
        return connection.execute(sql).fetchall()


def kept(diff: str) -> set[str]:
    return {name for name, line in MANNERS.items() if f"+{line}" in diff}


def held_out(folder: Folder) -> frozenset[str]:
    return split_cases(Museum(folder).bench().target)[1]


@pytest.mark.nightly
def test_a_search_finds_more_than_one_refinement_does(door: Folder) -> None:
    (one,) = museum(door).refine().suggestions
    found = museum(door).optimize()
    (best,) = found.suggestions
    assert best.status is SuggestionStatus.PROPOSED
    assert best.made_by is MadeBy.OPTIMIZE
    assert len(kept(best.diff)) >= 3 > len(kept(one.diff))
    gains = [s.evidence["holdout"]["difference"]["estimate"] for s in (one, best)]
    assert gains[1] > gains[0] > 0
    assert best.base_hash == one.base_hash, "it is one change of the current prompt"
    assert [line for line in best.note.split("\n") if line.startswith("It helps with")]
    search = best.evidence["search"]
    assert search["generations"] == len(found.search.generations)
    assert search["stopped_by"] == found.search.stopped_by
    assert search["lineage"][0]["version"] == best.base_hash
    assert search["earlier_comparisons"] == 1, "refine has looked at the unseen cases before"
    assert door.read(PATH) == PROMPT
    assert found.simulation == "simulated"
    assert best.simulation == "simulated"


@pytest.mark.nightly
def test_the_unseen_cases_are_looked_at_once_and_for_the_winner_alone(
    searched: Folder, past: Past
) -> None:
    (best,) = past.results["usual"].suggestions
    named = ", ".join(f"'{case}'" for case in held_out(searched))
    rows = ask(searched, f"select distinct run_id from cell where case_id in ({named})")
    assert rows == [(best.runs[0],)]
    versions = ask(
        searched, f"select distinct side, version from cell where case_id in ({named}) order by 1"
    )
    assert versions == [("base", best.base_hash), ("head", best.new_hash)]


@pytest.mark.nightly
def test_two_parents_have_children_for_which_nobody_is_asked(door: Folder) -> None:
    found = museum(door)
    course = found.optimize(population=8, generations=2).search
    crossed = [one for one in course.measured.values() if one.how == "crossover"]
    assert crossed
    for one in crossed:
        first, second = (course.measured[name] for name in one.parents)
        both = {line for line in MANNERS.values() if line in first.text + second.text}
        assert {line for line in MANNERS.values() if line in one.text} == both
    assert sum(one.crossed for one in course.generations) >= len(crossed)


def test_what_does_worse_on_a_few_cases_is_not_measured_on_all(door: Folder) -> None:
    def loud(request: Request) -> str:
        blocks = request.messages[-1].content
        text = PROMPT if SHOUT not in blocks else PROMPT + f"{SHOUT}\n"
        return reply(SHOUT, *(["Again."] * request.repeat), text=text)

    found = museum(door, loud).optimize(generations=1)
    (only,) = found.search.generations
    assert only.tried == 4
    assert only.measured == 0
    assert found.suggestions == ()
    asked = ask(door, f"select count(*) from cell where version <> '{found.search.base.version}'")
    assert asked == [(4 * SCREEN_CASES,)]


def test_what_was_tried_in_vain_is_told_when_the_same_version_is_changed_again(
    door: Folder,
) -> None:
    def loud(request: Request) -> str:
        return reply(SHOUT, *(["Again."] * request.repeat), note=f"Louder {request.repeat}.")

    found = museum(door, loud)
    found.optimize(generations=2)
    late = found.questions[4:]
    assert all("Louder" in question for question in late)
    assert all(f"on {SCREEN_CASES} training cases" in question for question in late)


@pytest.mark.nightly
def test_the_same_search_asks_nothing_again(searched: Folder, past: Past) -> None:
    first = past.results["usual"]
    again = museum(searched)
    second = again.optimize()
    assert [one.id for one in second.suggestions] == [one.id for one in first.suggestions]
    assert second.suggestions[0].cost_microusd == first.suggestions[0].cost_microusd
    assert second.cost_microusd == first.cost_microusd
    assert not again.refiner.asked
    assert not again.greeter.asked
    assert [one._replace(spent_microusd=0) for one in second.search.generations] == [
        one._replace(spent_microusd=0) for one in first.search.generations
    ]


@pytest.mark.nightly
def test_more_generations_go_on_with_the_search_that_was_made(door: Folder) -> None:
    short = museum(door).optimize(generations=1)
    on = museum(door)
    longer = on.optimize(generations=2)
    assert longer.id == short.id
    assert len(on.refiner.asked) < 2 * 4, "the first generation is not asked for again"
    assert longer.cost_microusd > short.cost_microusd
    assert kept(longer.suggestions[0].diff) > kept(short.suggestions[0].diff)


@pytest.mark.nightly
def test_a_budget_is_never_passed_and_the_search_goes_on_with_more(folder: Folder) -> None:
    whole = museum(mannered(folder, cases=45)).optimize(generations=2)
    (folder.path / ".edison/results.db").unlink()
    little = round(0.25 * whole.cost_microusd)
    for _ in range(2):  # what it spent before counts
        with contextlib.suppress(OutOfBudget):
            found = museum(folder, budget=little).optimize(generations=2)
            assert found.search.stopped_by == "budget"
        ((spent,),) = ask(folder, "select sum(cost_microusd) from attempt")
        assert 0 < spent <= little
    more = round(0.9 * whole.cost_microusd)
    found = museum(folder, budget=more).optimize(generations=2)
    assert found.search.stopped_by == "budget"
    assert found.cost_microusd <= more
    (best,) = found.suggestions
    assert best.evidence["holdout"]["n"] >= 16, "a part is kept for the last look"
    on = museum(folder).optimize(generations=2)
    assert on.suggestions[0].id == whole.suggestions[0].id
    ((twice,),) = ask(folder, "select count(*) - count(distinct request_hash) from answer")
    assert twice == 0


@pytest.mark.nightly
def test_a_target_ends_it(door: Folder) -> None:
    found = museum(door).optimize(target=0.4, generations=6)
    assert found.search.stopped_by == "target"
    assert found.search.best.mean >= 0.4
    assert len(found.search.generations) < 6


@pytest.mark.nightly
def test_a_search_without_progress_ends_and_proposes_nothing(door: Folder) -> None:
    def idle(request: Request) -> str:
        lines = [f"Note {n}." for n in range(request.repeat % 3 + 1)]
        return reply(*lines)

    found = museum(door, idle).optimize(generations=9)
    assert found.search.stopped_by == "converged"
    assert len(found.search.generations) == 3
    assert [one for one in found.suggestions if one.status is not SuggestionStatus.REFUSED] == []
    forced = museum(door, idle).optimize(generations=9, force=True)
    (best, *_) = forced.suggestions
    assert (best.status, best.forced, best.proven) == (SuggestionStatus.PROPOSED, True, False)


@pytest.mark.nightly
def test_a_gain_that_unseen_cases_do_not_show_is_not_proposed(door: Folder) -> None:
    held = {case.replace("c", "Visitor") for case in held_out(door)}
    deaf = museum(door)

    def answer(request: Request) -> str:
        said = well_mannered(request)
        name = said.partition("Hello ")[2].partition(".")[0]
        return f"Hello {name}." if name in held else said

    deaf.greeter.answer = answer
    (one,) = deaf.optimize(generations=2).suggestions
    assert one.status is SuggestionStatus.TRIED
    assert one.reason == "no gain on the unseen cases"
    assert one.evidence["train"]["decision"] == "better"


def test_a_prompt_without_a_fault_is_left_alone(door: Folder) -> None:
    door.write(PATH, PROMPT + "".join(f"{line}\n" for line in MANNERS.values()))
    found = museum(door)
    assert found.optimize().search.stopped_by == "flawless"
    assert not found.refiner.asked


# --- guardrails -----------------------------------------------------------------------------------


@pytest.mark.nightly
def test_steps_keep_the_limits_of_refine_and_their_sum_wider_ones(
    limited: Folder, past: Past
) -> None:
    found = past.results["limited"]
    assert limited.read(PATH) == PROMPT
    best = found.suggestions[0]
    most = WIDER[MadeBy.OPTIMIZE]
    assert best.evidence["growth"]["lines_added"] == most == len(kept(best.diff))
    assert all(rail.ok for rail in best.guardrails)
    broken = {rail.rule for one in found.suggestions[1:] for rail in one.guardrails if not rail.ok}
    assert "whole_lines" in broken, "what goes too far is refused, asked for again and recorded"


def test_a_step_that_goes_too_far_is_refused_and_asked_for_again(folder: Folder) -> None:
    door = mannered(folder, cases=45, limits=", max_lines: 1, max_lines_change: 0")

    def greedy(_: Request) -> str:
        return reply(*MANNERS.values())

    found = museum(door, greedy)
    done = found.optimize(generations=1)
    assert len(found.refiner.asked) == 4 * (1 + RE_ASKS)
    assert {one.status for one in done.suggestions} == {SuggestionStatus.REFUSED}
    assert "lines" in str(done.suggestions[0].reason)


def test_locked_parts_stay_locked_in_a_search(door: Folder) -> None:
    def hostile(request: Request) -> str:
        texts = {
            0: PROMPT.replace("{{ name }}", "the visitor"),
            1: PROMPT.replace("id: hello", "id: hello\nparams: {temperature: 2}"),
            2: PROMPT + "{% if name %}Be quick.{% endif %}\n",
            3: PROMPT.replace("# user", "# assistant\nYes.\n\n# user"),
        }
        after = texts[request.repeat % 4]
        return json.dumps({"note": "Better.", "diff": diff_of(PATH, PROMPT, after)})

    done = museum(door, hostile).optimize(generations=1)
    rules = {rail.rule for one in done.suggestions for rail in one.guardrails if not rail.ok}
    assert rules >= {"variables", "front_matter", "template_logic", "roles"}
    assert done.search.generations[0].tried == 0


@pytest.mark.nightly
def test_a_suggestion_is_held_to_the_limits_that_it_was_made_under(
    limited: Folder, past: Past
) -> None:
    """Approving and proposing ask the guardrails again, with those of a search for its winner."""
    best = past.results["limited"].suggestions[0]
    loaded = load_project(limited.path)
    assert (
        apply_suggestion(loaded, best, PROMPT.encode()).decode().count("\n")
        == PROMPT.count("\n") + 4
    )
    with opened(limited.path / ".edison/results.db") as connection:
        connection.execute("update suggestion set made_by = 'refine'")
    with open_for_change(limited.path / ".edison/results.db") as connection:
        small = find_suggestion(connection, best.id)
    with pytest.raises(UsageError, match="lines added or removed"):
        apply_suggestion(loaded, small, PROMPT.encode())


@pytest.mark.nightly
def test_nobody_can_store_another_kind_of_limits(searched: Folder) -> None:
    with (
        opened(searched.path / ".edison/results.db") as connection,
        pytest.raises(sqlite3.IntegrityError),
    ):
        connection.execute("update suggestion set made_by = 'anything goes'")


# --- what is refused ------------------------------------------------------------------------------


def test_too_few_cases_are_said_before_anything_is_asked(folder: Folder) -> None:
    few = museum(mannered(folder, cases=20))
    with pytest.raises(UsageError, match="needs 20 training cases"):
        few.optimize()
    folder.edit("experiments/hello.yaml", "holdout: 0.4", "holdout: 0")
    with pytest.raises(UsageError, match="held-out"):
        few.optimize()
    assert not few.greeter.asked


def test_a_refiner_that_cannot_be_asked_is_said(door: Folder) -> None:
    def failing(_: Request) -> str:
        raise CallError(ErrorKind.INVALID_KEY, "no such key", charged=False)

    with pytest.raises(CallFailed, match="no such key"):
        museum(door, failing).optimize()


def test_one_search_of_an_experiment_at_a_time(door: Folder) -> None:
    with (
        experiment_lock(door.path / ".edison/locks", "hello.search", "other"),
        pytest.raises(BusyError),
    ):
        museum(door).optimize()
