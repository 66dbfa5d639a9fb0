from __future__ import annotations

import difflib
from dataclasses import replace
from random import Random

import pytest

from benchmarks.sim import NAMES
from edison_ci.features.simulator.judge import Criterion
from edison_ci.features.simulator.refiner import improve, parse_prompt, parse_task
from edison_ci.records import Message, Request
from tests.features.simulator.conftest import TASKS, asked_for, example, variables_of, with_line

pytestmark = pytest.mark.daily

SEEDS = range(200)


def guarded(old: str, new: str) -> None:
    """Assert what the product's guardrails ask of a change (SPEC section 8)."""
    assert abs(len(new) - len(old)) <= max(0.15 * len(old), 120)
    changed = [
        line
        for line in difflib.ndiff(old.splitlines(), new.splitlines())
        if line.startswith(("+ ", "- "))
    ]
    assert len(changed) <= max(0.2 * len(old.splitlines()), 4)
    assert variables_of(old) == variables_of(new)
    before, after = parse_prompt(old), parse_prompt(new)
    assert before.lines[: before.body_start] == after.lines[: after.body_start]
    headings = [before.lines[index] for index in before.headings]
    assert headings == [after.lines[index] for index in after.headings]
    assert new.isprintable() or set(new) - set(old) <= {"\n"} | {c for c in new if c.isprintable()}


@pytest.mark.parametrize("name", NAMES)
def test_proposals_stay_inside_the_guardrails_over_three_rounds(name: str) -> None:
    criteria = [criterion for criterion, _ in example(name).criteria]
    for seed in SEEDS:
        rng = Random(seed)
        prompt = example(name).prompt
        for _ in range(3):
            proposal = improve(prompt, rng.sample(criteria, 2), rng)
            guarded(prompt, proposal.text)
            assert proposal.note and proposal.text != prompt
            prompt = proposal.text


@pytest.mark.parametrize("name", NAMES)
def test_the_weakest_criterion_decides_what_is_added_first(name: str) -> None:
    task = TASKS[name]
    firsts = set()
    for criterion, _ in example(name).criteria:
        proposal = improve(example(name).prompt, [criterion], Random(1))
        new = asked_for(task, parse_prompt(proposal.text).instructions)
        assert new
        assert criterion.name in proposal.note
        before = example(name).prompt.splitlines()
        firsts.add(next(line for line in proposal.text.splitlines() if line not in before))
    assert len(firsts) == len(example(name).criteria)


def test_a_weak_check_decides_what_is_added_as_a_criterion_does() -> None:
    prompt = example("data-extraction").prompt
    weak = [Criterion("json_schema"), Criterion("total")]
    for rank, words in enumerate(("JSON object", "grand total")):
        proposal = improve(prompt, weak, Random(1), rank=rank)
        (added,) = [line for line in proposal.text.splitlines() if line not in prompt.splitlines()]
        assert words in added
        assert added.removeprefix("- ") in proposal.note
        assert "json_schema and total" in proposal.note


def test_a_repeat_and_a_refused_diff_bring_the_next_best_idea() -> None:
    prompt = example("data-extraction").prompt
    asked = (Message("user", f"```\n{prompt}```\nWeak: Correctness"),)
    request = Request("sim", "", "refiner", asked, {})
    refused = replace(
        request,
        messages=(
            Message(
                "user",
                f"{request.messages[0].content}\n\nA diff that you wrote before was refused: old.",
            ),
        ),
    )
    ranks = [parse_task(one).rank for one in (request, replace(request, repeat=2), refused)]
    assert ranks == [0, 2, 1]


@pytest.mark.parametrize("name", NAMES)
def test_a_line_that_asks_for_the_opposite_is_replaced(name: str) -> None:
    opposite = {
        "customer-support": "Write a lengthy reply of at least 400 words.",
        "creative-writing": "Leave the ending open.",
        "data-extraction": "Explain your reasoning.",
        "code-generation": "Explain your code.",
    }[name]
    prompt = with_line(example(name).prompt, opposite)
    proposal = improve(prompt, [], Random(1))
    guarded(prompt, proposal.text)
    assert opposite not in proposal.text and opposite in proposal.note


def test_when_nothing_is_missing_a_line_is_only_reworded() -> None:
    prompt = example("customer-support").prompt
    for seed in range(12):
        prompt = improve(prompt, [Criterion("Empathy")], Random(seed)).text
    asked = asked_for(TASKS["customer-support"], parse_prompt(prompt).instructions)
    again = improve(prompt, [Criterion("Empathy")], Random(9))
    guarded(prompt, again.text)
    assert asked_for(TASKS["customer-support"], parse_prompt(again.text).instructions) == asked


def test_few_shots_and_fences_are_left_alone() -> None:
    prompt = (
        "---\nid: x\n---\n# system\nYou answer customers.\n\n# user\nMessage: hi\n\n# assistant\n"
        "Hello!\n\n# user\nWrite a reply to this customer.\n\n```\n# user\n```\nMessage: {{ m }}\n"
    )
    for seed in range(50):
        proposal = improve(prompt, [Criterion("Helpfulness")], Random(seed))
        guarded(prompt, proposal.text)
        assert "# user\nMessage: hi\n\n# assistant\nHello!\n" in proposal.text


def test_a_prompt_for_another_task_gets_lines_from_the_rubric() -> None:
    prompt = "Name three good things about {{ town }}."
    criterion = Criterion("Warmth", "Sounds friendly and warm. 5: very. 0: not at all.")
    proposal = improve(prompt, [criterion], Random(1))
    guarded(prompt, proposal.text)
    assert "Sounds friendly and warm" in proposal.text
    long = Criterion("Warmth", f"{'Sounds friendly and warm and ' * 9}kind. 5: very.")
    proposal = improve(prompt, [long], Random(1))
    guarded(prompt, proposal.text)
    assert "Warmth." in proposal.text


def test_windows_line_ends_are_kept() -> None:
    prompt = example("customer-support").prompt.replace("\n", "\r\n")
    proposal = improve(prompt, [Criterion("Empathy")], Random(1))
    assert proposal.text.count("\n") == proposal.text.count("\r\n") > prompt.count("\n")
    assert len(parse_prompt(proposal.text).headings) == 2


@pytest.mark.parametrize(
    "prompt", ["", "\n\n", "---\n", "---\nid: x\n---\n", "{{ x }}", "# user\n"]
)
def test_odd_prompts_do_not_break_the_refiner(prompt: str) -> None:
    for seed in range(20):
        guarded(prompt, improve(prompt, [Criterion("Empathy")], Random(seed)).text)
