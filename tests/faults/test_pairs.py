"""A process killed while answers are compared leaves nothing that resuming does not mend."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from tests.loopback.script import rule
from tests.timing import poll

if TYPE_CHECKING:
    from tests.faults.conftest import MakeStage
    from tests.faults.stage import Stage

pytestmark = pytest.mark.daily

CASES = 6
CONNECTIONS = 6
"""Three models, two calls at once each."""


@pytest.fixture
def rivals(make_stage: MakeStage) -> Stage:
    """Two models whose answers to six cases a third one compares, and nothing else."""
    stage = make_stage(cases=CASES, judged=False)
    stage.folder.edit("experiments/hello.yaml", "models: [small]", "models: [small, big]")
    stage.folder.write(
        "experiments/hello.yaml",
        stage.folder.read("experiments/hello.yaml") + "judges: {pairwise: {by: pair}}\n",
    )
    small = next(line for line in stage.folder.read("models.yaml").splitlines() if "small" in line)
    named = [
        small.replace("small-1", f"{name}-1").replace("small:", f"{name}:")
        for name in ("small", "big", "pair")
    ]
    stage.folder.write("models.yaml", "\n".join(named) + "\n")
    # What is asked about must differ, or nobody would have to be asked.
    said = json.dumps({"winner": "first", "reason": "so"})
    stage.script(
        rule(model="pair-1", text=said),
        *(
            rule(model=f"{model}-1", contains=f"P{number:03d}", text=f"{model} says hello {number}")
            for model in ("small", "big")
            for number in range(CASES)
        ),
    )
    return stage


def compared(stage: Stage) -> list[tuple[object, ...]]:
    return stage.rows(
        "select case_id, a_model, b_model, winner, consistent, status from head_to_head "
        "order by case_id"
    )


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("point", "model", "nth"),
    [
        ("sending", "pair", 2),
        ("answered", "pair", 1),
        ("answered", "pair", 5),
        ("store_comparisons:queued", "", 1),
        ("store_comparisons:done", "", 1),
    ],
)
def test_killed_while_answers_are_compared(rivals: Stage, point: str, model: str, nth: int) -> None:
    done = rivals.edison("run", point=point, model=model, nth=nth)
    assert done.code == -signal.SIGKILL, done.all
    rivals.check_file()
    # Comparisons are written many at a time: on a slow machine every answer is there before them.
    before, last = rivals.count("answer"), rivals.one("select max(id) from attempt")
    assert len(compared(rivals)) < CASES

    resumed = rivals.edison("resume")
    assert resumed.code == 0, resumed.all
    rivals.check_settled(lost=CONNECTIONS)
    assert rivals.count("answer") == 4 * CASES
    assert rivals.count(f"attempt where id > {last}") == 4 * CASES - before, "none is bought twice"
    assert compared(rivals) == [(f"c{i}", "big", "small", "tie", 0, "ok") for i in range(CASES)]
    by_phase = dict(rivals.rows("select phase, sum(calls) from spending group by phase"))
    assert by_phase == {"generate": 2 * CASES, "pairwise": 2 * CASES}


@pytest.mark.nightly
def test_a_run_that_lost_its_judge_compares_when_it_is_resumed(rivals: Stage) -> None:
    good = rivals.server.script
    rivals.server.script = [rule(model="pair-1", do="status", status=401), *good]
    done = rivals.edison("run")
    assert done.code == 3, done.all
    assert "pair (pairwise) stopped: INVALID_KEY" in done.all
    answered = rivals.count("cell")
    assert answered < 2 * CASES, "the rest was not paid for"
    rivals.server.script = good
    calls = rivals.server.chats
    resumed = rivals.edison("resume")
    assert resumed.code == 0, resumed.all
    assert rivals.server.chats - calls == 2 * CASES - answered + 2 * CASES, "no answer twice"
    assert rivals.count("comparison where status = 'ok'") == CASES


@pytest.mark.nightly
def test_a_budget_that_ends_between_answers_and_comparisons_is_kept(rivals: Stage) -> None:
    whole = rivals.edison("run", "--json", "--budget", "0.0015")
    assert whole.code == 4, whole.all
    assert rivals.booked() <= 1_500
    resumed = rivals.edison("resume", "--budget", "1")
    assert resumed.code == 0, resumed.all
    rivals.check_settled(lost=0)
    assert rivals.count("comparison where status = 'ok'") == CASES


@pytest.mark.nightly
def test_answers_are_compared_while_others_are_still_asked_for(rivals: Stage) -> None:
    good = rivals.server.script
    rivals.server.script = [rule(model="big-1", contains="P005", do="hang"), *good]
    running = rivals.start("run")
    done = "comparison where status = 'ok'"
    poll("the others are compared", lambda: rivals.count(done) == CASES - 1)
    assert not running.has_ended
    running.send(signal.SIGKILL)
    assert running.wait().code == -signal.SIGKILL
    rivals.server.script = good
    assert rivals.edison("resume").code == 0
    rivals.check_settled(lost=CONNECTIONS)
    assert rivals.count(done) == CASES
