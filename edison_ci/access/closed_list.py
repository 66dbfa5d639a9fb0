"""The closed list: what a proposal may contribute to its job. Everything else is the base's.

In a job for a proposal the files of the head are combined with those of the newest commit of the
default branch, key by key. Only what is listed here as `HEAD` comes from the head. Of limits and
settings that protect, the stricter value of both applies. Every other key, also one that is added
to a schema some day, has the value of the base, and where the head's differs the verdict is
inconclusive at best, unless the key is listed as `QUIET`: it influences no call, money, code, text
that leaves, or verdict.
"""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pydantic import BaseModel

from edison_ci._dataclass import dataclass
from edison_ci.config import project_files
from edison_ci.config.model_entry import APPLICATIONS, Limits
from edison_ci.config.params import Params
from edison_ci.plan import baseline
from edison_ci.records import BaselineDoubt
from edison_ci.safety import names as safety_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from edison_ci.config.calibration import Labels
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.config.prompt import Prompt
    from edison_ci.config.screens import TextScreens

Shaped = TypeVar("Shaped", bound=BaseModel)


class Rule(Enum):
    """Which value of a key applies in the job."""

    HEAD = "the proposal's"
    QUIET = "the base's; without influence on the job"
    LAYOUT = "the proposal's, as its files lie there; without influence on the job"
    LOWER = "the lower of both"
    HIGHER = "the higher of both"
    EITHER = "true if either is"
    BOTH = "true if both are"


NAMED = (Rule.QUIET, Rule.LAYOUT)
"""Keys whose change is named in one line and leaves the verdict alone."""
Rules = dict[str, "Rule | Rules"]
PROJECT: Rules = {
    "version": Rule.QUIET,
    "project": Rule.QUIET,
    "description": Rule.QUIET,
    "paths": Rule.LAYOUT,
    "team": Rule.QUIET,
    "results": Rule.QUIET,
    "limits": Rule.QUIET,
    "members": Rule.QUIET,
    "notifications": Rule.QUIET,
    "defaults": {
        "model": Rule.HEAD,
        "judge": Rule.HEAD,
        "refiner": Rule.QUIET,
        "assistant": Rule.QUIET,
        "budget_usd": Rule.LOWER,
        "max_iterations": Rule.QUIET,
    },
    "settings": {
        "allow_synthetic_datasets": Rule.BOTH,
        "require_review_approval": Rule.EITHER,
        "approvals": Rule.HIGHER,
        "retention_days": Rule.QUIET,
        "backups": Rule.QUIET,
        "allow_code": Rule.BOTH,
        "redact_pii_before_storage": Rule.EITHER,
        "private": Rule.EITHER,
        "monthly_budget_usd": Rule.LOWER,
    },
}
"""Keys of edison.yaml."""
EXPERIMENT: Rules = {
    "version": Rule.QUIET,
    "experiment": Rule.HEAD,
    "title": Rule.QUIET,
    "description": Rule.QUIET,
    # What the base gates and the head no longer runs is inconclusive by a separate rule.
    "archived": Rule.HEAD,
    "objective": Rule.HEAD,
    "prompts": Rule.HEAD,
    "models": Rule.HEAD,
    "dataset": Rule.HEAD,
    "datasets": Rule.HEAD,
    "coverage": Rule.QUIET,
    "split": Rule.HEAD,
    "repeats": Rule.HEAD,
    "checks": Rule.HEAD,
    "rubric": Rule.HEAD,
    "judges": Rule.HEAD,
    "safety": Rule.HEAD,
    "gates": Rule.HEAD,
    "max_errors": Rule.HEAD,
    "stop": {
        "max_iterations": Rule.QUIET,
        "min_delta": Rule.QUIET,
        "window": Rule.QUIET,
        "budget_usd": Rule.LOWER,
        "daily_budget_usd": Rule.LOWER,
        "max_total_tokens": Rule.LOWER,
        "alert_at": Rule.QUIET,
        "stop_if_no_refinement": Rule.QUIET,
    },
    "refine": Rule.QUIET,
    "schedule": Rule.QUIET,
    "alerts": Rule.QUIET,
    "production": Rule.QUIET,
    "tags": Rule.QUIET,
}
"""Keys of an experiment; its eval suite is compared with that of the base, and the worse counts."""
LIMITS: Rules = dict.fromkeys(Limits.model_fields, Rule.LOWER)
"""Limits of a model: none is raised."""
PROMPT: Rules = {
    "version": Rule.QUIET,
    "id": Rule.HEAD,
    "type": Rule.HEAD,
    "inputs": Rule.HEAD,
    "params": Rule.HEAD,  # but `extra`
    "expect": Rule.HEAD,
    "output": Rule.HEAD,
    "tools": Rule.HEAD,
    "syntax": Rule.HEAD,
    "scale": Rule.HEAD,
    "description": Rule.QUIET,
    "production": Rule.QUIET,
}
"""Keys of the front matter of a prompt; its text is the head's."""


