"""Fingerprints: what decides the result of an experiment, in one hash.

Everything a run depends on counts, and nothing else: not titles and descriptions, not where on a
disk the project lies, not the order of cases or of files, not how fast a model may be driven.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from edison_ci.checks.options import REGISTRY
from edison_ci.config import project_files
from edison_ci.config.experiment import JUDGES
from edison_ci.documents.files import file_digest
from edison_ci.templating.templates import Template

if TYPE_CHECKING:
    from edison_ci.config.load import Experiment, Project
    from edison_ci.records import Case

_EVAL_SUITE = (
    "experiment",
    "objective",
    "prompts",
    "models",
    "split",
    "repeats",
    "checks",
    "rubric",
    "judges",
    "safety",
    "gates",
    "max_errors",
    "stop",
    "refine",
)
"""Keys of an experiment that a run depends on; its data counts case by case."""
_SUITE_SETTINGS = ("allow_code", "redact_pii_before_storage")
# Made once: `json.dumps` would make an encoder for each of a million cases.
_CANONICAL = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode


class Fingerprint:
    """Adds up everything a run depends on; cases are fed one by one, in any order."""

    def __init__(self, project: Project, experiment: Experiment) -> None:
        self._described = _digest(describe(project, experiment))
        self._cases = 0

    def feed(self, case: Case) -> None:
        """Add a case."""
        content = [case.id, case.inputs, case.expected, case.tags]
        digest = _digest([*content, case.difficulty, case.cluster, case.kind])
        # A sum is the same in any order; ids differ, so no two cases cancel each other.
        self._cases += int.from_bytes(digest, "big")

    def hexdigest(self) -> str:
        """Return the hash of all that was added."""
        cases = (self._cases % 2**256).to_bytes(32, "big")
        return hashlib.sha256(self._described + cases).hexdigest()


def describe(project: Project, experiment: Experiment) -> dict[str, Any]:
    """Return everything but the cases that a run depends on, by the place where it is written."""
    parts: dict[str, Any] = {
        experiment.path: _experiment(project, experiment),
        **{prompt.path: [prompt.version, prompt.expect] for prompt in experiment.prompts},
        **{
            prompt.path: [prompt.version, plain(prompt.header.scale)]
            for prompt in experiment.graders
        },
        **experiment.schemas,
    }
    if experiment.file.rubric is not None:
        parts[experiment.file.rubric.path] = plain(experiment.rubric)
    generating = {model.name: model for _, model, _ in experiment.models}
    others = {name: project.models[name] for name in project.other_models_of(experiment)}
    for name, model in {**generating, **others}.items():
        place = f"{project.file.paths.models}: {name}"
        # Parameters of a generating model are listed with the experiment, prompt by prompt.
        parts[place] = [model.identity(), plain(model.params) if name in others else None]
        price = project.prices.price_of(model)
        parts[f"the price of {name}"] = price and price.as_json()
    for path in sorted(project.raw_files_of(experiment)):
        parts[path] = file_digest(project.tree, path)
    rubric = experiment.rubric
    if rubric is not None and rubric.calibration is not None:
        # An approval decides whether a judge may decide a gate.
        approvals = () if project.approvals is None else project.approvals.approvals
        own = [entry for entry in approvals if entry.rubric == rubric.rubric]
        parts[project_files.JUDGE_APPROVALS] = plain(own)
    for registry, names in (
        (REGISTRY, {check.check for check in experiment.all_checks()}),
        (JUDGES, experiment.judge_plugins),
    ):
        # What a plugin grades may change with its version.
        packages = {name: registry.package(name) for name in sorted(names)}
        parts |= {f"the plugin {name}": package for name, package in packages.items() if package}
    settings = {key: getattr(project.file.settings, key) for key in _SUITE_SETTINGS}
    if project.file.features:
        parts["edison.yaml: features"] = plain(project.file.features)
    aside = {entry.case for entry in project.quarantine if entry.experiment == experiment.id}
    return {**parts, "edison.yaml: settings": settings, "quarantine.yaml": sorted(aside)}


def _experiment(project: Project, experiment: Experiment) -> dict[str, Any]:
    """Return the eval suite keys of the experiment's file, with the defaults that apply to it."""
    file, defaults = experiment.file, project.file.defaults
    described = {key: plain(getattr(file, key)) for key in _EVAL_SUITE}
    sent = [experiment.configurations(prompt) for prompt in experiment.prompts]
    described["models"] = [
        [c.name, c.model.name, plain(c.params)] for configurations in sent for c in configurations
    ]
    judges = [judge.name for judge in experiment.judges]
    described["judges"]["pointwise"] = [*judges, *experiment.judge_plugins]
    for grader in described["judges"]["graders"]:
        grader["by"] = grader["by"] or defaults.judge
    described["refine"]["by"] = file.refine.by or defaults.refiner
    described["stop"]["budget_usd"] = plain(file.stop.budget_usd or defaults.budget_usd)
    described["stop"]["max_iterations"] = file.stop.max_iterations or defaults.max_iterations
    if file.features:
        described["features"] = plain(file.features)
    return described


def _digest(value: Any) -> bytes:
    return hashlib.sha256(_CANONICAL(value).encode("utf-8", errors="surrogatepass")).digest()


def plain(value: Any) -> Any:
    """Return a value as JSON; a template is its source, a check its name and options."""
    if isinstance(value, Template):
        return value.source
    if isinstance(value, BaseModel):
        fields = {
            name: plain(getattr(value, name))
            for name, field in type(value).model_fields.items()
            if not field.exclude  # only for readers, such as a description
        }
        return {"check": getattr(value, "check", None), **fields}
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, float) and value.is_integer():
        return int(value)  # a default may be 1 where what is written becomes 1.0
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    if isinstance(value, Iterable):
        return [plain(item) for item in value]
    return str(value)
