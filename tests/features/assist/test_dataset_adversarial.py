"""edison dataset adversarial: attacks and boundary values, and only those that fail."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.features.assist.test_dataset_generate import (
    asked_for,
    facts,
    replies,
    rows_of,
    writer,
    written,
)
from tests.loopback.script import rule

if TYPE_CHECKING:
    from tests.conftest import Edison, Folder
    from tests.loopback.server import LoopbackServer

pytestmark = pytest.mark.daily

__all__ = ["facts", "writer"]

PATH = "datasets/facts-adversarial.jsonl"


def told(edison: Edison, folder: Folder, *words: str) -> dict[str, Any]:
    done = edison(folder, "dataset", "adversarial", *words, "--json")
    assert done.code == 0, done.all
    found: dict[str, Any] = json.loads(done.out)
    return found


def reasoned(slots: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row | {"why": f"It tries slot {row['slot']}."} for row in written(slots)]


def test_attacks_are_written_in_equal_shares_with_their_reasons(
    edison: Edison, facts: Folder, writer: LoopbackServer
) -> None:
    replies(writer, reasoned)
    found = told(
        edison, facts, "--attack", "injection", "--attack", "leak", "--count", "10", "--by", "web",
        "--yes",
    )  # fmt: skip
    rows = rows_of(facts, PATH)
    assert found["added"] == 10
    told_of = [row["metadata"] for row in rows]
    assert sorted(each["attack"] for each in told_of) == ["injection"] * 5 + ["leak"] * 5
    assert all(each["reason"].startswith("It tries slot") for each in told_of)
    assert {each["written_by"] for each in told_of} == {"web"}
    assert f"- path: {PATH}\n    kind: adversarial" in facts.read("experiments/facts.yaml")
    assert "Write test cases that are hard for it" in writer.requests[0].body.decode()
    assert edison(facts, "validate").code == 0


def test_what_a_run_was_weak_in_is_aimed_at(
    edison: Edison, facts: Folder, writer: LoopbackServer
) -> None:
    none = edison(facts, "dataset", "adversarial", "--attack", "weakness", "--by", "web")
    assert (none.code, "there is no run" in none.err) == (2, True)
    edison(facts, "run", "-q")
    replies(writer, reasoned)
    found = told(edison, facts, "--attack", "weakness", "--count", "6", "--by", "web")
    slots = [slot for sent in writer.requests for slot in asked_for(_said(sent.body))]
    assert {slot["aim"].partition(" ")[0] for slot in slots} <= {"check", "cases"}
    assert {row["metadata"]["aim"] for row in found["cases"]} == {slot["aim"] for slot in slots}


def _said(body: bytes) -> str:
    return str(json.loads(body)["messages"][1]["content"])


def test_boundary_values_need_no_model(
    edison: Edison, facts: Folder, writer: LoopbackServer
) -> None:
    found = told(edison, facts, "--attack", "boundary", "--count", "8", "--by", "web", "--yes")
    assert not writer.requests
    assert (found["added"], found["cost_microusd"]) == (8, 0)
    rows = rows_of(facts, PATH)
    assert {row["metadata"]["written_by"] for row in rows} == {"edison"}
    texts = [row["input"]["question"] for row in rows]
    assert "" in texts
    assert max(map(len, texts)) > 3_000
    assert {row["metadata"]["reason"] for row in rows} >= {"question is empty", "question is emoji"}
    assert edison(facts, "run", "-q").code == 0, "each of them can be rendered and sent"
    again = told(edison, facts, "--attack", "boundary", "--count", "8", "--by", "web", "--yes")
    assert again["added"] == 0, "nothing is doubled"


def test_only_cases_on_which_the_prompt_fails_are_kept(
    edison: Edison, facts: Folder, writer: LoopbackServer
) -> None:
    facts.edit("experiments/facts.yaml", "models: [sim]", "models: [web]")
    replies(writer, lambda slots: [
        row | {"expected": "yes" if row["slot"] % 2 else "no", "why": "A trap."}
        for row in written(slots)
    ])  # fmt: skip
    writer.script.insert(0, rule(contains="Answer in one word", text="yes, of course"))
    writer.script.reverse()
    writer.script[0].contains = "hard for it"
    found = told(
        edison, facts, "--attack", "injection", "--count", "10", "--by", "web", "--keep", "failing",
        "--yes",
    )  # fmt: skip
    assert (found["answered"], found["failing"], found["added"]) == (10, 5, 5)
    assert found["missing"] == 0
    assert found["left_out"] == {"on which the prompt does not fail": 5}
    rows = rows_of(facts, PATH)
    assert {row["expected"] for row in rows} == {"no"}
    assert all(row["metadata"]["reason"].startswith("web: icontains") for row in rows)


def test_answers_that_cannot_be_had_are_no_failures(
    edison: Edison, facts: Folder, writer: LoopbackServer
) -> None:
    facts.edit("experiments/facts.yaml", "models: [sim]", "models: [web]")
    replies(writer, reasoned)
    writer.script[0].contains = "hard for it"
    writer.script.append(rule(status=400, body={"error": {"message": "no"}}))
    found = told(
        edison,
        facts,
        "--attack",
        "leak",
        "--count",
        "5",
        "--by",
        "web",
        "--keep",
        "failing",
        "--yes",
    )
    assert (found["failing"], found["added"]) == (0, 0)
    assert found["left_out"] == {"without a grade": 5}
    assert found["no_answer"]
    assert not (facts.path / PATH).exists()


def test_the_simulator_attacks_the_shipped_example(edison: Edison, support: Folder) -> None:
    found = told(edison, support, "--count", "12", "--yes")
    assert found["added"] >= 8
    kinds = {row["metadata"]["attack"] for row in found["cases"]}
    assert kinds >= {"injection", "jailbreak", "leak", "language", "boundary"}
    assert edison(support, "validate").code == 0
