"""Keys that a job needs and does not have: which secret, which workflow file, which step."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from edison_ci.errors import UsageError
from edison_ci.forge.workflow_step import step_of
from edison_ci.git.repository import Repository
from edison_ci.operate.workflows import Variables

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model


def require_keys(project: Project, experiments: Iterable[Experiment]) -> None:
    """Raise UsageError if a model of the experiments has no key in the environment of this job.

    GitHub passes a secret that does not exist on as an empty text, so an empty variable is one that
    the workflow names and the repository lacks.
    """
    models = _models(project, experiments)
    variables = Variables.of(models)
    lines = variables.lines
    missing = [name for name in lines if not os.environ.get(name, "").strip()]
    if not missing:
        return
    repository = Repository.find(project.root)
    step = step_of(os.environ, project.root if repository is None else repository.root)
    unknown = [name for name in missing if name not in os.environ]
    chosen = unknown or missing
    plural = len(chosen) > 1
    kind = "secret" if chosen[0] in variables.secrets else "variable"
    names = ", ".join(chosen)
    needed = ", ".join(model.name for model in models if {*chosen} & {*_names(model)})
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
    found: dict[str, Model] = {}
    for experiment in experiments:
        found |= {model.name: model for _, model, _ in experiment.models}
        judging = sorted(project.judging_models_of(experiment))
        found |= {name: project.models[name] for name in judging}
    return [*found.values()]


def _names(model: Model) -> list[str]:
    return [*model.keys.values(), *([model.base_url_env] if model.base_url_env else [])]
