"""Errors of a first project: each cause once, with what to type, and only where it matters."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import Edison, Folder

EXPERIMENT = "experiments/hello.yaml"
ADDRESS = "http://127.0.0.1:8971"


def own_endpoint(folder: Folder, models: int) -> None:
    """Give the project models of an own service, whose key is not trusted yet."""
    folder.write(
        "models.yaml",
        folder.read("models.yaml")
        + "".join(
            f"own{number}: {{provider: openai_compatible, base_url: {ADDRESS}/v1, "
            f"model: m{number}, key_env: MY_KEY, price: free}}\n"
            for number in range(models)
        ),
    )
    names = ", ".join(f"own{number}" for number in range(models))
    folder.edit(EXPERIMENT, "[small]", f"[{names}]")


def test_the_hint_about_a_key_is_the_command_that_allows_it(edison: Edison, mini: Folder) -> None:
    own_endpoint(mini, 3)
    shown = edison(mini, "validate")
    assert shown.code == 2
    assert shown.all.count("would send MY_KEY") == 1
    assert "models 'own0', 'own1', 'own2' would send MY_KEY" in shown.all
    command = f"edison trust add MY_KEY {ADDRESS}"
    assert [command] == [line.strip() for line in shown.all.splitlines() if "trust add" in line]
    assert edison(mini, *shlex.split(command)[1:]).code == 0
    assert edison(mini, "validate").code == 0


def test_a_key_for_another_machine_needs_the_option_that_the_hint_has(
    edison: Edison, mini: Folder
) -> None:
    own_endpoint(mini, 1)
    mini.write("models.yaml", mini.read("models.yaml").replace("127.0.0.1", "llm.lan"))
    (line,) = [s for s in edison(mini, "validate").all.splitlines() if "trust add" in s]
    before, _, command = line.strip().partition(": ")
    assert before == "use https://, or in a network of your own"
    assert command == "edison trust add MY_KEY http://llm.lan:8971 --unencrypted"
    assert edison(mini, *shlex.split(command)[1:]).code == 0
    assert edison(mini, "validate").code == 0


def test_a_key_that_is_not_set_is_reported_once(edison: Edison, mini: Folder) -> None:
    own_endpoint(mini, 3)
    assert edison(mini, "trust", "add", "MY_KEY", ADDRESS).code == 0
    sentence = "MY_KEY is not set (own0, own1, own2 need it)"
    for command in (("run", "--yes"), ("plan",)):
        assert edison(mini, *command).all.count("MY_KEY is not set") == 1
        assert sentence in edison(mini, *command).all
    hint = "    export MY_KEY=..., or seal the key: edison secrets seal MY_KEY"
    assert hint in edison(mini, "run", "--yes").all.splitlines()


@pytest.mark.parametrize(
    "command",
    [
        ("dataset", "add", "hello", "--set", "name=Cy", "--expected", "Cy", "--yes"),
        ("dataset", "import", "rows.jsonl", "--experiment", "hello", "--yes"),
        ("dataset", "stats", "hello"),
        ("assist", "objective", "hello", "--hints", "Greet people", "--by", "assistant", "--yes"),
        ("plan", "hello"),
        ("run", "hello", "--yes"),
    ],
    ids=" ".join,
)
def test_an_invalid_file_stops_only_commands_that_use_it(
    edison: Edison, mini: Folder, command: tuple[str, ...]
) -> None:
    mini.write(
        "models.yaml", mini.read("models.yaml") + "assistant: {provider: sim, model: assistant}\n"
    )
    mini.write("rows.jsonl", json.dumps({"id": "cy", "input": {"name": "Cy"}, "expected": "Cy"}))
    mini.write("experiments/other.yaml", "experiment: other\nmodels: [none]\n")
    mini.write("prompts/draft.md", "---\nid: [\n---\n# user\nHi\n")
    done = edison(mini, *command)
    assert done.code == 0, done.all
    mini.edit(EXPERIMENT, "prompts/hello.md", "prompts/draft.md")
    broken = edison(mini, *command)
    assert broken.code == 2, broken.all


def test_keys_are_not_judged_by_a_trust_file_that_cannot_be_read(
    edison: Edison, mini: Folder
) -> None:
    own_endpoint(mini, 1)
    mini.write(".edison/trust.yaml", f'{{env: MY_KEY, hosts: ["{ADDRESS}"]}}\n')
    shown = edison(mini, "validate").all
    assert ".edison/trust.yaml:1:2: error: unknown key 'env'" in shown
    assert "would send" not in shown


def test_a_registry_that_cannot_be_read_is_one_error(edison: Edison, mini: Folder) -> None:
    mini.write("models.yaml", "small:\n\tprovider: sim\n\tmodel: small\n")
    done = edison(mini, "validate")
    assert done.all.splitlines() == [
        "models.yaml:2:1: error: not valid YAML: a tab is in the indentation of this line",
        "    indent with spaces, not with tabs",
        "1 error",
    ]


def test_an_empty_experiment_and_an_empty_dataset_say_so(edison: Edison, mini: Folder) -> None:
    mini.write("datasets/names.jsonl", "")
    shown = edison(mini, "validate").all
    assert "there is no case in datasets/names.jsonl" in shown
    (line,) = [line for line in shown.splitlines() if "add one: " in line]
    command = line.partition("add one: ")[2]
    assert command == "edison dataset add hello --set name=TEXT"
    assert edison(mini, *shlex.split(command)[1:], "--yes").code == 0
    assert "there is no case" not in edison(mini, "validate").all
    mini.write(EXPERIMENT, "")
    assert "the file is empty" in edison(mini, "validate").all


@pytest.mark.parametrize(
    ("word", "command"), [("test", "run"), ("eval", "run"), ("check", "validate"), ("ls", "status")]
)
def test_words_of_other_tools_are_understood(
    edison: Edison, mini: Folder, word: str, command: str
) -> None:
    done = edison(mini, word)
    assert done.code == 2
    assert f"unknown command {word!r}; did you mean {command!r}?" in done.err


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ('{"a": null}', "$.a: null is not of type 'string'"),
        ('{"a": true}', "$.a: true is not of type 'string'"),
        ("null", "$: null is not of type 'object'"),
        ('{"a": "x", "b": [null]}', "$.b: [null] is not one of [null, false]"),
    ],
)
def test_values_of_json_are_written_as_json(
    edison: Edison, mini: Folder, answer: str, reason: str
) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"enum": [None, False]}},
    }
    mini.write("schemas/own.json", json.dumps(schema))
    mini.write("datasets/names.jsonl", json.dumps({"id": "ada", "input": {"name": answer}}))
    mini.write("prompts/hello.md", "---\nid: hello\n---\n# user\n{{ name }}\n")
    mini.write("models.yaml", "small: {provider: sim, model: echo}\n")
    mini.edit(EXPERIMENT, 'contains: "{{ expected }}"', "json_schema: schemas/own.json")
    mini.edit(EXPERIMENT, "rubric: rubrics/tone.yaml\njudges: {pointwise: [judge]}\n", "")
    edison(mini, "run", "--yes")
    assert reason in edison(mini, "explain", "ada").out
