"""Files of GitHub Models are graded as `gh models eval` grades them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci.documents.yaml_text import read_yaml
from edison_ci.features.importing.fidelity import Status
from tests.features.importing.golden import come

if TYPE_CHECKING:
    from pathlib import Path

    from tests.features.importing.golden import Outcome

HEAD = """\
name: Greeting
model: openai/gpt-4o-mini
messages:
  - {role: system, content: ""}
  - {role: user, content: "Greet {{name}}, who is a guest of ours, in one sentence."}
testData: [{name: Ada}]
"""


def imported(folder: Path, evaluators: str, head: str = HEAD) -> Outcome:
    file = folder / "greeting.prompt.yml"
    file.write_text(f"{head}evaluators:\n{evaluators}", "utf-8")
    return come(file, folder / "project")


def experiment(outcome: Outcome) -> Any:
    return read_yaml(outcome.files["experiments/greeting.yaml"], "greeting.yaml").value


def test_an_empty_system_message_is_dropped(tmp_path: Path) -> None:
    came = imported(tmp_path, "  - {name: Named, string: {contains: ADA}}\n")
    assert "# system" not in came.files["prompts/greeting.md"]
    assert "an empty system message was dropped" in came.told


def test_only_equals_minds_case_and_the_first_key_counts(tmp_path: Path) -> None:
    came = imported(
        tmp_path,
        "  - {name: One, string: {contains: ADA, startsWith: hello}}\n"
        "  - {name: Two, string: {endsWith: BYE}}\n"
        "  - {name: Three, string: {equals: Hello}}\n",
    )
    checks = experiment(came)["checks"]
    assert [next(iter(check)) for check in checks] == ["icontains", "ends_with", "equals"]
    assert checks[1]["ends_with"]["ignore_case"] is True
    assert "ignore_case" not in checks[2]["equals"]
    (left,) = [e for e in came.imported.fidelity.entries if e.key.endswith("startsWith")]
    assert (left.status, left.note) == (Status.MAPPED, "without effect beside contains")


def test_a_choice_above_0_passes(tmp_path: Path) -> None:
    came = imported(
        tmp_path,
        "  - name: Judge\n    llm:\n      modelId: openai/gpt-4o\n"
        '      prompt: "Is this kind? {{completion}}"\n'
        "      choices: [{choice: no, score: 0}, {choice: half, score: 0.3}, "
        "{choice: yes, score: 1}]\n",
    )
    (grader,) = experiment(came)["judges"]["graders"]
    assert grader["threshold"] == 0.3


def test_a_budget_needs_prices(tmp_path: Path) -> None:
    known = imported(tmp_path, "  - {name: Named, string: {contains: Ada}}\n")
    assert "budget_usd: 5" in known.files["edison.yaml"]
    head = HEAD.replace("openai/gpt-4o-mini", "openai/gpt-of-nobody")
    unknown = imported(tmp_path, "  - {name: Named, string: {contains: Ada}}\n", head)
    assert "budget_usd" not in unknown.files["edison.yaml"]


def test_a_file_without_a_model_gets_a_simulated_one(tmp_path: Path) -> None:
    head = HEAD.replace("model: openai/gpt-4o-mini\n", "")
    came = imported(tmp_path, "  - {name: Named, string: {contains: Ada}}\n", head)
    assert "it names no model: the simulated model stand-in echoes the prompt" in came.told
    assert "stand-in" in came.files["models.yaml"]
