"""The step of a workflow that this process runs in, by its name in the workflow's file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.documents.marks import Fault
from edison_ci.documents.yaml_text import read_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_PLACE = re.compile(r"[^/]+/[^/]+/(\.github/workflows/[^/@]+)@")
"""GITHUB_WORKFLOW_REF: repository, path and ref."""
_OURS = re.compile(r"\bedison\S* github run\b|edison-ci")
_MOST_BYTES = 1_000_000


class WorkflowStep(NamedTuple):
    """A step of a workflow; values that are not known are empty."""

    file: str = ""
    """The path of the workflow in the repository."""
    name: str = ""

    @property
    def words(self) -> str:
        """The step in words."""
        step = f"the step {self.name!r}" if self.name else "the step that runs edison"
        return f"{step} of {self.file}" if self.file else f"{step} of the workflow"


def step_of(environ: Mapping[str, str], root: Path) -> WorkflowStep:
    """Return the step of this job that runs edison; `root` is the checkout."""
    match = _PLACE.match(environ.get("GITHUB_WORKFLOW_REF", ""))
    if match is None:
        return WorkflowStep()
    file = match.group(1)
    try:
        with (root / file).open("rb") as stream:
            value = read_yaml(stream.read(_MOST_BYTES), file=file).value
    except (OSError, Fault):
        return WorkflowStep(file)
    steps = _steps(value, environ.get("GITHUB_JOB", ""))
    step_id = environ.get("GITHUB_ACTION", "")
    own = [step for step in steps if step_id and step.get("id") == step_id]
    own += [step for step in steps if _OURS.search(f"{step.get('run')} {step.get('uses')}")]
    return WorkflowStep(file, str(own[0].get("name") or own[0].get("id") or "") if own else "")


def _steps(workflow: Any, job: str) -> list[dict[str, Any]]:
    """Return the steps of a job, as far as the file has them."""
    value = workflow
    for key in ("jobs", job, "steps"):
        value = value.get(key) if isinstance(value, dict) else None
    return [step for step in value if isinstance(step, dict)] if isinstance(value, list) else []