class Overruled(NamedTuple):
    """A key of the head that the job does not follow."""

    place: str
    """File and key."""
    why: str = ""
    """What happens instead; empty if the value of the base applies."""
    decides: bool = True
    """Whether it could change calls, money, code, texts that leave, or the verdict."""


def doubts_about(overruled: Iterable[Overruled]) -> tuple[BaselineDoubt, ...]:
    """Return the reasons for which a job is inconclusive at best."""
    return tuple(
        BaselineDoubt("terms", entry.why or f"{entry.place}: the value of the base was used.")
        for entry in overruled
        if entry.decides
    )


def on_terms_of(base: Project | None, head: Project) -> tuple[Project, tuple[Overruled, ...]]:
    """Return the head as its job evaluates it, and what of it the job does not follow.

    `base` is the project on the newest commit of the default branch; None if there is none.
    """
    terms = _Terms(head, base)
    project = terms.project()
    return project, tuple(dict.fromkeys(terms.overruled))


@dataclass(slots=True)
class _Terms:
    """Combines a head with its base; `overruled` is what of the head is not followed."""

    head: Project
    base: Project | None
    overruled: list[Overruled] = dataclasses.field(default_factory=list)
    refused: dict[str, str] = dataclasses.field(default_factory=dict)

    def project(self) -> Project:
        """Return the head as its job evaluates it."""
        head, base = self.head, self.base
        file = self._merged(head.file, base.file if base else None, PROJECT, "edison.yaml: ")
        former = {} if base is None else baseline.successors(base, head)
        prompts = {path: self._prompt(prompt) for path, prompt in head.prompts.items()}
        experiments = {
            name: self._experiment(experiment, former.get(name, name), prompts)
            for name, experiment in head.experiments.items()
        }
        return replace(
            head,
            file=file,
            models={name: self._model(model) for name, model in head.models.items()},
            refused=self.refused,
            prompts=prompts,
            experiments=experiments,
            approvals=self._whole("approvals", project_files.JUDGE_APPROVALS),
            labels={path: self._labels(path) for path in head.labels},
        )

    def _merged(self, head: Shaped, base: Shaped | None, rules: Rules, place: str) -> Shaped:
        """Return a section with each key by its rule; a new section has the defaults as base."""
        values = {}
        for key, field in type(head).model_fields.items():
            ours, rule = getattr(head, key), rules.get(key)
            theirs = (
                field.get_default(call_default_factory=True) if base is None else getattr(base, key)
            )
            if isinstance(rule, dict) and ours is not None:
                section = None if base is None else theirs
                values[key] = self._merged(ours, section, rule, f"{place}{key}.")
            elif ours == theirs or rule is Rule.HEAD or (base is None and rule in NAMED):
                continue
            else:
                values[key] = _ruled(rule, ours, theirs)
                if rule in NAMED or values[key] != ours:
                    self.overruled.append(Overruled(f"{place}{key}", decides=rule not in NAMED))
        return head.model_copy(update=values)

    def _whole(self, name: str, path: str) -> Any:
        """Return a part of the project that is the base's as a whole."""
        ours = getattr(self.head, name)
        theirs = None if self.base is None else getattr(self.base, name)
        if ours != theirs:
            self.overruled.append(Overruled(path))
        return theirs

    def _labels(self, path: str) -> Labels:
        """Return human grades: those of the base where it has the file."""
        ours = self.head.labels[path]
        theirs = None if self.base is None else self.base.labels.get(path)
        if theirs is None or theirs == ours:
            return ours
        self.overruled.append(Overruled(path))
        return theirs

    def _extra(self, ours: Any, theirs: Any, place: str) -> Any:
        """Return the value of `extra`, which is the base's."""
        if ours != theirs:
            self.overruled.append(Overruled(f"{place}params.extra"))
        return theirs

    def _prompt(self, prompt: Prompt) -> Prompt:
        before = None if self.base is None else self.base.prompts.get(prompt.path)
        place = f"{prompt.path}: "
        header = self._merged(prompt.header, before.header if before else None, PROMPT, place)
        ours, theirs = (_extra_of(side) for side in (prompt, before))
        if ours != theirs:
            written = header.params or Params.model_construct()
            own = {key: getattr(written, key) for key in written.model_fields_set - {"extra"}}
            if (extra := self._extra(ours, theirs, place)) is not None:
                own["extra"] = extra
            header = header.model_copy(update={"params": Params.model_construct(**own)})
        return prompt if header == prompt.header else replace(prompt, header=header)

    def _experiment(
        self, experiment: Experiment, former: str, prompts: Mapping[str, Prompt]
    ) -> Experiment:
        before = None if self.base is None else self.base.experiments.get(former)
        place = f"{experiment.path}: "
        file = self._merged(experiment.file, before.file if before else None, EXPERIMENT, place)
        if before is not None and not _as_strict(file.safety.inputs, before.file.safety.inputs):
            self.overruled.append(Overruled(f"{place}safety.inputs"))
            safety = file.safety.model_copy(update={"inputs": before.file.safety.inputs})
            file = file.model_copy(update={"safety": safety})
        extras = {name: own.get("extra") for name, _, own in before.models} if before else {}
        return replace(
            experiment,
            file=file,
            prompts=tuple(prompts.get(prompt.path, prompt) for prompt in experiment.prompts),
            graders=tuple(prompts.get(prompt.path, prompt) for prompt in experiment.graders),
            models=tuple(
                (name, self._model(model), self._params(own, extras.get(name), place))
                for name, model, own in experiment.models
            ),
            judges=tuple(map(self._model, experiment.judges)),
        )

    def _params(
        self, params: Mapping[str, object], extra: object, place: str
    ) -> Mapping[str, object]:
        if params.get("extra") == extra:
            return params
        kept = {key: value for key, value in params.items() if key != "extra"}
        used = self._extra(params.get("extra"), extra, place)
        return kept if used is None else {**kept, "extra": used}

    def _model(self, model: Model) -> Model:
        """Return a model as it may be called: its entry, or in its place that of the base."""
        before = None if self.base is None else self.base.models.get(model.name)
        service = self._service_of(model, before)
        place = f"{self.head.file.paths.models}: {model.name}"
        if service is not None:
            limits = model.limits.model_copy(update={
                key: _ruled(rule, getattr(model.limits, key), getattr(service.limits, key))
                for key, rule in LIMITS.items()
            })  # fmt: skip
            if service is before and limits != model.limits:  # a new entry may not have known them
                self.overruled.append(Overruled(f"{place}: limits"))
            fallback = () if before is None else before.fallback
            if before is not None and fallback != model.fallback:
                self.overruled.append(Overruled(f"{place}: fallback", decides=False))
            return replace(model, limits=limits, fallback=fallback)
        if before is not None:
            why = f"{place} is {_difference(model, before)}: the entry of the base was measured."
            self.overruled.append(Overruled(place, why))
            return before
        reason = f"{place} was not called: the base has no model with its service, key and options"
        self.overruled.append(Overruled(place, f"{reason}."))
        self.refused[model.name] = reason
        return replace(model, keys={}, base_url_env=None)

    def _service_of(self, model: Model, before: Model | None) -> Model | None:
        """Return the entry of the base that allows to call a model; None if there is none."""
        if model.provider == "command":  # access/programs.py decides what it gets
            return model if before is None else before
        if self.base is None:
            return model if model.provider in _WITHOUT_NETWORK else None
        entries = [*([before] if before is not None else []), *self.base.models.values()]
        return next((entry for entry in entries if _service(entry) == _service(model)), None)


