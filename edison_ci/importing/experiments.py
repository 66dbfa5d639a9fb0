"""Experiments, datasets and graders of imported groups of cases."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.importing.drafts import Message, Names, PromptDraft, file_name
from edison_ci.importing.fidelity import Status
from edison_ci.importing.grader_texts import HOLE
from edison_ci.importing.parts import HOLE_KEY
from edison_ci.importing.templates import convert

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from edison_ci.documents.marks import Json
    from edison_ci.importing.drafts import Draft, GraderText, Part, Wanted
    from edison_ci.importing.fidelity import Fidelity
    from edison_ci.importing.grouping import Group

MOST_GRADERS, MOST_CHECKS, MOST_ROWS, MOST_BYTES = 10, 100, 1_000, 10_000_000
_MAX_ID = 60

Slot = tuple[str, int]
"""Key of a part and how often a case had it before."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What all experiments of an import have in common."""

    name: str
    about: dict[str, Json]
    """title, description, objective and tags."""
    judge: str
    """Model that judges where no other is named."""
    draws: int = 1
    datasets: str = "datasets"
    prompts: str = "prompts"


@dataclass(slots=True)
class Laid:
    """An experiment with its rows."""

    name: str
    experiment: dict[str, Json]
    rows: list[dict[str, Json]]
    needs_judge: bool = False


@dataclass(slots=True)
class Graders:
    """Grader prompts, each text once."""

    base: str
    drafts: dict[str, PromptDraft] = field(default_factory=dict)
    _names: Names = field(default_factory=Names)

    def path(self, grader: GraderText, argument: str, folder: str) -> str:
        """Return the path of a grader prompt whose argument is this text."""
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
    """Writes the experiment of one group."""

    frame: Frame
    graders: Graders
    fidelity: Fidelity
    prompts: Mapping[str, PromptDraft]
    _names: Names = field(default_factory=Names)
    _ids: Names = field(default_factory=Names)
    _checks: Names = field(default_factory=Names)
    _graders: Names = field(default_factory=Names)

    def lay(self, group: Group, name: str) -> Laid:
        """Return the experiment and its rows."""
        rows = [self._row(draft, group) for draft in group.drafts]
        self._names = Names({key for row in rows for key in _inputs(row)})
        laid = Laid(name, {}, rows)
        checks: list[Json] = []
        graders: list[Json] = []
        other: set[str] = set()
        slots = _slots(group.drafts)
        favourite = _favourite(slots, len(rows))
        for draft in group.drafts:
            self.fidelity.went(draft.node, name)
        for slot, parts in slots.items():
            part = next(iter(parts.values()))
            for each in parts.values():
                if each.node is not None:
                    self.fidelity.went(each.node, name)
            if part.kind == "check" and len(checks) < MOST_CHECKS:
                checks.append(self._check(slot, parts, laid, favourite))
            elif part.kind == "grader" and len(graders) < MOST_GRADERS:
                graders.append(self._grader(slot, parts, laid, favourite))
            elif part.kind in ("screen", "pairwise"):
                other |= self._other(part, group)
            else:
                self._too_many(parts)
        laid.needs_judge = bool(other) or any(
            isinstance(g, dict) and g.get("by") == self.frame.judge for g in graders
        )
        laid.experiment = self._file(laid, group, (checks, graders, other))
        return laid

    # --- rows -------------------------------------------------------------------------------------

    def _row(self, draft: Draft, group: Group) -> dict[str, Json]:
        inputs: dict[str, Json] = dict(draft.variables)
        for id in group.prompts:
            prompt = self.prompts[id]
            for name in sorted(prompt.variables):  # what is missing there is empty
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

    # --- checks and graders -----------------------------------------------------------------------

    def _check(
        self, slot: Slot, parts: dict[int, Part], laid: Laid, favourite: Slot | None
    ) -> dict[str, Json]:
        part = next(iter(parts.values()))
        assert part.check is not None
        texts = [
            self._argument(index, parts, laid, expected=slot == favourite)
            for index in range(len(part.arguments))
        ]
        ((name, options),) = _with(part.check, texts).items()
        assert isinstance(options, dict)
        settings = {name: _tidy(value) for name, value in part.settings}
        if isinstance(written := settings.get("name"), str):
            settings["name"] = self._checks.free(written)
        return {name: {**options, **settings}}

    def _grader(
        self, slot: Slot, parts: dict[int, Part], laid: Laid, favourite: Slot | None
    ) -> dict[str, Json]:
        part = next(iter(parts.values()))
        assert part.grader is not None
        argument = ""
        if part.arguments:
            argument = str(self._argument(0, parts, laid, expected=slot == favourite))
        path = self.graders.path(part.grader, argument, self.frame.prompts)
        texts = [message.text.replace(HOLE, "") for message in part.grader.messages]
        self._fill({n for text in texts for n in convert(text, keep=_SEEN).required}, laid)
        entry: dict[str, Json] = {"prompt": path, "by": part.grader.by or self.frame.judge}
        settings = {name: _tidy(value) for name, value in part.settings}
        wanted = settings.get("name") or path.rpartition("/")[2].removesuffix(".md")
        name = self._graders.free(str(wanted))
        if name != wanted or "name" in settings:
            settings["name"] = name
        return {**entry, **settings}

    def _argument(self, index: int, parts: dict[int, Part], laid: Laid, *, expected: bool) -> Json:
        """Return the text of an argument; each case gets its own where they differ."""
        wanted = {number: part.arguments[index] for number, part in parts.items()}
        first = next(iter(wanted.values()))
        if len(wanted) == len(laid.rows) and all(_same(each, first) for each in wanted.values()):
            self._fill(first.variables, laid)
            return first.value
        part = next(iter(parts.values()))
        wished = f"assert_{_about(part)}"
        name = "expected" if expected else self._names.free(wished, separator="_")
        for number, each in wanted.items():
            row = laid.rows[number]
            value = each.filled(_inputs(row))
            if expected:
                row["expected"] = value
            else:
                _inputs(row)[name] = value
        return f"{{{{ {name} }}}}"

    def _fill(self, names: Iterable[str], laid: Laid) -> None:
        """Give the cases what no case has, empty as it is there; a check without it is skipped."""
        for name in sorted(set(names) - _SEEN):
            if not any(name in _inputs(row) for row in laid.rows):
                for row in laid.rows:
                    _inputs(row)[name] = ""

    def _other(self, part: Part, group: Group) -> set[str]:
        if part.kind == "pairwise" and len(group.models) < 2:
            if part.node is not None:
                note = "models are compared pair by pair, and there is only one"
                self.fidelity.again(Status.UNSUPPORTED, part.node, "", note)
            return set()
        return {part.kind}

    def _too_many(self, parts: dict[int, Part]) -> None:
        for part in parts.values():
            if part.node is not None:
                most = f"{MOST_GRADERS} graders and {MOST_CHECKS} checks"
                note = f"an experiment has at most {most}"
                self.fidelity.again(Status.UNSUPPORTED, part.node, "", note)

    # --- the file ---------------------------------------------------------------------------------

    def _file(
        self, laid: Laid, group: Group, graded: tuple[list[Json], list[Json], set[str]]
    ) -> dict[str, Json]:
        checks, graders, other = graded
        file: dict[str, Json] = {"experiment": laid.name, **self.frame.about}
        file["prompts"] = [f"{self.frame.prompts}/{id}.md" for id in group.prompts]
        file["models"] = list(group.models)
        path = f"{self.frame.datasets}/{laid.name}.jsonl"
        limits = _limits(laid.rows)
        if limits:
            file["datasets"] = [{"path": path, "limits": limits}]
        else:
            file["dataset"] = path
        if self.frame.draws > 1:
            file["draws"] = self.frame.draws
        if not checks and not graders and "pairwise" not in other:
            checks = [{"chars": {"min": 1, "name": "not-empty"}}]
        if checks and not graders and all(_weight(check) == 0 for check in checks):
            checks = [_without_weight(check) for check in checks]  # or there were no composite
        if checks:
            file["checks"] = [written(check, weight=bool(graders)) for check in checks]
        judges: dict[str, Json] = {"graders": graders} if graders else {}
        if "pairwise" in other:
            judges["pairwise"] = {"by": self.frame.judge}
        if judges:
            file["judges"] = judges
        if "screen" in other:
            file["safety"] = {"moderation": {"by": self.frame.judge, "action": "block"}}
        levels = {draft.threshold for draft in group.drafts}
        level = levels.pop() if len(levels) == 1 else None
        if level is not None and (checks or graders):
            file["gates"] = [{"metric": "composite", "at_least": min(max(level, 0.0), 1.0)}]
        return file


