"""Components of a grade, put together from what an assertion says."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.checks.patterns import analysed
from edison_ci.importing.drafts import Part, Told, Wanted, file_name
from edison_ci.importing.fidelity import Status
from edison_ci.importing.prompts import Refusal
from edison_ci.importing.templates import convert
from edison_ci.records import canonical_json
from edison_ci.templating.templates import as_text

if TYPE_CHECKING:
    from edison_ci.documents.marks import Json
    from edison_ci.importing.fidelity import Node
    from edison_ci.importing.source import Source

HOLE_KEY = "<hole>"
REFERENCES = frozenset(
    ["equals", "contains", "icontains", "starts_with", "similar", "levenshtein", "rouge_n", "bleu"]
)
"""Checks whose argument one would call the expected output."""
_LONGEST_SET = 6
_GRADED = frozenset(["similar", "levenshtein", "rouge_n", "bleu", "tool_call_f1"])


@dataclass(frozen=True, slots=True)
class Given:
    """An assertion, and where the files it names are."""

    node: Node
    source: Source

    @property
    def kind(self) -> str:
        """Its type without not-."""
        assert isinstance(self.node.value, dict)
        return str(self.node.value["type"]).removeprefix("not-")

    @property
    def negated(self) -> bool:
        """Whether its type starts with not-."""
        assert isinstance(self.node.value, dict)
        return str(self.node.value["type"]).startswith("not-")

    def has(self, name: str) -> bool:
        """Whether it has this key."""
        return self.node.get(name) is not None

    def value(self) -> Json:
        """Return its value, read from its file if it names one; raises Refusal and Refused."""
        child = self.node.get("value")
        if child is None:
            raise Refusal("it has no value")
        if isinstance(child.value, str) and child.value.startswith("file://"):
            path = self.source.path(child.value)
            if path.endswith((".json", ".yaml", ".yml")):
                document = self.source.document(path)
                self.source.fidelity.cover(document)
                return document.value
            return self.source.text(path).rstrip("\n")
        found = self.source.follow(child)
        return found.value if found is not None else None

    def number(self, name: str = "threshold") -> float | None:
        """Return a number it has; None without one."""
        child = self.node.get(name)
        if child is None or isinstance(child.value, bool):
            return None
        try:
            return float(child.value)  # type: ignore[arg-type]  # what is no number raises
        except (TypeError, ValueError):
            raise Refusal(f"its {name} is not a number") from None


def hole(index: int = 0) -> Json:
    """Return the mark of a place that each case fills for itself."""
    return {HOLE_KEY: index}


def key_of(value: Any) -> str:
    """Return a text that is equal for equal parts."""
    return canonical_json(value)


def check(name: str, options: dict[str, Json], *arguments: Wanted) -> Told:
    """Return a check as a part that means just what the assertion meant."""
    entry: dict[str, Json] = {name: options}
    reference = name in REFERENCES and bool(arguments)
    part = Part("check", "", entry, arguments, reference=reference)
    return Told(part, Status.MAPPED, "", f"@experiments checks {name}")


def nearly(told: Told, note: str) -> Told:
    """Return the same, marked as an approximation."""
    return told._replace(status=Status.APPROXIMATED, note=note)


def with_threshold(told: Told, threshold: float) -> Told:
    """Return the same with a threshold of its own."""
    assert told.part is not None
    return told._replace(part=replace(told.part, settings=(("threshold", threshold),)))


def wanted_of(value: Json) -> Wanted:
    """Return a value as an argument; a template of theirs becomes one of ours."""
    text = as_text(value)
    converted = convert(text)
    if converted.faults:
        fault = converted.faults[0]
        raise Refusal(f"{fault.message}; {fault.hint}")
    return Wanted(converted.text, converted if converted.text_is_template else None)


def wanted_list(value: Json, kind: str) -> Wanted:
    """Return a list of texts as an argument; a text is a list with commas."""
    if isinstance(value, str):
        only = convert(value)
        if only.is_variable:
            return Wanted(only.text, only)
        value = [piece for piece in _comma_separated(value) if piece]
    if not isinstance(value, list) or not value:
        raise Refusal(f"the value of {kind} is not a list of texts")
    items = [wanted_of(each) for each in value]
    if any(item.template is not None for item in items):
        templates = tuple(item.template or convert(str(item.value)) for item in items)
        return Wanted([item.value for item in items], None, templates)
    return Wanted([item.value for item in items])


def _comma_separated(text: str) -> list[str]:
    """Return the pieces between commas; quotes keep a comma inside a piece."""
    pieces = re.findall(r'\s*(?:"((?:[^"]|"")*)"|([^,]*))\s*(?:,|\Z)', text)
    return [(quoted or plain).strip().replace('""', '"') for quoted, plain in pieces]


def python_pattern(pattern: str) -> tuple[str, str]:
    """Return a JavaScript pattern as Python's, and a remark if it may mean something else."""
    converted = re.sub(r"\(\?<(?=[A-Za-z_])", "(?P<", pattern).replace(r"\/", "/")
    converted = re.sub(r"\\k<(\w+)>", r"(?P=\1)", converted)
    try:
        analysed(converted)
    except Exception as error:
        raise Refusal(f"Python does not read this pattern: {error}") from None
    odd = re.search(r"\\[pPu]\{|\[\^?\]|\$(?!$|\))", converted)
    note = "JavaScript and Python may read this pattern differently" if odd else ""
    return converted, note


