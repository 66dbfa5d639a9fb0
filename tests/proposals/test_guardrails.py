"""Every guardrail refuses what it is there for, says why, and lets honest changes through."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from edison_ci.config.load import load_project
from edison_ci.errors import UsageError
from edison_ci.features.simulator.refiner import unified_diff
from edison_ci.proposals.candidate import Candidate, RefineTarget, target_of
from edison_ci.proposals.guardrails import RULES, GuardrailContext, check_diff
from edison_ci.records import Case, CaseId

if TYPE_CHECKING:
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

PATH = "prompts/hello.md"
PROMPT = """---
id: hello
inputs: {name: string}
---
# system
You are the voice of a small museum.
You speak plainly.

# user
Say hello to Ada.

# assistant
Hello Ada.

# user
Say hello to {{ name }} in one friendly sentence, and nothing else.
{% if name %}Use the name once.{% endif %}
"""
LINE = "Say hello to {{ name }} in one friendly sentence, and nothing else.\n"
ASKED = "Tell me where the blue whale hangs and when it was brought into the great hall"
CASES = (Case(CaseId("whale"), {"name": ASKED}, "鯨は大広間の天井から吊るされています"),)


@pytest.fixture
def target(mini: Folder) -> RefineTarget:
    mini.write(PATH, PROMPT)
    return refined(mini)


def refined(folder: Folder) -> RefineTarget:
    project = load_project(folder.path)
    return target_of(project, project.experiments["hello"])


def candidate(
    target: RefineTarget, text: str, background: GuardrailContext | None = None
) -> Candidate:
    background = background or GuardrailContext(cases=lambda: CASES)
    return check_diff(target, unified_diff(target.text, text, PATH), "note", background)


def broken(
    target: RefineTarget, text: str, background: GuardrailContext | None = None
) -> dict[str, str]:
    found = candidate(target, text, background)
    return {rail.rule: rail.detail for rail in found.guardrails if not rail.ok}


def after(text: str, *lines: str) -> str:
    return text.replace(LINE, LINE + "".join(f"{line}\n" for line in lines))


def test_a_small_honest_change_keeps_every_guardrail(target: RefineTarget) -> None:
    found = candidate(target, after(PROMPT, "Be warm: mention what there is to see today."))
    assert found.ok, found.reason
    assert [rail.rule for rail in found.guardrails] == ["applies", *(rule.name for rule in RULES)]
    assert all(rail.detail for rail in found.guardrails)
    assert found.version
    assert found.version != target.prompt.version
    assert target.prompt.version == refined_again(target)


def refined_again(target: RefineTarget) -> str:
    """Return the version that is on disk: looking at a candidate writes nothing."""
    return load_project(target.project.root).prompts[PATH].version


BROKEN = {
    "length": after(PROMPT, "Be kind. " * 40),
    "lines": after(PROMPT, *(f"Rule {n}." for n in range(6))),
    "front_matter": PROMPT.replace("inputs: {name: string}", "inputs: {name: {type: string}}"),
    "roles": PROMPT.replace("# system\n", ""),
    "few_shots": PROMPT.replace("Hello Ada.", "Hello dear Ada."),
    "variables": PROMPT.replace(LINE, "Say hello to {{ name | upper }} in a sentence.\n"),
    "template_logic": after(PROMPT, "{% if name %}Be kind.{% endif %}"),
    "output": after(PROMPT, "Answer in JSON."),
    "copied_text": after(PROMPT, f"An example: {ASKED}!"),
    "invisible": after(PROMPT, "Be\u200b kind."),
    "secrets": after(PROMPT, "Use sk-ant-0123456789abcdefghijkl for it."),
    "new": PROMPT.replace("plainly.\n", "plainly.\n\n"),
    "valid": after(PROMPT, "{{ name }"),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_each_guardrail_refuses_what_it_is_for(target: RefineTarget, rule: str) -> None:
    found = broken(target, BROKEN[rule])
    assert rule in found, found
    assert len(found[rule]) < 300


def test_every_guardrail_has_such_a_case() -> None:
    assert {rule.name for rule in RULES} == {*BROKEN, "removed_run"}


def test_a_dropped_and_an_added_variable_are_named(target: RefineTarget) -> None:
    dropped = PROMPT.replace("hello to {{ name }} in", "hello in")
    assert "drops '{{name}}'" in broken(target, dropped)["variables"]
    assert "{{name}}" in broken(target, after(PROMPT, "Twice: {{ name }}"))["variables"]


def test_a_comment_of_the_template_language_is_logic_too(target: RefineTarget) -> None:
    assert "template_logic" in broken(target, after(PROMPT, "{# unseen by the model #}"))


def test_a_heading_in_the_middle_is_refused_as_invalid(target: RefineTarget) -> None:
    found = broken(target, after(PROMPT, "# assistant", "Sure."))
    assert "line" in found["valid"]
    assert "role headings are locked" in found["roles"]


def test_a_fence_that_swallows_a_heading_is_refused(target: RefineTarget) -> None:
    text = PROMPT.replace("You speak plainly.\n", "You speak plainly.\n~~~\n")
    text = text.replace("Hello Ada.\n", "Hello Ada.\n~~~\n")
    assert "role headings are locked" in broken(target, text)["roles"]


def test_many_lines_in_a_row_may_not_go(mini: Folder) -> None:
    lines = "".join(f"Rule number {n} of this house.\n" for n in range(60))
    mini.write(PATH, PROMPT.replace(LINE, LINE + lines))
    target = refined(mini)
    gone = lines.replace("".join(f"Rule number {n} of this house.\n" for n in range(20, 26)), "")
    found = broken(target, PROMPT.replace(LINE, LINE + gone))
    assert found == {"removed_run": "6 lines in a row removed; at most 5"}


@pytest.mark.parametrize("mark", ["\u202e", "\ufeff", "\U000e0041", "\u00a0", "\u3164", "\ufe0f"])
def test_no_unseen_character_gets_in(target: RefineTarget, mark: str) -> None:
    assert f"U+{ord(mark):04X}" in broken(target, after(PROMPT, f"Be{mark}kind."))["invisible"]


def test_a_joiner_that_the_prompt_needs_may_be_used_again(mini: Folder) -> None:
    mini.write(PATH, PROMPT.replace("plainly", "क्\u200dष"))
    target = refined(mini)
    assert not broken(target, after(target.text, "क्\u200dक"))


def test_words_of_a_case_may_be_repeated_up_to_a_point(target: RefineTarget) -> None:
    few = " ".join(ASKED.split()[:8])
    assert not broken(target, after(PROMPT, few))
    more = " ".join(ASKED.split()[:9]).upper().replace(" ", ", ")
    assert "tell me where" in broken(target, after(PROMPT, more))["copied_text"]


def test_words_without_blanks_between_them_are_counted_too(target: RefineTarget) -> None:
    assert "copied_text" in broken(target, after(PROMPT, "鯨は大広間の天井から吊るされています"))
    assert not broken(target, after(PROMPT, "鯨は大広間の天井"))


def test_words_that_the_prompt_had_before_are_its_own(mini: Folder) -> None:
    mini.write(PATH, PROMPT.replace("You speak plainly.", ASKED))
    target = refined(mini)
    assert not broken(target, target.text.replace(ASKED, f"Please: {ASKED}"))


def test_an_answer_that_was_shown_may_not_be_copied_either(target: RefineTarget) -> None:
    background = GuardrailContext(answers=("one two three four five six seven eight nine ten",))
    text = after(PROMPT, "Say: one two three four five six seven eight nine.")
    assert "copied_text" in broken(target, text, background)


def test_what_was_tried_or_rejected_is_not_taken_again(target: RefineTarget) -> None:
    text = after(PROMPT, "Be warm.")
    version = candidate(target, text).version
    assert version is not None
    known = GuardrailContext(known={version: "it was rejected: too warm"})
    assert broken(target, text, known) == {"new": "it was rejected: too warm"}


def test_limits_and_locks_are_those_of_the_experiment(mini: Folder) -> None:
    mini.write(PATH, PROMPT)
    mini.edit(
        "experiments/hello.yaml",
        "gates:",
        "refine: {max_length_chars: 2000, max_lines: 20, max_copied_words: 50, "
        "allow: [variables, front_matter, roles, few_shots]}\ngates:",
    )
    target = refined(mini)
    for rule in ("length", "lines", "front_matter", "few_shots", "variables", "copied_text"):
        assert rule not in broken(target, BROKEN[rule]), rule
    assert "roles" not in broken(target, PROMPT.replace("# system\n", "# user\n", 1))
    for rule in ("template_logic", "invisible", "secrets", "new"):
        assert rule in broken(target, BROKEN[rule]), rule


def test_a_diff_that_does_not_apply_is_refused_before_anything_else(target: RefineTarget) -> None:
    found = check_diff(target, "no diff\n", "note", GuardrailContext())
    assert [(rail.rule, rail.ok) for rail in found.guardrails] == [("applies", False)]
    assert found.change is None
    assert found.reason.startswith("applies: ")


def test_one_of_several_prompts_has_to_be_named(mini: Folder) -> None:
    mini.write("prompts/bye.md", PROMPT.replace("hello", "bye"))
    mini.edit("experiments/hello.yaml", "[prompts/hello.md]", "[prompts/hello.md, prompts/bye.md]")
    project = load_project(mini.path)
    experiment = project.experiments["hello"]
    with pytest.raises(UsageError, match="2 prompts"):
        target_of(project, experiment)
    with pytest.raises(UsageError, match="no prompt 'helo'"):
        target_of(project, experiment, "helo")
    for wanted in ("bye", "prompts/bye.md"):
        target = target_of(project, experiment, wanted)
        assert [prompt.id for prompt in target.experiment.prompts] == ["bye"]


@pytest.mark.parametrize(
    ("text", "said"), [(PROMPT.replace("\n", "\r\n"), "Windows"), (f"\ufeff{PROMPT}", "order mark")]
)
def test_a_prompt_whose_lines_no_diff_can_name_is_refused(
    mini: Folder, text: str, said: str
) -> None:
    mini.write(PATH, text)
    with pytest.raises(UsageError, match=said):
        refined(mini)
