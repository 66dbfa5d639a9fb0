"""Keys that a job needs and does not have: which secret, which workflow file, which step."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from edison_ci.access import proposal_terms
from edison_ci.access.job import key_environment
from edison_ci.api import workflows
from edison_ci.config import sealed as config_sealed
from edison_ci.errors import UsageError
from edison_ci.features.github import workflow_step
from edison_ci.git import repository as git

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model


def require_keys(project: Project, experiments: Iterable[Experiment]) -> None:
    """Raise UsageError if a model of the experiments has no key in this job, set or sealed.

    GitHub passes a secret that does not exist on as an empty text, so an empty variable is one that
    the workflow names and the repository lacks.
    """
    terms = proposal_terms.apply_base_terms(project)
    models = [m for m in _models(project, experiments) if not terms.has_identity(m)]
    keys = key_environment(project)
    variables = workflows.Variables.of(models, keys.secrets)
    lines = variables.lines
    named = [name for name in lines if name != config_sealed.PRIVATE_KEY]
    missing = [name for name in named if not keys.has(name)]
    sealed = [name for name in named if not keys.is_set(name)]
    if not missing and (not sealed or keys.is_set(config_sealed.PRIVATE_KEY)):
        for name in sealed:
            keys.get(name)  # raises if it cannot be opened
        return
    users = {*missing} if missing else {*sealed}
    missing = missing or [config_sealed.PRIVATE_KEY]
    repository = git.Repository.find(project.root)
    step = workflow_step.step_of(
        os.environ, project.root if repository is None else repository.root
    )
    unknown = [name for name in missing if name not in os.environ]
    chosen = unknown or missing
    plural = len(chosen) > 1
    kind = "secret" if chosen[0] in variables.secrets else "variable"
    names = ", ".join(chosen)
    needed = ", ".join(m.name for m in models if users & {*m.variables})
    needs = f"{'models' if ',' in needed else 'model'} {needed}"
    if unknown:
        raise UsageError(
            f"{step.words} does not pass on {names}, which {needs} "
            f"{'need' if ',' in needed else 'needs'}",
            hint=f"add to env of the step: {'; '.join(lines[name].strip() for name in chosen)}",
        )
    raise UsageError(
        f"the {kind}{'s' if plural else ''} {names} of the repository {'are' if plural else 'is'} "
        f"missing or empty: {step.words} passes on nothing, and {needs} "
        f"{'need' if ',' in needed else 'needs'} {'them' if plural else 'it'}",
        hint=f"add {'them' if plural else 'it'} under Settings, Secrets and variables, Actions, or "
        f"with: {'; '.join(f'gh {kind} set {name}' for name in chosen)}",
    )


def _models(project: Project, experiments: Iterable[Experiment]) -> list[Model]:
    """Return the models that answer and judge in experiments, each once."""
    models: dict[str, Model] = {}
    for experiment in experiments:
        models |= {model.name: model for _, model, _ in experiment.models}
        judging = sorted(project.judging_models_of(experiment))
        models |= {name: project.models[name] for name in judging}
    return [*models.values()]