def _limits(rows: list[dict[str, Json]]) -> dict[str, Json]:
    """Return the limits that a dataset needs beyond the usual ones."""
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


def _about(part: Part) -> str:
    """Return what a part does, as a name."""
    if part.grader is not None:
        return part.grader.kind.replace("-", "_")
    ((name, options),) = (part.check or {"check": {}}).items()
    inner = options.get("value") if name == "not" and isinstance(options, dict) else None
    return f"not_{next(iter(inner))}" if isinstance(inner, dict) and inner else name


def _tidy(value: Json) -> Json:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _inputs(row: dict[str, Json]) -> dict[str, Json]:
    inputs = row["input"]
    assert isinstance(inputs, dict)
    return inputs


def _slots(drafts: list[Draft]) -> dict[Slot, dict[int, Part]]:
    """Return the parts of all cases: those that differ in arguments only together."""
    found: dict[Slot, dict[int, Part]] = {}
    for number, draft in enumerate(drafts):
        before: Counter[str] = Counter()
        for part in draft.parts:
            found.setdefault((part.key, before[part.key]), {})[number] = part
            before[part.key] += 1
    return found


def _favourite(slots: dict[Slot, dict[int, Part]], cases: int) -> Slot | None:
    """Return the check whose argument becomes the expected output of the cases."""
    best: Slot | None = None
    for slot, parts in slots.items():
        part = next(iter(parts.values()))
        values = [each.arguments[0] for each in parts.values() if each.arguments]
        constant = len(parts) == cases and all(_same(each, values[0]) for each in values)
        if not part.reference or constant or len(part.arguments) != 1:
            continue
        if best is None or len(parts) > len(slots[best]):
            best = slot
    return best


def _same(one: Wanted, other: Wanted) -> bool:
    return one.value == other.value and one.is_data == other.is_data


def _with(value: Any, texts: list[Json]) -> Any:
    """Return an entry with its holes filled."""
    if isinstance(value, dict):
        if HOLE_KEY in value:
            return texts[value[HOLE_KEY]]
        return {key: _with(item, texts) for key, item in value.items()}
    return [_with(item, texts) for item in value] if isinstance(value, list) else value


def written(entry: Any, *, weight: bool = False, outer: bool = True) -> Any:
    """Return a check as people write it: the bare argument if there is nothing else."""
    ((name, options),) = entry.items()
    options = dict(options)
    if weight and outer:
        options.setdefault("weight", 1)
    inner: Any = options.get("value")
    if name in ("not", "any_of", "all_of"):
        listed = isinstance(inner, list)
        options["value"] = (
            [written(each, outer=False) for each in inner]
            if listed
            else written(inner, outer=False)
        )
    if options.keys() == {"value"} and name != "json_schema":
        return {name: options["value"]}
    return {name: options}
