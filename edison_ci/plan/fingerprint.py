"""What decides the result of an experiment, in one hash?"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from edison_ci.templating import Template

if TYPE_CHECKING:
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.records import Case

_NOT_MATERIAL = {"title", "description", "archived", "schedule", "alerts", "tags", "version"}


class Fingerprint:
    """Adds up everything a run depends on; cases are fed one by one."""

    def __init__(self, project: Project, experiment: Experiment) -> None:
        self._hash = hashlib.sha256()
        self._add(describe(project, experiment))

    def feed(self, case: Case) -> None:
        """Add a case."""
        self._add(
            [
                case.id,
                case.inputs,
                case.expected,
                case.tags,
                case.difficulty,
                case.cluster,
                case.kind,
            ]
        )

    def hexdigest(self) -> str:
        """Return the hash of all that was added."""
        return self._hash.hexdigest()

    def _add(self, value: Any) -> None:
        text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        self._hash.update(text.encode("utf-8", errors="surrogatepass"))
        self._hash.update(b"\n")


def describe(project: Project, experiment: Experiment) -> dict[str, Any]:
    """Return everything but the cases that a run of the experiment depends on."""
    file = experiment.file
    graders = zip(experiment.graders, file.judges.graders, strict=True)
    quarantined = [c for c in project.quarantine.cases if c.experiment == experiment.id]
    return {
        "experiment": {
            key: plain(getattr(file, key))
            for key in type(file).model_fields
            if key not in _NOT_MATERIAL
        },
        "prompts": {p.path: [p.version, p.expect] for p in experiment.prompts},
        "graders": [
            [
                g.version,
                plain(g.header.scale),
                _model(project, use.by or project.file.defaults.judge),
            ]
            for g, use in graders
        ],
        "models": [
            [name, _model_part(project, model), plain(params)]
            for name, model, params in experiment.models
        ],
        "judges": [_model_part(project, judge) for judge in experiment.judges],
        "others": [_model(project, name) for name in _other_models(project, experiment)],
        "rubric": plain(experiment.rubric),
        "schemas": experiment.schemas,
        "defaults": plain(project.file.defaults),
        "settings": plain(project.file.settings),
        "quarantine": plain(quarantined),
    }


def _other_models(project: Project, experiment: Experiment) -> list[str | None]:
    file = experiment.file
    screens = (file.safety.moderation, file.safety.toxicity)
    return [
        file.judges.pairwise.by if file.judges.pairwise else None,
        file.refine.by or project.file.defaults.refiner,
        *(screen.by if screen else None for screen in screens),
    ]


def _model(project: Project, name: str | None) -> Any:
    model = project.models.get(name) if name else None
    return _model_part(project, model) if model else name


def _model_part(project: Project, model: Model) -> list[Any]:
    price = project.prices.price_of(model)
    return [model.name, model.identity(), plain(model.params), plain(price)]


def plain(value: Any) -> Any:
    """Return a value as JSON; a template is its source, a check its name and options."""
    if isinstance(value, Template):
        return value.source
    if isinstance(value, BaseModel):
        fields = {name: plain(getattr(value, name)) for name in type(value).model_fields}
        return {"check": getattr(value, "check", None), **fields}
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    if isinstance(value, Iterable):
        return [plain(item) for item in value]
    return str(value)
