"""What a pull request says of a suggestion: the whole case for it, and nothing that is obeyed."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from edison_ci.git.forge import Change
from edison_ci.proposals.branches import commit_message
from edison_ci.proposals.proposal_text import (
    Example,
    ProposalText,
    message_of,
    proposal_body,
    title_of,
)
from edison_ci.records import SuggestionStatus
from edison_ci.report.markdown import fenced
from edison_ci.store.suggestions import Guardrail, Suggestion
from tests.report.page import HIDDEN, LINKED, OURS, page
from tests.report.test_hostile import NASTY, SLOWLY, TEXTS, examples
from tests.suggested import EVIDENCE, SEARCH

pytestmark = pytest.mark.daily

ONE = Suggestion(
    experiment="support-reply",
    prompt="support-reply",
    path="prompts/support-reply.md",
    base_hash="a" * 64,
    diff="--- a\n",
    note="Empathy is weak.\nSay sorry first.",
    status=SuggestionStatus.PROPOSED,
    created_at="2026-11-15T12:00:00.000Z",
    targets=("Empathy", "Conciseness"),
    guardrails=(Guardrail("length", True, "+32 characters of 107; at most 300"),),
    evidence=EVIDENCE,
    cost_microusd=1_234,
)
EXAMPLE = Example("refund-3", "small", 0.2, (("Empathy", "It is cold."),), "We got your mail.")


def harmless(markdown: str) -> Any:
    found = page(markdown)
    assert set(found.elements) <= OURS | {"pre"}, set(found.elements) - OURS
    assert found.attributes == []
    assert not LINKED.search(found.text), found.text
    assert not HIDDEN.search(markdown)
    return found


def test_a_reader_finds_the_whole_case_for_it() -> None:
    body = proposal_body(ProposalText(ONE, (EXAMPLE,)))
    found = harmless(body)
    assert body.startswith(f"<!-- edison-ci:suggestion:v1 {ONE.hash} -->\n")
    rows = [line for line in body.splitlines() if line.startswith("| ")]
    assert rows[2:4] == [
        "| held-out | 22 | 60.0 (52.0 to 68.0) | 64.8 (56.0 to 72.0) | +4.8 points (+0.9 to +8.7) "
        "| 0.020 | better |",
        "| training | 40 | 61.0 (55.0 to 67.0) | 70.0 (64.0 to 76.0) | +9.0 points (+4.0 to +14.0) "
        "| 0.002 | better |",
    ]
    assert "Empathy is weak.\nSay sorry first.\n" in found.codes
    assert {"Empathy", "Conciseness", "refund-3", "It is cold.\n", "We got your mail.\n"} <= set(
        found.codes
    )
    for words in (
        "2 training cases fixed:",
        "1 training case newly failing:",
        "1 held-out case fixed:",
        "The prompt grows by 32 characters.",
        "1 failing answer in the request to the refiner",
        "Merge the pull request to accept it",
        "To reject it, close it with a comment that gives the reason",
        "Finding and measuring the change cost $0.0012.",
    ):
        assert words in found.text
    assert f'edison review reject {ONE.id} --reason "..."' in found.codes
    assert found.elements.count("details") == 2


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"simulated": True}, "Simulated"),
        ({"evidence": {**EVIDENCE, "proven": False}}, "Unproven"),
        ({"evidence": {**EVIDENCE, "verified": False}}, "Improvement not verified"),
        ({"edited_from": "123456789abc"}, "Edited by hand"),
        ({"evidence": {**EVIDENCE, "search": SEARCH}}, "It is the best of 13 versions"),
        ({"evidence": {**EVIDENCE, "search": SEARCH}}, "used for 2 other changes before"),
        ({"evidence": {}}, "Nothing was measured."),
        ({"note": "", "targets": ()}, "No reason was given."),
    ],
)
def test_what_a_reader_must_not_overlook_is_said(fields: dict[str, Any], words: str) -> None:
    assert words in harmless(proposal_body(ProposalText(replace(ONE, **fields)))).text


def test_private_texts_stay_where_they_are() -> None:
    body = proposal_body(ProposalText(ONE, (EXAMPLE,), private=True))
    for text in (ONE.note.split("\n")[0], "It is cold.", "We got your mail."):
        assert text not in body
    assert "refund-3" in body


def test_a_body_is_never_longer_than_a_forge_takes() -> None:
    long = replace(EXAMPLE, output="x" * 5_000, failed=(("a", "y" * 900),) * 90)
    many = (long,) * 10
    body = proposal_body(ProposalText(ONE, many))
    assert len(body) <= 60_000
    assert "How to decide" in body
    harmless(body)


def test_titles_and_commits_hold_no_command(subtests: pytest.Subtests) -> None:
    for text in NASTY:
        with subtests.test(text=text):
            one = replace(ONE, targets=(text, "Fixes #1", "@octocat", "a/b#2"), note=text)
            change = Change(
                "b", "main", "c", {"p": b""}, one.hash, title_of(one), message=message_of(one)
            )
            said = commit_message(change)
            assert not re.search(
                r"@\w|#\d|GH-\d|https?:|[<>`\[\]]|co-authored-by", said, re.IGNORECASE
            )
            assert not HIDDEN.search(said)
            assert len(said.splitlines()[0]) <= 180
            assert said.count("Edison-Suggestion: ") == 1


@SLOWLY
@given(text=TEXTS)
@examples
def test_nothing_that_a_model_wrote_is_obeyed(text: str) -> None:
    evidence = {
        **EVIDENCE,
        "sentence": text,
        "criteria": [{"name": text, "before": 0.1, "after": 0.2}],
    }
    evidence["train"] = {**EVIDENCE["train"], "fixed": [text]}
    one = replace(
        ONE,
        note=text,
        targets=(text,),
        evidence=evidence,
        guardrails=(Guardrail(text, False, text),),
    )
    harmless(proposal_body(ProposalText(one, (Example(text, text, 0.1, ((text, text),), text),))))


@SLOWLY
@given(text=TEXTS)
@examples
def test_a_block_of_code_ends_where_it_should(text: str) -> None:
    found = page(f"{fenced(text)}\n\nafter")
    assert found.elements == ["pre", "code", "p"]
    assert found.text.split() == ["after"]
