"""Experiments, datasets and graders made from imported cases, in groups that fit together."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.features.importing.conditions import HOLE_KEY
from edison_ci.features.importing.drafts import Message, Names, PromptDraft, file_name, tidy
from edison_ci.features.importing.fidelity import Status
from edison_ci.features.importing.prompts import HOLE
from edison_ci.features.importing.templates import convert
from edison_ci.numeric import percent
from edison_ci.stats import power

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from edison_ci.documents.marks import Json
    from edison_ci.features.importing.drafts import (
        CaseDraft,
        GradeComponent,
        GraderText,
        ModelDraft,
    )
    from edison_ci.features.importing.fidelity import Fidelity
    from edison_ci.features.importing.templates import Argument

MOST_GRADERS, MOST_CHECKS, MOST_ROWS, MOST_BYTES = 10, 100, 1_000, 10_000_000
_MAX_ID = 60
_GROUPS = frozenset({"not", "any_of", "all_of", "mean_of"})
"""Checks that are made of others."""

Slot = tuple[str, int]
"""Key of a component, and how many of this key precede it in the case."""


@dataclass(frozen=True, slots=True)
class ImportSettings:
    """Settings that all experiments of an import share."""

    name: str
    about: dict[str, Json]
    """title, description, objective and tags."""
    judge: str
    """The judge if a grader names no model."""
    repeats: int = 1
    datasets: str = "datasets"
    prompts: str = "prompts"
    all_must_pass: bool = False
    """Whether a single failure fails a run."""


@dataclass(slots=True)
class ExperimentDraft:
    """An experiment with its rows."""

    name: str
    experiment: dict[str, Json]
    rows: list[dict[str, Json]]
    needs_judge: bool = False


@dataclass(slots=True)
class Graders:
    """Grader prompts without duplicates."""

    base: str
    drafts: dict[str, PromptDraft] = field(default_factory=dict)
    _names: Names = field(default_factory=Names)

    def path(self, grader: GraderText, argument: str, folder: str) -> str:
        """Return the path of the grader prompt with this argument, adding it if it is new."""
        messages = [Message(m.role, m.text.replace(HOLE, argument)) for m in grader.messages]
        key = repr(messages)
        if key not in self.drafts:
            name = self._names.free(f"{self.base}-{file_name(grader.kind, 'grader')}")
            header: dict[str, Json] = {"type": "grader", "expect": "none"}
            header["description"] = f"Stands in for {grader.kind} of the imported configuration."
            names = frozenset(n for m in messages for n in convert(m.text, keep=_SEEN).variables)
            self.drafts[key] = PromptDraft(name, (), messages, header, names - _SEEN)
        return f"{folder}/{self.drafts[key].id}.md"


_SEEN = frozenset({"output", "expected"})


@dataclass(slots=True)
class Builder:
    """Builds the experiment of one group."""

    frame: ImportSettings
    graders: Graders
    fidelity: Fidelity
    prompts: Mapping[str, PromptDraft]
    _names: Names = field(default_factory=Names)
    _ids: Names = field(default_factory=Names)
    _checks: Names = field(default_factory=Names)
    _graders: Names = field(default_factory=Names)

    def build(self, group: CaseGroup, name: str) -> ExperimentDraft:
        """Return the experiment and its rows."""
        rows = [self._row(draft, group) for draft in group.drafts]
        self._names = Names({key for row in rows for key in _inputs(row)})
        result = ExperimentDraft(name, {}, rows)
        checks: list[Json] = []
        graders: list[Json] = []
        other: set[str] = set()
        slots = _slots(group.drafts)
        favourite = _favourite(slots, len(rows))
        for draft in group.drafts:
            self.fidelity.record_target(draft.node, name)
        for slot, components in slots.items():
            component, expected = next(iter(components.values())), slot == favourite
            for same in components.values():
                if same.node is not None:
                    self.fidelity.record_target(same.node, name)
            if component.kind == "check" and len(checks) < MOST_CHECKS:
                checks.append(self._check(components, result, expected=expected))
            elif component.kind == "grader" and len(graders) < MOST_GRADERS:
                graders.append(self._grader(components, result, expected=expected))
            elif component.kind in ("screen", "pairwise"):
                other |= self._other(component, group)
            else:
                self._too_many(components)
        result.needs_judge = bool(other) or any(
            isinstance(g, dict) and g.get("by") == self.frame.judge for g in graders
        )
        result.experiment = self._file(result, group, (checks, graders, other))
        return result

    def _row(self, draft: CaseDraft, group: CaseGroup) -> dict[str, Json]:
        inputs: dict[str, Json] = dict(draft.variables)
        for id in group.prompts:
            prompt = self.prompts[id]
            for name in sorted(prompt.variables):  # promptfoo renders a missing variable as empty
                inputs.setdefault(name, [] if name in prompt.lists else "")
        slug = file_name(draft.description, f"test-{draft.number}")[:_MAX_ID].strip("-")
        row: dict[str, Json] = {"id": self._ids.free(slug), "input": inputs}
        if draft.expected is not None:
            row["expected"] = draft.expected
        metadata = dict(draft.metadata)
        if draft.description:
            metadata.setdefault("description", draft.description)
        if metadata:
            row["metadata"] = metadata
        return row

    def _check(
        self, components: dict[int, GradeComponent], result: ExperimentDraft, *, expected: bool
    ) -> dict[str, Json]:
        component = next(iter(components.values()))
        assert component.check is not None
        texts = [
            self._argument(index, components, result, expected=expected)
            for index in range(len(component.arguments))
        ]
        ((name, options),) = _with(component.check, texts).items()
        assert isinstance(options, dict)
        settings = {name: tidy(value) for name, value in component.settings}
        if isinstance(written := settings.get("name"), str):
            settings["name"] = self._checks.free(written)
        return {name: {**options, **settings}}

    def _grader(
        self, components: dict[int, GradeComponent], result: ExperimentDraft, *, expected: bool
    ) -> dict[str, Json]:
        component = next(iter(components.values()))
        assert component.grader is not None
        argument = ""
        if component.arguments:
            argument = str(self._argument(0, components, result, expected=expected))
        path = self.graders.path(component.grader, argument, self.frame.prompts)
        texts = [message.text.replace(HOLE, "") for message in component.grader.messages]
        self._fill({n for text in texts for n in convert(text, keep=_SEEN).required}, result)
        entry: dict[str, Json] = {"prompt": path, "by": component.grader.by or self.frame.judge}
        settings = {name: tidy(value) for name, value in component.settings}
        base = settings.get("name") or path.rpartition("/")[2].removesuffix(".md")
        name = self._graders.free(str(base))
        if name != base or "name" in settings:
            settings["name"] = name
        return {**entry, **settings}

    def _argument(
        self,
        index: int,
        components: dict[int, GradeComponent],
        result: ExperimentDraft,
        *,
        expected: bool,
    ) -> Json:
        """Return the text of an argument, or a variable that holds it if cases differ."""
        arguments = {number: component.arguments[index] for number, component in components.items()}
        first = next(iter(arguments.values()))
        if len(arguments) == len(result.rows) and all(_same(a, first) for a in arguments.values()):
            self._fill(first.variables, result)
            return first.value
        variable = f"assert_{_about(next(iter(components.values())))}"
        name = "expected" if expected else self._names.free(variable, separator="_")
        for number, argument in arguments.items():
            row = result.rows[number]
            value = argument.fill(_inputs(row))
            if expected:
                row["expected"] = value
            else:
                _inputs(row)[name] = value
        return f"{{{{ {name} }}}}"

    def _fill(self, names: Iterable[str], result: ExperimentDraft) -> None:
        """Add variables that no case has, as empty: a check without its variable is skipped."""
        for name in sorted(set(names) - _SEEN):
            if not any(name in _inputs(row) for row in result.rows):
                for row in result.rows:
                    _inputs(row)[name] = ""

    def _other(self, component: GradeComponent, group: CaseGroup) -> set[str]:
        if component.kind == "pairwise" and len(group.models) < 2:
            if component.node is not None:
                note = "models are compared in pairs, and there is only one"
                self.fidelity.replace(Status.UNSUPPORTED, component.node, "", note)
            return set()
        return {component.kind}

    def _too_many(self, components: dict[int, GradeComponent]) -> None:
        for component in components.values():
            if component.node is not None:
                most = f"{MOST_GRADERS} graders and {MOST_CHECKS} checks"
                note = f"an experiment has at most {most}"
                self.fidelity.replace(Status.UNSUPPORTED, component.node, "", note)

    def _file(
        self,
        result: ExperimentDraft,
        group: CaseGroup,
        graded: tuple[list[Json], list[Json], set[str]],
    ) -> dict[str, Json]:
        checks, graders, other = graded
        file: dict[str, Json] = {"experiment": result.name, **self.frame.about}
        file["prompts"] = [f"{self.frame.prompts}/{id}.md" for id in group.prompts]
        file["models"] = list(group.models)
        path = f"{self.frame.datasets}/{result.name}.jsonl"
        limits = _limits(result.rows)
        if limits:
            file["datasets"] = [{"path": path, "limits": limits}]
        else:
            file["dataset"] = path
        if self.frame.repeats > 1:
            file["repeats"] = self.frame.repeats
        graded_at_all = bool(checks or graders)
        if not graded_at_all and "pairwise" not in other:
            checks = [self._nothing(group, result)]
        if checks and not graders and all(_weight(check) == 0 for check in checks):
            # otherwise there would be no composite score
            checks = [_without_weight(check) for check in checks]
        if checks:
            file["checks"] = [compact_check(check, weight=bool(graders)) for check in checks]
        judges: dict[str, Json] = {"graders": graders} if graders else {}
        if "pairwise" in other:
            judges["pairwise"] = {"by": self.frame.judge}
        if judges:
            file["judges"] = judges
        if "screen" in other:
            file["safety"] = {"moderation": {"by": self.frame.judge, "action": "block"}}
        if graded_at_all:
            file["gates"] = _gates(len(result.rows), all_must_pass=self.frame.all_must_pass)
        return file

    def _nothing(self, group: CaseGroup, result: ExperimentDraft) -> dict[str, Json]:
        """Return the check of cases without assertions, or without any that is left.

        The first have an answer or not. The others must not pass: their check is skipped, because
        the text that it wants is empty.
        """
        if not any(draft.dropped for draft in group.drafts):
            return {"chars": {"min": 1, "name": "not-empty"}}
        name = self._names.free("ungraded", separator="_")
        for row in result.rows:
            _inputs(row)[name] = ""
        return {"contains": {"value": f"{{{{ {name} }}}}", "name": "ungraded"}}


def _gates(cases: int, *, all_must_pass: bool) -> list[Json]:
    """Return the gates of an import: against the base, and on itself where the tool has that."""
    limit = percent(power.flips_limit(cases))
    gates: list[Json] = [{"metric": "flips", "at_most": limit, "net": True}]
    return [*gates, {"metric": "pass_rate", "at_least": "100%"}] if all_must_pass else gates


def _limits(rows: list[dict[str, Json]]) -> dict[str, Json]:
    """Return the limits of a dataset that exceed the defaults."""
    size = sum(len(json.dumps(row, ensure_ascii=False).encode()) + 1 for row in rows)
    limits: dict[str, Json] = {}
    if len(rows) > MOST_ROWS:
        limits["max_rows"] = len(rows)
    if size > MOST_BYTES:
        limits["max_bytes"] = size
    return limits


def _weight(check: Any) -> Json:
    (options,) = check.values()
    return options.get("weight", 1)  # type: ignore[no-any-return]  # JSON


def _without_weight(check: Any) -> Json:
    ((name, options),) = check.items()
    return {name: {key: value for key, value in options.items() if key != "weight"}}


def _about(component: GradeComponent) -> str:
    """Return a name for what a component checks."""
    if component.grader is not None:
        return component.grader.kind.replace("-", "_")
    ((name, options),) = (component.check or {"check": {}}).items()
    inner = options.get("value") if name == "not" and isinstance(options, dict) else None
    return f"not_{next(iter(inner))}" if isinstance(inner, dict) and inner else name


def _inputs(row: dict[str, Json]) -> dict[str, Json]:
    inputs = row["input"]
    assert isinstance(inputs, dict)
    return inputs


def _slots(drafts: list[CaseDraft]) -> dict[Slot, dict[int, GradeComponent]]:
    """Return the components of all cases, those that differ in arguments only together."""
    slots: dict[Slot, dict[int, GradeComponent]] = {}
    for number, draft in enumerate(drafts):
        before: Counter[str] = Counter()
        for component in draft.components:
            slots.setdefault((component.key, before[component.key]), {})[number] = component
            before[component.key] += 1
    return slots


def _favourite(slots: dict[Slot, dict[int, GradeComponent]], cases: int) -> Slot | None:
    """Return the slot whose argument becomes the expected output of the cases."""
    best: Slot | None = None
    for slot, components in slots.items():
        component = next(iter(components.values()))
        values = [same.arguments[0] for same in components.values() if same.arguments]
        constant = len(components) == cases and all(_same(value, values[0]) for value in values)
        if not component.reference or constant or len(component.arguments) != 1:
            continue
        if best is None or len(components) > len(slots[best]):
            best = slot
    return best


def _same(argument: Argument, other: Argument) -> bool:
    return argument.value == other.value and argument.is_data == other.is_data


def _with(value: Any, texts: list[Json]) -> Any:
    """Return an entry with its placeholders filled in."""
    if isinstance(value, dict):
        if HOLE_KEY in value:
            return texts[value[HOLE_KEY]]
        return {key: _with(item, texts) for key, item in value.items()}
    return [_with(item, texts) for item in value] if isinstance(value, list) else value


def compact_check(entry: Any, *, weight: bool = False, outer: bool = True) -> Any:
    """Return a check in its shortest form: the bare argument if there is nothing else."""
    ((name, options),) = entry.items()
    options = dict(options)
    if weight and outer:
        options.setdefault("weight", 1)
    inner: Any = options.get("value")
    if name in _GROUPS:
        if isinstance(inner, list):
            options["value"] = [compact_check(check, outer=False) for check in inner]
        else:
            options["value"] = compact_check(inner, outer=False)
    if options.keys() == {"value"} and name != "json_schema":
        return {name: options["value"]}
    return {name: options}


MOST_GROUPS = 20
_AT_ONCE = 10
"""The most prompts, and the most models, of an experiment."""

Choice = tuple[tuple[str, ...], tuple[str, ...]]
"""Prompts, and the models that they are sent to."""
Selection = tuple[tuple[str, ...] | None, tuple[str, ...]]
"""Prompts (all if None) and models that a case selects."""


@dataclass(slots=True)
class CaseGroup:
    """Cases with the same prompts, models and assertions without a value."""

    prompts: tuple[str, ...]
    models: tuple[str, ...]
    drafts: list[CaseDraft] = field(default_factory=list)


def group_cases(
    drafts: Sequence[CaseDraft],
    prompts: Sequence[PromptDraft],
    models: Sequence[ModelDraft],
    fidelity: Fidelity,
) -> list[CaseGroup]:
    """Return the groups of cases that become experiments, in the order of their first cases."""
    kept = _common_signatures(drafts)
    chosen: dict[Selection, list[Choice]] = {}
    groups: dict[tuple[Choice, tuple[str, ...]], CaseGroup] = {}
    for draft in drafts:
        signature = _signature(draft)
        if signature not in kept:
            draft.components = [
                component
                for component in draft.components
                if not _reject_component(component, fidelity)
            ]
            signature = ()
        key = (draft.prompts, draft.models)
        if key not in chosen:
            chosen[key] = _choices(draft, prompts, models, fidelity)
        for choice in chosen[key]:
            group = groups.setdefault((choice, signature), CaseGroup(*choice))
            group.drafts.append(draft)
    return [component for group in groups.values() for component in _split_group(group)]


_NO_ASSERTION = ("(no assertion)",)


def _signature(draft: CaseDraft) -> tuple[str, ...]:
    if not draft.components and not draft.dropped:
        # It passes, as in promptfoo, where no check can be skipped: in a separate experiment.
        return _NO_ASSERTION
    return tuple(component.key for component in draft.components if not _is_by_case(component))


def _is_by_case(component: GradeComponent) -> bool:
    """Whether a case without its arguments skips it: each of its checks has one."""
    if component.check is None:
        return bool(component.arguments)
    return all(map(_has_hole, _leaves(component.check)))


def _leaves(entry: Any) -> Iterator[Any]:
    """Yield the checks in a check that are not made of others."""
    ((name, options),) = entry.items()
    if name not in _GROUPS:
        yield entry
        return
    inner = options["value"]
    for check in inner if isinstance(inner, list) else [inner]:
        yield from _leaves(check)


def _has_hole(value: Any) -> bool:
    if isinstance(value, dict):
        return HOLE_KEY in value or any(map(_has_hole, value.values()))
    return isinstance(value, list) and any(map(_has_hole, value))


def _common_signatures(drafts: Sequence[CaseDraft]) -> set[tuple[str, ...]]:
    """Return the most frequent combinations of assertions without a value."""
    counted = Counter(_signature(draft) for draft in drafts)
    return {signature for signature, _ in counted.most_common(MOST_GROUPS)} | {()}


def _reject_component(component: GradeComponent, fidelity: Fidelity) -> bool:
    if _is_by_case(component):
        return False
    if component.node is not None:
        note = f"there are more than {MOST_GROUPS} combinations of assertions without a value"
        fidelity.replace(Status.UNSUPPORTED, component.node, "", note)
    return True


def _choices(
    draft: CaseDraft,
    prompts: Sequence[PromptDraft],
    models: Sequence[ModelDraft],
    fidelity: Fidelity,
) -> list[Choice]:
    """Return prompts with their models; models with the same prompts are together."""
    mine = [p for p in prompts if draft.prompts is None or p.id in draft.prompts]
    by_prompts: dict[tuple[str, ...], list[ModelDraft]] = {}
    for model in models:
        if model.name not in draft.models:
            continue
        taken = tuple(p.id for p in mine if model.prompts is None or _takes(model, p))
        if taken:
            by_prompts.setdefault(taken, []).append(model)
    return [(taken, _distinct(same, fidelity)) for taken, same in by_prompts.items()]


def _distinct(models: list[ModelDraft], fidelity: Fidelity) -> tuple[str, ...]:
    """Return the names of models without those whose entry equals an earlier one."""
    distinct: list[ModelDraft] = []
    for model in models:
        same = next((other for other in distinct if other.entry == model.entry), None)
        if same is None:
            distinct.append(model)
        elif model.node is not None:
            note = f"the same model as {same.name}, called once; set repeats for more answers"
            fidelity.replace(Status.APPROXIMATED, model.node, model.mark, note)
    return tuple(model.name for model in distinct)


def _takes(model: ModelDraft, prompt: PromptDraft) -> bool:
    names = [name.removesuffix("*").removesuffix(":") for name in model.prompts or ()]
    return any(
        label.startswith(f"{name}:") or name in (f"file://{label}", label)
        for label in prompt.labels
        for name in names
    )


def _split_group(group: CaseGroup) -> list[CaseGroup]:
    """Return groups that are small enough for an experiment."""
    return [
        CaseGroup(group.prompts[p : p + _AT_ONCE], group.models[m : m + _AT_ONCE], group.drafts)
        for p in range(0, len(group.prompts), _AT_ONCE)
        for m in range(0, len(group.models), _AT_ONCE)
    ]
