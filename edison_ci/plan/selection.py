"""Selections: the cases, prompts and models of an experiment that a command names."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from typing import TYPE_CHECKING, Any, Literal

from edison_ci._dataclass import dataclass
from edison_ci.config import cases as config_cases
from edison_ci.config import holdout as config_holdout
from edison_ci.errors import ConfigError, UsageError
from edison_ci.spelling import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Configuration
    from edison_ci.config.prompt import Prompt
    from edison_ci.records import Case


MAX_SHARDS = 256


@dataclass(frozen=True, slots=True)
class Shard:
    """SplitPart `index` of `count`, counted from 1."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def has(self, case_id: str) -> bool:
        """Whether a case belongs to this part; all repeats and models of a case stay together."""
        return shard_of(case_id, self.count) == self.index


def shard_of(case_id: str, count: int) -> int:
    """Return the part a case belongs to; it depends on the id alone."""
    digest = hashlib.sha256(f"shard:{case_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % count + 1


def parse_shard(text: str) -> Shard:
    """Return the shard written as I/N."""
    match = re.fullmatch(r"([0-9]{1,3})/([0-9]{1,3})", text)
    if match:
        index, count = int(match.group(1)), int(match.group(2))
        if 1 <= index <= count <= MAX_SHARDS:
            return Shard(index, count)
    raise UsageError(f"{text!r} is not a shard", hint=f"write 1/4 to 4/4, at most {MAX_SHARDS}")


_REMEMBERED = 10_000
"""Number of known names that are searched for one similar to a wrong name."""


@dataclass(frozen=True, slots=True)
class SplitPart:
    """The cases that a refiner learns from, those that it never sees, or both."""

    name: Literal["train", "holdout", "all"]
    holdout: config_holdout.Holdout

    def has(self, case: Case) -> bool:
        """Whether a case belongs to it."""
        return self.name == "all" or self.holdout.has(case) == (self.name == "holdout")

    def as_json(self) -> dict[str, Any]:
        """Return the part as it is stored with a run."""
        return {"name": self.name, **self.holdout.as_json()}

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> SplitPart:
        """Return a part from its stored form."""
        return cls(kept["name"], config_holdout.Holdout.from_json(kept))


@dataclass(frozen=True, slots=True)
class Selection:
    """Models, cases and repeats that a command line chooses; empty chooses all."""

    models: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    limit: int | None = None
    repeats: int | None = None
    shard: Shard | None = None
    part: SplitPart | None = None

    def widen(self, project: Project, experiment: Experiment) -> Experiment:
        """Return the experiment with chosen models that only models.yaml has, as outside models."""
        own_names = _model_names(experiment)
        own = project.models
        names = [
            name for name in dict.fromkeys(self.models) if name in own and name not in own_names
        ]
        added = tuple((name, own[name], dict[str, object]()) for name in names)
        if not added:
            return experiment
        outside = experiment.outside.union(names)
        return dataclasses.replace(experiment, models=(*experiment.models, *added), outside=outside)

    def narrow(self, experiment: Experiment) -> Experiment:
        """Return the experiment with the chosen models and number of repeats only."""
        models = experiment.models
        if self.models:
            names = _model_names(experiment)
            for name in self.models:
                if name not in names:
                    hint = did_you_mean(name, names, label="it has")
                    raise UsageError(f"{experiment.id} has no model {name!r}", hint=hint)
            models = tuple(m for m in models if m[0] in self.models or m[1].name in self.models)
        file = experiment.file
        if self.repeats is not None:
            file = file.model_copy(update={"repeats": self.repeats})
        outside = experiment.outside.intersection(name for name, _, _ in models)
        return dataclasses.replace(experiment, models=models, file=file, outside=outside)

    def pick(self, cases: Iterable[Case]) -> Iterator[Case]:
        """Yield the chosen cases of this shard."""
        chosen = self.whole(cases)
        return chosen if self.shard is None else filter(self.here, chosen)

    def whole(self, cases: Iterable[Case]) -> Iterator[Case]:
        """Yield the chosen cases of all shards, reading all of them; `limit` is a stable sample."""
        chosen = filter(self._has, cases) if self.cases or self.tags or self.part else iter(cases)
        return chosen if self.limit is None else iter(config_cases.sample(chosen, self.limit))

    def here(self, case: Case) -> bool:
        """Whether a case belongs to this shard."""
        return self.shard is None or self.shard.has(case.id)

    def _has(self, case: Case) -> bool:
        if self.cases and case.id not in self.cases:
            return False
        if self.tags and not any(tag in self.tags for tag in case.tags):
            return False
        return self.part is None or self.part.has(case)

    def refuse_unknown(self, project: Project, experiment: Experiment) -> None:
        """Refuse a model, case or tag that there is not; reads the dataset only if it is needed."""
        known_models = _model_names(experiment).union(project.models)
        for name in self.models:
            if name not in known_models:
                hint = did_you_mean(name, known_models, label="models")
                raise UsageError(f"there is no model {name!r}", hint=hint)
        if not self.cases and not self.tags:
            return
        lacking = {"case": dict.fromkeys(self.cases), "tag": dict.fromkeys(self.tags)}
        existing: dict[str, dict[str, None]] = {"case": {}, "tag": {}}
        for case in project.cases(experiment) if experiment.file.data else [config_cases.STATIC]:
            for what, names in (("case", (case.id,)), ("tag", case.tags)):
                for name in names:
                    lacking[what].pop(name, None)
                    if len(existing[what]) < _REMEMBERED:
                        existing[what][name] = None
        for what, unknown in lacking.items():
            for name in unknown:
                first = (
                    f"the first are: {', '.join([*existing[what]][:3])}" if existing[what] else ""
                )
                hint = did_you_mean(name, existing[what], label=f"{what}s") or first
                raise UsageError(f"{experiment.id} has no {what} {name!r}", hint=hint)

    def describe(self) -> str:
        """Return the selection in the words of the command line, as a hint."""
        words = [f"--{name} {value}" for name in ("case", "tag") for value in self._named(name)]
        words += [f"--shard {self.shard}"] if self.shard else []
        return f"the selection is {' '.join(words)}" if words else "check the dataset"

    def _named(self, name: str) -> tuple[str, ...]:
        return self.cases if name == "case" else self.tags

    def as_json(self) -> dict[str, Any]:
        """Return the selection as it is stored with a run."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        fields |= {"shard": str(self.shard) if self.shard else None}
        return {**fields, "part": self.part.as_json() if self.part else None}

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> Selection:
        """Return a selection from its stored form."""
        return cls(
            models=tuple(kept.get("models", ())),
            cases=tuple(kept.get("cases", ())),
            tags=tuple(kept.get("tags", ())),
            limit=kept.get("limit"),
            repeats=kept.get("repeats"),
            shard=parse_shard(kept["shard"]) if kept.get("shard") else None,
            part=SplitPart.from_json(kept["part"]) if kept.get("part") else None,
        )


def _model_names(experiment: Experiment) -> set[str]:
    """Return the names by which a command line may choose the models of an experiment."""
    return {name for entry in experiment.models for name in (entry[0], entry[1].name)}


EVERYTHING = Selection()


def find_case(project: Project, experiment: Experiment | None, case_id: str | None) -> Case:
    """Return a case by id; without an id, the first."""
    if experiment is None or not experiment.file.data:
        if case_id is not None:
            hint = "no experiment with a dataset uses this prompt"
            raise UsageError("there are no cases to choose from", hint=hint)
        return config_cases.STATIC
    feed = project.cases(experiment)
    near: list[str] = []
    for case in feed:
        if case_id is None or case.id == case_id:
            return case
        if len(near) < _REMEMBERED:
            near.append(case.id)
    if feed.problems:
        raise ConfigError(feed.problems)
    hint = did_you_mean(case_id or "", near) or f"the first are: {', '.join(near[:3])}"
    raise UsageError(f"{experiment.id} has no case {case_id!r}", hint=hint)


def find_configuration(
    experiment: Experiment | None, prompt: Prompt, name: str | None
) -> Configuration | None:
    """Return a model configuration by name; without a name, the first."""
    if experiment is None or prompt.header.type == "grader":
        return None
    configurations = experiment.configurations(prompt)
    if name is None:
        return configurations[0] if configurations else None
    for configuration in configurations:
        if configuration.name == name:
            return configuration
    hint = did_you_mean(
        name, [configuration.name for configuration in configurations], label="models"
    )
    raise UsageError(f"{experiment.id} has no model {name!r}", hint=hint)
