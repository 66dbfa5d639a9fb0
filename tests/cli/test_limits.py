"""Prompts and cases that exceed the limits of a model are named before any call."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.config import tokens

if TYPE_CHECKING:
    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily

GPT_4 = "{provider: openai, model: gpt-4}"
JUDGE = "judge: {provider: sim, model: judge}\n"
ALONE = "is longer than the context of small (8,192 tokens) and will be refused"
TOGETHER = (
    "is longer, with max_tokens (4,096), than the context of small (8,192 tokens) "
    "and may be refused"
)


def row(name: str, words: int) -> str:
    inputs = {"name": "word " * words}
    return json.dumps({"id": name, "input": inputs, "expected": "x"}) + "\n"


@pytest.fixture
def wordy(mini: Folder) -> Folder:
    """A project with a case beyond the context of its model, and one beyond it with an answer."""
    mini.write("models.yaml", f"small: {GPT_4}\n{JUDGE}")
    short = mini.read("datasets/names.jsonl")
    mini.write("datasets/names.jsonl", short + row("long", 9_000) + row("middle", 5_000))
    return mini


def warned(done: str) -> list[str]:
    """Return the messages of the warnings about contexts in a JSON document."""
    document = json.loads(done)
    found: list[Any] = document.get("problems", document.get("warnings"))
    if found is None:
        found = [w for one in document["experiments"] for w in one["warnings"]]
    return [one["message"] for one in found if one["code"] == "context"]


@pytest.mark.parametrize("command", ["validate", "plan"])
def test_cases_beyond_the_context_are_named(edison: Edison, wordy: Folder, command: str) -> None:
    done = edison(wordy, command)
    assert done.code == 0, done.all
    assert f"prompts/hello.md:5:1: warning: 1 of 4 cases {ALONE}: long" in done.all
    assert f"1 of 4 cases {TOGETHER}: middle" in done.all
    assert "shorten the input, or use a model with a larger context" in done.all
    assert len(warned(edison(wordy, command, "--json").out)) == 2


def test_a_rendered_case_is_named(edison: Edison, wordy: Folder) -> None:
    done = edison(wordy, "try", "--dry-run", "hello", "--case", "long")
    assert (done.code, f"case 'long' {ALONE}" in done.err) == (0, True), done.err
    done = edison(wordy, "try", "--dry-run", "hello", "--case", "middle", "--json")
    assert warned(done.out) == [f"case 'middle' {TOGETHER}"]
    assert warned(edison(wordy, "try", "--dry-run", "hello", "--json").out) == []


def test_each_configuration_has_its_own_room(edison: Edison, wordy: Folder) -> None:
    wordy.edit(
        "experiments/hello.yaml", "[small]", "[{use: small, params: {max_tokens: [100, 4096]}}]"
    )
    said = warned(edison(wordy, "validate", "--json").out)
    assert [message.rpartition(": ")[2] for message in said] == ["long", "long", "middle"]
    assert "small[max_tokens=4096]" in said[2]


def test_the_first_of_many_cases_are_named(edison: Edison, wordy: Folder) -> None:
    wordy.write("datasets/names.jsonl", "".join(row(f"c{n}", 9_000) for n in range(7)))
    (said,) = warned(edison(wordy, "validate", "--json").out)
    assert said.startswith("7 of 7 cases are longer than the context of small")
    assert said.endswith(": c0, c1, c2, c3, c4, ...")


def test_tools_and_output_schema_count(edison: Edison, wordy: Folder) -> None:
    wordy.write("datasets/names.jsonl", row("fits", 3_900))
    assert warned(edison(wordy, "validate", "--json").out) == []
    schema = {"type": "object", "description": "word " * 300}
    wordy.edit("prompts/hello.md", "id: hello\n", f"id: hello\noutput: {json.dumps(schema)}\n")
    assert len(warned(edison(wordy, "validate", "--json").out)) == 1


def test_a_loop_in_a_prompt_is_counted_as_rendered(edison: Edison, wordy: Folder) -> None:
    wordy.edit("prompts/hello.md", "{{ name }}", "{% for one in name %}word {% endfor %}")
    listed = {"id": "c", "input": {"name": [0] * 9_000}, "expected": "x"}
    wordy.write("datasets/names.jsonl", json.dumps(listed) + "\n")
    (said,) = warned(edison(wordy, "validate", "--json").out)
    assert said.endswith(": c")


@pytest.mark.parametrize("command", ["validate", "plan"])
def test_a_long_case_after_thousands_is_found_without_counting_the_others(
    edison: Edison, wordy: Folder, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    many = "datasets:\n  - {path: datasets/names.jsonl, limits: {max_rows: 10000}}"
    wordy.edit("experiments/hello.yaml", "dataset: datasets/names.jsonl", many)
    rows = [row(f"c{n}", 1) for n in range(6_000)]
    wordy.write("datasets/names.jsonl", "".join(rows) + row("long", 9_000))
    counted = []
    exceeded = tokens.exceeded

    def counting(*args: Any) -> Any:
        counted.append(args)
        return exceeded(*args)

    monkeypatch.setattr(tokens, "exceeded", counting)
    (said,) = warned(edison(wordy, command, "--json").out)
    assert said.endswith(": long")
    assert len(counted) == 1


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("models.yaml", "model: gpt-4}", "model: gpt-4, params: {max_tokens: 5000}}", ""),
        ("prompts/hello.md", "id: hello\n", "id: hello\nparams: {max_tokens: 5000}\n",
         "small: prompts/hello.md: "),
        ("experiments/hello.yaml", "[small]", "[{use: small, params: {max_tokens: 5000}}]",
         "small[max_tokens=5000]: "),
        ("experiments/hello.yaml", "[small]", "[{use: small, params: {max_tokens: [9, 5000]}}]",
         "small[max_tokens=5000]: "),
    ],
)  # fmt: skip
def test_answers_beyond_the_output_limit_are_an_error(
    edison: Edison, mini: Folder, file: str, old: str, new: str, said: str
) -> None:
    mini.write("models.yaml", f"small: {GPT_4}\n{JUDGE}")
    mini.edit(file, old, new)
    done = edison(mini, "validate")
    assert done.code == 2
    assert f"{said}max_tokens is 5,000; gpt-4 writes at most 4,096" in done.all
    assert "1 error" in done.all


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ("{max_tokens: 5000}", "small: prompts/tone.md: max_tokens is 5,000"),
        ("{reasoning: low}", "small: gpt-4 takes no reasoning; it is not sent"),
    ],
)
def test_the_parameters_of_a_grader_are_checked_too(
    edison: Edison, mini: Folder, params: str, said: str
) -> None:
    mini.write("models.yaml", f"small: {GPT_4}\n{JUDGE}")
    mini.write(
        "prompts/tone.md",
        f"---\nid: tone\ntype: grader\nparams: {params}\n---\nFriendly? {{{{ output }}}}\n",
    )
    grader = "[judge], graders: [{prompt: prompts/tone.md, by: small}]}"
    mini.edit("experiments/hello.yaml", "[judge]}", grader)
    assert said in edison(mini, "validate").all


def test_a_prompt_and_a_registry_entry_are_checked_together(edison: Edison, mini: Folder) -> None:
    opus = "{provider: anthropic, model: claude-opus-4-5, params: {reasoning: low}}"
    mini.write("models.yaml", f"small: {opus}\n{JUDGE}")
    mini.edit("prompts/hello.md", "id: hello\n", "id: hello\nparams: {max_tokens: 500}\n")
    done = edison(mini, "validate")
    assert (done.code, "claude-opus-4-5 needs max_tokens above 1,024" in done.all) == (2, True)


@pytest.mark.parametrize(
    ("entry", "key", "what"),
    [
        ("{provider: openai, model: gpt-4}", "output: {type: object}", "output schema"),
        ("{provider: openai, model: o3-deep-research}", "tools: [{name: a}]", "tools"),
    ],
)
def test_what_a_model_cannot_do_is_said(
    edison: Edison, mini: Folder, entry: str, key: str, what: str
) -> None:
    mini.write("models.yaml", f"small: {entry}\n{JUDGE}")
    mini.edit("prompts/hello.md", "id: hello\n", f"id: hello\n{key}\n")
    said = f"takes no {what}, according to the table of models, but prompts/hello.md has"
    assert said in edison(mini, "validate").all
