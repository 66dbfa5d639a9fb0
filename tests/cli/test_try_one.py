"""edison try and rerun: one request, with its answer and grade."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.opened import opened

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily


def test_one_case_is_sent_once_and_graded(edison: Edison, mini: Folder) -> None:
    done = edison(mini, "try", "hello", "--case", "bo")
    assert done.code == 0
    assert done.out.startswith("--- small, case bo, answer 0  simulated\n")
    assert re.search(r"check contains .+ +[0-9]+\.[0-9] ", done.out), (
        "with one digit, as everywhere"
    )
    assert "; new" in done.err
    again = edison(mini, "try", "hello", "--case", "bo")
    assert "stored within the last hour" in again.err
    fresh = edison(mini, "try", "hello", "--case", "bo", "--no-cache", "--json")
    told = json.loads(fresh.out)
    assert (told["answer_no"], told["reused"], told["simulated"]) == (1, False, True)


def test_what_is_tried_counts_against_the_project(edison: Edison, mini: Folder) -> None:
    mini.edit("models.yaml", "model: small}", "model: small, price: {in: 1, out: 1}}")
    told = json.loads(edison(mini, "try", "hello", "--json").out)
    assert told["cost_microusd"] > 0
    with opened(mini.path / ".edison/results.db") as connection:
        booked = dict(connection.execute("select scope, microusd from booked").fetchall())
    assert booked["project"] == booked["experiment:hello"] >= told["cost_microusd"]


def test_a_prompt_that_nobody_generates_with_cannot_be_tried(edison: Edison, mini: Folder) -> None:
    mini.write("prompts/lost.md", "Say something nice about the weather, in one sentence.\n")
    done = edison(mini, "try", "lost")
    assert (done.code, "no experiment uses" in done.err) == (2, True)


def test_a_further_answer_is_a_new_take_and_the_run_stays_as_it_was(
    edison: Edison, mini: Folder
) -> None:
    before = edison(mini, "run", "--json").out
    told = json.loads(edison(mini, "rerun", "latest", "--cell", "ada@small#0", "--json").out)
    assert (told["before"]["answer_no"], told["answer_no"]) == (0, 1)
    after = json.loads(edison(mini, "status", "latest", "--json").out)["runs"][0]
    assert after["composite"] == json.loads(before)["runs"][0]["composite"]
    shown = edison(mini, "rerun", "hello", "--cell", told["cell"]).out
    assert "--- answer 0\n" in shown
    assert "answer 2  simulated\n" in shown


def test_a_cell_that_is_not_there_or_has_changed_cannot_be_rerun(
    edison: Edison, mini: Folder
) -> None:
    edison(mini, "run", "-q")
    assert edison(mini, "rerun", "latest", "--cell", "eve@small").code == 2
    mini.edit("prompts/hello.md", "friendly", "warm")
    done = edison(mini, "rerun", "latest", "--cell", "ada@small")
    assert (done.code, "changed since; start a new run" in done.err) == (2, True)


def test_the_simulated_refiner_and_assistant_can_be_tried(edison: Edison, mini: Folder) -> None:
    mini.write(
        "models.yaml",
        "small: {provider: sim, model: refiner}\njudge: {provider: sim, model: assistant}\n",
    )
    mini.edit("experiments/hello.yaml", "models: [small]", "models: [small, judge]")
    mini.write(
        "prompts/hello.md",
        "---\nid: hello\n---\n# user\nDraft objectives, and a diff of the prompt in this fence, "
        "for {{ name }}.\n\n```\n# user\nReply to the customer in a friendly way.\n```\n",
    )
    done = edison(mini, "try", "hello", "--model", "small")
    assert done.code == 0, done.all
    assert "--- a/prompts/prompt.md" in done.out
    assert "simulated" in done.all
    found = json.loads(edison(mini, "try", "hello", "--model", "judge", "--json").out)
    assert len(json.loads(found["text"])["objectives"]) == 3
