"""The step that edison runs in is found in the workflow's file, or not named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from edison_ci.features.github.missing_keys import WorkflowStep, step_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.daily

FILE = ".github/workflows/ours.yml"
TEXT = """\
on: pull_request
jobs:
  lint: {steps: [{name: Other, run: "edison github run"}]}
  evaluate:
    steps:
      - {name: Check out, uses: actions/checkout@v7}
      - {name: Prompts, id: ours, run: make prompts}
      - {name: Evaluate, run: 'exec "$RUNNER_TEMP/edison-ci/edison" github run'}
"""


def found(root: Path, **changes: str) -> WorkflowStep:
    given = {
        "GITHUB_WORKFLOW_REF": f"acme/prompts/{FILE}@refs/heads/main",
        "GITHUB_JOB": "evaluate",
    }
    return step_of({**given, **changes}, root)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / FILE
    path.parent.mkdir(parents=True)
    path.write_text(TEXT, encoding="utf-8")
    return tmp_path


def test_the_step_is_that_of_the_id_or_the_one_that_runs_edison(root: Path) -> None:
    assert found(root) == WorkflowStep(FILE, "Evaluate")
    assert found(root, GITHUB_ACTION="ours") == WorkflowStep(FILE, "Prompts")
    assert found(root, GITHUB_ACTION="__run_2") == WorkflowStep(FILE, "Evaluate")
    assert found(root, GITHUB_JOB="lint") == WorkflowStep(FILE, "Other")
    assert found(root).words == f"the step 'Evaluate' of {FILE}"


def test_what_is_not_known_is_left_out(root: Path) -> None:
    assert found(root, GITHUB_JOB="none") == WorkflowStep(FILE)
    assert found(root, GITHUB_JOB="none").words == f"the step that runs edison of {FILE}"
    assert step_of({}, root) == WorkflowStep()
    assert found(root, GITHUB_WORKFLOW_REF="acme/prompts/../../etc/passwd@x") == WorkflowStep()


@pytest.mark.parametrize("text", ["", "[", "jobs: []", "jobs: {evaluate: {steps: {}}}", "a: \t"])
def test_a_file_that_is_no_workflow_is_no_error(root: Path, text: str) -> None:
    (root / FILE).write_text(text, encoding="utf-8")
    assert found(root) == WorkflowStep(FILE)
