"""Keys that a job needs and does not have: which secret, which workflow file, which step."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.access import proposal_terms
from edison_ci.access.job import key_environment
from edison_ci.api import workflows
from edison_ci.config import sealed as config_sealed
from edison_ci.documents.marks import Fault
from edison_ci.documents.yaml_text import read_yaml
from edison_ci.errors import UsageError
from edison_ci.git import repository as git

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model

_PLACE = re.compile(r"[^/]+/[^/]+/(\.github/workflows/[^/@]+)@")
"""GITHUB_WORKFLOW_REF: repository, path and ref."""
_OURS = re.compile(r"\bedison\S* github run\b|edison-ci")
_MOST_BYTES = 1_000_000


def require_keys(project: Project, experiments: Iterable[Experiment]) -> None:
    """Raise UsageError if a model of the experiments has no key in this job, set or sealed.

    GitHub passes a secret that does not exist on as an empty text, so an empty variable is one that
    the workflow names and the repository lacks.
    """
    terms = proposal_terms.apply_base_terms(project)
    models = [m for m in _models(project, experiments) if not terms.has_identity(m)]
    keys = key_environment(project)
    variables = workflows.Variables.of(models, keys.secrets)
    named = [name for name in variables.lines if name != config_sealed.PRIVATE_KEY]
    missing = [name for name in named if not keys.has(name)]
    sealed = [name for name in named if not keys.is_set(name)]
    if not missing and (not sealed or keys.is_set(config_sealed.PRIVATE_KEY)):
        for name in sealed:
            keys.get(name)  # raises if it cannot be opened
        return
    users = {*missing} if missing else {*sealed}
    names = ", ".join(m.name for m in models if users & {*m.variables})
    needs = f"{'models' if ',' in names else 'model'} {names} {'need' if ',' in names else 'needs'}"
    raise _missing_error(project, variables, missing or [config_sealed.PRIVATE_KEY], needs)


def _missing_error(
    project: Project, variables: workflows.Variables, missing: Sequence[str], needs: str
) -> UsageError:
    """Return the error about variables that the step does not pass on, or that are empty."""
    repository = git.Repository.find(project.root)
    step = step_of(os.environ, project.root if repository is None else repository.root)
    if unknown := [name for name in missing if name not in os.environ]:
        lines = "; ".join(variables.lines[name].strip() for name in unknown)
        return UsageError(
            f"{step.words} does not pass on {', '.join(unknown)}, which {needs}",
            hint=f"add to env of the step: {lines}",
        )
    plural = len(missing) > 1
    them = "them" if plural else "it"
    kind = "secret" if missing[0] in variables.secrets else "variable"
    return UsageError(
        f"the {kind}{'s' if plural else ''} {', '.join(missing)} of the repository "
        f"{'are' if plural else 'is'} missing or empty: {step.words} passes on nothing, and "
        f"{needs} {them}",
        hint=f"add {them} under Settings, Secrets and variables, Actions, or "
        f"with: {'; '.join(f'gh {kind} set {name}' for name in missing)}",
    )


def _models(project: Project, experiments: Iterable[Experiment]) -> list[Model]:
    """Return the models that answer and judge in experiments, each once."""
    models: dict[str, Model] = {}
    for experiment in experiments:
        models |= {model.name: model for _, model, _ in experiment.models}
        judging = sorted(project.judging_models_of(experiment))
        models |= {name: project.models[name] for name in judging}
    return [*models.values()]


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