_WITHOUT_NETWORK = frozenset({"sim", "local"})
"""Providers that a project may begin with: they make no calls and cost nothing."""
_STRICTNESS = ("off", "flag", "redact", "block")


def _ruled(rule: Rule | Rules | None, ours: Any, theirs: Any) -> Any:
    """Return the value of a key whose values differ; that of the base unless a rule says more."""
    match rule:
        case Rule.HEAD | Rule.LAYOUT:
            return ours
        case Rule.LOWER if None in (ours, theirs):
            return theirs if ours is None else ours
        case Rule.LOWER:
            return min(ours, theirs)
        case Rule.HIGHER:
            return max(ours, theirs)
        case Rule.EITHER:
            return ours or theirs
        case Rule.BOTH:
            return ours and theirs
    return theirs


def _service(model: Model) -> tuple[object, ...]:
    """Return what a model of a proposal must have in common with one of the base."""
    return (
        *(model.provider, model.address, dict(model.keys), dict(model.options)),
        *(model.store, model.params.get("extra")),
        model.model if model.provider in APPLICATIONS else None,
    )


_PARTS = ("provider", "address", "key_env", "options", "store", "params.extra", "model")


def _difference(model: Model, before: Model) -> str:
    """Return in words how the entry of a model differs from that of the base."""
    pairs = zip(_PARTS, _service(model), _service(before), strict=True)
    return f"not called with another {' and '.join(part for part, a, b in pairs if a != b)}"


def _extra_of(prompt: Prompt | None) -> Any:
    params = None if prompt is None else prompt.header.params
    return None if params is None else params.extra


def _as_strict(ours: TextScreens, theirs: TextScreens) -> bool:
    """Whether screens of inputs hold back at least what others hold back."""
    kinds = safety_names.PII_KINDS
    pairs = [
        *((ours.pii.action_of(kind), theirs.pii.action_of(kind)) for kind in kinds),
        *((getattr(ours, kind), getattr(theirs, kind)) for kind in ("jailbreak", "secrets")),
    ]
    same_names = theirs.pii.names_by in (None, ours.pii.names_by)
    return same_names and all(_STRICTNESS.index(a) >= _STRICTNESS.index(b) for a, b in pairs)