# --- what an assertion says besides its value ----------------------------------------------------


def settings_of(given: Given) -> dict[str, Json]:
    """Return name, weight and threshold that are written."""
    settings: dict[str, Json] = {}
    metric = given.node.get("metric")
    if metric is not None and isinstance(metric.value, str) and "{{" not in metric.value:
        settings["name"] = file_name(metric.value, "metric")
    weight, threshold = given.number("weight"), given.number("threshold")
    if weight is not None:
        settings["weight"] = min(max(weight, 0.0), 100.0)
    if threshold is not None:
        settings["threshold"] = threshold
    return settings


def finished(told: Told, given: Given) -> Told:
    """Return a part with its settings, turned round if the assertion was."""
    if told.part is None:
        return told
    part, settings = told.part, settings_of(given)
    own = dict(part.settings)
    if given.kind in ("latency", "cost", "levenshtein"):
        settings.pop("threshold", None)  # it is the limit itself, not a score
    settings = {**own, **settings}
    entry = part.check
    if entry is not None and given.negated:
        name = next(iter(entry))
        if name in _GRADED and isinstance(threshold := settings.get("threshold"), int | float):
            settings["threshold"] = round(1 - threshold, 6)
        entry = {"not": {"value": entry}}
    threshold = settings.get("threshold")
    if isinstance(threshold, int | float):
        settings["threshold"] = min(max(threshold, 0.0), 1.0)
    if settings.get("weight") == 0:
        settings["threshold"] = 0.0  # without weight it measures and never fails a test
    ordered = tuple(sorted(settings.items()))
    key = key_of([part.kind, part.key, entry, ordered])
    return told._replace(part=replace(part, check=entry, settings=ordered, key=key))


# --- sets -----------------------------------------------------------------------------------------


def combined(parts: list[Part], threshold: float | None) -> tuple[dict[str, Json], bool]:
    """Return one check for a set of them, and whether the share that must pass can be said."""
    entries: list[dict[str, Json]] = []
    start = 0
    for part in parts:
        assert part.check is not None
        entries.append(_shifted(part.check, start))
        start += len(part.arguments)
    needed = len(entries) if threshold is None else max(1, _needed(threshold, len(entries)))
    weights = {dict(part.settings).get("weight", 1) for part in parts}
    exact = threshold is None or (len(entries) <= _LONGEST_SET and len(weights) == 1)
    if len(entries) == 1:
        return entries[0], exact
    if not exact or needed >= len(entries):
        return {"all_of": {"value": list(entries)}}, exact
    if needed == 1:
        return {"any_of": {"value": list(entries)}}, exact
    groups: list[Json] = [
        {"all_of": {"value": list(group)}} for group in itertools.combinations(entries, needed)
    ]
    return {"any_of": {"value": groups}}, exact


def _needed(threshold: float, members: int) -> int:
    return next(n for n in range(members + 1) if n == members or n / members >= threshold - 1e-9)


def _shifted(value: Any, start: int) -> Any:
    """Return an entry whose holes count from `start`."""
    if isinstance(value, dict):
        if HOLE_KEY in value:
            return {HOLE_KEY: value[HOLE_KEY] + start}
        return {key: _shifted(item, start) for key, item in value.items()}
    return [_shifted(item, start) for item in value] if isinstance(value, list) else value
